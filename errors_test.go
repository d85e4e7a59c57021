package resilienthttp_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/faulttest"
	"github.com/resilienthttp/resilienthttp/internal/bubble"
	"github.com/resilienthttp/resilienthttp/internal/memhttp"
	"github.com/resilienthttp/resilienthttp/internal/neterr"
	"github.com/resilienthttp/resilienthttp/statepage"
)

// secret is a text that must not appear. It is in queries, headers and bodies.
const secret = "s3cr3t"

// §4.7: through http.Client's *url.Error, errors.Is finds the context's error, the sentinel and
// the cause. A timeout is a timeout for each usual check.
func TestErrorsAreFound(t *testing.T) {
	cause := errors.New("the cause")
	type derive = func(context.Context) (context.Context, context.CancelFunc)
	timeout := func(d time.Duration, cause error) derive {
		return func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeoutCause(ctx, d, cause)
		}
	}
	canceled := func(after time.Duration, cause error) derive {
		return func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancelCause(ctx)
			if after == 0 {
				cancel(cause)
			}
			timer := time.AfterFunc(after, func() { cancel(cause) })
			return ctx, func() { timer.Stop(); cancel(nil) }
		}
	}
	dial := func(err error) step { return failing(&net.OpError{Op: "dial", Net: "tcp", Err: err}) }
	limited := func(l *resilienthttp.RateLimit) func(*resilienthttp.Transport, *http.Client) {
		return func(tr *resilienthttp.Transport, _ *http.Client) { tr.RateLimit = l }
	}
	deadline := []error{resilienthttp.ErrDeadline, context.DeadlineExceeded}
	tests := []struct {
		name    string
		step    step
		setup   func(*resilienthttp.Transport, *http.Client)
		ctx     derive
		calls   int // 0: 1; the last one counts
		is      []error
		isNot   []error
		timeout bool
		reason  error // it is this too
	}{
		{name: "attempt timeout", step: hanging, timeout: true, reason: resilienthttp.ErrAttemptTimeout,
			setup: func(tr *resilienthttp.Transport, _ *http.Client) { tr.Policy.AttemptTimeout = time.Second },
			is:    []error{resilienthttp.ErrBudgetExhausted, context.DeadlineExceeded}, isNot: []error{context.Canceled, resilienthttp.ErrDeadline}},
		{name: "attempt timeout of the only attempt", step: hanging, timeout: true, reason: resilienthttp.ErrAttemptTimeout,
			setup: func(tr *resilienthttp.Transport, _ *http.Client) {
				tr.Policy = resilienthttp.Policy{AttemptTimeout: time.Second, MaxAttempts: -1}
			},
			is: []error{context.DeadlineExceeded}},
		{name: "context deadline in flight", step: hanging, timeout: true, ctx: timeout(5*time.Second, nil), reason: resilienthttp.ErrDeadline,
			is: deadline, isNot: []error{context.Canceled, resilienthttp.ErrAttemptTimeout}},
		{name: "context deadline with a cause", step: hanging, timeout: true, ctx: timeout(5*time.Second, cause), is: deadline, reason: resilienthttp.ErrDeadline},
		{name: "context deadline before", step: hanging, timeout: true, ctx: timeout(-time.Second, nil), is: deadline, reason: resilienthttp.ErrDeadline},
		{name: "context deadline, before the wait", step: failing(cause), timeout: true, ctx: timeout(5*time.Second, nil), reason: resilienthttp.ErrDeadline,
			setup: func(tr *resilienthttp.Transport, _ *http.Client) {
				tr.Policy.Backoff = resilienthttp.Constant(time.Hour)
			},
			is: append(deadline, cause)},
		{name: "context deadline, before a turn", step: status(200), timeout: true, calls: 2, ctx: timeout(5*time.Second, nil), reason: resilienthttp.ErrDeadline,
			setup: limited(&resilienthttp.RateLimit{Limit: 0.1, Burst: 1}), is: append(deadline, resilienthttp.ErrRateLimited)},
		{name: "the margin leaves no time", step: status(200), timeout: true, ctx: timeout(5*time.Second, nil), is: deadline, reason: resilienthttp.ErrDeadline,
			setup: func(tr *resilienthttp.Transport, _ *http.Client) { tr.DeadlineHeader.Margin = time.Minute }},
		{name: "canceled in flight", step: hanging, ctx: canceled(time.Second, nil),
			is: []error{context.Canceled}, isNot: []error{context.DeadlineExceeded, resilienthttp.ErrDeadline}},
		{name: "canceled in flight with a cause", step: hanging, ctx: canceled(time.Second, cause), is: []error{context.Canceled}},
		{name: "canceled before, with a cause", step: hanging, ctx: canceled(0, cause), is: []error{context.Canceled, cause}},
		{name: "connection refused", step: dial(syscall.ECONNREFUSED), is: []error{syscall.ECONNREFUSED}, reason: resilienthttp.ErrMaxAttempts},
		{name: "a timeout of Base's own", step: dial(syscall.ETIMEDOUT), timeout: true, is: []error{syscall.ETIMEDOUT}, reason: resilienthttp.ErrBudgetExhausted},
		{name: "breaker open", step: failing(cause), calls: 2, isNot: []error{cause}, reason: resilienthttp.ErrBreakerOpen,
			setup: func(tr *resilienthttp.Transport, _ *http.Client) { tr.Breaker = nervous(time.Hour) }},
		{name: "rate limited", step: status(200), calls: 2, reason: resilienthttp.ErrRateLimited,
			setup: limited(&resilienthttp.RateLimit{Limit: 0.001, Burst: 1, MaxWait: -1})},
		{name: "http.Client.Timeout before the wait", step: failing(cause), timeout: true, is: append(deadline, cause), reason: resilienthttp.ErrDeadline,
			setup: func(tr *resilienthttp.Transport, c *http.Client) {
				tr.Policy.Backoff, c.Timeout = resilienthttp.Constant(time.Hour), 5*time.Second
			}},
	}
	for _, tt := range tests {
		bubble.Run(t, tt.name, func(t *testing.T) {
			tr := &resilienthttp.Transport{Base: script(tt.step), Policy: every(time.Second)}
			client := &http.Client{Transport: tr}
			if tt.setup != nil {
				tt.setup(tr, client)
			}
			var err error
			for range max(tt.calls, 1) {
				ctx, cancel := t.Context(), context.CancelFunc(func() {})
				if tt.ctx != nil {
					ctx, cancel = tt.ctx(ctx)
				}
				var resp *http.Response
				resp, err = client.Do(get(t).WithContext(ctx))
				finish(t, resp, err)
				cancel()
			}
			require.Error(t, err)
			var outer *url.Error
			require.ErrorAs(t, err, &outer)
			if tt.reason != nil {
				require.ErrorIs(t, err, tt.reason)
			}
			for _, is := range tt.is {
				require.ErrorIs(t, err, is)
			}
			for _, isNot := range tt.isNot {
				require.NotErrorIs(t, err, isNot)
			}
			require.Equal(t, tt.timeout, outer.Timeout(), "url.Error.Timeout")
			if tt.timeout {
				requireTimeout(t, err)
			}
			e := asError(t, err)
			require.Equal(t, tt.timeout, e.Timeout())
			require.Equal(t, tt.reason, e.Reason)
			require.NotContains(t, e.Error(), "querysecret")
			alone := e.Reason == nil && len(e.Attempts) == 1 // as with a bare client
			require.Equal(t, !alone, strings.HasPrefix(e.Error(), "resilienthttp: "), e.Error())
		})
	}
}

