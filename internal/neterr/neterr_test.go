package neterr

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/textproto"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"unicode"

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
	if r.ErrorCode != "" { // as oauth2
		return "oauth2: " + r.ErrorCode
	}
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

// withoutResponse returns an error that has the name of oauth2's, but not its fields.
func withoutResponse() error {
	type RetrieveError struct{ error }
	return RetrieveError{errors.New("not found")}
}

// withResponseText returns an error that has the name of oauth2's, and another Response.
func withResponseText() error {
	type RetrieveError struct {
		error

		Response string
	}
	return RetrieveError{errors.New("not found"), "404"}
}

// withoutCode returns an error like that of an oauth2 before ErrorCode.
func withoutCode(status int) error {
	type RetrieveError struct {
		error

		Response *http.Response
	}
	return RetrieveError{errors.New("oauth2: cannot fetch token"), &http.Response{StatusCode: status}}
}

// apiError has a response, as the errors of many clients of an API have.
type apiError struct{ Response *http.Response }

func (*apiError) Error() string { return "the API answers with an error" }

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
		{"net.ErrClosed", net.ErrClosed, 0},
		{"read timeout", read(timeoutError{}), timeout},
		{"os.ErrDeadlineExceeded", os.ErrDeadlineExceeded, timeout},
		{"context.DeadlineExceeded", context.DeadlineExceeded, timeout},
		{"context.Canceled", context.Canceled, 0},
		{"os.ErrDeadlineExceeded inside of an error that net takes for none", read(fmt.Errorf("read: %w", os.ErrDeadlineExceeded)), timeout},
		{"context.DeadlineExceeded inside of an error that net takes for none", read(fmt.Errorf("read: %w", context.DeadlineExceeded)), timeout},

		{"connection refused", dial(os.NewSyscallError("connect", syscall.ECONNREFUSED)), notSent},
		{"connection refused, without net.OpError", syscall.ECONNREFUSED, notSent},
		{"unreachable on dial", dial(syscall.EHOSTUNREACH), notSent},
		{"unreachable on read", read(syscall.EHOSTUNREACH), 0},
		{"dial timeout", dial(timeoutError{}), notSent | timeout},
		{"proxy not reached", &net.OpError{Op: "proxyconnect", Err: io.EOF}, notSent},
		{"SOCKS proxy fails", &net.OpError{Op: "socks connect", Err: errors.New("general SOCKS server failure")}, notSent},
		{"SOCKS proxy does not reach the server", socks("unknown error host unreachable"), notSent},
		{"SOCKS proxy: connection refused by the server", socks("unknown error connection refused"), notSent},
		{"SOCKS proxy closes the connection", &net.OpError{Op: "socks connect", Net: "tcp", Err: io.EOF}, notSent},
		{"SOCKS proxy rejects the credentials", socks("username/password authentication failed"), intermediary | permanent | notSent},
		{"SOCKS proxy that is not one", socks("unexpected protocol version 72"), intermediary | permanent | notSent},
		{"a SOCKS proxy's text outside of a net.OpError", errors.New("unknown error connection not allowed by ruleset"), 0},
		{"a SOCKS proxy's text that was read", read(errors.New("username/password authentication failed")), 0},
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
		{"DNS, temporary", &net.DNSError{IsTemporary: true}, notSent},
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
		{"a text that quotes a timeout", errors.New(`malformed HTTP response "net/http: TLS handshake timeout"`), 0},

		{"a text around another error", &fetchError{"net/http: TLS handshake timeout", io.EOF}, 0},

		{"unknown authority", x509.UnknownAuthorityError{}, untrusted},
		{"hostname", x509.HostnameError{Certificate: &x509.Certificate{}, Host: "x.test"}, untrusted},
		{"expired", x509.CertificateInvalidError{Reason: x509.Expired}, untrusted},
		{"no roots", x509.SystemRootsError{}, untrusted},
		{"verification", &tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}, untrusted | notSent},
		{"verification, for a reason of its own", &tls.CertificateVerificationError{Err: errors.New("pinned")}, untrusted | notSent},
		{"alert bad_certificate", alert(42), untrusted},
		{"alert unsupported_certificate", alert(43), untrusted},
		{"alert certificate_revoked", alert(44), untrusted},
		{"alert certificate_expired", alert(45), untrusted},
		{"alert certificate_unknown", alert(46), untrusted},
		{"alert access_denied", alert(49), untrusted},
		{"alert certificate_required", alert(116), untrusted},
		{"alert handshake_failure", alert(40), notSent},
		{"alert insufficient_security", alert(71), notSent},
		{"alert unrecognized_name", alert(112), notSent},
		{"alert no_application_protocol", alert(120), notSent},
		{"alert internal_error", alert(80), 0},
		{"alert bad_record_mac", alert(20), 0},
		{"an alert that was not received", &net.OpError{Op: "local error", Err: foreignAlertError(40)}, 0},
		{"a remote error that is no alert", &net.OpError{Op: "remote error", Err: errors.New("unknown")}, 0},
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
		{"proxy: ConnectError 302", &ConnectError{302}, notSent},
		{"proxy: ConnectError 407", &ConnectError{407}, intermediary | permanent | notSent},
		{"proxy: ConnectError 408", &ConnectError{408}, notSent},
		{"proxy: ConnectError 425", &ConnectError{425}, notSent},
		{"proxy: ConnectError 429", &ConnectError{429}, notSent},
		{"proxy: ConnectError 502", &ConnectError{502}, notSent},
		{"text around a proxy's", errors.New("Forbidden fruit"), 0},
		{"a proxy's text around another error", &fetchError{"Forbidden", io.EOF}, 0},
		{"invalid_client", token(401, "invalid_client"), intermediary | permanent | notSent},
		{"invalid_grant", token(400, "invalid_grant"), intermediary | permanent | notSent},
		{"invalid_grant with a status of its own", token(500, "invalid_grant"), intermediary | permanent | notSent},
		{"token endpoint without a code", token(403, ""), intermediary | permanent | notSent},
		{"token endpoint unavailable", token(503, ""), intermediary | notSent},
		{"token endpoint rate limits", token(429, ""), intermediary | notSent},
		{"token endpoint temporarily unavailable", token(400, "temporarily_unavailable"), intermediary | notSent},
		{"invalid_grant without a response", &RetrieveError{ErrorCode: "invalid_grant"}, intermediary | permanent | notSent},
		{"token endpoint of an old oauth2", withoutCode(503), intermediary | notSent},
		{"the name of oauth2's error", withoutResponse(), 0},
		{"the name of oauth2's error, and another response", withResponseText(), 0},
		{"an API's error", &apiError{&http.Response{StatusCode: http.StatusForbidden}}, 0},
		{"a nil pointer", (*apiError)(nil), 0},
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

