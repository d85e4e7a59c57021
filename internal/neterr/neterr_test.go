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

// RetrieveError is as golang.org/x/oauth2's.
type RetrieveError struct {
	Response         *http.Response
	Body             []byte
	ErrorCode        string
	ErrorDescription string
}

func (r *RetrieveError) Error() string {
	return "oauth2: cannot fetch token: " + r.Response.Status + "\nResponse: " + string(r.Body)
}

// foreignAlertError is as crypto/tls's own alert type: another uint8.
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

// TestMeaning is §4.8 and §4.9: what each error means, as it is and wrapped.
func TestMeaning(t *testing.T) {
	const (
		malformed = 1 << iota
		untrusted
		unsent // it never left
		noHost
		scheme
		timeout
		elsewhere
		forGood
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
		{"unknown kind", errors.New("gremlins"), 0},
		{"EOF", io.EOF, 0},
		{"reset", read(syscall.ECONNRESET), 0},
		{"read timeout", read(timeoutError{}), timeout},
		{"os.ErrDeadlineExceeded", os.ErrDeadlineExceeded, timeout},
		{"context.DeadlineExceeded", context.DeadlineExceeded, timeout},
		{"context.Canceled", context.Canceled, 0},

		{"refused", dial(os.NewSyscallError("connect", syscall.ECONNREFUSED)), unsent},
		{"refused, bare", syscall.ECONNREFUSED, unsent},
		{"unreachable on dial", dial(syscall.EHOSTUNREACH), unsent},
		{"unreachable on read", read(syscall.EHOSTUNREACH), 0},
		{"dial timeout", dial(timeoutError{}), unsent | timeout},
		{"proxy not reached", &net.OpError{Op: "proxyconnect", Err: io.EOF}, unsent},
		{"SOCKS proxy says no", &net.OpError{Op: "socks connect", Err: errors.New("general SOCKS server failure")}, unsent},
		{"SOCKS proxy does not reach the server", socks("unknown error host unreachable"), unsent},
		{"SOCKS proxy is refused by the server", socks("unknown error connection refused"), unsent},
		{"SOCKS proxy in a code of its own", socks("unknown error unknown code: 240"), unsent},
		{"SOCKS proxy breaks off", &net.OpError{Op: "socks connect", Net: "tcp", Err: io.EOF}, unsent},
		{"SOCKS proxy's rules say no", socks("unknown error connection not allowed by ruleset"), elsewhere | forGood | unsent},
		{"SOCKS proxy knows no CONNECT", socks("unknown error command not supported"), elsewhere | forGood | unsent},
		{"SOCKS proxy knows no IPv6", socks("unknown error address type not supported"), elsewhere | forGood | unsent},
		{"SOCKS proxy wants to know who asks", socks("no acceptable authentication methods"), elsewhere | forGood | unsent},
		{"SOCKS proxy wants another method", socks("unsupported authentication method 1"), elsewhere | forGood | unsent},
		{"SOCKS proxy does not know us", socks("username/password authentication failed"), elsewhere | forGood | unsent},
		{"SOCKS proxy that is none", socks("unexpected protocol version 72"), elsewhere | forGood | unsent},
		{"a SOCKS proxy's text from elsewhere", errors.New("unknown error connection not allowed by ruleset"), 0},
		{"invalid port", dial(&net.AddrError{Err: "invalid port", Addr: "99999"}), malformed | unsent},
		{"invalid port of a proxy", &net.OpError{Op: "proxyconnect", Net: "tcp", Err: dial(&net.AddrError{Err: "invalid port", Addr: "99999"})}, malformed | unsent},
		{"unknown network", dial(net.UnknownNetworkError("tpc")), malformed | unsent},
		{"invalid address", dial(net.InvalidAddrError("no address")), malformed | unsent},
		{"unparsed address", dial(&net.ParseError{Type: "IP address", Text: "1.2.3"}), malformed | unsent},
		{"invalid port, not from dialing", &net.AddrError{Err: "invalid port", Addr: "99999"}, 0},
		{"unparsed address that was read", read(&net.ParseError{Type: "IP address", Text: "1.2.3"}), 0},
		{"an address of another family", dial(&net.AddrError{Err: "no suitable address found", Addr: "x.test"}), unsent},
		{"NXDOMAIN", &net.DNSError{IsNotFound: true}, unsent | noHost},
		{"not found for now", &net.DNSError{IsNotFound: true, IsTemporary: true}, unsent},
		{"DNS timeout", &net.DNSError{IsTimeout: true}, unsent | timeout},

		{"ours", fmt.Errorf("%w: nil Request", ErrMalformed), malformed | unsent},
		{"our configuration", fmt.Errorf("%w: Hedge.MaxRatio is 5", ErrMisconfigured), malformed | unsent},
		{"scheme of no kind", errors.New(`unsupported protocol scheme "ftp"`), malformed | unsent},
		{"field name", errors.New(`net/http: invalid header field name "a b"`), malformed | unsent},
		{"no host", errors.New("http: no Host in request URL"), malformed | unsent},
		{"HTTP/2's header list", errors.New("request header list larger than peer's advertised limit"), malformed | unsent},
		{"body shorter than said", errors.New("http: ContentLength=5 with Body length 3"), malformed},
		{"a text that quotes the URL", errors.New(`Get "http://x.test/?unsupported protocol scheme ": EOF`), 0},
		{"a text that quotes the server", errors.New(`malformed HTTP response "http: no Host in request URL"`), 0},

		{"unknown authority", x509.UnknownAuthorityError{}, untrusted},
		{"no roots", x509.SystemRootsError{}, untrusted},
		{"verification", &tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}, untrusted | unsent},
		{"alert bad_certificate", alert(42), untrusted},
		{"alert certificate_required", alert(116), untrusted},
		{"alert handshake_failure", alert(40), unsent},
		{"alert no_application_protocol", alert(120), unsent},
		{"alert internal_error", alert(80), 0},
		{"QUIC alert unknown_ca", tls.AlertError(48), untrusted},
		{"QUIC alert protocol_version", tls.AlertError(70), unsent},
		{"handshake timeout", errors.New("net/http: TLS handshake timeout"), unsent},
		{"first record is no TLS", tls.RecordHeaderError{Conn: &net.TCPConn{}}, unsent},
		{"a later record is broken", tls.RecordHeaderError{}, 0},
		{"plain HTTP", tls.RecordHeaderError{RecordHeader: [5]byte([]byte("HTTP/")), Conn: &net.TCPConn{}}, scheme | unsent},
		{"http.ErrSchemeMismatch", http.ErrSchemeMismatch, scheme | unsent},

		{"proxy says 407", errors.New("Proxy Authentication Required"), elsewhere | forGood | unsent},
		{"proxy says 403", errors.New("Forbidden"), elsewhere | forGood | unsent},
		{"proxy says 502", errors.New("Bad Gateway"), 0},
		{"proxy says 407 to NewBase", &ConnectError{407}, elsewhere | forGood | unsent},
		{"proxy says 429 to NewBase", &ConnectError{429}, unsent},
		{"proxy says 502 to NewBase", &ConnectError{502}, unsent},
		{"words around a proxy's", errors.New("Forbidden fruit"), 0},
		{"invalid_client", token(401, "invalid_client"), elsewhere | forGood | unsent},
		{"invalid_grant", token(400, "invalid_grant"), elsewhere | forGood | unsent},
		{"token endpoint without a code", token(403, ""), elsewhere | forGood | unsent},
		{"token endpoint is down", token(503, ""), elsewhere | unsent},
		{"token endpoint has enough of us", token(429, ""), elsewhere | unsent},
		{"token endpoint is busy", token(400, "temporarily_unavailable"), elsewhere | unsent},
		{"marked", markedError(true), elsewhere | forGood},
		{"marked as what may pass", markedError(false), 0},
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
					malformed: Malformed(err), untrusted: Untrusted(err), unsent: NotSent(err), noHost: UnknownHost(err),
					scheme: SchemeMismatch(err), timeout: TimedOut(err), elsewhere: FromIntermediary(err), forGood: Permanent(err),
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
