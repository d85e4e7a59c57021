package neterr

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"reflect"
)

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
	if record, ok := errors.AsType[tls.RecordHeaderError](err); ok && record.Conn != nil {
		return true
	}
	switch alert(err) {
	// handshake_failure, protocol_version, insufficient_security, unrecognized_name, no_application_protocol
	case 40, 70, 71, 112, 120:
		return true
	}
	return hasPrefix(err, handshakeTexts[:])
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