// fetchError is an error type of a user's RoundTripper. Its text may contain a secret.
type fetchError struct {
	text  string
	cause error
}

func (f *fetchError) Error() string { return f.text }
func (f *fetchError) Unwrap() error { return f.cause }

// busyError has no fields, so it cannot contain a secret.
type busyError struct{}

func (busyError) Error() string { return "all workers are busy" }

// §4.7: SafeText shows known beginnings of texts, and of other errors the kind and the type only.
func TestSafeText(t *testing.T) {
	const secret = "s3cret"
	address := &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 443}
	for _, row := range []struct {
		name string
		err  error
		want string
	}{
		{"nil: nothing", nil, ""},
		{"unknown text: its type", errors.New("GET https://a.test/" + secret), "*errors.errorString (not shown)"},
		{"unknown type: its type", &fetchError{text: secret}, "*neterr.fetchError (not shown)"},
		{"unknown type with a cause: both", &fetchError{secret, io.EOF}, "*neterr.fetchError: EOF"},
		{"fmt.Errorf: its cause", fmt.Errorf("https://a.test/%s: %w", secret, io.EOF), "EOF"},
		{"fmt.Errorf with two causes: both", fmt.Errorf("%w, %w: %s", io.EOF, syscall.ECONNRESET, secret), "EOF; connection reset by peer"},
		{"errors.Join: its parts", errors.Join(errors.New(secret), io.EOF), "*errors.errorString (not shown); EOF"},
		{"a type without fields: its text", busyError{}, "all workers are busy"},
		{"own text: unchanged", New("no more workers"), "no more workers"},
		{"own request error: unchanged", fmt.Errorf("%w: ContentLength 5 with nil Body", ErrMalformed), "invalid request: ContentLength 5 with nil Body"},
		{"around an own error: its text", fmt.Errorf("%s: %w", secret, fmt.Errorf("%w: nil Request", ErrMalformed)), "invalid request: nil Request"},
		{"reason and cause: both", With(New("reason"), &fetchError{text: secret}), "reason: *neterr.fetchError (not shown)"},
		{"url.Error: its cause", &url.Error{Op: "Get", URL: "http://a?" + secret, Err: io.EOF}, "EOF"},
		{"url.Error with a text for its operation: its cause", &url.Error{Op: secret, URL: secret, Err: io.EOF}, "EOF"},
		{"two url.Errors: both", errors.Join(&url.Error{Op: "Get", URL: secret, Err: io.EOF}, &url.Error{Op: "Put", URL: secret, Err: io.EOF}), "EOF; EOF"},
		{"dial: with the address", &net.OpError{Op: "dial", Net: "tcp", Addr: address, Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}, "dial 192.0.2.1:443: connection refused"},
		{"read: with the server's address", &net.OpError{Op: "read", Net: "tcp", Source: address, Addr: address, Err: io.EOF}, "read 192.0.2.1:443: EOF"},
		{"unknown host: its name", &net.DNSError{Err: "no such host", Name: "a.test", IsNotFound: true}, "lookup a.test: no such host"},
		{"DNS text: by its flags", &net.DNSError{Err: secret, Name: "a.test/?" + secret, IsTimeout: true}, "lookup: i/o timeout"},
		{"certificate: its text", &tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}, "tls: failed to verify certificate: x509: certificate signed by unknown authority"},
		{"DNS without a flag: the name", &net.DNSError{Err: secret, Name: "a.test"}, "lookup a.test"},
		{"dial, without a cause: the operation", &net.OpError{Op: "dial"}, "dial"},
		{"alert: its text", &net.OpError{Op: "remote error", Err: foreignAlertError(40)}, "remote error: tls: alert(40)"},
		{"net/http quotes the server: its beginning", errors.New(`malformed HTTP response "` + secret + `"`), "malformed HTTP response"},
		{"net/http around it: both beginnings", fmt.Errorf("net/http: HTTP/1.x transport connection broken: %w", textproto.ProtocolError("malformed MIME header line: "+secret)), "net/http: HTTP/1.x transport connection broken: malformed MIME header line"},
		{"net/http in one text: its beginning", errors.New(`net/http: HTTP/1.x transport connection broken: bad Content-Length "` + secret + `"`), "net/http: HTTP/1.x transport connection broken"},
		{"HTTP/2's GOAWAY: its beginning", errors.New(`http2: server sent GOAWAY and closed the connection; LastStreamID=1, ErrCode=NO_ERROR, debug="` + secret + `"`), "http2: server sent GOAWAY and closed the connection"},
		{"scheme: shown", errors.New(`unsupported protocol scheme "localhost"`), `unsupported protocol scheme "localhost"`},
		{"no scheme: its beginning", errors.New(`unsupported protocol scheme "` + secret + `?"`), "unsupported protocol scheme"},
		{"first record: its text", tls.RecordHeaderError{Msg: "first record does not look like a TLS handshake"}, "tls: first record does not look like a TLS handshake"},
		{"broken connection: its text", errors.New(brokenText), "http: can't write HTTP request on broken connection"},
		{"an Error of a Transport: its own text", safeError{}, "safe text"},
		{"HTTP/2 stream error: its code", streamError{Code: refusedStream, Cause: errors.New(secret)}, "HTTP/2 stream error 7"},
		{"proxy's status: its kind and type", errors.New("Proxy Authentication Required"), "proxy: *errors.errorString (not shown)"},
		{"proxy's own text: its type", errors.New(secret), "*errors.errorString (not shown)"},
		{"token endpoint: not shown", token(401, "invalid_client"), "no token from the token endpoint (its answer is not shown)"},
		{"very many: the first ones", errors.Join(slices.Repeat([]error{io.EOF}, 10_000)...), strings.Repeat("EOF; ", 51) + "E…"},
	} {
		t.Run(row.name, func(t *testing.T) {
			require.Equal(t, row.want, SafeText(row.err))
		})
	}
	t.Run("very long: cut", func(t *testing.T) {
		require.Equal(t, strings.Repeat("ä", 128)+"…", SafeText(New(strings.Repeat("ä", 1000))))
	})
	t.Run("lines: one", func(t *testing.T) {
		require.Equal(t, "a  b c d e", SafeText(New("a\r\nb\x00c\x7fd\te")))
	})
}

