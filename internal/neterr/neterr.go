// Package neterr classifies errors of net/http, net and crypto/tls. It reports whether the request is invalid, whether
// it may have reached the server, and whether a retry can succeed. [SafeText] returns a text that is safe to log.
//
// Errors are distinguished by errors.As and errors.Is. Where net/http offers no type, the
// beginning of the innermost error's text decides. These texts have not changed in ten
// years, and tests pin them against net/http. No other package knows texts of net/http.
//
// All functions are pure and safe for concurrent use. For a nil error they return false.
package neterr

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"os"
	"reflect"
	"slices"
	"strings"
	"syscall"
)

// ErrMalformed is wrapped by errors about requests that this module rejects as malformed.
var ErrMalformed = errors.New("invalid request")

// ErrMisconfigured is wrapped by errors about this module's configuration, which fail every request.
var ErrMisconfigured = errors.New("invalid configuration")

// Malformed reports whether the request itself is invalid, so that every retry would fail with the same error.
func Malformed(err error) bool { return invalid(err) || hasPrefix(err, bodyTexts) }

// invalid reports whether the request was rejected before any byte of it was written.
func invalid(err error) bool {
	return errors.Is(err, ErrMalformed) || errors.Is(err, ErrMisconfigured) || invalidAddress(err) || hasPrefix(err, invalidTexts)
}

// hasPrefix reports whether an innermost error begins with one of the texts. The rest of a
// text proves nothing: errors quote URLs and responses of servers.
func hasPrefix(err error, texts []string) bool {
	return anyInnermost(err, func(innermost error) bool {
		return slices.ContainsFunc(texts, func(known string) bool { return strings.HasPrefix(innermost.Error(), known) })
	})
}

// anyInnermost reports whether is returns true for an error in the tree of err that wraps no other error.
func anyInnermost(err error, is func(error) bool) bool {
	return anyOf(err, func(err error) bool { return wrapped(err) == nil && is(err) })
}

func has[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

// anyOf reports whether is returns true for an error in the tree of err. Unlike errors.As
// it also finds errors by their text.
func anyOf(err error, is func(error) bool) bool {
	return err != nil && (is(err) || slices.ContainsFunc(wrapped(err), func(err error) bool { return anyOf(err, is) }))
}

func wrapped(err error) []error {
	switch wrapper := err.(type) { //nolint:errorlint // the errors that this very error wraps
	case interface{ Unwrap() error }:
		return []error{wrapper.Unwrap()}
	case interface{ Unwrap() []error }:
		return wrapper.Unwrap()
	}
	return nil
}

// NotSent reports whether err proves that no byte of the request reached the server: the
// request was invalid, there was no connection, or the TLS handshake failed.
func NotSent(err error) bool {
	return invalid(err) || NotConnected(err) || SchemeMismatch(err) ||
		rejectedByProxy(err) || findTokenError(err) != nil
}

// NotConnected reports whether there was no connection to the server or to a proxy, or no TLS on it.
func NotConnected(err error) bool {
	return has[*net.DNSError](err) || has[*ConnectError](err) || errors.Is(err, syscall.ECONNREFUSED) || dialing(err) || handshakeFailed(err)
}

func dialing(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && (slices.Contains([]string{"dial", "proxyconnect"}, op.Op) || strings.HasPrefix(op.Op, "socks"))
}

// invalidAddress reports whether the dialer rejected the address, such as a port above
// 65535 or an unknown network, without any look-up.
func invalidAddress(err error) bool {
	if !dialing(err) {
		return false
	}
	if address, ok := errors.AsType[*net.AddrError](err); ok {
		return address.Err != "no suitable address found" // DNS may return other addresses later
	}
	return has[net.UnknownNetworkError](err) || has[net.InvalidAddrError](err) || has[*net.ParseError](err)
}

// UnknownHost reports whether the host name does not exist. Resolvers also return this while
// a zone is being changed, but a retry within seconds gets the cached answer.
func UnknownHost(err error) bool {
	dns, ok := errors.AsType[*net.DNSError](err)
	return ok && dns.IsNotFound && !dns.IsTemporary
}

// SchemeMismatch reports whether the server answered HTTP to an HTTPS request. Only
// http.Client turns http.Transport's error into http.ErrSchemeMismatch.
func SchemeMismatch(err error) bool {
	record, _ := errors.AsType[tls.RecordHeaderError](err)
	return errors.Is(err, http.ErrSchemeMismatch) || string(record.RecordHeader[:]) == "HTTP/"
}

// TimedOut reports whether err is a timeout or an expired deadline.
func TimedOut(err error) bool {
	var timeout interface{ Timeout() bool }
	passed := errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded)
	return passed || errors.As(err, &timeout) && timeout.Timeout()
}

// Untrusted reports whether the TLS handshake failed because of a certificate, the client's or the peer's.
func Untrusted(err error) bool {
	switch alert(err) {
	// bad_certificate, unsupported_certificate, certificate_revoked, certificate_expired, certificate_unknown, unknown_ca,
	// access_denied, certificate_required
	case 42, 43, 44, 45, 46, 48, 49, 116:
		return true
	}
	return has[*tls.CertificateVerificationError](err) || has[x509.UnknownAuthorityError](err) || has[x509.HostnameError](err) ||
		has[x509.CertificateInvalidError](err) || has[x509.SystemRootsError](err)
}

// handshakeFailed reports whether the TLS handshake was not completed, so that no request was sent.
func handshakeFailed(err error) bool {
	if has[*tls.CertificateVerificationError](err) {
		return true
	}
	// Conn is set for the first record only.
	if record, _ := errors.AsType[tls.RecordHeaderError](err); record.Conn != nil {
		return true
	}
	switch alert(err) {
	// handshake_failure, protocol_version, insufficient_security, unrecognized_name, no_application_protocol
	case 40, 70, 71, 112, 120:
		return true
	}
	return hasPrefix(err, handshakeTexts)
}

// alert returns the number of the TLS alert with which the peer ended the connection (RFC
// 8446, section 6), or 0. (Alert 0 is close_notify, which is not an error.) QUIC has an exported type
// for alerts. Over TCP, crypto/tls wraps an unexported uint8 in a "remote error".
func alert(err error) uint8 {
	if alert, ok := errors.AsType[tls.AlertError](err); ok {
		return uint8(alert)
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "remote error" {
		if number := reflect.ValueOf(op.Err); number.Kind() == reflect.Uint8 {
			return uint8(number.Uint())
		}
	}
	return 0
}
