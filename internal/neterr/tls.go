package neterr

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"reflect"
)

// Untrusted reports whether TLS failed over a certificate, ours or the peer's.
func Untrusted(err error) bool {
	if unverified(err) {
		return true
	}
	switch alertOf(err) {
	case alertBadCertificate, alertUnsupportedCertificate, alertCertificateRevoked, alertCertificateExpired,
		alertCertificateUnknown, alertUnknownCA, alertAccessDenied, alertCertificateRequired:
		return true
	}
	return false
}

// unverified is the peer's certificate in our eyes.
func unverified(err error) bool {
	var (
		verification *tls.CertificateVerificationError
		authority    x509.UnknownAuthorityError
		hostname     x509.HostnameError
		invalid      x509.CertificateInvalidError
		roots        x509.SystemRootsError
	)
	return errors.As(err, &verification) || errors.As(err, &authority) || errors.As(err, &hostname) ||
		errors.As(err, &invalid) || errors.As(err, &roots)
}

// noHandshake is a TLS handshake that was not finished, so that nothing was sent
// after it.
func noHandshake(err error) bool {
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return true
	}
	if record, ok := errors.AsType[tls.RecordHeaderError](err); ok && record.Conn != nil { // nil: a later record was broken, not the first
		return true
	}
	switch alertOf(err) {
	case alertHandshakeFailure, alertProtocolVersion, alertInsufficientSecurity, alertUnrecognizedName, alertNoApplicationProtocol:
		return true
	}
	return begins(err, "net/http: TLS handshake timeout") // its type is not exported
}

// alertOf is the TLS alert with which the peer ended the connection, or 0, which
// is close_notify and no error. QUIC has an exported type for it; over TCP
// crypto/tls wraps a type of its own, of the same numbers, in a "remote error".
func alertOf(err error) tls.AlertError {
	if alert, ok := errors.AsType[tls.AlertError](err); ok {
		return alert
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "remote error" {
		if number := reflect.ValueOf(op.Err); number.Kind() == reflect.Uint8 {
			return tls.AlertError(number.Uint())
		}
	}
	return 0
}

// The alerts of RFC 8446 section 6 that are about certificates, and those that
// only a handshake can bring.
const (
	alertHandshakeFailure       tls.AlertError = 40
	alertBadCertificate         tls.AlertError = 42
	alertUnsupportedCertificate tls.AlertError = 43
	alertCertificateRevoked     tls.AlertError = 44
	alertCertificateExpired     tls.AlertError = 45
	alertCertificateUnknown     tls.AlertError = 46
	alertUnknownCA              tls.AlertError = 48
	alertAccessDenied           tls.AlertError = 49
	alertProtocolVersion        tls.AlertError = 70
	alertInsufficientSecurity   tls.AlertError = 71
	alertUnrecognizedName       tls.AlertError = 112
	alertCertificateRequired    tls.AlertError = 116
	alertNoApplicationProtocol  tls.AlertError = 120
)