// safeError is like an *Error of the root.
type safeError struct{}

func (safeError) Error() string    { return "text" }
func (safeError) SafeText() string { return "safe text" }
func (safeError) Unwrap() []error  { return nil }

// §4.7: the texts that SafeText shows are those of net/http, net/textproto and crypto/tls.
func TestSafeText_textsOfGo(t *testing.T) {
	goroot, err := exec.CommandContext(t.Context(), "go", "env", "GOROOT").Output() // a program that is built with -trimpath does not know it
	require.NoError(t, err)
	var source strings.Builder
	for _, folder := range []string{"net/http", "net/http/internal", "net/textproto", "crypto/tls", "internal/http2", "net/http/internal/http2"} {
		files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(goroot)), "src", folder, "*.go"))
		require.NoError(t, err)
		for _, file := range files {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			source.Write(text)
		}
	}
	for _, text := range otherTexts {
		if text != brokenText { // of older versions
			require.Contains(t, source.String(), strings.TrimPrefix(text, "tls: "))
		}
	}
}

// T15: Text is what a bare client shows, without what quotes a request or a response.
func TestText(t *testing.T) {
	u, err := url.Parse("https://user:hunter22@api.test/v1/acct_4711/pay%20ments?token=s3cr3t&mode=%7Bopen-all%7D#part-two")
	require.NoError(t, err)
	header := http.Header{
		"Authorization": {"Bearer abc.def.ghi"}, "Cookie": {"a=1; session=xyz-123-789"}, "X-Short": {"short"}, "Accept": {"*/*"},
	}
	parts := LongestFirst(Parts(u, header))
	for _, row := range []struct{ name, text, want string }{
		{"nothing of the request", "signer: no credentials in the chain", "signer: no credentials in the chain"},
		{"URL: its host", "POST https://user:hunter22@api.test/v1/acct_4711/pay%20ments?token=s3cr3t: token expired", "POST https://api.test…: token expired"},
		{"another URL: its host", "cannot reach http://10.0.0.7:8080/latest/meta-data?x=1, trying again", "cannot reach http://10.0.0.7:8080…, trying again"},
		{"URL without a path", "no route to https://api.test.", "no route to https://api.test."},
		{"no host", "open file:///etc/secret", "open file://…"},
		{"path", "POST /v1/acct_4711/pay%20ments failed", "POST … failed"},
		{"path, decoded", "POST /v1/acct_4711/pay ments failed", "POST … failed"},
		{"a segment with a digit", "no account acct_4711", "no account …"},
		{"a segment without one may be a word", "no payments", "no payments"},
		{"query", "?token=s3cr3t&mode=%7Bopen-all%7D", "?…"},
		{"a value", "s3cr3t expired", "… expired"},
		{"a value, decoded", "mode {open-all}", "mode …"},
		{"a name may be a word", "no token", "no token"},
		{"user and password", "user:hunter22 is unknown, as is hunter22", "… is unknown, as is …"},
		{"header value", "sent Bearer abc.def.ghi", "sent …"},
		{"credentials alone", "abc.def.ghi is expired", "… is expired"},
		{"a cookie", "no session xyz-123-789", "no session …"},
		{"a short value may be a word", "too short", "too short"},
		{"fragment", "part-two", "…"},
		{"in quotes", `malformed HTTP response "HTTP/1.1 \"x\" y"`, `malformed HTTP response "…"`},
		{"an open quote", `debug="x y`, `debug="…"`},
		{"http.Client inside", `Get "https://login.test/token?code=1": EOF`, `Get "https://login.test…": EOF`},
		{"scheme", `unsupported protocol scheme "ftp"`, `unsupported protocol scheme "ftp"`},
		{"no scheme", `unsupported protocol scheme "a b"`, `unsupported protocol scheme "…"`},
		{"no URL", "GET http://[1/latest failed", "GET http://… failed"},
		{"a host that is none", "GET http://a*b/latest failed", "GET http://… failed"},
		{"lines and bytes", "a\nb\x00c\xffd", "a b cd"},
		{"a secret around a byte that is no text", "s3c\xffr3t", "…"},
		{"very long", strings.Repeat("x", 1000), strings.Repeat("x", maxOwnText) + "…"},
	} {
		t.Run(row.name, func(t *testing.T) {
			text := strings.NewReplacer(`\n`, "\n", `\x00`, "\x00", `\xff`, "\xff").Replace(row.text)
			require.Equal(t, row.want, Text(errors.New(text), parts))
		})
	}
	for _, row := range []struct {
		name string
		err  error
		want string
	}{
		{"nil", nil, ""},
		{"HTTP to HTTPS: as net/http", With(http.ErrSchemeMismatch, tls.RecordHeaderError{Msg: "no"}), "http: server gave HTTP response to HTTPS client"},
		{"reason and cause", With(New("reason"), io.EOF), "reason: EOF"},
		{"token endpoint: not shown", token(401, "invalid_client"), "no token from the token endpoint (its answer is not shown)"},
		{"network", &net.OpError{Op: "dial", Net: "tcp", Addr: &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 443}, Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)},
			"dial tcp 192.0.2.1:443: connect: connection refused"},
	} {
		t.Run(row.name, func(t *testing.T) { require.Equal(t, row.want, Text(row.err, nil)) })
	}
	require.Empty(t, LongestFirst(Parts(nil, nil)))
	require.Empty(t, LongestFirst(Parts(&url.URL{Path: "/"}, http.Header{"A": nil})))
}