// §4.7: the text has the reason, the result of the last attempt and its number, on one line.
func TestErrorTexts(t *testing.T) {
	at := time.Date(2030, 1, 2, 3, 4, 5, 600, time.FixedZone("", 3600))
	failed := resilienthttp.Attempt{Number: 3, Err: errReset}
	answered := resilienthttp.Attempt{Number: 2, Response: &http.Response{StatusCode: http.StatusServiceUnavailable}}
	tests := []struct {
		name string
		err  *resilienthttp.Error
		want string
	}{
		{"zero", &resilienthttp.Error{}, "call failed"},
		{"reason", &resilienthttp.Error{Reason: resilienthttp.ErrBreakerOpen}, "circuit breaker is open"},
		{"cause", &resilienthttp.Error{Err: errReset}, "connection broke"},
		{"reason and cause", &resilienthttp.Error{Reason: resilienthttp.ErrDeadline, Err: errReset}, "deadline of the call leaves no time: connection broke"},
		{"a status", &resilienthttp.Error{Reason: resilienthttp.ErrBreakerOpen, Attempts: []resilienthttp.Attempt{failed, answered}}, "circuit breaker is open (attempt 2 ended with status 503)"},
		{"an error", &resilienthttp.Error{Reason: resilienthttp.ErrBreakerOpen, Attempts: []resilienthttp.Attempt{answered, failed}}, "circuit breaker is open (attempt 3 ended with connection broke)"},
		{"an error that is the cause", &resilienthttp.Error{Reason: resilienthttp.ErrMaxAttempts, Err: errReset, Attempts: []resilienthttp.Attempt{failed}}, "no retries left: connection broke (attempt 3)"},
		{"not before", &resilienthttp.Error{Reason: resilienthttp.ErrRateLimited, NotBefore: at}, "rate limited; not before 2030-01-02T02:04:05.001Z"},
		{"no cause", &resilienthttp.Error{Attempts: []resilienthttp.Attempt{{Number: 1}}}, "call failed (attempt 1)"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			require.Equal(t, "resilienthttp: "+tt.want, tt.err.Error())
			for _, e := range tt.err.Unwrap() {
				require.Error(t, e)
			}
		})
	}
}

