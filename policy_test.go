package resilienthttp_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/faulttest"
	"github.com/resilienthttp/resilienthttp/internal/memhttp"
)

// puppet is a Base that does what the test says.
type puppet func(*http.Request) (*http.Response, error)

func (p puppet) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Body != nil {
		defer req.Body.Close()
	}
	return p(req)
}

// puppetAnswer is a response with headers given as name, value, name, value.
func puppetAnswer(req *http.Request, status int, header ...string) *http.Response {
	resp := &http.Response{
		StatusCode: status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{}, Body: io.NopCloser(strings.NewReader("body")), Request: req,
	}
	for n := 0; n < len(header); n += 2 {
		resp.Header.Add(header[n], header[n+1])
	}
	return resp
}

// puppetStatus answers every request with the status.
func puppetStatus(status int, header ...string) puppet {
	return func(req *http.Request) (*http.Response, error) { return puppetAnswer(req, status, header...), nil }
}

// atOnce is a Backoff for tests that are not about waiting.
func atOnce(int, time.Duration) time.Duration { return 0 }

// bareTransport has the mechanisms off that are not the test's subject.
func bareTransport(base http.RoundTripper, attempts int) *resilienthttp.Transport {
	return &resilienthttp.Transport{
		Base:      base,
		Policy:    resilienthttp.Policy{MaxAttempts: attempts, Backoff: atOnce},
		Budget:    &resilienthttp.Budget{Ratio: -1},
		Breaker:   &resilienthttp.Breaker{FailureRatio: -1},
		RateLimit: &resilienthttp.RateLimit{IgnoreHeaders: true},
	}
}

// newCall is a request to http://api.test/ as http.NewRequest makes it.
func newCall(ctx context.Context, tb testing.TB, method, body string) *http.Request {
	tb.Helper()
	var reader io.Reader
	if body != "" {
		reader = strings.NewReader(body)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://api.test/", reader)
	require.NoError(tb, err)
	return req
}

// tripped makes the call and tells all its attempts, however it ended.
func tripped(tb testing.TB, rt http.RoundTripper, req *http.Request) []resilienthttp.Attempt {
	tb.Helper()
	resp, err := rt.RoundTrip(req)
	if err == nil {
		require.NoError(tb, resp.Body.Close())
		return resilienthttp.Attempts(resp)
	}
	require.Nil(tb, resp)
	var e *resilienthttp.Error
	require.ErrorAs(tb, err, &e)
	return e.Attempts
}

// TestStatusTable is §4.9 for every status: what it means, and that this is what
// is done about it. The expectation is written down apart from the code's table.
func TestStatusTable(t *testing.T) {
	const (
		s = resilienthttp.VerdictSuccess
		p = resilienthttp.VerdictPermanent
		x = resilienthttp.VerdictTransient
		h = resilienthttp.VerdictThrottled
	)
	type verdicts struct{ plain, keyed, asked resilienthttp.Verdict } // asked: with Retry-After
	special := map[int]verdicts{
		403: {p, p, h},
		408: {x, x, x},
		409: {p, p, x}, // "exists already" does not pass, "still in flight" does
		425: {x, x, x},
		429: {h, h, h},
		501: {p, p, p},
		503: {x, x, h},
		505: {p, p, p},
		506: {p, p, p},
		508: {p, p, p},
		510: {p, p, p},
		511: {p, p, p},
		529: {h, h, h},
		600: {p, p, p},
		999: {p, p, p},
	}
	statuses := []int{600, 999}
	for status := 100; status < 600; status++ {
		statuses = append(statuses, status)
	}
	for _, status := range statuses {
		want, ok := special[status]
		switch {
		case ok:
		case status < 400:
			want = verdicts{s, s, s}
		case status < 500:
			want = verdicts{p, p, p}
		default:
			want = verdicts{x, x, x}
		}
		for _, row := range []struct {
			name       string
			keyed      bool
			retryAfter bool
			want       resilienthttp.Verdict
		}{
			{"unkeyed", false, false, want.plain},
			{"keyed", true, false, want.keyed},
			{"unkeyed, Retry-After", false, true, want.asked},
			{"keyed, Retry-After", true, true, max(want.asked, want.keyed)},
		} {
			name := fmt.Sprintf("§4.9 %d %s", status, row.name)
			base := puppetStatus(status)
			if row.retryAfter {
				base = puppetStatus(status, "Retry-After", "0")
			}
			ctx := t.Context()
			if row.keyed {
				ctx = resilienthttp.WithIdempotencyKey(ctx, "k")
			}
			attempts := tripped(t, bareTransport(base, 2), newCall(ctx, t, http.MethodPut, "body"))
			for _, a := range attempts {
				require.Equal(t, row.want, a.Verdict, name)
			}
			again := row.want == x || row.want == h
			require.Equal(t, again, len(attempts) == 2, name)
			last := attempts[len(attempts)-1]
			if again {
				require.Equal(t, resilienthttp.ErrMaxAttempts, last.Stop, name)
			} else {
				require.NoError(t, last.Stop, name)
			}
		}
	}
}

// TestForbidden is §4.9: 403 is worth a retry only where the server says that it
// is about a rate limit.
func TestForbidden(t *testing.T) {
	now := time.Now()
	for _, row := range []struct {
		name   string
		header []string
		want   resilienthttp.Verdict
	}{
		{"nothing said", nil, resilienthttp.VerdictPermanent},
		{"quota left", []string{"X-RateLimit-Remaining", "3", "X-RateLimit-Reset", "30"}, resilienthttp.VerdictPermanent},
		{"quota used up", []string{"X-RateLimit-Limit", "60", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "30"}, resilienthttp.VerdictThrottled},
		{"one of two quotas used up", []string{
			"X-Ratelimit-Remaining-Requests", "5", "X-Ratelimit-Reset-Requests", "1s",
			"X-Ratelimit-Remaining-Tokens", "0", "X-Ratelimit-Reset-Tokens", "6m0s",
		}, resilienthttp.VerdictThrottled},
		{"used up, reset not told", []string{"X-RateLimit-Remaining", "0"}, resilienthttp.VerdictThrottled},
		{"used up, reset due", []string{
			"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", fmt.Sprint(now.Add(-time.Second).Unix()), "Date", now.UTC().Format(http.TimeFormat),
		}, resilienthttp.VerdictThrottled},
		{"used up, out of a cache", []string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "30", "Age", "5"}, resilienthttp.VerdictPermanent},
		{"Retry-After", []string{"Retry-After", "1"}, resilienthttp.VerdictThrottled},
		{"Retry-After-Ms", []string{"Retry-After-Ms", "1"}, resilienthttp.VerdictThrottled},
		{"malformed Retry-After", []string{"Retry-After", "soon"}, resilienthttp.VerdictPermanent},
		{"should not retry", []string{"Retry-After", "1", "X-Should-Retry", "false"}, resilienthttp.VerdictPermanent},
	} {
		t.Run(row.name, func(t *testing.T) {
			attempts := tripped(t, bareTransport(puppetStatus(403, row.header...), -1), newCall(t.Context(), t, http.MethodGet, ""))
			require.Equal(t, row.want, attempts[0].Verdict)
		})
	}
	t.Run("§4.8 unkeyed POST is not repeated", func(t *testing.T) {
		transport := bareTransport(puppetStatus(403, "Retry-After", "0"), 2)
		transport.Idempotency.Off = true
		attempts := tripped(t, transport, newCall(t.Context(), t, http.MethodPost, "body"))
		require.Len(t, attempts, 1)
		require.Equal(t, resilienthttp.ErrNotIdempotent, attempts[0].Stop)
	})
}