// T15: no part of the request is in the Text of an error that quotes it, whatever stands around it.
func FuzzText(f *testing.F) {
	f.Add("", "", "/v1/x?token=s3cr3t", "Bearer abcdefgh")
	f.Add("GET ", ": EOF", "//a:secret1@b/secret-path#fragment", "value \"quoted\"")
	f.Fuzz(func(t *testing.T, before, after, target, value string) {
		const host = "https://api.test"
		u, err := url.Parse(host + target)
		if err != nil {
			t.Skip()
		}
		header := http.Header{"X-Value": {value}}
		for _, quoted := range []string{u.EscapedPath(), u.Path, u.RawQuery, u.String(), value} {
			quoted = strings.ToValidUTF8(quoted, "")
			for _, text := range []string{before + quoted + after, before + strconv.Quote(quoted) + after} {
				got := Text(errors.New(text), LongestFirst(Parts(u, header)))
				for _, secret := range []string{u.EscapedPath(), u.RawQuery, strings.ToValidUTF8(value, "")} {
					if len(secret) >= minPart && !strings.Contains(secret, cut) && !strings.Contains(host, secret) {
						require.NotContains(t, got, secret)
					}
				}
				require.LessOrEqual(t, len(got), maxOwnText+len(cut))
			}
		}
	})
}