// §4.7: each sentinel matches only itself; those that are timeouts also match
// context.DeadlineExceeded.
func TestSentinels(t *testing.T) {
	all := []error{
		resilienthttp.ErrBreakerOpen, resilienthttp.ErrRateLimited, resilienthttp.ErrDeadline, resilienthttp.ErrAttemptTimeout,
		resilienthttp.ErrReadTimeout, resilienthttp.ErrMaxAttempts, resilienthttp.ErrBudgetExhausted, resilienthttp.ErrNotReplayable,
		resilienthttp.ErrNotIdempotent, resilienthttp.ErrRetryAfter, resilienthttp.ErrSingleAttempt,
	}
	texts := map[string]bool{}
	for i, a := range all {
		texts[a.Error()] = true
		for j, b := range all {
			require.Equal(t, i == j, errors.Is(a, b), "%v is %v", a, b)
		}
		e := &resilienthttp.Error{Reason: a}
		require.ErrorIs(t, e, a)
		require.ErrorIs(t, fmt.Errorf("wrapped: %w", e), a)
		timeout := i >= 2 && i <= 4
		require.Equal(t, timeout, errors.Is(a, context.DeadlineExceeded), "%v", a)
		require.Equal(t, timeout, e.Timeout(), "%v", a)
		require.NotErrorIs(t, a, context.Canceled)
	}
	require.Len(t, texts, len(all))
}

