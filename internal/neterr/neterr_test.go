package neterr

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// RetrieveError has the fields of golang.org/x/oauth2's.
type RetrieveError struct {
	Response         *http.Response
	Body             []byte
	ErrorCode        string
	ErrorDescription string
}

func (r *RetrieveError) Error() string {
	return "oauth2: cannot fetch token: " + r.Response.Status + "\nResponse: " + string(r.Body)
}

// foreignAlertError is a uint8 like the unexported alert type of crypto/tls.
type foreignAlertError uint8

func (a foreignAlertError) Error() string { return fmt.Sprintf("tls: alert(%d)", uint8(a)) }

type timeoutError struct{}

func (timeoutError) Error() string { return "i/o timeout" }
func (timeoutError) Timeout() bool { return true }

type markedError bool

func (markedError) Error() string     { return "wrong client" }
func (m markedError) Permanent() bool { return bool(m) }

func token(status int, code string) error {
	return &RetrieveError{Response: &http.Response{StatusCode: status, Status: http.StatusText(status)}, ErrorCode: code}
}

// §4.8 and §4.9: the class of each error, also when it is wrapped.
func TestClassification(t *testing.T) {
	const (
		malformed = 1 << iota
		untrusted
		notSent
		noHost
		scheme
		timeout
		intermediary
		permanent
	)
	dial := func(err error) error { return &net.OpError{Op: "dial", Net: "tcp", Err: err} }
	socks := func(text string) error { return &net.OpError{Op: "socks connect", Net: "tcp", Err: errors.New(text)} }
	read := func(err error) error { return &net.OpError{Op: "read", Net: "tcp", Err: err} }
	alert := func(number uint8) error { return &net.OpError{Op: "remote error", Err: foreignAlertError(number)} }
	for _, row := range []struct {
		name string
		err  error
		want int
	}{
		{"unknown kind", errors.New("unknown"), 0},
		{"EOF", io.EOF, 0},
		{"reset", read(syscall.ECONNRESET), 0},
		{"read timeout", read(timeoutError{}), timeout},
		{"os.ErrDeadlineExceeded", os.ErrDeadlineExceeded, timeout},
		{"context.DeadlineExceeded", context.DeadlineExceeded, timeout},
		{"context.Canceled", context.Canceled, 0},

		{"connection refused", dial(os.NewSyscallError("connect", syscall.ECONNREFUSED)), notSent},
		{"connection refused, without net.OpError", syscall.ECONNREFUSED, notSent},
		{"unreachable on dial", dial(syscall.EHOSTUNREACH), notSent},
		{"unreachable on read", read(syscall.EHOSTUNREACH), 0},
		{"dial timeout", dial(timeoutError{}), notSent | timeout},
		{"proxy not reached", &net.OpError{Op: "proxyconnect", Err: io.EOF}, notSent},
		{"SOCKS proxy fails", &net.OpError{Op: "socks connect", Err: errors.New("general SOCKS server failure")}, notSent},
		{"SOCKS proxy does not reach the server", socks("unknown error host unreachable"), notSent},
		{"SOCKS proxy: connection refused by the server", socks("unknown error connection refused"), notSent},
		{"SOCKS proxy: unknown code", socks("unknown error unknown code: 240"), notSent},
		{"SOCKS proxy closes the connection", &net.OpError{Op: "socks connect", Net: "tcp", Err: io.EOF}, notSent},
		{"SOCKS proxy: rejected by its rules", socks("unknown error connection not allowed by ruleset"), intermediary | permanent | notSent},
		{"SOCKS proxy does not support CONNECT", socks("unknown error command not supported"), intermediary | permanent | notSent},
		{"SOCKS proxy does not support IPv6", socks("unknown error address type not supported"), intermediary | permanent | notSent},
		{"SOCKS proxy demands credentials", socks("no acceptable authentication methods"), intermediary | permanent | notSent},
		{"SOCKS proxy demands another method", socks("unsupported authentication method 1"), intermediary | permanent | notSent},
		{"SOCKS proxy rejects the credentials", socks("username/password authentication failed"), intermediary | permanent | notSent},
		{"SOCKS proxy that is not one", socks("unexpected protocol version 72"), intermediary | permanent | notSent},
		{"a SOCKS proxy's text outside of a net.OpError", errors.New("unknown error connection not allowed by ruleset"), 0},
		{"invalid port", dial(&net.AddrError{Err: "invalid port", Addr: "99999"}), malformed | notSent},
		{"invalid port of a proxy", &net.OpError{Op: "proxyconnect", Net: "tcp", Err: dial(&net.AddrError{Err: "invalid port", Addr: "99999"})}, malformed | notSent},
		{"unknown network", dial(net.UnknownNetworkError("tpc")), malformed | notSent},
		{"invalid address", dial(net.InvalidAddrError("no address")), malformed | notSent},
		{"unparsed address", dial(&net.ParseError{Type: "IP address", Text: "1.2.3"}), malformed | notSent},
		{"invalid port, not from dialing", &net.AddrError{Err: "invalid port", Addr: "99999"}, 0},
		{"unparsed address that was read", read(&net.ParseError{Type: "IP address", Text: "1.2.3"}), 0},
		{"an address of another family", dial(&net.AddrError{Err: "no suitable address found", Addr: "x.test"}), notSent},
		{"NXDOMAIN", &net.DNSError{IsNotFound: true}, notSent | noHost},
		{"not found for now", &net.DNSError{IsNotFound: true, IsTemporary: true}, notSent},
		{"DNS timeout", &net.DNSError{IsTimeout: true}, notSent | timeout},

		{"own request error", fmt.Errorf("%w: nil Request", ErrMalformed), malformed | notSent},
		{"own configuration error", fmt.Errorf("%w: Hedge.MaxRatio is 5", ErrMisconfigured), malformed | notSent},
		{"unsupported scheme", errors.New(`unsupported protocol scheme "ftp"`), malformed | notSent},
		{"field name", errors.New(`net/http: invalid header field name "a b"`), malformed | notSent},
		{"no host", errors.New("http: no Host in request URL"), malformed | notSent},
		{"HTTP/2's header list", errors.New("request header list larger than peer's advertised limit"), malformed | notSent},
		{"body shorter than Content-Length", errors.New("http: ContentLength=5 with Body length 3"), malformed},
		{"a text that quotes the URL", errors.New(`Get "http://x.test/?unsupported protocol scheme ": EOF`), 0},
		{"a text that quotes the server", errors.New(`malformed HTTP response "http: no Host in request URL"`), 0},

		{"unknown authority", x509.UnknownAuthorityError{}, untrusted},
		{"no roots", x509.SystemRootsError{}, untrusted},
		{"verification", &tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}, untrusted | notSent},
		{"alert bad_certificate", alert(42), untrusted},
		{"alert certificate_required", alert(116), untrusted},
		{"alert handshake_failure", alert(40), notSent},
		{"alert no_application_protocol", alert(120), notSent},
		{"alert internal_error", alert(80), 0},
		{"QUIC alert unknown_ca", tls.AlertError(48), untrusted},
		{"QUIC alert protocol_version", tls.AlertError(70), notSent},
		{"handshake timeout", errors.New("net/http: TLS handshake timeout"), notSent},
		{"first record is no TLS", tls.RecordHeaderError{Conn: &net.TCPConn{}}, notSent},
		{"a later record is broken", tls.RecordHeaderError{}, 0},
		{"plain HTTP", tls.RecordHeaderError{RecordHeader: [5]byte([]byte("HTTP/")), Conn: &net.TCPConn{}}, scheme | notSent},
		{"http.ErrSchemeMismatch", http.ErrSchemeMismatch, scheme | notSent},

		{"proxy: 407", errors.New("Proxy Authentication Required"), intermediary | permanent | notSent},
		{"proxy: 403", errors.New("Forbidden"), intermediary | permanent | notSent},
		{"proxy: 502", errors.New("Bad Gateway"), 0},
		{"proxy: ConnectError 407", &ConnectError{407}, intermediary | permanent | notSent},
		{"proxy: ConnectError 429", &ConnectError{429}, notSent},
		{"proxy: ConnectError 502", &ConnectError{502}, notSent},
		{"text around a proxy's", errors.New("Forbidden fruit"), 0},
		{"invalid_client", token(401, "invalid_client"), intermediary | permanent | notSent},
		{"invalid_grant", token(400, "invalid_grant"), intermediary | permanent | notSent},
		{"token endpoint without a code", token(403, ""), intermediary | permanent | notSent},
		{"token endpoint unavailable", token(503, ""), intermediary | notSent},
		{"token endpoint rate limits", token(429, ""), intermediary | notSent},
		{"token endpoint temporarily unavailable", token(400, "temporarily_unavailable"), intermediary | notSent},
		{"marked as permanent", markedError(true), intermediary | permanent},
		{"marked as not permanent", markedError(false), 0},
	} {
		for how, err := range map[string]error{
			"":                 row.err,
			", wrapped":        fmt.Errorf("base: %w", row.err),
			", in a url.Error": &url.Error{Op: "Get", URL: "http://x.test/?unsupported protocol scheme ", Err: row.err},
			", joined":         errors.Join(errors.New("more"), row.err),
			", with a reason":  With(errors.New("reason"), row.err),
		} {
			t.Run(row.name+how, func(t *testing.T) {
				got := 0
				for bit, holds := range map[int]bool{
					malformed: Malformed(err), untrusted: Untrusted(err), notSent: NotSent(err), noHost: UnknownHost(err),
					scheme: SchemeMismatch(err), timeout: TimedOut(err), intermediary: FromIntermediary(err), permanent: Permanent(err),
				} {
					if holds {
						got |= bit
					}
				}
				require.Equal(t, fmt.Sprintf("%08b", row.want), fmt.Sprintf("%08b", got))
			})
		}
	}
}

func TestWith(t *testing.T) {
	reason, cause := errors.New("reason"), errors.New("cause")
	err := With(reason, cause)
	require.ErrorIs(t, err, reason)
	require.ErrorIs(t, err, cause)
	require.EqualError(t, err, "reason: cause")
	require.Same(t, err, With(reason, err), "not twice")
}

func TestConnectAnswer(t *testing.T) {
	require.NoError(t, ConnectAnswer(t.Context(), nil, nil, &http.Response{StatusCode: http.StatusOK}))
	require.EqualError(t, ConnectAnswer(t.Context(), nil, nil, &http.Response{StatusCode: http.StatusProxyAuthRequired}), "the proxy answers CONNECT with 407 Proxy Authentication Required")
	require.EqualError(t, ConnectAnswer(t.Context(), nil, nil, &http.Response{StatusCode: 999}), "the proxy answers CONNECT with 999")
}