// The kinds that ErrorType's test in the root leaves out.
func TestKind(t *testing.T) {
	for _, row := range []struct {
		name string
		err  error
		want string
	}{
		{"a proxy that does not reach the server", &ConnectError{502}, "proxy"},
		{"a SOCKS proxy that does not reach the server", &net.OpError{Op: "socks connect", Err: errors.New("general SOCKS server failure")}, "proxy"},
		{"a certificate, without crypto/tls around it", x509.UnknownAuthorityError{}, "tls"},
		{"HTTP to HTTPS, as http.Client has it", http.ErrSchemeMismatch, "tls"},
		{"an alert that is not about a certificate", &net.OpError{Op: "remote error", Err: foreignAlertError(80)}, "tls"},
		{"aborted", &net.OpError{Op: "read", Err: syscall.ECONNABORTED}, "connection_reset"},
	} {
		require.Equal(t, row.want, Kind(row.err), row.name)
	}
}

// The clue is the text for which Kubernetes and go-retryablehttp search.
func TestClue(t *testing.T) {
	const closed, untrusted = "use of closed network connection", "certificate is not trusted"
	for _, row := range []struct {
		err  error
		want string
	}{
		{nil, ""},
		{io.EOF, closed},
		{io.ErrUnexpectedEOF, closed},
		{errors.New(brokenText), closed},
		{With(New("reason"), io.EOF), closed},
		{fmt.Errorf("layer: %w", io.EOF), ""}, // a bare client's is no EOF for them either
		{&tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}, untrusted},
		{fmt.Errorf("layer: %w", &tls.CertificateVerificationError{Err: x509.HostnameError{}}), untrusted},
		{syscall.ECONNRESET, ""},
	} {
		require.Equal(t, row.want, Clue(row.err), "%v", row.err)
	}
}