// T11: ErrorType has one set of values for attempts and calls.
func TestErrorType(t *testing.T) {
	op := func(name string, err error) error { return &net.OpError{Op: name, Net: "tcp", Err: err} }
	for _, row := range []struct {
		name string
		err  error
		want string
	}{
		{"nil: none", nil, ""},
		{"refused: connection_refused", op("dial", os.NewSyscallError("connect", syscall.ECONNREFUSED)), "connection_refused"},
		{"reset: connection_reset", op("read", syscall.ECONNRESET), "connection_reset"},
		{"broken pipe: connection_reset", op("write", syscall.EPIPE), "connection_reset"},
		{"EOF: eof", &url.Error{Op: "Get", Err: io.EOF}, "eof"},
		{"half a response: eof", io.ErrUnexpectedEOF, "eof"},
		{"server closed an idle connection: eof", errors.New("http: server closed idle connection"), "eof"},
		{"unknown host: dns", op("dial", &net.DNSError{Err: "no such host", IsNotFound: true}), "dns"},
		{"DNS timeout: dns", op("dial", &net.DNSError{Err: "timeout", IsTimeout: true}), "dns"},
		{"certificate: tls", &tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}, "tls"},
		{"HTTP to a TLS client: tls", tls.RecordHeaderError{Msg: "first record does not look like a TLS handshake"}, "tls"},
		{"CONNECT rejected: proxy", &neterr.ConnectError{Status: 407}, "proxy"},
		{"proxy refuses the connection: proxy", op("proxyconnect", syscall.ECONNREFUSED), "proxy"},
		{"dial timeout: timeout", op("dial", os.ErrDeadlineExceeded), "timeout"},
		{"context deadline: timeout", context.DeadlineExceeded, "timeout"},
		{"attempt timeout: timeout", resilienthttp.ErrAttemptTimeout, "timeout"},
		{"deadline: timeout", resilienthttp.ErrDeadline, "timeout"},
		{"read timeout: read_timeout", resilienthttp.ErrReadTimeout, "read_timeout"},
		{"canceled: canceled", fmt.Errorf("layer: %w", context.Canceled), "canceled"},
		{"breaker: breaker_open", resilienthttp.ErrBreakerOpen, "breaker_open"},
		{"rate limit: rate_limited", resilienthttp.ErrRateLimited, "rate_limited"},
		{"own type: _OTHER", &fetchError{text: "connection refused"}, "_OTHER"},
		{"unknown text: _OTHER", errors.New("EOF"), "_OTHER"},
		{"own type around EOF: eof", &fetchError{"x", io.EOF}, "eof"},
		{"Error of a gate: its Reason", &resilienthttp.Error{Reason: resilienthttp.ErrBreakerOpen}, "breaker_open"},
		{"Error with a cause: the cause", &resilienthttp.Error{Reason: resilienthttp.ErrMaxAttempts, Err: io.EOF}, "eof"},
		{"the breaker rejected the retry: the cause", &resilienthttp.Error{
			Reason: resilienthttp.ErrBreakerOpen, Err: io.EOF, Attempts: []resilienthttp.Attempt{{Err: io.EOF, StopReason: resilienthttp.ErrBreakerOpen}},
		}, "eof"},
		{"permit after the deadline: rate_limited", &resilienthttp.Error{Reason: resilienthttp.ErrDeadline, Err: resilienthttp.ErrRateLimited}, "rate_limited"},
		{"Error of a Transport inside: its type", &resilienthttp.Error{Err: &resilienthttp.Error{Reason: resilienthttp.ErrRateLimited}}, "rate_limited"},
		{"zero Error: _OTHER", &resilienthttp.Error{}, "_OTHER"},
	} {
		t.Run(row.name, func(t *testing.T) {
			require.Equal(t, row.want, resilienthttp.ErrorType(row.err))
			if row.err != nil {
				require.Equal(t, row.want, resilienthttp.ErrorType(&url.Error{Op: "Get", Err: fmt.Errorf("layer: %w", row.err)}))
			}
		})
	}
	t.Run("real sockets", func(t *testing.T) {
		for want, address := range map[string]string{
			"connection_refused": closedPort(t),
			"connection_reset":   must(rawServer(t, func(conn net.Conn) { _, _ = conn.Read(make([]byte, 1)); resetConn(conn) })),
			"eof":                must(rawServer(t, func(conn net.Conn) { _, _ = conn.Read(make([]byte, 4096)); _ = conn.Close() })),
		} {
			tr := &resilienthttp.Transport{Policy: resilienthttp.Policy{MaxAttempts: -1}}
			_, err := tr.RoundTrip(newRequest(t, http.MethodGet, "http://"+address, ""))
			require.Equal(t, want, resilienthttp.ErrorType(err), "%v", err)
			tr.CloseIdleConnections()
		}
	})
}

func must(address string, _ *atomic.Int64) string { return address }

