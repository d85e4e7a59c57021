package neterr

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
)

// TextError is an error of this module. SafeText shows its text.
type TextError struct{ text, name string }

// New returns a TextError. The text must not contain any part of a request or a response.
func New(text string) error { return &TextError{text: text} }

// Named returns a TextError with a name for metrics and logs, in snake case.
func Named(name, text string) error { return &TextError{text, name} }

func (t *TextError) Error() string { return t.text }
func (t *TextError) kind() string  { return t.name }

// TimeoutError is a TextError that is a timeout for net, net/http and context.
type TimeoutError struct{ TextError }

// Timeout returns a TimeoutError with a name.
func Timeout(name, text string) error { return &TimeoutError{TextError{text, name}} }

// Timeout reports true. url.Error.Timeout calls it.
func (t *TimeoutError) Timeout() bool { return true }

// Is makes the error match context.DeadlineExceeded.
func (t *TimeoutError) Is(target error) bool { return target == context.DeadlineExceeded }

// Name returns the name of err itself, not of an error that it wraps, or "".
func Name(err error) string {
	if named, ok := err.(interface{ kind() string }); ok {
		return named.kind()
	}
	return ""
}

// ReasonedError is a cause with a reason before it. errors.Is finds both.
type ReasonedError struct{ Reason, Cause error }

// With returns a ReasonedError, or err if it wraps reason already.
func With(reason, err error) error {
	if errors.Is(err, reason) {
		return err
	}
	return &ReasonedError{reason, err}
}

func (b *ReasonedError) Error() string   { return b.Reason.Error() + ": " + b.Cause.Error() }
func (b *ReasonedError) Unwrap() []error { return []error{b.Reason, b.Cause} }

const (
	maxText = 256 // bytes of the whole text

	// hidden replaces the part of a text that is not shown.
	hidden = " (not shown)"
)

// SafeText returns a text for err without any URL path or query, header value or body. The text is one line of at most
// 256 bytes. It shows the texts of this module, of numbers and of types without fields, and the constant texts of net/http
// and crypto/tls. Of all other errors it shows the kind, the type and the errors that they wrap.
func SafeText(err error) string { return line(textOf(err), maxText) }

// line returns a text as one line of at most so many bytes.
func line(text string, most int) string {
	text = strings.ToValidUTF8(text, "")
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + cut
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, text)
}

// safeTexter is an *Error of the root, which uses SafeText for what it wraps.
type safeTexter interface {
	SafeText() string
	Unwrap() []error
}

func textOf(err error) string {
	switch e := err.(type) { //nolint:errorlint // the errors that it wraps follow
	case nil:
		return ""
	case *ReasonedError:
		return join(textOf(e.Reason), textOf(e.Cause))
	case *url.Error:
		return textOf(e.Err)
	case *os.SyscallError:
		return textOf(e.Err)
	case *net.OpError:
		return join(operation(e), textOf(e.Err))
	case *net.DNSError:
		return lookup(e)
	case *TextError, *TimeoutError, *ConnectError:
		return err.Error()
	case safeTexter:
		return e.SafeText()
	case x509.UnknownAuthorityError, x509.HostnameError, x509.CertificateInvalidError:
		return err.Error() // names in certificates, which are public
	}
	t := elem(err)
	switch {
	case err == io.EOF, err == io.ErrUnexpectedEOF, err == context.Canceled: //nolint:errorlint // the very value: its text is constant
		return err.Error()
	case slices.ContainsFunc(wrapped(err), func(err error) bool { return err == ErrMalformed || err == ErrMisconfigured }):
		return err.Error()
	case t.Kind() <= reflect.Complex128, t.Size() == 0: // a number, or no fields: it has no text
		return err.Error()
	case findTokenError(err) != nil:
		return "no token from the token endpoint (its answer is not shown)"
	}
	return wrapper(err)
}

// wrapper returns the texts of the errors that err wraps, behind the known beginning of its own or its type. The types of
// fmt.Errorf and errors.Join say nothing.
func wrapper(err error) string {
	var causes []string
	for _, cause := range wrapped(err) {
		if text := textOf(cause); text != "" {
			causes = append(causes, text)
		}
	}
	text := strings.Join(causes, "; ")
	if text == "" {
		return innermost(err)
	}
	label := beginning(err)
	if in := elem(err).PkgPath(); label == "" && in != "fmt" && in != "errors" {
		label = fmt.Sprintf("%T", err)
	}
	return join(label, text)
}

// beginning returns the beginning of err's text if it is a text of net/http or crypto/tls, or "".
func beginning(err error) string {
	text := err.Error()
	if rest, ok := strings.CutPrefix(text, schemeText); ok && scheme.MatchString(rest) {
		return text
	}
	for _, known := range slices.Concat(otherTexts, invalidTexts, bodyTexts, socksTexts, handshakeTexts, closedTexts) {
		if strings.HasPrefix(text, known) {
			return strings.TrimRight(known, " :=")
		}
	}
	return ""
}

// innermost returns the known beginning of err's text, or its kind and type.
func innermost(err error) string {
	if stream, ok := errors.AsType[streamError](err); ok {
		return stream.Error()
	}
	if known := beginning(err); known != "" {
		return known
	}
	text, kind := fmt.Sprintf("%T", err)+hidden, Kind(err)
	if kind == Other {
		return text
	}
	return join(kind, text)
}

func join(label, cause string) string {
	if label == "" || cause == "" {
		return label + cause
	}
	return label + ": " + cause
}

func elem(err error) reflect.Type {
	t := reflect.TypeOf(err)
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t
}

func operation(e *net.OpError) string {
	text := ""
	if slices.Contains([]string{"dial", "read", "write", "proxyconnect", "socks connect", "remote error", "local error"}, e.Op) {
		text = e.Op // another one is not of package net
	}
	switch address := e.Addr.(type) {
	case *net.TCPAddr, *net.UDPAddr: // others are names or paths
		text += " " + address.String()
	}
	return strings.TrimSpace(text)
}

func lookup(e *net.DNSError) string {
	text := strings.TrimSpace("lookup " + hostname.FindString(e.Name))
	switch {
	case e.IsNotFound:
		return text + ": no such host"
	case e.IsTimeout:
		return text + ": i/o timeout"
	}
	return text
}

// hostname matches the name or the address of a host, with or without a port.
var hostname = regexp.MustCompile(`^[0-9A-Za-z.:_\[\]-]{1,260}$`)
