package neterr

import (
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

// TextError is an error of this module's own. Its text is shown as it is.
type TextError struct{ text string }

// New returns an error with a text that may be shown.
func New(text string) error { return &TextError{text} }

func (t *TextError) Error() string { return t.text }

// ReasonedError is a cause with a reason, which errors.Is finds as well, in front of
// it.
type ReasonedError struct{ Reason, Cause error }

// With is err, preceded by reason where errors.Is does not find it in err.
func With(reason, err error) error {
	if errors.Is(err, reason) {
		return err
	}
	return &ReasonedError{reason, err}
}

func (b *ReasonedError) Error() string   { return b.Reason.Error() + ": " + b.Cause.Error() }
func (b *ReasonedError) Unwrap() []error { return []error{b.Reason, b.Cause} }

const (
	maxText   = 256 // bytes of a text that is shown
	maxErrors = 32  // errors of a chain that are shown
)

// Describe returns a text for err, on one line, that contains no URL path or query, no
// header value and no body. It decides by what an error is, and copies no text that may
// quote any of them: of an error of an unknown type it shows the type alone. What such an
// error wraps is described in the same way.
//
// These texts are shown: those of this module, of numbers and of types without fields,
// and what harmless matches of a text of net/http, net or crypto/tls.
func SafeText(err error) string {
	d := description{left: maxErrors}
	text := strings.ToValidUTF8(d.of(err), "")
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

// description counts the errors that are shown: errors.Join may have joined thousands.
type description struct{ left int }

func (d *description) of(err error) string {
	if d.left--; d.left < 0 || err == nil {
		return ""
	}
	switch e := err.(type) { //nolint:errorlint // what an error wraps comes after itself
	case *ReasonedError:
		return joined(d.of(e.Reason), d.of(e.Cause))
	case *url.Error:
		return joined(one(methods, strings.ToLower(e.Op)), d.of(e.Err))
	case *net.OpError:
		return joined(operation(e), d.of(e.Err))
	case *net.DNSError:
		return joined(strings.TrimSpace("lookup "+hostname.FindString(e.Name)), dnsFailure(e))
	case *os.SyscallError:
		return joined(one(systemCalls, e.Syscall), d.of(e.Err))
	case *net.AddrError:
		return joined("address "+hostname.FindString(e.Addr), show(e.Err))
	case *TextError, *ConnectError:
		return err.Error()
	case x509.UnknownAuthorityError, x509.HostnameError, x509.CertificateInvalidError:
		return err.Error() // names of certificates, which are public
	}
	if own(err) || wordless(err) {
		return err.Error()
	}
	if tokenRefusal(err) != nil {
		return "no token from the token endpoint (its answer is not shown)"
	}
	return d.unknown(err)
}

// unknown describes an error that is known by its text at most.
func (d *description) unknown(err error) string {
	var causes []string
	for _, cause := range causesOf(err) {
		if text := d.of(cause); text != "" {
			causes = append(causes, text)
		}
	}
	if len(causes) == 0 {
		if text := show(err.Error()); text != "" {
			return text
		}
		return typeName(err) + hidden
	}
	cause := strings.Join(causes, "; ")
	label := harmless().FindString(err.Error())
	if strings.HasPrefix(cause, label) { // "", or the cause's own
		label = ""
		if !nameless(err) {
			label = typeName(err)
		}
	}
	return joined(label, cause)
}

// hidden stands in a description for what is left out.
const hidden = " (not shown)"

func joined(label, cause string) string {
	if label == "" || cause == "" {
		return label + cause
	}
	return label + ": " + cause
}

// causesOf returns what err wraps.
func causesOf(err error) []error {
	switch wrapper := err.(type) { //nolint:errorlint // it asks for what this very error wraps
	case interface{ Unwrap() error }:
		return []error{wrapper.Unwrap()}
	case interface{ Unwrap() []error }:
		return wrapper.Unwrap()
	}
	return nil
}

// own reports whether the text of err is this module's: it wraps one of the two marks
// itself, or its type is one of the root package, which describes what it wraps.
func own(err error) bool {
	if slices.ContainsFunc(causesOf(err), func(err error) bool { return err == ErrMalformed || err == ErrMisconfigured }) {
		return true
	}
	return elem(err).PkgPath() == strings.TrimSuffix(reflect.TypeFor[TextError]().PkgPath(), "/internal/neterr")
}

// wordless reports whether the type of err has no room for a text of somebody else: it is
// a number, or has no fields.
func wordless(err error) bool {
	t := elem(err)
	switch kind := t.Kind(); {
	case kind >= reflect.Bool && kind <= reflect.Complex128:
		return true
	default:
		return t.Size() == 0
	}
}

// nameless reports whether err is of a type that says nothing: those of fmt.Errorf and
// errors.Join.
func nameless(err error) bool {
	in := elem(err).PkgPath()
	return in == "fmt" || in == "errors"
}

func elem(err error) reflect.Type {
	t := reflect.TypeOf(err)
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t
}

func typeName(err error) string { return fmt.Sprintf("%T", err) }

// operation is what a net.OpError was about, with IP addresses.
func operation(e *net.OpError) string {
	text := one(operations, e.Op)
	if network := one(networks, e.Net); network != "" {
		text += " " + network
	}
	source, target := address(e.Source), address(e.Addr)
	switch {
	case source != "" && target != "":
		text += " " + source + "->" + target
	case source+target != "":
		text += " " + source + target
	}
	return strings.TrimSpace(text)
}

func address(a net.Addr) string {
	switch a := a.(type) {
	case *net.TCPAddr:
		return a.String()
	case *net.UDPAddr:
		return a.String()
	}
	return "" // a name, or a path
}

func dnsFailure(e *net.DNSError) string {
	switch text := show(e.Err); {
	case text != "":
		return text
	case e.IsNotFound:
		return "no such host"
	case e.IsTimeout:
		return "i/o timeout"
	}
	return ""
}

// one is text if it is one of those.
func one(those []string, text string) string {
	if slices.Contains(those, text) {
		return text
	}
	return ""
}

//nolint:gochecknoglobals // never written to
var (
	methods     = []string{"get", "head", "post", "put", "patch", "delete", "options", "trace", "connect", "parse"}
	networks    = []string{"tcp", "tcp4", "tcp6", "udp", "udp4", "udp6", "unix"}
	systemCalls = []string{"connect", "read", "write", "getsockopt", "socket", "bind"}
	operations  = []string{
		"dial", "read", "write", "close", "set", "proxyconnect", "socks connect", "remote error", "local error",
		"readfrom", "sendfile", "splice",
	}
)