// quoting are errors with a secret in their text.
var quoting = map[string]error{
	"url.Error":               &url.Error{Op: "Get", URL: "https://user:" + secret + "@api.test/x?token=" + secret, Err: errReset},
	"url.Error in between":    fmt.Errorf("layer: %w", &url.Error{Op: "Post", URL: "https://api.test/?" + secret, Err: errReset}),
	"url.Error twice":         &url.Error{Op: "Get", URL: "a?" + secret, Err: &url.Error{Op: "Get", URL: "b?" + secret, Err: errReset}},
	"url.Error, joined":       errors.Join(&url.Error{Op: "Get", URL: "a?" + secret, Err: errReset}, errReset),
	"url.Error, second":       errors.Join(errReset, &url.Error{Op: "Get", URL: "a?" + secret, Err: errReset}),
	"url.Error, empty":        &url.Error{Op: "Get", URL: "a?" + secret},
	"HTTP/2 path":             errors.New(`invalid request :path "/x?token=` + secret + `" from URL.Opaque = "` + secret + `"`),
	"HTTP/2 connection":       errors.New(`invalid Connection request header: ["` + secret + `"]`),
	"HTTP/2 upgrade":          errors.New(`invalid Upgrade request header: ["` + secret + `"]`),
	"HTTP/2 encoding":         errors.New(`invalid Transfer-Encoding request header: ["` + secret + `"]`),
	"GOAWAY":                  errors.New(`http2: server sent GOAWAY and closed the connection; LastStreamID=1, ErrCode=NO_ERROR, debug="` + secret + `"`),
	"words in what is quoted": errors.New(`bad Content-Length "malformed ` + secret + `: debug="`),
	"unknown text":            errors.New("cannot fetch https://api.test/" + secret + "?token=" + secret),
	"unknown text, wrapped":   fmt.Errorf("authorization: %s: %w", secret, errors.New("body "+secret)),
	"unknown type":            &fetchError{text: "POST /" + secret, cause: errReset},
	"unknown types, joined":   errors.Join(errReset, &fetchError{text: secret}, &fetchError{text: "a\n" + secret}),
	"very long":               errors.New(strings.Repeat("x ", 1000) + secret),
	"very long before":        fmt.Errorf("%s: %w", strings.Repeat(secret, 1000), errReset),
	"encodings":               errors.New(`too many transfer encodings: ["chunked" "` + secret + `"]`),
}

// §4.7: no URL path or query, header value or body from Base, GetBody or Request.Body gets into
// the text of an Error, into State or into the log. errors.Is still finds the error.
func TestErrorTextsKeepSecrets(t *testing.T) {
	for name, err := range quoting {
		bubble.Run(t, name, func(t *testing.T) {
			var log bytes.Buffer
			trace := resilienthttp.LogTrace(slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})))
			call := func(name string, tr *resilienthttp.Transport, change func(*http.Request)) {
				t.Helper()
				tr.Trace = trace
				req := newRequest(t, "PUT", "http://api.test/?"+secret, secret)
				req.Header.Set("Authorization", secret)
				if change != nil {
					change(req)
				}
				_, got := tr.RoundTrip(req)
				require.ErrorIs(t, got, err, name)
				require.NotContains(t, got.Error(), secret, name)
				require.NotContains(t, got.Error(), "\n", name)
				require.NotContains(t, fmt.Sprintf("%+v", tr.State()), secret, name)
				for _, a := range asError(t, got).Attempts {
					e := &resilienthttp.Error{Err: a.Err, Attempts: []resilienthttp.Attempt{a}}
					require.NotContains(t, e.Error(), secret, name)
				}
			}
			call("Base", &resilienthttp.Transport{Base: script(failing(err))}, nil)
			call("Base, then the breaker", &resilienthttp.Transport{Base: script(failing(err)), Breaker: nervous(time.Hour)}, nil)
			call("GetBody", &resilienthttp.Transport{Base: script(failing(errReset))}, func(r *http.Request) {
				r.GetBody = func() (io.ReadCloser, error) { return nil, err }
			})
			call("GetBody, wrapped", &resilienthttp.Transport{Base: script(failing(errReset))}, func(r *http.Request) {
				r.GetBody = func() (io.ReadCloser, error) { return nil, fmt.Errorf("cannot: %w", err) }
			})
			ctx, cancel := context.WithCancelCause(t.Context())
			call("the cause of a cancellation", &resilienthttp.Transport{Base: script(status(503)), Policy: every(time.Hour)}, func(r *http.Request) {
				*r = *r.WithContext(ctx)
				time.AfterFunc(time.Second, func() { cancel(err) })
			})
			call("canceled before", &resilienthttp.Transport{Base: script(status(503))}, func(r *http.Request) { *r = *r.WithContext(ctx) })
			require.NotContains(t, log.String(), secret)
			require.NotEmpty(t, log.String())
		})
	}
}

// fetchError is the error of a RoundTripper with secrets in its text.
type fetchError struct {
	text  string
	cause error
}

func (f *fetchError) Error() string { return f.text }
func (f *fetchError) Unwrap() error { return f.cause }