// TestRepeatability is §4.8: what each status does to a request that is neither
// idempotent nor keyed, and that a key makes it as good as any.
func TestRepeatability(t *testing.T) {
	type answer struct {
		name   string
		status int
		header []string
	}
	var answers []answer
	for status := 400; status < 600; status++ {
		answers = append(answers, answer{fmt.Sprint(status), status, nil})
	}
	answers = append(answers,
		answer{"429 Retry-After", 429, []string{"Retry-After", "0"}},
		answer{"503 Retry-After", 503, []string{"Retry-After", "0"}},
		answer{"503 Retry-After-Ms", 503, []string{"Retry-After-Ms", "0"}},
		answer{"503 X-Ms-Retry-After-Ms", 503, []string{"X-Ms-Retry-After-Ms", "0"}},
		answer{"503 malformed Retry-After", 503, []string{"Retry-After", "-1"}},
		answer{"500 Retry-After", 500, []string{"Retry-After", "0"}},
		answer{"529 Retry-After", 529, []string{"Retry-After", "0"}},
		answer{"503 quota", 503, []string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "1ms"}},
		answer{"500 Stripe-Should-Retry", 500, []string{"Stripe-Should-Retry", "true"}},
		answer{"409 X-Should-Retry", 409, []string{"X-Should-Retry", "true"}},
		answer{"429 should not", 429, []string{"X-Should-Retry", "false"}},
		answer{"503 Retry-After, should not", 503, []string{"Retry-After", "0", "Stripe-Should-Retry", "false"}},
	)
	didNoWork := map[string]bool{
		"408": true, "425": true, "429": true, "429 Retry-After": true, "503 Retry-After": true, "503 Retry-After-Ms": true,
		"503 X-Ms-Retry-After-Ms": true, "500 Stripe-Should-Retry": true, "409 X-Should-Retry": true,
	}
	off := resilienthttp.Idempotency{Off: true}
	for _, request := range []struct {
		name   string
		method string
		config resilienthttp.Idempotency
	}{
		{"POST, keys off", http.MethodPost, off},
		{"PATCH, keys off", http.MethodPatch, off},
		{"POST, not among Methods", http.MethodPost, resilienthttp.Idempotency{Methods: []string{http.MethodPatch}}},
		{"POST, no Methods", http.MethodPost, resilienthttp.Idempotency{Methods: []string{}}},
		{"POST, NewKey gives none", http.MethodPost, resilienthttp.Idempotency{NewKey: func(*http.Request) string { return "" }}},
		{"unknown method", "FROB", resilienthttp.Idempotency{}},
		{"lower case is another method", "get", resilienthttp.Idempotency{}},
		{"CONNECT", http.MethodConnect, resilienthttp.Idempotency{}},
	} {
		t.Run("§4.8 unkeyed/"+request.name, func(t *testing.T) {
			for _, a := range answers {
				transport := bareTransport(puppetStatus(a.status, a.header...), 2)
				transport.Idempotency = request.config
				attempts := tripped(t, transport, newCall(t.Context(), t, request.method, "body"))
				if didNoWork[a.name] {
					require.Len(t, attempts, 2, a.name)
					continue
				}
				require.Len(t, attempts, 1, a.name)
				if v := attempts[0].Verdict; v == resilienthttp.VerdictTransient || v == resilienthttp.VerdictThrottled {
					require.Equal(t, resilienthttp.ErrNotIdempotent, attempts[0].Stop, a.name)
				}
			}
		})
	}
	keyed := func(ctx context.Context) context.Context { return resilienthttp.WithIdempotencyKey(ctx, "k") }
	for _, request := range []struct {
		name    string
		method  string
		context func(context.Context) context.Context
		header  string
		config  resilienthttp.Idempotency
	}{
		{name: "POST", method: http.MethodPost},
		{name: "PATCH", method: http.MethodPatch},
		{name: "POST, context key, keys off", method: http.MethodPost, context: keyed, config: off},
		{name: "POST, header key, keys off", method: http.MethodPost, header: "k", config: off},
		{name: "unknown method, context key", method: "FROB", context: keyed},
		{name: "unknown method among Methods", method: "FROB", config: resilienthttp.Idempotency{Methods: []string{"FROB"}}},
	} {
		t.Run("§4.8 keyed/"+request.name, func(t *testing.T) {
			for _, a := range answers {
				transport := bareTransport(puppetStatus(a.status, a.header...), 2)
				transport.Idempotency = request.config
				ctx := t.Context()
				if request.context != nil {
					ctx = request.context(ctx)
				}
				req := newCall(ctx, t, request.method, "body")
				if request.header != "" {
					req.Header.Set("Idempotency-Key", request.header)
				}
				attempts := tripped(t, transport, req)
				v := attempts[0].Verdict
				again := v == resilienthttp.VerdictTransient || v == resilienthttp.VerdictThrottled
				require.Equal(t, again, len(attempts) == 2, a.name)
			}
		})
	}
	t.Run("§4.8 idempotent methods", func(t *testing.T) {
		for _, method := range []string{"", "GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"} {
			req := newCall(t.Context(), t, method, "")
			req.Method = method
			require.Len(t, tripped(t, bareTransport(puppetStatus(500), 2), req), 2, method)
		}
	})
}