// An error is a Base's own if no package of the network knows it, and its author does not say that it may pass.
func TestUnknown(t *testing.T) {
	for _, row := range []struct {
		name string
		err  error
		want bool
	}{
		{"errors.New", errors.New("no token"), true},
		{"own type", &fetchError{text: "no token"}, true},
		{"around a missing file", fmt.Errorf("signer: %w", &fs.PathError{Op: "open", Path: "/run/token", Err: syscall.ENOENT}), true},
		{"http.Client inside", &url.Error{Op: "Get", Err: errors.New("no token")}, true},
		{"marked as permanent", markedError(true), true},
		{"marked as not permanent", markedError(false), false},
		{"EOF", io.EOF, false},
		{"around an EOF", &fetchError{"x", io.EOF}, false},
		{"network", fmt.Errorf("token: %w", &net.OpError{Op: "dial", Err: syscall.ENETUNREACH}), false},
		{"textproto", textproto.ProtocolError("x"), false},
		{"closed", net.ErrClosed, false},
		{"timeout", timeoutError{}, false},
		{"canceled", context.Canceled, false},
	} {
		require.Equal(t, row.want, Unknown(row.err), row.name)
	}
}

// errorsWith returns errors that contain a text, in each field of the types that clients get.
func errorsWith(text string) map[string]error {
	dial := func(err error) error { return &net.OpError{Op: "dial", Net: "tcp", Err: err} }
	return map[string]error{
		"errors.New":         errors.New(text),
		"fmt.Errorf":         fmt.Errorf("%s: %w", text, io.EOF),
		"cause":              fmt.Errorf("layer: %w", errors.New(text)),
		"two causes":         fmt.Errorf("%w%s%w", errors.New(text), text, errors.New(text)),
		"own type":           &fetchError{text, &fetchError{text, io.EOF}},
		"joined":             errors.Join(io.EOF, errors.New(text)),
		"known words":        errors.New("EOF: " + text),
		"net/http's":         errors.New("net/http: HTTP/1.x transport connection broken: " + text),
		"server's":           errors.New("malformed HTTP response " + strconv.Quote(text)),
		"MIME header":        textproto.ProtocolError("malformed MIME header line: " + text),
		"MIME header's":      errors.New(text + ` malformed MIME header "` + text + `"`),
		"textproto":          &textproto.Error{Code: 500, Msg: text},
		"http.ProtocolError": &http.ProtocolError{ErrorString: text}, //nolint:staticcheck // net/http still returns it
		"token endpoint":     &RetrieveError{Response: &http.Response{Status: text}, Body: []byte(text), ErrorCode: text},
		"url.Error":          &url.Error{Op: "Get" + text, URL: text, Err: errors.New(text)},
		"url.EscapeError":    url.EscapeError(text),
		"invalid host":       url.InvalidHostError(text),
		"net.OpError":        &net.OpError{Op: "dial " + text, Net: "tcp " + text, Source: &net.UnixAddr{Name: text}, Addr: &net.UnixAddr{Name: text}, Err: errors.New(text)},
		"socks":              &net.OpError{Op: "socks connect", Err: errors.New("unknown error " + text)},
		"DNS":                &net.DNSError{Err: text, Name: "a.test/" + text, Server: text},
		"address":            dial(&net.AddrError{Err: text, Addr: "a/" + text}),
		"unparsed":           dial(&net.ParseError{Type: text, Text: text}),
		"network":            dial(net.UnknownNetworkError(text)),
		"invalid address":    dial(net.InvalidAddrError(text)),
		"path":               &fs.PathError{Op: text, Path: text, Err: fs.ErrNotExist},
		"system call":        os.NewSyscallError(text, syscall.ECONNRESET),
		"number":             &strconv.NumError{Func: text, Num: text, Err: strconv.ErrSyntax},
		"tls":                tls.RecordHeaderError{Msg: text},
		"verification":       &tls.CertificateVerificationError{Err: errors.New(text)},
		"roots":              x509.SystemRootsError{Err: errors.New(text)},
		"reason":             &ReasonedError{errors.New(text), errors.New(text)},
		"cause of a context": With(context.Canceled, errors.New(text)),
	}
}

// §4.7: SafeText returns one line of bounded length that contains no part of an error's
// unknown text.
func FuzzSafeText(f *testing.F) {
	for _, text := range []string{"", "EOF", `malformed HTTP response "x"`, "bad Content-Length: \x00", "debug=\"", "transfer encoding[malformed "} {
		f.Add(text)
	}
	for _, text := range slices.Concat(invalidTexts, bodyTexts, socksTexts, handshakeTexts, closedTexts) {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		const secret = "\u2042quoted\u2042"
		for _, text := range []string{text + secret, secret + "\n" + text} {
			for place, err := range errorsWith(text) {
				for _, err := range []error{err, fmt.Errorf("%s: %w", text, err)} {
					got := SafeText(err)
					require.LessOrEqual(t, len(got), maxText+len("…"), place)
					require.NotContains(t, got, "quoted", place)
					require.NotContains(t, got, "\u2042", place)
					for _, r := range got {
						require.False(t, unicode.IsControl(r) && r < 0x80, "%s: %q", place, got)
					}
					_, _, _ = Malformed(err), NotSent(err), Permanent(err)
				}
			}
		}
		require.False(t, Malformed(errors.New("x"+text)), "only the beginning of a text counts")
	})
}