// §4.7, T15: an error of Base has a secret of the request, and no output shows it: the text of
// the Error, State, the state page and the log.
func FuzzErrorTexts(f *testing.F) {
	for _, before := range []string{"", "POST ", "EOF: ", "malformed HTTP response ", "a\nb", strings.Repeat("x", 300)} {
		for place := range uint8(12) {
			for layer := range uint8(6) {
				f.Add(before, place, layer)
			}
		}
	}
	f.Fuzz(func(t *testing.T, before string, place, layer uint8) {
		const secret = "q7zx5j"
		if strings.Contains(before, secret) {
			t.Skip()
		}
		var log bytes.Buffer
		tr := &resilienthttp.Transport{
			Policy: resilienthttp.Policy{MaxAttempts: -1},
			Trace:  resilienthttp.LogTrace(slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))),
			Base: puppet(func(r *http.Request) (*http.Response, error) {
				body, _ := io.ReadAll(r.Body)
				password, _ := r.URL.User.Password()
				text := before + [...]string{
					r.URL.String(), r.URL.Path, r.URL.RawQuery, r.URL.Fragment, r.URL.User.String(), password, r.URL.RequestURI(),
					r.Header.Get("Authorization"), r.Header.Get("Cookie"), r.Header.Get("Idempotency-Key"), string(body), string(body[len(body)/2:]),
				}[place%12]
				err := errors.New(text)
				return nil, [...]error{
					err, &fetchError{text: text}, fmt.Errorf("%s: %w", text, io.EOF), &fetchError{text, &url.Error{Op: text, URL: text, Err: err}},
					errors.Join(io.EOF, err), &net.OpError{Op: text, Net: text, Err: &net.DNSError{Err: text, Name: "/" + text, Server: text}},
				}[layer%6]
			}),
		}
		req := newRequest(t, http.MethodPost, "http://"+secret+":"+secret+"@api.test/"+secret+"?"+secret+"="+secret+"#"+secret, secret+`{"card":"`+secret+`"}`)
		for _, name := range []string{"Authorization", "Cookie", "Idempotency-Key", "X-Own"} {
			req.Header.Set(name, secret)
		}
		_, err := tr.RoundTrip(req)
		for name, text := range map[string]string{"Error": err.Error(), "State": fmt.Sprintf("%+v", tr.State()), "LogTrace": log.String()} {
			require.NotContains(t, text, secret, name)
		}
		for _, format := range []string{"json", "html"} {
			page := httptest.NewRecorder()
			handler := &statepage.Handler{Transports: map[string]*resilienthttp.Transport{"bank": tr}}
			handler.ServeHTTP(page, httptest.NewRequest(http.MethodGet, "/?format="+format, nil))
			require.Equal(t, http.StatusOK, page.Code)
			require.Contains(t, page.Body.String(), "api.test")
			require.NotContains(t, page.Body.String(), secret, format)
		}
		require.Contains(t, log.String(), "error=")
		require.NotContains(t, err.Error(), "\n")
		require.Less(t, len(err.Error()), 1000)
	})
}

// §4.7: net/http quotes malformed responses in its errors.
func TestMalformedResponsesKeepSecrets(t *testing.T) {
	responses := map[string]string{
		"no HTTP at all":              secret + " and nothing else\r\n\r\n",
		"version":                     "HTTP/" + secret + " 200 OK\r\n\r\n",
		"status code":                 "HTTP/1.1 " + secret + "\r\n\r\n",
		"status code, three letters":  "HTTP/1.1 s3c OK " + secret + "\r\n\r\n",
		"header without a colon":      "HTTP/1.1 200 OK\r\n" + secret + "\r\n\r\n",
		"header name with blanks":     "HTTP/1.1 200 OK\r\nA " + secret + " : b\r\n\r\n",
		"header that begins so":       "HTTP/1.1 200 OK\r\n " + secret + ": b\r\n\r\n",
		"header value with control":   "HTTP/1.1 200 OK\r\nSet-Cookie: " + secret + "\x01\r\n\r\n",
		"length":                      "HTTP/1.1 200 OK\r\nContent-Length: " + secret + "\r\n\r\n",
		"two lengths":                 "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2" + secret + "\r\n\r\n",
		"transfer encoding":           "HTTP/1.1 200 OK\r\nTransfer-Encoding: " + secret + "\r\n\r\n",
		"two transfer encodings":      "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: " + secret + "\r\n\r\n",
		"trailer":                     "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: Content-Length, " + secret + "\r\n\r\n",
		"half a header":               "HTTP/1.1 200 OK\r\nSet-Cookie: " + secret,
		"too many informational ones": strings.Repeat("HTTP/1.1 103 Early Hints\r\nLink: "+secret+"\r\n\r\n", 10),
		"endless header":              "HTTP/1.1 200 OK\r\nSet-Cookie: " + strings.Repeat(secret, 400_000) + "\r\n\r\n",
	}
	for name, text := range responses {
		bubble.Run(t, name, func(t *testing.T) {
			network := memhttp.NewNetwork(t)
			serveRaw(t, network.Listen("api.test"), func(conn net.Conn) {
				_, _ = conn.Read(make([]byte, 4096))
				_, _ = io.WriteString(conn, text)
			})
			var log bytes.Buffer
			tr := &resilienthttp.Transport{
				Base:  network.Transport(),
				Trace: resilienthttp.LogTrace(slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))),
			}
			resp, err := tr.RoundTrip(newRequest(t, "GET", "http://api.test/?"+secret, ""))
			if err == nil { // net/http takes some of these
				_ = resp.Body.Close()
			} else {
				require.NotContains(t, err.Error(), secret)
				require.NotContains(t, err.Error(), "s3c")
				require.Less(t, len(err.Error()), 1000)
			}
			require.NotContains(t, log.String(), secret)
		})
	}
}