// TestShouldRetry is §4.10: the server's explicit word comes first, both ways.
func TestShouldRetry(t *testing.T) {
	for _, row := range []struct {
		name   string
		status int
		header []string
		want   resilienthttp.Verdict
	}{
		{"Stripe says yes to a 400", 400, []string{"Stripe-Should-Retry", "true"}, resilienthttp.VerdictTransient},
		{"yes to a 422", 422, []string{"X-Should-Retry", "true"}, resilienthttp.VerdictTransient},
		{"yes to a 501", 501, []string{"X-Should-Retry", "true"}, resilienthttp.VerdictTransient},
		{"yes to a 999", 999, []string{"X-Should-Retry", "true"}, resilienthttp.VerdictTransient},
		{"yes to a 429 keeps it throttled", 429, []string{"X-Should-Retry", "true"}, resilienthttp.VerdictThrottled},
		{"no to a 500", 500, []string{"Stripe-Should-Retry", "false"}, resilienthttp.VerdictPermanent},
		{"no to a 429", 429, []string{"X-Should-Retry", "false", "Retry-After", "1"}, resilienthttp.VerdictPermanent},
		{"no to a 503", 503, []string{"X-Should-Retry", "false", "Retry-After", "1"}, resilienthttp.VerdictPermanent},
		{"no to a 408", 408, []string{"X-Should-Retry", "false"}, resilienthttp.VerdictPermanent},
		{"Stripe's word before the other", 500, []string{"Stripe-Should-Retry", "false", "X-Should-Retry", "true"}, resilienthttp.VerdictPermanent},
		{"case and blanks", 500, []string{"X-Should-Retry", " FALSE "}, resilienthttp.VerdictPermanent},
		{"another word is none", 500, []string{"X-Should-Retry", "maybe"}, resilienthttp.VerdictTransient},
		{"a number is none", 400, []string{"X-Should-Retry", "1"}, resilienthttp.VerdictPermanent},
		{"Stripe mumbles, the other speaks", 400, []string{"Stripe-Should-Retry", "", "X-Should-Retry", "true"}, resilienthttp.VerdictTransient},
		{"nothing to say about a success", 200, []string{"X-Should-Retry", "true"}, resilienthttp.VerdictSuccess},
		{"nor about a redirect", 302, []string{"X-Should-Retry", "true"}, resilienthttp.VerdictSuccess},
	} {
		t.Run("§4.10 "+row.name, func(t *testing.T) {
			attempts := tripped(t, bareTransport(puppetStatus(row.status, row.header...), 2), newCall(t.Context(), t, http.MethodPost, "body"))
			require.Equal(t, row.want, attempts[0].Verdict)
			again := row.want == resilienthttp.VerdictTransient || row.want == resilienthttp.VerdictThrottled
			require.Equal(t, again, len(attempts) == 2)
		})
	}
}

// timeoutError is what package net returns for timeouts, seen from outside.
type timeoutError struct{}

func (timeoutError) Error() string { return "i/o timeout" }
func (timeoutError) Timeout() bool { return true }

// TestTransportErrors is §4.8 and §4.9 for the errors that a Base may return, as
// they are and wrapped.
func TestTransportErrors(t *testing.T) {
	dial := func(err error) error { return &net.OpError{Op: "dial", Net: "tcp", Err: err} }
	read := func(err error) error { return &net.OpError{Op: "read", Net: "tcp", Err: err} }
	remote := func(alert uint8) error { return &net.OpError{Op: "remote error", Err: foreignAlertError(alert)} }
	const (
		permanent = resilienthttp.VerdictPermanent
		transient = resilienthttp.VerdictTransient
	)
	for _, row := range []struct {
		name string
		err  error
		want resilienthttp.Verdict
		left bool // the request may have
	}{
		{"ECONNRESET", read(os.NewSyscallError("read", syscall.ECONNRESET)), transient, true},
		{"ECONNRESET, bare", syscall.ECONNRESET, transient, true},
		{"EPIPE", &net.OpError{Op: "write", Err: syscall.EPIPE}, transient, true},
		{"ECONNREFUSED", dial(os.NewSyscallError("connect", syscall.ECONNREFUSED)), transient, false},
		{"ECONNREFUSED, bare", syscall.ECONNREFUSED, transient, false},
		{"EHOSTUNREACH on dial", dial(syscall.EHOSTUNREACH), transient, false},
		{"EHOSTUNREACH on read", read(syscall.EHOSTUNREACH), transient, true},
		{"dial timeout", dial(timeoutError{}), transient, false},
		{"proxyconnect", &net.OpError{Op: "proxyconnect", Err: io.EOF}, transient, false},
		{"socks connect", &net.OpError{Op: "socks connect", Err: errors.New("general SOCKS server failure")}, transient, false},
		{"EOF", io.EOF, transient, true},
		{"unexpected EOF", io.ErrUnexpectedEOF, transient, true},
		{"read timeout", read(timeoutError{}), transient, true},
		{"os.ErrDeadlineExceeded", os.ErrDeadlineExceeded, transient, true},
		{"net.ErrClosed", net.ErrClosed, transient, true},
		{"a context of Base's own", context.Canceled, transient, true},
		{"a deadline of Base's own", context.DeadlineExceeded, transient, true},
		{"unknown kind", errors.New("gremlins"), transient, true},
		{"NXDOMAIN", dial(&net.DNSError{Err: "no such host", Name: "x.test", IsNotFound: true}), permanent, false},
		{"NXDOMAIN, bare", &net.DNSError{Err: "no such host", IsNotFound: true}, permanent, false},
		{"not found for now", &net.DNSError{Err: "no such host", IsNotFound: true, IsTemporary: true}, transient, false},
		{"DNS, temporary", &net.DNSError{Err: "server misbehaving", IsTemporary: true}, transient, false},
		{"DNS, timeout", &net.DNSError{Err: "i/o timeout", IsTimeout: true}, transient, false},
		{"unknown authority", x509.UnknownAuthorityError{}, permanent, true},
		{"hostname", x509.HostnameError{Certificate: &x509.Certificate{}, Host: "x.test"}, permanent, true},
		{"expired", x509.CertificateInvalidError{Reason: x509.Expired}, permanent, true},
		{"no roots", x509.SystemRootsError{}, permanent, true},
		{"verification", &tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}, permanent, false},
		{"alert bad_certificate", remote(42), permanent, true},
		{"alert unsupported_certificate", remote(43), permanent, true},
		{"alert certificate_revoked", remote(44), permanent, true},
		{"alert certificate_expired", remote(45), permanent, true},
		{"alert certificate_unknown", remote(46), permanent, true},
		{"alert unknown_ca", remote(48), permanent, true},
		{"alert access_denied", remote(49), permanent, true},
		{"alert certificate_required", remote(116), permanent, true},
		{"alert handshake_failure", remote(40), transient, false},
		{"alert protocol_version", remote(70), transient, false},
		{"alert insufficient_security", remote(71), transient, false},
		{"alert unrecognized_name", remote(112), transient, false},
		{"alert no_application_protocol", remote(120), transient, false},
		{"alert internal_error", remote(80), transient, true},
		{"alert bad_record_mac", remote(20), transient, true},
		{"QUIC alert unknown_ca", tls.AlertError(48), permanent, true},
		{"QUIC alert handshake_failure", tls.AlertError(40), transient, false},
		{"first record is no TLS", tls.RecordHeaderError{Msg: "first record", Conn: &net.TCPConn{}}, transient, false},
		{"a later record is broken", tls.RecordHeaderError{Msg: "oversized record received"}, transient, true},
		{"scheme mismatch", http.ErrSchemeMismatch, permanent, false},
		{"scheme mismatch as http.Transport says it", tls.RecordHeaderError{
			Msg: "first record", RecordHeader: [5]byte([]byte("HTTP/")), Conn: &net.TCPConn{},
		}, permanent, false},
		{"scheme", errors.New(`unsupported protocol scheme "ftp"`), permanent, false},
		{"header", errors.New(`net/http: invalid header field name "a b"`), permanent, false},
		{"host", errors.New("http: no Host in request URL"), permanent, false},
		{"body shorter than said", errors.New("http: ContentLength=5 with Body length 3"), permanent, true},
		{"a text that quotes the URL", errors.New(`Get "http://x.test/?unsupported protocol scheme ": EOF`), transient, true},
		{"a text that quotes the server", errors.New(`malformed HTTP response "http: no Host in request URL"`), transient, true},
		{"a text that quotes a timeout", errors.New(`malformed HTTP response "net/http: TLS handshake timeout"`), transient, true},
		{"gate of a Transport inside", &resilienthttp.Error{Reason: resilienthttp.ErrBreakerOpen}, permanent, false},
		{"limit of a Transport inside", &resilienthttp.Error{Reason: resilienthttp.ErrRateLimited}, permanent, false},
		{"gate inside, after an attempt", &resilienthttp.Error{
			Reason: resilienthttp.ErrBreakerOpen, Attempts: []resilienthttp.Attempt{{Number: 1, Err: io.EOF}},
		}, permanent, true},
		{"failure inside", &resilienthttp.Error{Reason: resilienthttp.ErrSingleAttempt, Err: io.EOF}, transient, true},
		{"refusal inside", &resilienthttp.Error{Reason: resilienthttp.ErrSingleAttempt, Err: syscall.ECONNREFUSED}, transient, false},
	} {
		for _, wrapped := range []struct {
			name string
			err  error
		}{
			{"", row.err},
			{", wrapped", fmt.Errorf("base: %w", row.err)},
			{", in a url.Error", &url.Error{Op: "Get", URL: "http://x.test/?unsupported protocol scheme ", Err: row.err}},
			{", joined", errors.Join(errors.New("more"), row.err)},
		} {
			t.Run("§4.9 "+row.name+wrapped.name, func(t *testing.T) {
				base := puppet(func(*http.Request) (*http.Response, error) { return nil, wrapped.err })
				attempts := tripped(t, bareTransport(base, 2), newCall(t.Context(), t, http.MethodGet, ""))
				require.Equal(t, row.want, attempts[0].Verdict)
				require.Equal(t, row.want == transient, len(attempts) == 2)
				require.ErrorIs(t, attempts[0].Err, wrapped.err)

				// §4.8, also where the classification is overridden.
				transport := bareTransport(base, 2)
				transport.Idempotency.Off = true
				transport.Policy.Classify = func(*resilienthttp.Attempt) resilienthttp.Verdict { return transient }
				attempts = tripped(t, transport, newCall(t.Context(), t, http.MethodPost, "body"))
				require.Equal(t, !row.left, len(attempts) == 2, "an unkeyed POST must be repeated only if it never left")

				transport.Idempotency.Off = false
				attempts = tripped(t, bareTransport(base, 2), newCall(t.Context(), t, http.MethodPost, "body"))
				require.Equal(t, row.want == transient, len(attempts) == 2, "a keyed one as the table says")
			})
		}
	}
}

