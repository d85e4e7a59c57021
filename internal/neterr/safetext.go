package neterr

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"reflect"
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
	switch e := err.(type) { //nolint:errorlint // of this very error
	case *TextError:
		return e.name
	case *TimeoutError:
		return e.name
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
	maxText   = 256 // bytes of the whole text
	maxErrors = 32  // errors of a tree, because errors.Join may have joined thousands

	// hidden replaces the part of a text that is not shown.
	hidden = " (not shown)"
)

// SafeText returns a text for err without any URL path or query, header value or body. The
// text is one line of at most 256 bytes. It shows the texts of this module, of numbers,
// of types without fields, and known texts of net/http, net and crypto/tls. Of all other
// errors it shows the type and the errors that they wrap.
func SafeText(err error) string {
	text := strings.ToValidUTF8((&writer{left: maxErrors}).text(err), "")
	if len(text) > maxText {
		text = strings.ToValidUTF8(text[:maxText], "") + "…"
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, text)
}

// writer writes the text of a tree of errors.
type writer struct{ left int } // the number of errors that may still be shown

func (w *writer) text(err error) string {
	if w.left--; w.left < 0 || err == nil {
		return ""
	}
	switch e := err.(type) { //nolint:errorlint // the errors that it wraps follow
	case *ReasonedError:
		return join(w.text(e.Reason), w.text(e.Cause))
	case *url.Error:
		return join(allowed(strings.ToLower(e.Op)), w.text(e.Err))
	case *net.OpError:
		return join(operation(e), w.text(e.Err))
	case *net.DNSError:
		return join(strings.TrimSpace("lookup "+hostname.FindString(e.Name)), dnsFailure(e))
	case *os.SyscallError:
		return join(allowed(e.Syscall), w.text(e.Err))
	case *net.AddrError:
		return join("address "+hostname.FindString(e.Addr), known(e.Err))
	case *TextError, *TimeoutError, *ConnectError:
		return err.Error()
	case x509.UnknownAuthorityError, x509.HostnameError, x509.CertificateInvalidError:
		return err.Error() // names in certificates, which are public
	}
	if isOwn(err) || isFixed(err) {
		return err.Error()
	}
	if findTokenError(err) != nil {
		return "no token from the token endpoint (its answer is not shown)"
	}
	return w.other(err)
}

// other returns the text of an error of an unknown type.
func (w *writer) other(err error) string {
	var causes []string
	for _, cause := range wrapped(err) {
		if text := w.text(cause); text != "" {
			causes = append(causes, text)
		}
	}
	if len(causes) == 0 {
		if text := known(err.Error()); text != "" {
			return text
		}
		return fmt.Sprintf("%T", err) + hidden
	}
	cause := strings.Join(causes, "; ")
	_, label := match(err.Error())
	if strings.HasPrefix(cause, label) { // label is "", or repeats the cause
		label = ""
		// The types of fmt.Errorf and errors.Join say nothing.
		if in := elem(err).PkgPath(); in != "fmt" && in != "errors" {
			label = fmt.Sprintf("%T", err)
		}
	}
	return join(label, cause)
}

func join(label, cause string) string {
	if label == "" || cause == "" {
		return label + cause
	}
	return label + ": " + cause
}

// isOwn reports whether the text of err is this module's: err wraps ErrMalformed or
// ErrMisconfigured directly, or its type belongs to the root package, which calls SafeText.
func isOwn(err error) bool {
	return slices.ContainsFunc(wrapped(err), func(err error) bool { return err == ErrMalformed || err == ErrMisconfigured }) ||
		elem(err).PkgPath() == strings.TrimSuffix(reflect.TypeFor[TextError]().PkgPath(), "/internal/neterr")
}

// isFixed reports whether an error of this type cannot contain a text: it is a number or has
// no fields.
func isFixed(err error) bool {
	t := elem(err)
	return t.Kind() >= reflect.Bool && t.Kind() <= reflect.Complex128 || t.Size() == 0
}

func elem(err error) reflect.Type {
	t := reflect.TypeOf(err)
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t
}

// operation returns the operation, network and IP addresses of a net.OpError.
func operation(e *net.OpError) string {
	text := strings.TrimSpace(allowed(e.Op) + " " + allowed(e.Net))
	source, target := address(e.Source), address(e.Addr)
	if source != "" && target != "" {
		source += "->"
	}
	return strings.TrimSpace(text + " " + source + target)
}

// address returns an IP address and port, or "" for a name or a path.
func address(a net.Addr) string {
	switch a := a.(type) {
	case *net.TCPAddr:
		return a.String()
	case *net.UDPAddr:
		return a.String()
	}
	return ""
}

func dnsFailure(e *net.DNSError) string {
	switch text := known(e.Err); {
	case text != "":
		return text
	case e.IsNotFound:
		return "no such host"
	case e.IsTimeout:
		return "i/o timeout"
	}
	return ""
}