// NotSent reports whether it is certain that nothing was sent.
func TestError_NotSent(t *testing.T) {
	for _, row := range []struct {
		name  string
		steps []step
		ctx   func(context.Context) context.Context
		open  bool // the circuit, by an answered call before
		want  bool
	}{
		{name: "connections refused", steps: []step{refused}, want: true},
		{name: "one refused, one reset", steps: []step{refused, failing(errReset)}},
		{name: "one reset, one refused", steps: []step{failing(errReset), refused}},
		{name: "one response, then connection refused", steps: []step{status(503), refused}},
		{name: "no such host", steps: []step{failing(&net.DNSError{IsNotFound: true})}, want: true},
		{name: "bad certificate", steps: []step{failing(&tls.CertificateVerificationError{Err: errReset})}, want: true},
		{name: "timeout", steps: []step{hanging}},
		{name: "rejected inside", steps: []step{failing(&resilienthttp.Error{Reason: resilienthttp.ErrBreakerOpen})}, want: true},
		{name: "rejected inside, after an attempt", steps: []step{failing(&resilienthttp.Error{
			Reason: resilienthttp.ErrBreakerOpen, Attempts: []resilienthttp.Attempt{{Number: 1, Err: io.EOF}},
		})}},
		{name: "canceled before", steps: []step{status(200)}, ctx: gone, want: true},
		{name: "canceled in flight", steps: []step{hanging}, ctx: func(ctx context.Context) context.Context { return canceledAfter(ctx, time.Second) }},
		{name: "a gate rejects the first attempt", steps: []step{status(500)}, open: true, want: true},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			tr := &resilienthttp.Transport{
				Base: script(row.steps...), Breaker: never(), Budget: &resilienthttp.Budget{Ratio: -1},
				Policy: resilienthttp.Policy{AttemptTimeout: 10 * time.Second, MaxAttempts: 2},
			}
			req := get(t)
			req = req.WithContext(applied(t.Context(), row.ctx))
			if row.open {
				tr.Breaker = nervous(time.Hour)
				readAll(t, roundTrip(t, tr, get(t)))
			}
			err := discard(tr, req)
			require.Equal(t, row.open, errors.Is(err, resilienthttp.ErrBreakerOpen) && len(asError(t, err).Attempts) == 0)
			require.Equal(t, row.want, asError(t, err).NotSent(), "%v", err)
		})
	}
	for text, malformed := range map[string]*http.Request{"nil Request": nil, "nil Request.URL": {}} {
		err := discard(&resilienthttp.Transport{}, malformed)
		require.ErrorContains(t, err, text)
		require.True(t, asError(t, err).NotSent(), text)
	}
	require.True(t, (&resilienthttp.Error{Reason: resilienthttp.ErrRateLimited}).NotSent())
	require.False(t, (&resilienthttp.Error{Err: io.EOF}).NotSent(), "the Error has no attempts")
}