// foreignAlertError is as crypto/tls's own alert type: another uint8.
type foreignAlertError uint8

func (a foreignAlertError) Error() string { return fmt.Sprintf("tls: alert(%d)", uint8(a)) }

// TestCallerGone is §4.9: the caller's own cancellation and deadline are never
// retried, whatever Classify says of them.
func TestCallerGone(t *testing.T) {
	always := func(*resilienthttp.Attempt) resilienthttp.Verdict { return resilienthttp.VerdictTransient }
	t.Run("§4.9 cancelled", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		transport := bareTransport(puppet(func(req *http.Request) (*http.Response, error) {
			cancel()
			return nil, req.Context().Err()
		}), 3)
		transport.Policy.Classify = always
		attempts := tripped(t, transport, newCall(ctx, t, http.MethodGet, ""))
		require.Len(t, attempts, 1)
		require.Equal(t, resilienthttp.VerdictPermanent, attempts[0].Verdict)
		require.ErrorIs(t, attempts[0].Err, context.Canceled)
	})
	t.Run("§4.9 deadline", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			transport := bareTransport(puppet(func(req *http.Request) (*http.Response, error) {
				<-req.Context().Done()
				return nil, errors.New("some words of Base's")
			}), 3)
			transport.Policy.Classify = always
			attempts := tripped(t, transport, newCall(ctx, t, http.MethodPut, ""))
			require.Len(t, attempts, 1)
			require.ErrorIs(t, attempts[0].Err, context.DeadlineExceeded)
		})
	})
	t.Run("§4.9 attempt timeout may pass", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			transport := bareTransport(puppet(func(req *http.Request) (*http.Response, error) {
				<-req.Context().Done()
				return nil, req.Context().Err()
			}), 3)
			transport.Policy.AttemptTimeout = time.Second
			attempts := tripped(t, transport, newCall(t.Context(), t, http.MethodGet, ""))
			require.Len(t, attempts, 3)
			require.Equal(t, resilienthttp.VerdictTransient, attempts[0].Verdict)
			require.ErrorIs(t, attempts[0].Err, resilienthttp.ErrAttemptTimeout)
			attempts = tripped(t, unkeyed(transport), newCall(t.Context(), t, http.MethodPost, "body"))
			require.Len(t, attempts, 1, "§4.8: it may have been processed")
			require.Equal(t, resilienthttp.ErrNotIdempotent, attempts[0].Stop)
		})
	})
}

// unkeyed is a Transport like t, unused and without keys.
func unkeyed(t *resilienthttp.Transport) *resilienthttp.Transport {
	return &resilienthttp.Transport{
		Base: t.Base, Policy: t.Policy, Budget: t.Budget, Breaker: t.Breaker, RateLimit: t.RateLimit,
		Idempotency: resilienthttp.Idempotency{Off: true},
	}
}

// rawServer accepts on a loopback socket and leaves each connection to serve.
func rawServer(t *testing.T, serve func(net.Conn)) (address string, accepted *atomic.Int64) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	accepted = new(atomic.Int64)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			accepted.Add(1)
			wg.Go(func() {
				defer conn.Close()
				serve(conn)
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		wg.Wait()
	})
	return l.Addr().String(), accepted
}

