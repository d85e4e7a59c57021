package neterr

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"slices"
	"syscall"
)

// Other is the kind of an error of no known type.
const Other = "_OTHER"

// ErrSuperseded is the cause with which the slower copies of a request are canceled. It is not a
// failure.
var ErrSuperseded = New("another copy of the request had its response first")

// Kind returns the value of OpenTelemetry's error.type for an error of an attempt:
// breaker_open, rate_limited or read_timeout if err wraps an error of this name (see Named),
// canceled, proxy, dns, connection_refused, timeout, tls, connection_reset, eof, or Other. It
// is "" for nil.
func Kind(err error) string {
	rejected := ""
	switch {
	case err == nil:
		return ""
	case anyOf(err, func(err error) bool { rejected = Name(err); return slices.Contains(kindNames[:], rejected) }):
		return rejected
	case errors.Is(err, context.Canceled):
		return "canceled"
	case fromProxy(err):
		return "proxy"
	case isDNS(err):
		return "dns"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection_refused"
	case TimedOut(err):
		return "timeout"
	case fromTLS(err):
		return "tls"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE), errors.Is(err, syscall.ECONNABORTED):
		return "connection_reset"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), closedByServer(err):
		return "eof"
	}
	return Other
}

// kindNames are the names of sentinels that are kinds.
var kindNames = [...]string{"breaker_open", "rate_limited", "read_timeout"} //nolint:gochecknoglobals // never written to

// fromProxy reports whether the request failed at a proxy or on the way to it.
func fromProxy(err error) bool {
	_, connect := errors.AsType[*ConnectError](err)
	op, ok := errors.AsType[*net.OpError](err)
	return connect || ok && (op.Op == "proxyconnect" || op.Op == "socks connect") || rejectedByProxy(err)
}

func isDNS(err error) bool {
	_, ok := errors.AsType[*net.DNSError](err)
	return ok
}

func fromTLS(err error) bool {
	_, record := errors.AsType[tls.RecordHeaderError](err)
	return record || Untrusted(err) || handshakeFailed(err) || SchemeMismatch(err) || alert(err) != 0
}

// closedByServer reports whether the connection ended without an error of the operating
// system.
func closedByServer(err error) bool { return hasPrefix(err, closedTexts[:]) }
