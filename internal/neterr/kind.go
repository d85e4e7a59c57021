package neterr

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// Other is the kind of an error of no known type.
const Other = "_OTHER"

// ErrSuperseded is the cause with which the slower copies of a request are canceled. It is not a failure.
var ErrSuperseded = New("another copy of the request had its response first")

// Kind returns the value of OpenTelemetry's error.type for an error of an attempt: breaker_open, rate_limited or
// read_timeout if err wraps an error of this name (see Named), canceled, proxy, dns, connection_refused, timeout, tls,
// connection_reset, eof, or Other. It is "" for nil.
func Kind(err error) string {
	rejected := ""
	op, _ := errors.AsType[*net.OpError](err)
	switch {
	case err == nil:
		return ""
	case anyOf(err, func(err error) bool {
		rejected = Name(err)
		return rejected == "breaker_open" || rejected == "rate_limited" || rejected == "read_timeout"
	}):
		return rejected
	case errors.Is(err, context.Canceled):
		return "canceled"
	case op != nil && (op.Op == "proxyconnect" || op.Op == "socks connect"), has[*ConnectError](err), rejectedByProxy(err):
		return "proxy"
	case has[*net.DNSError](err):
		return "dns"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection_refused"
	case TimedOut(err):
		return "timeout"
	case has[tls.RecordHeaderError](err), Untrusted(err), SchemeMismatch(err), alert(err) != 0:
		return "tls"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE), errors.Is(err, syscall.ECONNABORTED):
		return "connection_reset"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), hasPrefix(err, closedTexts):
		return "eof"
	}
	return Other
}

// Unknown reports whether err is the own error of a RoundTripper: of no kind, and no error of the network, of TLS or of
// net/http, of which the author does not say that a later request may get another.
func Unknown(err error) bool {
	var marked interface{ Permanent() bool }
	mayPass := errors.As(err, &marked) && !marked.Permanent()
	return Kind(err) == Other && !mayPass && !anyOf(err, ofNetwork)
}

// ofNetwork reports whether err itself, not an error that it wraps, has a type of a package that sends or receives.
func ofNetwork(err error) bool {
	name := elem(err).PkgPath()
	if name == "net/url" { // http.Client wraps each error
		return false
	}
	first, _, _ := strings.Cut(name, "/")
	return slices.Contains([]string{"net", "crypto", "internal"}, first) || strings.HasPrefix(name, "golang.org/x/net/")
}

// The error codes of RFC 9113 section 7.
const (
	refusedStream   = 0x7
	enhanceYourCalm = 0xb
)

// streamError has the fields of net/http's error of an HTTP/2 stream, which errors.As converts.
type streamError struct {
	StreamID uint32
	Code     uint32
	Cause    error
}

func (s streamError) Error() string {
	return "HTTP/2 stream error " + strconv.FormatUint(uint64(s.Code), 10)
}

func streamCode(err error, code uint32) bool {
	stream, _ := errors.AsType[streamError](err) // code 0, of none, is not asked for
	return stream.Code == code
}

// NotProcessed reports whether the server says that it has not processed the request: REFUSED_STREAM of HTTP/2, or a
// GOAWAY, with any code, for an earlier stream (RFC 9113 sections 6.8 and 8.7).
func NotProcessed(err error) bool {
	return streamCode(err, refusedStream) || hasPrefix(err, goneTexts) || hasPrefix(err, unrepeatedTexts) && anyInnermost(err, func(err error) bool {
		text := err.Error() // net/http would have sent the request again, but cannot replay its body
		return strings.Contains(text, gracefulText) || strings.Contains(text, "; REFUSED_STREAM")
	})
}

// Throttled reports whether the server says that the client sends too much: ENHANCE_YOUR_CALM of
// HTTP/2, for a request or for the connection.
func Throttled(err error) bool {
	return streamCode(err, enhanceYourCalm) || hasPrefix(err, []string{goAwayText + "ENHANCE_YOUR_CALM"}) || anyInnermost(err, func(err error) bool {
		rest, ok := strings.CutPrefix(err.Error(), "http2: server sent GOAWAY and closed the connection; LastStreamID=")
		return ok && strings.HasPrefix(strings.TrimLeft(rest, "0123456789"), ", ErrCode=ENHANCE_YOUR_CALM,")
	})
}