// realPOST makes an unkeyed POST over net/http and real sockets.
func realPOST(t *testing.T, base *http.Transport, url string) []resilienthttp.Attempt {
	t.Helper()
	t.Cleanup(base.CloseIdleConnections)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader("charge"))
	require.NoError(t, err)
	return tripped(t, unkeyed(bareTransport(base, 2)), req)
}

// TestUnkeyedOverSockets is §4.8 with net/http and the kernel as the judges of
// what errors look like.
func TestUnkeyedOverSockets(t *testing.T) {
	t.Run("§4.8 refused", func(t *testing.T) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		require.NoError(t, l.Close())
		attempts := realPOST(t, &http.Transport{}, "http://"+l.Addr().String())
		require.Len(t, attempts, 2)
		require.ErrorIs(t, attempts[0].Err, syscall.ECONNREFUSED)
	})
	t.Run("§4.8 read and reset", func(t *testing.T) {
		server := faulttest.New(t, faulttest.ResetAfterRead)
		attempts := realPOST(t, server.Transport(), server.URL)
		server.AssertAttempts(t, 1)
		require.ErrorIs(t, attempts[0].Err, syscall.ECONNRESET)
		require.Equal(t, resilienthttp.VerdictTransient, attempts[0].Verdict)
		require.Equal(t, resilienthttp.ErrNotIdempotent, attempts[0].Stop)
	})
	t.Run("§4.8 read and closed", func(t *testing.T) {
		server := faulttest.New(t, faulttest.CloseAfterRead)
		attempts := realPOST(t, server.Transport(), server.URL)
		server.AssertAttempts(t, 1)
		require.Equal(t, resilienthttp.ErrNotIdempotent, attempts[0].Stop)
	})
	t.Run("§4.8 half an answer", func(t *testing.T) {
		address, _ := rawServer(t, func(conn net.Conn) {
			_, _ = conn.Read(make([]byte, 4096))
			_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-")
		})
		attempts := realPOST(t, &http.Transport{}, "http://"+address)
		require.Len(t, attempts, 1)
		require.Equal(t, resilienthttp.VerdictTransient, attempts[0].Verdict)
	})
	t.Run("§4.8 nonsense for an answer", func(t *testing.T) {
		address, _ := rawServer(t, func(conn net.Conn) {
			_, _ = conn.Read(make([]byte, 4096))
			_, _ = io.WriteString(conn, "http: no Host in request URL\r\n\r\n")
		})
		attempts := realPOST(t, &http.Transport{}, "http://"+address)
		require.Len(t, attempts, 1)
		require.Equal(t, resilienthttp.VerdictTransient, attempts[0].Verdict, "what the server wrote must not decide")
	})
	for name, rcode := range map[string]byte{"NXDOMAIN": 3, "SERVFAIL": 2} {
		t.Run("§4.8 DNS "+name, func(t *testing.T) {
			attempts := realPOST(t, &http.Transport{DialContext: dnsThatSays(t, rcode)}, "http://api.test./")
			var dns *net.DNSError
			require.ErrorAs(t, attempts[0].Err, &dns)
			if rcode == 3 {
				require.Equal(t, resilienthttp.VerdictPermanent, attempts[0].Verdict)
				require.Len(t, attempts, 1)
			} else {
				require.Equal(t, resilienthttp.VerdictTransient, attempts[0].Verdict)
				require.Len(t, attempts, 2)
			}
		})
	}
	t.Run("§4.8 TLS to something else", func(t *testing.T) {
		address, accepted := rawServer(t, func(conn net.Conn) {
			_, _ = conn.Read(make([]byte, 4096))
			_, _ = io.WriteString(conn, "220 mail.test ESMTP\r\n")
		})
		attempts := realPOST(t, &http.Transport{}, "https://"+address)
		require.Len(t, attempts, 2)
		require.EqualValues(t, 2, accepted.Load())
	})
	t.Run("§4.9 TLS to a server without", func(t *testing.T) {
		server := faulttest.New(t, nil)
		attempts := realPOST(t, server.Transport(), "https"+strings.TrimPrefix(server.URL, "http"))
		require.Len(t, attempts, 1)
		server.AssertRequests(t, 0)
		require.Equal(t, resilienthttp.VerdictPermanent, attempts[0].Verdict)
		require.NoError(t, attempts[0].Stop)
	})
	t.Run("§4.8 proxy refused", func(t *testing.T) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		require.NoError(t, l.Close())
		for _, scheme := range []string{"http", "socks5"} {
			proxy := &url.URL{Scheme: scheme, Host: l.Addr().String()}
			attempts := realPOST(t, &http.Transport{Proxy: http.ProxyURL(proxy)}, "https://api.test/")
			require.Len(t, attempts, 2, scheme)
		}
	})
	t.Run("§4.8 SOCKS proxy says no", func(t *testing.T) {
		address, _ := rawServer(t, func(conn net.Conn) {
			buf := make([]byte, 512)
			_, _ = conn.Read(buf)
			_, _ = conn.Write([]byte{5, 0})
			_, _ = conn.Read(buf)
			_, _ = conn.Write([]byte{5, 4, 0, 1, 0, 0, 0, 0, 0, 0}) // host unreachable
		})
		attempts := realPOST(t, &http.Transport{Proxy: http.ProxyURL(&url.URL{Scheme: "socks5", Host: address})}, "http://api.test/")
		require.Len(t, attempts, 2)
	})
}

// dnsThatSays dials by way of a resolver whose only server answers with rcode.
func dnsThatSays(t *testing.T, rcode byte) func(context.Context, string, string) (net.Conn, error) {
	t.Helper()
	server, err := net.ListenPacket("udp", "127.0.0.1:0")
	require.NoError(t, err)
	var wg sync.WaitGroup
	wg.Go(func() {
		buf := make([]byte, 512)
		for {
			n, from, err := server.ReadFrom(buf)
			if err != nil {
				return
			}
			// The query with QR and the rcode set is an answer.
			buf[2] |= 0x80
			buf[3] = buf[3]&0x70 | rcode
			_, _ = server.WriteTo(buf[:n], from)
		}
	})
	t.Cleanup(func() {
		_ = server.Close()
		wg.Wait()
	})
	dialer := &net.Dialer{Resolver: &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "udp", server.LocalAddr().String())
	}}}
	return dialer.DialContext
}