// §4.8, §4.9: net/http itself repeats a request with a key if a reused connection breaks. A 409 to the repetition means that
// the server is at work at the first one. TestInDoubt_sentAgainByNetHTTP has the repetitions that are not sent.
func TestRepeatedByNetHTTP(t *testing.T) {
	for _, body := range []string{"charge", ""} {
		bubble.Run(t, "body "+body, func(t *testing.T) {
			n := memhttp.NewNetwork(t)
			answering(t, n, "api.test", raw("200 OK"), cut, raw("409 Conflict"), raw("201 Created"))
			base := n.Transport()
			t.Cleanup(base.CloseIdleConnections)
			transport := &resilienthttp.Transport{Base: base}
			readAll(t, roundTrip(t, transport, newRequest(t, http.MethodPost, "http://api.test/", ""))) // its connection is reused
			synctest.Wait()
			resp := roundTrip(t, transport, newRequest(t, http.MethodPost, "http://api.test/", body))
			readAll(t, resp)
			require.Equal(t, http.StatusCreated, resp.StatusCode)
			require.Len(t, resilienthttp.Attempts(resp), 2)
			require.True(t, resilienthttp.Attempts(resp)[0].Resent)
		})
	}
}

// The call that opens the circuit gets the last response, and the time for another call is that of the
// circuit: the next call is rejected until then. It does not matter why the call is not retried.
func TestNotBefore_circuitOpensDuringCall(t *testing.T) {
	reject := resilienthttp.Policy{Classify: func(*resilienthttp.Attempt) resilienthttp.Verdict { return resilienthttp.VerdictPermanent }}
	for _, row := range []struct {
		name   string
		fault  http.Handler
		method string
		policy resilienthttp.Policy
		single bool
	}{
		{"a response", faulttest.Status(http.StatusInternalServerError), http.MethodGet, resilienthttp.Policy{}, false},
		{"no response", faulttest.ResetBeforeRead, http.MethodGet, resilienthttp.Policy{}, false},
		{"a response, one attempt", faulttest.Status(http.StatusInternalServerError), http.MethodGet, resilienthttp.Policy{MaxAttempts: 1}, false},
		{"no response, one attempt", faulttest.ResetBeforeRead, http.MethodGet, resilienthttp.Policy{MaxAttempts: 1}, false},
		{"a response, WithSingleAttempt", faulttest.Status(http.StatusInternalServerError), http.MethodGet, resilienthttp.Policy{}, true},
		{"no response, WithSingleAttempt", faulttest.ResetBeforeRead, http.MethodGet, resilienthttp.Policy{}, true},
		{"a PATCH without a key", faulttest.Status(http.StatusInternalServerError), http.MethodPatch, resilienthttp.Policy{}, false},
		{"a status that is never retried", faulttest.Status(http.StatusNotImplemented), http.MethodGet, resilienthttp.Policy{}, false},
		{"Classify ends the call", faulttest.Status(http.StatusInternalServerError), http.MethodGet, reject, false},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			srv := faulttest.NewInMemory(t, row.fault)
			transport := &resilienthttp.Transport{
				Base: srv.Transport(), Breaker: &resilienthttp.Breaker{MaxWait: -1, MinRequests: 1, Cooldown: 5 * time.Second, MaxCooldown: 5 * time.Second},
				Policy: row.policy, Idempotency: resilienthttp.Idempotency{Disabled: true},
			}
			ctx := t.Context()
			if row.single {
				ctx = resilienthttp.WithSingleAttempt(ctx)
			}
			call := func() (*http.Response, error) {
				resp, err := (&http.Client{Transport: transport}).Do(newRequest(t, row.method, srv.URL, "").WithContext(ctx))
				if err == nil {
					require.NoError(t, resp.Body.Close())
				}
				return resp, err
			}
			at := resilienthttp.NotBefore(call())
			wait := time.Until(at)
			require.GreaterOrEqual(t, wait, 4*time.Second)
			require.LessOrEqual(t, wait, 7*time.Second)
			require.Equal(t, 1, srv.Total())

			time.Sleep(wait - time.Millisecond)
			_, err := call()
			require.ErrorIs(t, err, resilienthttp.ErrBreakerOpen)
			require.Equal(t, at, resilienthttp.NotBefore(nil, err))
			time.Sleep(time.Millisecond)
			_, _ = call()
			require.GreaterOrEqual(t, srv.Total(), 2, "a probe")
		})
	}
}