const (
	goAwayText   = "http2: Transport received GOAWAY from server ErrCode:"
	gracefulText = "http2: Transport received Server's graceful shutdown GOAWAY"
)

// The beginnings of texts of net/http's errors that have no type of their own. SafeText shows what is listed here. The rest of
// a text may quote the request or the response.
//
//nolint:gochecknoglobals // never written to
var (
	invalidTexts = []string{
		"unsupported protocol scheme ", "net/http: invalid header field name ", "net/http: invalid header field value ",
		"net/http: invalid trailer field name ", "net/http: invalid trailer field value ", "net/http: invalid method ",
		"net/http: can't write control character in Request.URL", "http: no Host in request URL", "http: nil Request.URL",
		"http: nil Request.Header", "http: invalid Host header", "http: Request.ContentLength=",
		// HTTP/2
		"invalid Host header", "request header list larger than peer's advertised limit", "invalid Connection request header: ",
		"invalid Upgrade request header: ", "invalid Transfer-Encoding request header: ", "invalid request :path ",
		"invalid :protocol header in non-CONNECT request",
	}
	bodyTexts  = []string{"http: ContentLength=", "http2: request body larger than specified content length", "invalid Trailer key "}
	socksTexts = []string{
		"no acceptable authentication methods", "unsupported authentication method ", "username/password authentication failed",
		"invalid username/password", "unexpected protocol version ", "unknown error connection not allowed by ruleset",
		"unknown error command not supported", "unknown error address type not supported",
	}
	handshakeTexts  = []string{"net/http: TLS handshake timeout"}
	goneTexts       = []string{goAwayText, gracefulText} // of a request above the last stream
	unrepeatedTexts = []string{"http2: Transport: cannot retry err ["}
	closedTexts     = []string{
		"http: server closed idle connection", "http2: client connection lost",
		"http2: server sent GOAWAY", goAwayText, gracefulText,
	}

	// These decide nothing.
	otherTexts = []string{
		"http: server gave HTTP response to HTTPS client", brokenText, transportBrokenText, "http: CloseIdleConnections called",
		"net/http: timeout awaiting response headers", "net/http: request canceled", "net/http: cannot rewind body after connection loss",
		"net/http: Transport failed to read from server", "net/http: server response headers exceeded",
		"net/http: server replied with more than declared Content-Length",
		"malformed HTTP response", "malformed HTTP status code", "malformed HTTP version", "malformed chunked encoding",
		"malformed MIME header line", "malformed MIME header initial line", "malformed MIME header: missing colon",
		"bad Content-Length", "invalid empty Content-Length", "http: message cannot contain multiple Content-Length headers",
		"bad trailer key", "http: unexpected EOF reading trailer", "http: suspiciously long trailer after chunked body",
		"unsupported transfer encoding", "too many transfer encodings",
		// HTTP/2
		"http2: server sent GOAWAY and closed the connection", "http2: timeout awaiting response headers", "http2: frame too large",
		"http2: client conn is closed", "http2: client conn not usable", "http2: client conn could not be established",
		"http2: client connection force closed via ClientConn.Close", "http2: response header list larger than advertised limit",
		"http2: Transport: cannot retry err", "malformed response from server",
		// TLS
		"tls: failed to verify certificate", "tls: first record does not look like a TLS handshake",
		"tls: oversized record received with length", "tls: received record with version", "tls: unsupported SSLv2 handshake received",
		"tls: server selected unsupported protocol version", "tls: server did not select an ALPN protocol",
		"tls: server selected unadvertised ALPN protocol", "tls: server chose an unconfigured cipher suite",
		"tls: failed to parse certificate from server", "tls: invalid signature by the server certificate",
		"tls: downgrade attempt detected", "tls: either ServerName or InsecureSkipVerify must be specified",
	}
)

const (
	transportBrokenText = "net/http: HTTP/1.x transport connection broken"
	brokenText          = "http: can't write HTTP request on broken connection" // of Go 1.3, and of what imitates it
)