// tlsServer is an HTTPS server with the configuration, and a client's that
// trusts it.
func tlsServer(t *testing.T, change func(server, client *tls.Config)) (url string, client *http.Transport, served *faulttest.Log) {
	t.Helper()
	served = new(faulttest.Log)
	server := httptest.NewUnstartedServer(served.Record(nil))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.TLS = &tls.Config{}
	clientConfig := &tls.Config{}
	change(server.TLS, clientConfig)
	server.StartTLS()
	t.Cleanup(server.Close)
	if clientConfig.RootCAs == nil {
		clientConfig.RootCAs = x509.NewCertPool()
		clientConfig.RootCAs.AddCert(server.Certificate())
	}
	return server.URL, &http.Transport{TLSClientConfig: clientConfig}, served
}

// TestHandshakes is §4.8 and §4.9 for TLS handshakes that fail, over loopback
// sockets: nothing reaches the handler.
func TestHandshakes(t *testing.T) {
	expired := certificate(t, time.Now().Add(-48*time.Hour), time.Now().Add(-24*time.Hour))
	for _, row := range []struct {
		name     string
		change   func(server, client *tls.Config)
		want     resilienthttp.Verdict
		attempts int
	}{
		{"protocol version", func(server, client *tls.Config) {
			server.MinVersion, client.MaxVersion = tls.VersionTLS13, tls.VersionTLS12
		}, resilienthttp.VerdictTransient, 2},
		{"no cipher in common", func(server, client *tls.Config) {
			server.MaxVersion = tls.VersionTLS12
			server.CipherSuites = []uint16{tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384}
			client.CipherSuites = []uint16{tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256}
		}, resilienthttp.VerdictTransient, 2},
		{"no protocol in common", func(server, client *tls.Config) {
			server.NextProtos, client.NextProtos = []string{"spdy/1"}, []string{"gopher"}
		}, resilienthttp.VerdictTransient, 2},
		{"unknown authority", func(_, client *tls.Config) {
			client.RootCAs = x509.NewCertPool()
		}, resilienthttp.VerdictPermanent, 1},
		{"wrong name", func(_, client *tls.Config) {
			client.ServerName = "elsewhere.test"
		}, resilienthttp.VerdictPermanent, 1},
		{"expired", func(server, client *tls.Config) {
			server.Certificates = []tls.Certificate{expired}
			client.RootCAs = x509.NewCertPool()
			client.RootCAs.AddCert(expired.Leaf)
		}, resilienthttp.VerdictPermanent, 1},
		{"client certificate wanted, TLS 1.3", func(server, _ *tls.Config) {
			server.ClientAuth = tls.RequireAnyClientCert
		}, resilienthttp.VerdictPermanent, 1},
		{"client certificate wanted, TLS 1.2", func(server, _ *tls.Config) {
			server.ClientAuth, server.MaxVersion = tls.RequireAnyClientCert, tls.VersionTLS12
		}, resilienthttp.VerdictTransient, 2}, // there it is a handshake_failure and nothing more
		{"client certificate of an unknown authority", func(server, client *tls.Config) {
			server.ClientAuth, server.ClientCAs = tls.RequireAndVerifyClientCert, x509.NewCertPool()
			client.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &expired, nil }
		}, resilienthttp.VerdictPermanent, 1},
	} {
		t.Run("§4.9 "+row.name, func(t *testing.T) {
			url, base, served := tlsServer(t, row.change)
			attempts := realPOST(t, base, url)
			require.Equal(t, row.want, attempts[0].Verdict, "%v", attempts[0].Err)
			require.Len(t, attempts, row.attempts, "%v", attempts[0].Err)
			served.AssertRequests(t, 0)
		})
	}
	t.Run("§4.8 handshake timeout", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			n := memhttp.NewNetwork(t)
			l := n.Listen("silent.test")
			t.Cleanup(func() { _ = l.Close() })
			base := n.Transport()
			base.TLSHandshakeTimeout = time.Second
			attempts := realPOST(t, base, "https://silent.test/")
			require.Len(t, attempts, 2)
			require.Equal(t, time.Second, attempts[0].Latency)
		})
	})
	t.Run("§4.8 refused, in memory", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			attempts := realPOST(t, memhttp.NewNetwork(t).Transport(), "http://nobody.test/")
			require.Len(t, attempts, 2)
		})
	})
	t.Run("§4.8 broken after the handshake", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			// The answer is a record of the wrong version: the same type of error
			// as for a server without TLS, but the request has arrived.
			var served faulttest.Log
			server := memhttp.NewServer(t, served.Record(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				_, _ = memhttp.RequestConn(r).Write([]byte{23, 9, 9, 0, 1, 0})
				<-r.Context().Done()
			})), memhttp.TLS())
			attempts := realPOST(t, server.Transport(), server.URL)
			var record tls.RecordHeaderError
			require.ErrorAs(t, attempts[0].Err, &record)
			require.Len(t, attempts, 1)
			served.AssertRequests(t, 1)
		})
	})
}

// certificate is one for 127.0.0.1, signed by itself.
func certificate(t *testing.T, from, to time.Time) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: from, NotAfter: to, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	leaf, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

// TestMalformedRequests pins the texts of net/http that §4.9 goes by, since
// there are no types: what cannot be sent is not tried twice, nor is it held
// against the server.
func TestMalformedRequests(t *testing.T) {
	for _, row := range []struct {
		name   string
		change func(*http.Request)
	}{
		{"scheme", func(r *http.Request) { r.URL.Scheme = "gopher" }},
		{"no scheme", func(r *http.Request) { r.URL.Scheme = "" }},
		{"no host", func(r *http.Request) { r.URL.Host = "" }},
		{"header name", func(r *http.Request) { r.Header["a b"] = []string{"c"} }},
		{"header value", func(r *http.Request) { r.Header["A"] = []string{"b\nc"} }},
		{"trailer name", func(r *http.Request) { r.Trailer = http.Header{"a b": nil} }},
		{"trailer that is none", func(r *http.Request) {
			r.Trailer = http.Header{"Content-Length": nil}
			r.Body, r.ContentLength = io.NopCloser(strings.NewReader("body")), -1
		}},
		{"method", func(r *http.Request) { r.Method = "A B" }},
		{"host header", func(r *http.Request) { r.Host = "a b" }},
		{"control character", func(r *http.Request) { r.URL.Opaque = "/\x01" }},
		{"short body", func(r *http.Request) { r.Body, r.ContentLength = io.NopCloser(strings.NewReader("body")), 10 }},
	} {
		for _, proto := range []struct {
			name    string
			options []memhttp.Option
		}{{"HTTP/1", nil}, {"HTTP/2", []memhttp.Option{memhttp.HTTP2()}}} {
			if proto.name == "HTTP/1" && row.name == "host header" {
				continue // sent without; through a proxy, below, it is an error
			}
			if proto.name == "HTTP/2" && (row.name == "short body" || row.name == "control character" || row.name == "trailer that is none") {
				continue // says nothing, or something else
			}
			t.Run("§4.9 "+row.name+"/"+proto.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					server := memhttp.NewServer(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), proto.options...)
					// What net/http finds out while it writes, it reports once in some
					// ten thousand times as the closing of its own connection.
					for range 10 {
						transport := bareTransport(server.Transport(), 2)
						transport.Breaker = &resilienthttp.Breaker{MinRequests: 1}
						req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, nil)
						require.NoError(t, err)
						row.change(req)
						attempts := tripped(t, transport, req)
						if errors.Is(attempts[0].Err, net.ErrClosed) {
							continue
						}
						require.Len(t, attempts, 1)
						require.Equal(t, resilienthttp.VerdictPermanent, attempts[0].Verdict, "%v", attempts[0].Err)
						require.Equal(t, resilienthttp.StateClosed, transport.Breaker.State("mem.test"))
						return
					}
					t.Fatal("net/http never says what is wrong")
				})
			})
		}
	}
	t.Run("§4.9 host header/proxy", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			proxy := memhttp.NewServer(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), memhttp.Host("proxy.test"))
			base := proxy.Transport()
			base.Proxy = http.ProxyURL(&url.URL{Scheme: "http", Host: "proxy.test"})
			req := newCall(t.Context(), t, http.MethodGet, "")
			req.Host = "a b"
			attempts := tripped(t, bareTransport(base, 2), req)
			require.Len(t, attempts, 1)
			require.Equal(t, resilienthttp.VerdictPermanent, attempts[0].Verdict, "%v", attempts[0].Err)
		})
	})
	t.Run("§4.9 header list too large for HTTP/2", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			server := memhttp.NewServer(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}),
				memhttp.HTTP2(), memhttp.Configure(func(s *http.Server) { s.MaxHeaderBytes = 1 << 10 }))
			transport := bareTransport(server.Transport(), 2)
			send := func(size int) []resilienthttp.Attempt {
				req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, nil)
				require.NoError(t, err)
				req.Header.Set("X-Large", strings.Repeat("x", size))
				return tripped(t, transport, req)
			}
			send(1) // the settings come with the first answer
			attempts := send(1 << 16)
			require.Len(t, attempts, 1)
			require.Equal(t, resilienthttp.VerdictPermanent, attempts[0].Verdict, "%v", attempts[0].Err)
		})
	})
}

// TestClassify is Policy.Classify: it has the last word, save over the caller's
// cancellation, and the table's verdict before its eyes.
func TestClassify(t *testing.T) {
	for _, row := range []struct {
		name   string
		status int
		says   resilienthttp.Verdict
		want   resilienthttp.Verdict
	}{
		{"default leaves it to the table", 500, resilienthttp.VerdictDefault, resilienthttp.VerdictTransient},
		{"default, success", 200, resilienthttp.VerdictDefault, resilienthttp.VerdictSuccess},
		{"success over 500", 500, resilienthttp.VerdictSuccess, resilienthttp.VerdictSuccess},
		{"permanent over 500", 500, resilienthttp.VerdictPermanent, resilienthttp.VerdictPermanent},
		{"transient over 404", 404, resilienthttp.VerdictTransient, resilienthttp.VerdictTransient},
		{"throttled over 200", 200, resilienthttp.VerdictThrottled, resilienthttp.VerdictThrottled},
		{"a number that is none", 500, resilienthttp.Verdict(99), resilienthttp.VerdictTransient},
		{"a negative number", 500, resilienthttp.Verdict(-1), resilienthttp.VerdictTransient},
	} {
		t.Run(row.name, func(t *testing.T) {
			transport := bareTransport(puppetStatus(row.status), 2)
			var seen []resilienthttp.Verdict
			transport.Policy.Classify = func(a *resilienthttp.Attempt) resilienthttp.Verdict {
				seen = append(seen, a.Verdict)
				require.Equal(t, row.status, a.Response.StatusCode)
				require.NotNil(t, a.Request)
				return row.says
			}
			attempts := tripped(t, transport, newCall(t.Context(), t, http.MethodGet, ""))
			require.Equal(t, row.want, attempts[0].Verdict)
			again := row.want == resilienthttp.VerdictTransient || row.want == resilienthttp.VerdictThrottled
			require.Equal(t, again, len(attempts) == 2)
			table := resilienthttp.VerdictSuccess
			switch row.status {
			case 404:
				table = resilienthttp.VerdictPermanent
			case 500:
				table = resilienthttp.VerdictTransient
			}
			require.Equal(t, table, seen[0], "what the table says")
		})
	}
	t.Run("errors", func(t *testing.T) {
		transport := bareTransport(puppet(func(*http.Request) (*http.Response, error) { return nil, io.EOF }), 2)
		transport.Policy.Classify = func(a *resilienthttp.Attempt) resilienthttp.Verdict {
			require.Nil(t, a.Response)
			require.ErrorIs(t, a.Err, io.EOF)
			return resilienthttp.VerdictPermanent
		}
		_, err := transport.RoundTrip(newCall(t.Context(), t, http.MethodGet, ""))
		require.ErrorIs(t, err, io.EOF)
		require.NotErrorIs(t, err, resilienthttp.ErrMaxAttempts)
	})
	t.Run("§4.8 does not make a POST repeatable", func(t *testing.T) {
		transport := bareTransport(puppetStatus(404), 2)
		transport.Idempotency.Off = true
		transport.Policy.Classify = func(*resilienthttp.Attempt) resilienthttp.Verdict { return resilienthttp.VerdictTransient }
		attempts := tripped(t, transport, newCall(t.Context(), t, http.MethodPost, "body"))
		require.Len(t, attempts, 1)
		require.Equal(t, resilienthttp.ErrNotIdempotent, attempts[0].Stop)
	})
	t.Run("does not change what the breaker counts", func(t *testing.T) {
		transport := bareTransport(puppetStatus(500), 1)
		transport.Breaker = &resilienthttp.Breaker{MinRequests: 1}
		transport.Policy.Classify = func(*resilienthttp.Attempt) resilienthttp.Verdict { return resilienthttp.VerdictSuccess }
		tripped(t, transport, newCall(t.Context(), t, http.MethodGet, ""))
		require.Equal(t, resilienthttp.StateOpen, transport.Breaker.State("api.test"))
	})
}

// TestWithPolicy is the policy of one call: all of it, instead of the
// Transport's.
func TestWithPolicy(t *testing.T) {
	count := func(t *testing.T, transport *resilienthttp.Transport, ctx context.Context) int {
		t.Helper()
		return len(tripped(t, transport, newCall(ctx, t, http.MethodGet, "")))
	}
	give := resilienthttp.WithPolicy
	for _, row := range []struct {
		name    string
		own     int // the Transport's MaxAttempts
		context func(context.Context) context.Context
		want    int
		stop    error
	}{
		{"the Transport's", 3, func(ctx context.Context) context.Context { return ctx }, 3, resilienthttp.ErrMaxAttempts},
		{"the call's", 3, func(ctx context.Context) context.Context {
			return give(ctx, resilienthttp.Policy{MaxAttempts: 2, Backoff: atOnce})
		}, 2, resilienthttp.ErrMaxAttempts},
		{"zero means the default, not the Transport's", 2, func(ctx context.Context) context.Context {
			return give(ctx, resilienthttp.Policy{Backoff: atOnce})
		}, 4, resilienthttp.ErrMaxAttempts},
		{"the innermost wins", 3, func(ctx context.Context) context.Context {
			ctx = give(ctx, resilienthttp.Policy{MaxAttempts: 7, Backoff: atOnce})
			return give(ctx, resilienthttp.Policy{MaxAttempts: 5, Backoff: atOnce})
		}, 5, resilienthttp.ErrMaxAttempts},
		{"all of it", 3, func(ctx context.Context) context.Context {
			ctx = give(ctx, resilienthttp.Policy{MaxAttempts: 7, Backoff: atOnce})
			return give(ctx, resilienthttp.Policy{Backoff: atOnce})
		}, 4, resilienthttp.ErrMaxAttempts},
		{"through other values", 3, func(ctx context.Context) context.Context {
			ctx = give(ctx, resilienthttp.Policy{MaxAttempts: 2, Backoff: atOnce})
			ctx = context.WithValue(ctx, timeoutError{}, 1)
			return resilienthttp.WithIdempotencyKey(ctx, "k")
		}, 2, resilienthttp.ErrMaxAttempts},
		{"negative: never", 3, func(ctx context.Context) context.Context {
			return give(ctx, resilienthttp.Policy{MaxAttempts: -1})
		}, 1, resilienthttp.ErrMaxAttempts},
		{"a million is a hundred", 3, func(ctx context.Context) context.Context {
			return give(ctx, resilienthttp.Policy{MaxAttempts: 1e6, Backoff: atOnce})
		}, 100, resilienthttp.ErrMaxAttempts},
		{"single attempt", 3, resilienthttp.SingleAttempt, 1, resilienthttp.ErrSingleAttempt},
		{"single attempt before a policy", 3, func(ctx context.Context) context.Context {
			return give(resilienthttp.SingleAttempt(ctx), resilienthttp.Policy{MaxAttempts: 5, Backoff: atOnce})
		}, 1, resilienthttp.ErrSingleAttempt},
		{"single attempt after a policy", 3, func(ctx context.Context) context.Context {
			return resilienthttp.SingleAttempt(give(ctx, resilienthttp.Policy{MaxAttempts: 5, Backoff: atOnce}))
		}, 1, resilienthttp.ErrSingleAttempt},
	} {
		t.Run(row.name, func(t *testing.T) {
			transport := bareTransport(puppetStatus(500), row.own)
			attempts := tripped(t, transport, newCall(row.context(t.Context()), t, http.MethodGet, ""))
			require.Len(t, attempts, row.want)
			for i, a := range attempts {
				require.Equal(t, i+1, a.Number)
			}
			require.Equal(t, row.stop, attempts[row.want-1].Stop)
		})
	}
	t.Run("Classify goes with it", func(t *testing.T) {
		transport := bareTransport(puppetStatus(404), 2)
		transport.Policy.Classify = func(*resilienthttp.Attempt) resilienthttp.Verdict { return resilienthttp.VerdictTransient }
		require.Equal(t, 2, count(t, transport, t.Context()))
		require.Equal(t, 1, count(t, transport, give(t.Context(), resilienthttp.Policy{})))
	})
	t.Run("contexts are not changed by their children", func(t *testing.T) {
		transport := bareTransport(puppetStatus(500), 2)
		parent := give(t.Context(), resilienthttp.Policy{MaxAttempts: 3, Backoff: atOnce})
		give(parent, resilienthttp.Policy{MaxAttempts: 9, Backoff: atOnce})
		resilienthttp.SingleAttempt(parent)
		require.Equal(t, 3, count(t, transport, parent))
		require.Equal(t, 2, count(t, transport, t.Context()))
	})
	t.Run("attempt timeout", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			transport := bareTransport(puppet(func(req *http.Request) (*http.Response, error) {
				<-req.Context().Done()
				return nil, req.Context().Err()
			}), 1)
			for _, row := range []struct {
				timeout time.Duration
				call    time.Duration
				want    time.Duration
			}{
				{0, time.Hour, time.Hour},
				{time.Second, time.Hour, time.Second},
				{-1, time.Hour, time.Hour},
				{time.Second, time.Millisecond, time.Millisecond},
				{1<<63 - 1, time.Hour, time.Hour},
			} {
				ctx, cancel := context.WithTimeout(t.Context(), row.call)
				ctx = give(ctx, resilienthttp.Policy{MaxAttempts: 1, AttemptTimeout: row.timeout})
				attempts := tripped(t, transport, newCall(ctx, t, http.MethodGet, ""))
				require.Equal(t, row.want, attempts[0].Latency)
				cancel()
			}
		})
	})
	t.Run("Backoff gets the number and what it gave before", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var asked []string
			ctx := give(t.Context(), resilienthttp.Policy{MaxAttempts: 4, Backoff: func(retry int, prev time.Duration) time.Duration {
				asked = append(asked, fmt.Sprint(retry, " ", prev))
				return time.Duration(retry) * time.Second
			}})
			attempts := tripped(t, bareTransport(puppetStatus(500), 1), newCall(ctx, t, http.MethodGet, ""))
			require.Equal(t, []string{"1 0s", "2 1s", "3 2s"}, asked)
			require.Equal(t, time.Second, attempts[0].Wait)
			require.Equal(t, 2*time.Second, attempts[1].Wait)
			require.Equal(t, 3*time.Second, attempts[2].Wait)
			require.Zero(t, attempts[3].Wait)
		})
	})
	t.Run("a negative Backoff is none", func(t *testing.T) {
		ctx := give(t.Context(), resilienthttp.Policy{MaxAttempts: 3, Backoff: func(int, time.Duration) time.Duration { return -time.Hour }})
		require.Equal(t, 3, count(t, bareTransport(puppetStatus(500), 1), ctx))
	})
}

func TestVerdictString(t *testing.T) {
	for verdict, want := range map[resilienthttp.Verdict]string{
		resilienthttp.VerdictDefault: "default", resilienthttp.VerdictSuccess: "success", resilienthttp.VerdictPermanent: "permanent",
		resilienthttp.VerdictTransient: "transient", resilienthttp.VerdictThrottled: "throttled", 99: "unknown", -1: "unknown",
	} {
		require.Equal(t, want, verdict.String())
	}
}
