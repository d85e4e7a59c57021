package resilienthttp_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"reflect"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/faulttest"
	"github.com/resilienthttp/resilienthttp/internal/bubble"
	"github.com/resilienthttp/resilienthttp/internal/memhttp"
)

// §4.1: exactly one of response and error is non-nil, even if Base breaks its contract.
func TestResponseXorError(t *testing.T) {
	both := func(r *http.Request) (*http.Response, error) { return response(r, 200, "both"), errReset }
	neither := func(*http.Request) (*http.Response, error) { return nil, nil }
	tests := []struct {
		name     string
		step     step
		status   int // 0: an error
		attempts int
	}{
		{"200", status(200), 200, 1},
		{"301", status(301), 301, 1},
		{"status 0", status(0), 0, 1},
		{"status 600", status(600), 600, 1},
		{"status -1", status(-1), -1, 1},
		{"error", failing(errReset), 0, 6},
		{"response and error", both, 0, 6},
		{"neither response nor error", neither, 0, 1},
		{"a nil *Error", func(*http.Request) (*http.Response, error) { var none *resilienthttp.Error; return nil, none }, 0, 1},
		{"a nil *url.Error", func(*http.Request) (*http.Response, error) { var none *url.Error; return nil, none }, 0, 1},
	}
	for _, tt := range tests {
		bubble.Run(t, tt.name, func(t *testing.T) {
			base := script(tt.step)
			tr := &resilienthttp.Transport{Base: base, Policy: every(time.Second)}
			resp, err := tr.RoundTrip(get(t))
			require.Len(t, base.calls(), tt.attempts)
			if tt.status == 0 && tt.name != "status 0" {
				require.Error(t, err)
				require.Nil(t, resp)
				require.IsType(t, (*resilienthttp.Error)(nil), err)
				require.Len(t, asError(t, err).Attempts, tt.attempts)
			} else {
				require.NoError(t, err)
				require.NotNil(t, resp)
				require.Equal(t, tt.status, resp.StatusCode)
				require.Equal(t, "status "+strconv.Itoa(tt.status), readAll(t, resp))
			}
			base.requireBalance(t)
		})
	}
}

// §4.1: a status is never an error. The caller gets the last response with its body unread.
func TestEveryFailureStatusIsReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for code := 400; code <= 599; code++ {
			n := 0
			base := script(func(r *http.Request) (*http.Response, error) {
				n++
				return response(r, code, fmt.Sprintf("body %d of %d", n, code)), nil
			})
			tr := &resilienthttp.Transport{Base: base, Policy: every(time.Second)}
			resp, err := tr.RoundTrip(get(t))
			require.NoError(t, err, "%d", code)
			require.Equal(t, code, resp.StatusCode)
			attempts := resilienthttp.Attempts(resp)
			require.Len(t, attempts, n)
			last := attempts[n-1]
			require.Same(t, resp, last.Response)
			if n > 1 {
				require.Equal(t, 6, n, "%d", code)
				require.Equal(t, resilienthttp.ErrMaxAttempts, last.StopReason)
			} else {
				require.NoError(t, last.StopReason)
				require.Equal(t, resilienthttp.VerdictPermanent, last.Verdict)
			}
			require.Equal(t, fmt.Sprintf("body %d of %d", n, code), readAll(t, resp))
			base.requireBalance(t)
		}
	})
}

// TestRequestIsNotModified is §4.2.
func TestRequestIsNotModified(t *testing.T) {
	type change = func(*testing.T, *http.Request) *http.Request
	keyed := func(_ *testing.T, req *http.Request) *http.Request {
		return req.WithContext(resilienthttp.WithIdempotencyKey(req.Context(), "order-1"))
	}
	timed := func(t *testing.T, req *http.Request) *http.Request {
		return req.WithContext(until(t, req.Context(), time.Minute))
	}
	once := []step{status(200)}
	tests := []struct {
		name   string
		tr     *resilienthttp.Transport
		method string
		change change
		steps  []step
	}{
		{"a plain GET", &resilienthttp.Transport{}, "GET", nil, once},
		{"a POST that gets a key", &resilienthttp.Transport{}, "POST", nil, once},
		{"the context's key", &resilienthttp.Transport{}, "PUT", keyed, once},
		{"a deadline header", &resilienthttp.Transport{}, "PUT", timed, once},
		{"ownership of retries", &resilienthttp.Transport{OwnsRetries: true}, "GET", nil, once},
		{"all of it, retried", &resilienthttp.Transport{OwnsRetries: true}, "POST", func(t *testing.T, req *http.Request) *http.Request {
			req = timed(t, req)
			req.Header = http.Header{"Authorization": {"Bearer secret"}, "X-Multi": {"a", "b"}}
			req.Trailer = http.Header{"X-Trailer": nil}
			req.TransferEncoding = []string{"identity"}
			req.Host = "virtual.test"
			req.Form = url.Values{"a": {"b"}}
			req.Close = true
			req.RequestURI = "/of/a/server"
			req.RemoteAddr = "192.0.2.1:1"
			req.Pattern = "/of/"
			req.TLS = &tls.ConnectionState{}
			req.Response = &http.Response{}
			cancel := make(chan struct{})
			req.Cancel = cancel
			return req
		}, []step{status(500), failing(errReset), status(200)}},
		{"a nil Header", &resilienthttp.Transport{OwnsRetries: true}, "GET", func(_ *testing.T, req *http.Request) *http.Request {
			req.Header = nil
			return req
		}, []step{status(503), status(200)}},
		{"http.NoBody", &resilienthttp.Transport{}, "POST", func(_ *testing.T, req *http.Request) *http.Request {
			req.Body, req.GetBody, req.ContentLength = http.NoBody, nil, 0
			return req
		}, []step{status(503, "Retry-After", "1"), status(200)}},
		{"a hedge", &resilienthttp.Transport{OwnsRetries: true, Hedge: &resilienthttp.Hedge{Delay: time.Second}}, "POST", timed, []step{after(time.Minute, status(200)), status(200)}},
		{"a rejected call", &resilienthttp.Transport{}, "POST", func(_ *testing.T, req *http.Request) *http.Request {
			return req.WithContext(gone(req.Context()))
		}, once},
	}
	for _, tt := range tests {
		bubble.Run(t, tt.name, func(t *testing.T) {
			base := script(tt.steps...)
			tr := tt.tr
			tr.Base, tr.Policy = base, every(time.Second)
			req := get(t)
			if tt.method != "GET" {
				req = newRequest(t, tt.method, "http://api.test/", "body")
			}
			if tt.change != nil {
				req = tt.change(t, req)
			}
			before := stateOf(req)
			resp, err := tr.RoundTrip(req)
			synctest.Wait()
			before.requireUnchanged(t)
			if err == nil {
				require.NotSame(t, req, resp.Request)
				readAll(t, resp)
			}
			before.requireUnchanged(t)
			for _, s := range base.calls() {
				require.NotSame(t, req, s.Request)
			}
		})
	}
}

// bodyCall is a call of TestRequestBodyIsClosedOnce.
type bodyCall struct {
	tr     *resilienthttp.Transport
	req    *http.Request
	bodies *trackedBodies
}

func (c *bodyCall) cancelAfter(d time.Duration) {
	c.req = c.req.WithContext(canceledAfter(c.req.Context(), d))
}

// §4.2: each body of the request is closed exactly once, if Base closes the bodies that it gets.
func TestRequestBodyIsClosedOnce(t *testing.T) {
	hedged := func(_ *testing.T, c *bodyCall) { c.tr.Hedge = &resilienthttp.Hedge{Delay: time.Second} }
	tests := []struct {
		name   string
		steps  []step
		setup  func(*testing.T, *bodyCall)
		bodies int
		is     error           // nil: a response
		during func(*bodyCall) // runs while the call does
		panics bool
	}{
		{name: "success", steps: []step{status(200)}, bodies: 1},
		{name: "retried", steps: []step{status(503), status(200)}, bodies: 2},
		{name: "retries exhausted by status", steps: []step{status(503)}, bodies: 6},
		{name: "retries exhausted by error", steps: []step{failing(errReset)}, bodies: 6, is: errReset},
		{name: "attempts time out", steps: []step{hanging}, setup: func(_ *testing.T, c *bodyCall) {
			c.tr.Policy.AttemptTimeout = time.Second
		}, bodies: 2, is: resilienthttp.ErrAttemptTimeout},
		{name: "all attempts time out", steps: []step{hanging}, bodies: 1, is: resilienthttp.ErrAttemptTimeout},
		{name: "Base returns both", steps: []step{func(r *http.Request) (*http.Response, error) {
			return response(r, 200, "x"), errReset
		}}, bodies: 6, is: errReset},
		{name: "no GetBody", steps: []step{status(503)}, setup: func(_ *testing.T, c *bodyCall) { c.req.GetBody = nil }, bodies: 1},
		{name: "single attempt", steps: []step{status(503)}, setup: func(_ *testing.T, c *bodyCall) {
			c.req = c.req.WithContext(resilienthttp.WithSingleAttempt(c.req.Context()))
		}, bodies: 1},
		{name: "breaker is open", steps: []step{status(500)}, setup: func(t *testing.T, c *bodyCall) {
			c.tr.Breaker = nervous(time.Hour)
			readAll(t, roundTrip(t, c.tr, newRequest(t, "POST", "http://api.test/", "")))
		}, bodies: 1, is: resilienthttp.ErrBreakerOpen},
		{name: "breaker opens during the wait", steps: []step{status(408), status(500)}, setup: func(t *testing.T, c *bodyCall) {
			c.tr.Breaker = nervous(time.Hour)
			c.tr.Policy.Backoff = resilienthttp.Constant(10 * time.Second)
		}, during: func(c *bodyCall) {
			time.Sleep(time.Second)
			req := c.req.Clone(resilienthttp.WithSingleAttempt(context.Background()))
			req.Body, req.ContentLength = nil, 0
			_ = discard(c.tr, req)
		}, bodies: 1},
		{name: "rejected by the fixed limit", steps: []step{status(200)}, setup: func(t *testing.T, c *bodyCall) {
			c.tr.RateLimit = &resilienthttp.RateLimit{Limit: 0.001, Burst: 1, MaxWait: -1}
			readAll(t, roundTrip(t, c.tr, get(t)))
		}, bodies: 1, is: resilienthttp.ErrRateLimited},
		{name: "rejected while the scope is blocked", steps: []step{status(429, "Retry-After", "600", "RateLimit-Remaining", "0"), status(200)}, setup: func(t *testing.T, c *bodyCall) {
			readAll(t, roundTrip(t, c.tr, newRequest(t, "POST", "http://api.test/", "")))
		}, bodies: 1, is: resilienthttp.ErrRateLimited},
		{name: "canceled in the queue", steps: []step{status(200)}, setup: func(t *testing.T, c *bodyCall) {
			c.tr.RateLimit = &resilienthttp.RateLimit{Limit: 0.1, Burst: 1}
			readAll(t, roundTrip(t, c.tr, get(t)))
			c.cancelAfter(time.Second)
		}, bodies: 1, is: context.Canceled},
		{name: "canceled before", steps: []step{status(200)}, setup: func(_ *testing.T, c *bodyCall) {
			c.req = c.req.WithContext(gone(c.req.Context()))
		}, bodies: 1, is: context.Canceled},
		{name: "the margin leaves no time", steps: []step{status(200)}, setup: func(t *testing.T, c *bodyCall) {
			c.tr.DeadlineHeader.Margin = time.Minute
			c.req = c.req.WithContext(until(t, c.req.Context(), time.Minute))
		}, bodies: 1, is: resilienthttp.ErrDeadline},
		{name: "canceled in flight", steps: []step{hanging}, setup: func(_ *testing.T, c *bodyCall) {
			c.cancelAfter(time.Second)
		}, bodies: 1, is: context.Canceled},
		{name: "canceled in the backoff", steps: []step{status(503)}, setup: func(_ *testing.T, c *bodyCall) {
			c.tr.Policy.Backoff = resilienthttp.Constant(time.Hour)
			c.cancelAfter(time.Second)
		}, bodies: 1, is: context.Canceled},
		{name: "no token for the retry", steps: []step{status(503)}, setup: func(_ *testing.T, c *bodyCall) {
			c.tr.Budget = tokens(0)
		}, bodies: 1},
		{name: "RetryWait panics", steps: []step{status(503)}, setup: func(_ *testing.T, c *bodyCall) {
			c.tr.Trace = &resilienthttp.Trace{RetryWait: func(*resilienthttp.Attempt) { panic(errReset) }}
		}, bodies: 1, panics: true},
		{name: "CallDone panics after the last response", steps: []step{status(503)}, setup: func(_ *testing.T, c *bodyCall) {
			c.tr.Budget = tokens(0)
			c.tr.Trace = &resilienthttp.Trace{CallDone: func(*resilienthttp.Call) { panic(errReset) }}
		}, bodies: 1, panics: true},
		{name: "Scope panics", setup: func(_ *testing.T, c *bodyCall) {
			c.tr.Scope = func(*http.Request) string { panic(errReset) }
		}, bodies: 1, panics: true},
		{name: "NewKey panics", setup: func(_ *testing.T, c *bodyCall) {
			c.tr.Idempotency.NewKey = func(*http.Request) string { panic(errReset) }
		}, bodies: 1, panics: true},
		{name: "AttemptStart panics", setup: func(_ *testing.T, c *bodyCall) {
			c.tr.Trace = &resilienthttp.Trace{AttemptStart: func(*resilienthttp.Attempt) { panic(errReset) }}
		}, bodies: 1, panics: true},
		{name: "AttemptStart of the second attempt panics", steps: []step{status(503)}, setup: func(_ *testing.T, c *bodyCall) {
			c.tr.Trace = &resilienthttp.Trace{AttemptStart: func(a *resilienthttp.Attempt) {
				if a.Number == 2 {
					panic(errReset)
				}
			}}
		}, bodies: 2, panics: true},
		{name: "nil URL", steps: []step{status(200)}, setup: func(_ *testing.T, c *bodyCall) { c.req.URL = nil }, bodies: 1, is: errAny},
		{name: "GetBody fails", steps: []step{status(503)}, setup: func(_ *testing.T, c *bodyCall) {
			c.req.GetBody = func() (io.ReadCloser, error) { return nil, errReset }
		}, bodies: 1},
		{name: "GetBody returns a body and an error", steps: []step{status(503)}, setup: func(_ *testing.T, c *bodyCall) {
			open := c.req.GetBody
			c.req.GetBody = func() (io.ReadCloser, error) {
				body, _ := open()
				return body, errReset
			}
		}, bodies: 2},
		{name: "GetBody fails after an error", steps: []step{failing(errReset)}, setup: func(_ *testing.T, c *bodyCall) {
			c.req.GetBody = func() (io.ReadCloser, error) { return nil, io.ErrUnexpectedEOF }
		}, bodies: 1, is: resilienthttp.ErrNotReplayable},
		{name: "the hedge wins", steps: []step{after(time.Hour, status(200)), status(200)}, setup: hedged, bodies: 2},
		{name: "the hedge loses", steps: []step{after(2*time.Second, status(200)), after(time.Hour, status(200))}, setup: hedged, bodies: 2},
		{name: "both copies fail", steps: []step{after(2*time.Second, status(503)), after(2*time.Second, status(503)), status(200)}, setup: hedged, bodies: 3},
		{name: "no hedge is due", steps: []step{status(200)}, setup: hedged, bodies: 1},
	}
	for _, tt := range tests {
		bubble.Run(t, tt.name, func(t *testing.T) {
			base := script(tt.steps...)
			c := &bodyCall{
				tr:  &resilienthttp.Transport{Base: base, Policy: every(time.Second)},
				req: newRequest(t, "POST", "http://api.test/", ""),
			}
			c.bodies = trackBody(c.req, "content")
			if tt.setup != nil {
				tt.setup(t, c)
			}
			if tt.during != nil {
				go tt.during(c)
			}
			var resp *http.Response
			var err error
			if tt.panics {
				require.Panics(t, func() { _, err = c.tr.RoundTrip(c.req) })
			} else {
				resp, err = c.tr.RoundTrip(c.req)
			}
			switch {
			case tt.panics:
			case tt.is == nil:
				require.NoError(t, err)
				readAll(t, resp)
			case tt.is == errAny:
				require.Error(t, err)
			default:
				require.ErrorIs(t, err, tt.is)
			}
			synctest.Wait()
			c.bodies.requireClosedOnce(t, tt.bodies)
			base.requireBalance(t)
			time.Sleep(2 * time.Hour) // until losers have ended
			synctest.Wait()
			c.bodies.requireClosedOnce(t, tt.bodies)
			base.requireBalance(t)
		})
	}
}

// errAny means an error without a sentinel in tables.
var errAny = errors.New("any")

// §4.3: Transport follows, parses and retries no 3xx.
func TestRedirectsPassThrough(t *testing.T) {
	locations := map[string]string{
		"none": "", "relative": "/next", "elsewhere": "https://other.test/x?y", "malformed": "http://[bad", "not a URL": "://%zz\x7f",
	}
	for name, location := range locations {
		t.Run(name, func(t *testing.T) {
			for code := 300; code <= 399; code++ {
				var header []string
				if location != "" {
					header = []string{"Location", location}
				}
				base := script(status(code, header...))
				tr := &resilienthttp.Transport{Base: base}
				resp := roundTrip(t, tr, newRequest(t, "POST", "http://api.test/", "body"))
				require.Equal(t, code, resp.StatusCode)
				require.Equal(t, location, resp.Header.Get("Location"))
				require.Equal(t, "status "+strconv.Itoa(code), readAll(t, resp))
				require.Len(t, base.calls(), 1)
				base.requireBalance(t)
			}
		})
	}
}

// upgrade responds with 101 and echoes lines in upper case.
func upgrade(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Upgrade") != "echo" {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	conn, rw, err := w.(http.Hijacker).Hijack()
	if err != nil {
		panic(err)
	}
	defer conn.Close()
	_, _ = rw.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	_ = rw.Flush()
	for {
		line, err := rw.ReadString('\n')
		if err != nil {
			return
		}
		_, _ = rw.WriteString(strings.ToUpper(line))
		_ = rw.Flush()
	}
}

func upgradeRequest(tb testing.TB, url string) *http.Request {
	req := newRequest(tb, "GET", url, "")
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", "echo")
	return req
}

// requireEcho speaks the protocol of upgrade.
func requireEcho(tb testing.TB, rw io.ReadWriter) {
	tb.Helper()
	_, err := io.WriteString(rw, "hello\n")
	require.NoError(tb, err)
	buf := make([]byte, 6)
	_, err = io.ReadFull(rw, buf)
	require.NoError(tb, err)
	require.Equal(tb, "HELLO\n", string(buf))
}

// §4.3: the body of a 101 is the connection, without timeouts.
func TestUpgradeStaysWritable(t *testing.T) {
	bubble.Run(t, "in memory, for an hour", func(t *testing.T) {
		s := memhttp.NewServer(t, http.HandlerFunc(upgrade))
		tr := &resilienthttp.Transport{Base: s.Transport(), Policy: resilienthttp.Policy{AttemptTimeout: time.Second, ReadTimeout: time.Second}}
		resp := roundTrip(t, tr, upgradeRequest(t, s.URL))
		require.Equal(t, 101, resp.StatusCode)
		conn, ok := resp.Body.(io.ReadWriteCloser)
		require.True(t, ok, "the body of a 101 is writable")
		for range 3 {
			requireEcho(t, conn)
			time.Sleep(time.Hour)
		}
		require.NoError(t, conn.Close())
		require.NoError(t, conn.Close(), "a second Close does nothing")
		synctest.Wait()
		_, open := s.Conns()
		require.Zero(t, open)
	})
	bubble.Run(t, "after a retry", func(t *testing.T) {
		s := faulttest.NewInMemory(t, faulttest.Sequence(faulttest.Status(503), http.HandlerFunc(upgrade)))
		tr := &resilienthttp.Transport{Base: s.Transport()}
		resp := roundTrip(t, tr, upgradeRequest(t, s.URL))
		requireEcho(t, resp.Body.(io.ReadWriteCloser))
		require.NoError(t, resp.Body.Close())
	})
	t.Run("through httputil.ReverseProxy", func(t *testing.T) {
		backend := httptest.NewServer(http.HandlerFunc(upgrade))
		defer backend.Close()
		target, err := url.Parse(backend.URL)
		require.NoError(t, err)
		tr := &resilienthttp.Transport{}
		defer tr.CloseIdleConnections()
		front := httptest.NewServer(&httputil.ReverseProxy{
			Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }, Transport: tr,
		})
		defer front.Close()
		resp := roundTrip(t, http.DefaultTransport, upgradeRequest(t, front.URL))
		require.Equal(t, 101, resp.StatusCode)
		requireEcho(t, resp.Body.(io.ReadWriteCloser))
		require.NoError(t, resp.Body.Close())
	})
}

// §4.3: Base gets no RequestURI, and the caller's request keeps it.
func TestRequestURIIsCleared(t *testing.T) {
	base := script(status(200))
	req := get(t)
	req.RequestURI = "/x"
	readAll(t, roundTrip(t, (&resilienthttp.Transport{Base: base}), req))
	require.Empty(t, base.calls()[0].Request.RequestURI)
	require.Equal(t, "/x", req.RequestURI)
}

// §4.4: the first attempt sends the caller's Body, and the others those of GetBody, with the same length. A short body of
// http.NewRequest is not wrapped, so net/http knows that it is in memory.
func TestBodyReplay(t *testing.T) {
	tests := []struct {
		name   string
		length func(*http.Request)
		want   int64
	}{
		{"of known length", func(*http.Request) {}, 7},
		{"chunked", func(r *http.Request) { r.ContentLength = -1 }, -1},
		{"of unknown length", func(r *http.Request) { r.ContentLength = 0 }, 0},
	}
	for _, tt := range tests {
		bubble.Run(t, tt.name, func(t *testing.T) {
			base := script(status(500), failing(errReset), status(503), status(200))
			req := newRequest(t, "PUT", "http://api.test/", "")
			bodies := trackBody(req, "content")
			tt.length(req)
			readAll(t, roundTrip(t, (&resilienthttp.Transport{Base: base}), req))
			calls := base.calls()
			require.Len(t, calls, 4)
			for _, s := range calls {
				require.Equal(t, "content", s.Text)
				require.Equal(t, tt.want, s.ContentLength)
			}
			bodies.requireClosedOnce(t, 4)
		})
	}
	for name, body := range map[string]io.Reader{"a Buffer": bytes.NewBufferString("content"), "bytes": bytes.NewReader([]byte("content")), "a string": strings.NewReader("content")} {
		bubble.Run(t, name+" of http.NewRequest", func(t *testing.T) {
			base := script(failing(errReset), status(200))
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://api.test/", body)
			require.NoError(t, err)
			kind := reflect.TypeOf(req.Body)
			readAll(t, roundTrip(t, (&resilienthttp.Transport{Base: base}), req))
			require.Len(t, base.calls(), 2)
			require.Equal(t, req.Body, base.calls()[0].Body)
			for _, s := range base.calls() {
				require.Equal(t, "content", s.Text)
				require.Contains(t, []reflect.Type{kind, reflect.TypeOf(io.NopCloser(bytes.NewReader(nil)))}, reflect.TypeOf(s.Body))
			}
		})
	}
}

// §4.4: a body without GetBody is sent once. No body and http.NoBody can be replayed.
func TestNoGetBodyIsOneAttempt(t *testing.T) {
	tests := []struct {
		name     string
		body     io.ReadCloser
		attempts int
		stop     error
	}{
		{"a body", io.NopCloser(strings.NewReader("content")), 1, resilienthttp.ErrNotReplayable},
		{"a body that happens to be empty", io.NopCloser(strings.NewReader("")), 1, resilienthttp.ErrNotReplayable},
		{"a seekable body", nopSeeker{strings.NewReader("content")}, 1, resilienthttp.ErrNotReplayable},
		{"nil", nil, 4, resilienthttp.ErrMaxAttempts},
		{"http.NoBody", http.NoBody, 4, resilienthttp.ErrMaxAttempts},
	}
	for _, tt := range tests {
		bubble.Run(t, tt.name, func(t *testing.T) {
			base := script(status(503))
			req := newRequest(t, "PUT", "http://api.test/", "")
			req.Body = tt.body
			if tt.body != nil && tt.body != http.NoBody {
				req.ContentLength = -1
			}
			resp := roundTrip(t, (&resilienthttp.Transport{Base: base, Policy: resilienthttp.Policy{MaxAttempts: 4}}), req)
			require.Equal(t, 503, resp.StatusCode)
			require.Equal(t, tt.stop, lastOf(t, resp).StopReason)
			require.Equal(t, "status 503", readAll(t, resp))
			require.Len(t, base.calls(), tt.attempts)
		})
	}
}

// nopSeeker panics when it is sought.
type nopSeeker struct{ io.Reader }

func (nopSeeker) Seek(int64, int) (int64, error) { panic("the body was sought") }
func (nopSeeker) Close() error                   { return nil }

// zeros is an endless reader that hands out no memory.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

// §4.4, §4.5: 64 MiB are sent twice and received once, with almost no allocations. This needs
// real sockets: in-memory pipes allocate.
func TestMemoryIsFlat(t *testing.T) {
	const size = 64 << 20
	var tries, received atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		received.Add(n)
		if tries.Add(1) == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Length", strconv.Itoa(size))
		_, _ = io.CopyN(w, zeros{}, size)
	}))
	defer s.Close()
	tr := &resilienthttp.Transport{Policy: every(time.Millisecond)}
	defer tr.CloseIdleConnections()
	req := newRequest(t, "PUT", s.URL, "")
	open := func() (io.ReadCloser, error) { return io.NopCloser(io.LimitReader(zeros{}, size)), nil }
	req.Body, _ = open()
	req.GetBody, req.ContentLength = open, size

	var before, now runtime.MemStats
	runtime.ReadMemStats(&before)
	resp := roundTrip(t, tr, req)
	n, err := io.Copy(io.Discard, resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	runtime.ReadMemStats(&now)
	require.Equal(t, int64(size), n)
	require.Equal(t, int64(2*size), received.Load())
	require.Less(t, now.TotalAlloc-before.TotalAlloc, uint64(4<<20), "bytes allocated in all, the server's included")
}

// §4.5: over net/http, no connection stays busy after any kind of discarded response.
func TestNoConnectionIsLeaked(t *testing.T) {
	tests := []struct {
		name  string
		first http.Handler
	}{
		{"more than is drained", faulttest.Reply{Status: 503, Body: strings.Repeat("x", 10<<20)}},
		{"takes hours", faulttest.Reply{Status: 503, Body: strings.Repeat("x", 1<<20), Pause: 10 * time.Millisecond}},
		{"hangs after the headers", faulttest.Reply{Status: 503, Fault: faulttest.Stalled, At: -1}},
		{"hangs before the headers", faulttest.Hang},
		{"breaks off", faulttest.Reply{Status: 503, Fault: faulttest.Truncated}},
		{"is reset", http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { memhttp.Reset(memhttp.RequestConn(r)) })},
	}
	for _, tt := range tests {
		for protocol, options := range protocols {
			bubble.Run(t, tt.name+", "+protocol, func(t *testing.T) {
				var log faulttest.Log
				s := memhttp.NewServer(t, log.Record(faulttest.Sequence(tt.first, faulttest.OK("fine"))), options...)
				base := &countingBase{base: s.Transport()}
				tr := &resilienthttp.Transport{Base: base}
				require.Equal(t, "fine", readAll(t, roundTrip(t, tr, newRequest(t, "GET", s.URL, ""))))
				log.AssertAttempts(t, 2)
				base.requireBalance(t)
				synctest.Wait() // HTTP/2 ends its streams in the background
				tr.CloseIdleConnections()
				synctest.Wait()
				_, open := s.Conns()
				require.Zero(t, open)
			})
		}
	}
}

// countingBase counts the bodies of a real transport.
type countingBase struct {
	ledger
	base http.RoundTripper
}

func (b *countingBase) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := b.base.RoundTrip(r)
	if err == nil && resp.Body != http.NoBody {
		resp.Body = b.count(resp.Body)
	}
	return resp, err
}

func (b *countingBase) CloseIdleConnections() {
	if c, ok := b.base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// TestFailureClosesNoIdleConnectionOfOthers is §4.6.
func TestFailureClosesNoIdleConnectionOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		good := &faulttest.Server{InMemory: true, Host: "good.test", Script: faulttest.OK("good")}
		good.Start(t)
		bad := &faulttest.Server{Network: good, Host: "bad.test", Script: faulttest.ResetAfterRead}
		bad.Start(t)
		refused := &faulttest.Server{Network: good, Host: "refused.test"}
		refused.Start(t)
		refused.Close()
		tr := &resilienthttp.Transport{Base: good.Transport()}
		ask := func() {
			require.Equal(t, "good", readAll(t, roundTrip(t, tr, newRequest(t, "GET", good.URL, ""))))
		}
		ask()
		for url, cause := range map[string]error{bad.URL: syscall.ECONNRESET, refused.URL: syscall.ECONNREFUSED} {
			_, err := tr.RoundTrip(newRequest(t, "GET", url, ""))
			require.ErrorIs(t, err, cause)
			require.GreaterOrEqual(t, len(asError(t, err).Attempts), 4)
		}
		_, err := tr.RoundTrip(newRequest(t, "GET", refused.URL, "").WithContext(canceledAfter(t.Context(), time.Millisecond))) // in the backoff
		require.ErrorIs(t, err, context.Canceled)
		synctest.Wait()
		ask()
		require.True(t, good.Requests()[1].Reused, "the connection to the good host\n%s", good.Transcript())
	})
}

// §4.6: CloseIdleConnections reaches Base, also before the first call, through http.Client, and below a Base that unwraps.
// It does nothing if Base has no such method.
func TestCloseIdleConnections(t *testing.T) {
	base := script(status(200))
	tr := &resilienthttp.Transport{Base: base}
	tr.CloseIdleConnections()
	(&http.Client{Transport: tr}).CloseIdleConnections()
	require.Equal(t, int64(2), base.idleClosed.Load())

	// A signer around the RoundTripper has no method of its own, but Unwrap.
	(&resilienthttp.Transport{Base: &unwrapping{roundTripper(status(200)), base}}).CloseIdleConnections()
	require.Equal(t, int64(3), base.idleClosed.Load())

	require.NotPanics(t, (&resilienthttp.Transport{Base: roundTripper(status(200))}).CloseIdleConnections)
	require.NotPanics(t, (&resilienthttp.Transport{Base: &unwrapping{RoundTripper: roundTripper(status(200))}}).CloseIdleConnections)
	require.NotPanics(t, (&resilienthttp.Transport{}).CloseIdleConnections)
	require.NotPanics(t, resilienthttp.NewClient().CloseIdleConnections)
	require.NotPanics(t, (&resilienthttp.Transport{Base: (*http.Transport)(nil)}).CloseIdleConnections)
	require.NotPanics(t, (&resilienthttp.Transport{Base: (*resilienthttp.Transport)(nil)}).CloseIdleConnections)
	itself := &resilienthttp.Transport{}
	itself.Base = itself
	require.NotPanics(t, itself.CloseIdleConnections)

	synctest.Test(t, func(t *testing.T) {
		s := memhttp.NewServer(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		tr := &resilienthttp.Transport{Base: s.Transport()}
		readAll(t, roundTrip(t, tr, newRequest(t, "GET", s.URL, "")))
		synctest.Wait()
		_, open := s.Conns()
		require.Equal(t, 1, open)
		tr.CloseIdleConnections()
		synctest.Wait()
		_, open = s.Conns()
		require.Zero(t, open)
	})
}

// A Transport without a Base uses a clone of http.DefaultTransport, which it does not change. If
// the program has replaced http.DefaultTransport by another type, that is the Base, unless it is
// the Transport itself.
func TestDefaultBase(t *testing.T) {
	s := faulttest.New(t, faulttest.OK("hello"))
	original := http.DefaultTransport
	replace := func(t *testing.T, by http.RoundTripper) {
		http.DefaultTransport = by                             //nolint:reassign // what programs do
		t.Cleanup(func() { http.DefaultTransport = original }) //nolint:reassign // as it was
	}

	t.Run("NewClient", func(t *testing.T) {
		client := resilienthttp.NewClient()
		defer client.CloseIdleConnections()
		resp, err := client.Get(s.URL)
		require.NoError(t, err)
		require.Equal(t, "hello", readAll(t, resp))
		require.Equal(t, 0, original.(*http.Transport).MaxIdleConnsPerHost)
	})
	t.Run("another type as http.DefaultTransport", func(t *testing.T) {
		base := script(status(204))
		replace(t, base)
		resp, err := resilienthttp.NewClient().Get("http://api.test")
		require.NoError(t, err)
		require.Equal(t, 204, resp.StatusCode)
		require.NoError(t, resp.Body.Close())
		require.Len(t, base.calls(), 1)
	})
	t.Run("the Transport itself as http.DefaultTransport", func(t *testing.T) {
		tr := &resilienthttp.Transport{}
		replace(t, tr)
		defer tr.CloseIdleConnections()
		resp, err := http.Get(s.URL)
		require.NoError(t, err)
		require.Equal(t, "hello", readAll(t, resp))
	})
	t.Run("another Transport as http.DefaultTransport", func(t *testing.T) {
		base := script(status(503))
		replace(t, &resilienthttp.Transport{Base: base, Policy: every(time.Millisecond)})
		tr := &resilienthttp.Transport{Policy: every(time.Millisecond)}
		resp := roundTrip(t, tr, get(t))
		require.Equal(t, 503, resp.StatusCode)
		readAll(t, resp)
		require.Len(t, base.calls(), 6, "only the outer one retries")
	})
}

// Scope determines which calls share the breaker, and is called once for each call.
func TestScope(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		tr := &resilienthttp.Transport{
			Base: script(status(500)), Breaker: nervous(time.Hour), Policy: resilienthttp.Policy{MaxAttempts: -1},
			Scope: func(r *http.Request) string { asked.Add(1); return r.URL.Path },
		}
		for _, path := range []string{"/a", "/b"} {
			readAll(t, roundTrip(t, tr, newRequest(t, "GET", "http://api.test"+path, "")))
			require.ErrorIs(t, discard(tr, newRequest(t, "GET", "http://api.test"+path, "")), resilienthttp.ErrBreakerOpen)
		}
		require.Equal(t, int64(4), asked.Load())
	})
}

// §4.1, §4.2, §4.5, §4.21: 64 goroutines on two Transports with one Hedge and one Breaker, under the race detector.
func TestStress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fine := faulttest.OK(strings.Repeat("x", 1000))
		s := faulttest.NewInMemory(t, faulttest.Cycle(
			faulttest.Status(503), faulttest.Status(503),
			faulttest.Reply{Status: 429, RetryAfter: 5 * time.Millisecond, RetryAfterFormat: faulttest.Millis},
			faulttest.ResetAfterRead,
			faulttest.Reply{Delay: 2 * time.Second},
			faulttest.Status(404),
			faulttest.Reply{Status: 500, Body: strings.Repeat("x", 200<<10)},
			faulttest.Redirect(302, "http://[bad"),
			faulttest.Truncated, faulttest.Stalled,
			fine, fine, fine, fine, fine, fine,
		))
		base := &countingBase{base: s.Transport()}
		var starts, dones, calls atomic.Int64
		tr := &resilienthttp.Transport{
			Base:    base,
			Policy:  resilienthttp.Policy{AttemptTimeout: time.Second, ReadTimeout: time.Second, Backoff: resilienthttp.FullJitter(10*time.Millisecond, time.Second)},
			Hedge:   &resilienthttp.Hedge{Delay: 100 * time.Millisecond, MaxRatio: -1},
			Breaker: &resilienthttp.Breaker{Cooldown: 100 * time.Millisecond},
			Scope:   func(r *http.Request) string { return r.URL.Path },
			Trace: &resilienthttp.Trace{
				AttemptStart: func(*resilienthttp.Attempt) { starts.Add(1) },
				AttemptDone:  func(*resilienthttp.Attempt) { dones.Add(1) },
				CallDone:     func(c *resilienthttp.Call) { calls.Add(1) },
			},
		}
		other := &resilienthttp.Transport{Base: base, Policy: tr.Policy, Hedge: tr.Hedge, Breaker: tr.Breaker, Scope: tr.Scope, Trace: tr.Trace}
		var wg sync.WaitGroup
		for g := range 64 {
			wg.Go(func() {
				for i := range 20 {
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+(g+i)%7)*time.Second)
					req := newRequest(t, []string{"GET", "POST", "PUT"}[i%3], fmt.Sprintf("%s/%d", s.URL, g%4), "").WithContext(ctx)
					if i%3 > 0 {
						trackBody(req, "content")
					}
					if (g+i)%11 == 0 {
						time.AfterFunc(time.Duration(1+i)*time.Millisecond, cancel) // after the call begins: otherwise there is no CallDone
					}
					resp, err := []*resilienthttp.Transport{tr, other}[i%2].RoundTrip(req)
					if (resp == nil) == (err == nil) {
						t.Errorf("response %v, error %v", resp, err)
					}
					if err == nil {
						for _, a := range resilienthttp.Attempts(resp) {
							_ = a.Verdict.String()
						}
						_, _ = io.Copy(io.Discard, resp.Body)
						_ = resp.Body.Close()
					} else {
						_ = err.Error()
					}
					cancel()
				}
			})
		}
		wg.Wait()
		synctest.Wait()
		time.Sleep(time.Minute) // losers of hedges
		synctest.Wait()
		base.requireBalance(t)
		require.Equal(t, int64(64*20), calls.Load())
		require.GreaterOrEqual(t, s.Total(), 16*20, "each step happens often")
		require.Equal(t, starts.Load(), dones.Load())
	})
}

// §4.22: nothing is logged without LogTrace. After the calls there is no goroutine and no timer.
func TestTransport_nothingAtRest(t *testing.T) {
	var logged bytes.Buffer
	standard, structured := log.Writer(), slog.Default()
	log.SetOutput(&logged)
	slog.SetDefault(slog.New(slog.NewTextHandler(&logged, &slog.HandlerOptions{Level: slog.LevelDebug})))
	defer func() {
		slog.SetDefault(structured)
		log.SetOutput(standard)
	}()
	synctest.Test(t, func(t *testing.T) { // which reports goroutines that are left, in the end
		tr := &resilienthttp.Transport{
			Base: script(
				status(503, "Retry-After", "1"), failing(errReset), after(time.Hour, status(200)), status(500), status(429),
				status(200, "X-RateLimit-Limit", "5", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "9"),
			),
			Hedge:   &resilienthttp.Hedge{Delay: time.Second},
			Breaker: nervous(time.Second),
			Budget:  &resilienthttp.Budget{Ratio: -1},
		}
		for range 10 {
			_ = discard(tr, newRequest(t, http.MethodPost, "http://api.test/", "body"))
			time.Sleep(time.Minute)
		}
	})
	require.Empty(t, logged.String())
}

// With NaN, infinite, negative and huge values in all gates, calls still end.
func TestBadGates(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	const huge = time.Duration(math.MaxInt64)
	for name, tr := range map[string]*resilienthttp.Transport{
		"NaN": {
			Budget: &resilienthttp.Budget{Ratio: nan, Burst: math.MinInt}, Breaker: &resilienthttp.Breaker{FailureRatio: nan},
			Hedge: &resilienthttp.Hedge{Quantile: nan, MaxRatio: nan}, RateLimit: &resilienthttp.RateLimit{Limit: rate.Limit(nan)},
		},
		"infinite": {
			Budget: &resilienthttp.Budget{Ratio: inf, Burst: math.MaxInt}, Breaker: &resilienthttp.Breaker{FailureRatio: inf},
			Hedge: &resilienthttp.Hedge{Quantile: inf, MaxRatio: inf, Delay: 1}, RateLimit: &resilienthttp.RateLimit{Limit: rate.Limit(inf)},
		},
		"negatively infinite": {
			Budget: &resilienthttp.Budget{Ratio: -inf, Burst: -1}, Breaker: &resilienthttp.Breaker{FailureRatio: -inf},
			Hedge: &resilienthttp.Hedge{Quantile: -inf, MaxRatio: -inf}, RateLimit: &resilienthttp.RateLimit{Limit: rate.Limit(-inf)},
		},
		"huge": {
			Budget:         &resilienthttp.Budget{Ratio: math.MaxFloat64, Burst: math.MaxInt},
			Breaker:        &resilienthttp.Breaker{FailureRatio: 1, MinRequests: math.MaxInt, Window: huge, Cooldown: huge, MaxCooldown: huge, Probes: math.MaxInt},
			Hedge:          &resilienthttp.Hedge{Delay: huge, MaxRatio: math.MaxFloat64},
			RateLimit:      &resilienthttp.RateLimit{Limit: math.MaxFloat64, Burst: math.MaxInt, MaxWait: huge, MaxBlock: huge},
			DeadlineHeader: resilienthttp.DeadlineHeader{Margin: -huge},
		},
		"negative": {
			Budget:         &resilienthttp.Budget{Ratio: -1, Burst: math.MinInt},
			Breaker:        &resilienthttp.Breaker{FailureRatio: -1, MinRequests: math.MinInt, Window: math.MinInt64, Cooldown: math.MinInt64, MaxCooldown: math.MinInt64, Probes: math.MinInt},
			Hedge:          &resilienthttp.Hedge{Delay: math.MinInt64},
			RateLimit:      &resilienthttp.RateLimit{Limit: -1, Burst: math.MinInt, MaxWait: math.MinInt64, MaxBlock: math.MinInt64},
			DeadlineHeader: resilienthttp.DeadlineHeader{Margin: math.MinInt64},
		},
		"a breaker of nanoseconds": {
			Breaker: &resilienthttp.Breaker{FailureRatio: 1e-300, MinRequests: -1, Window: 1, Cooldown: 1, MaxCooldown: 1, Probes: -1},
			Budget:  &resilienthttp.Budget{Ratio: 1e-300, Burst: 1}, RateLimit: &resilienthttp.RateLimit{Limit: 1e-300, MaxWait: 1},
		},
		"an immense limit": {RateLimit: &resilienthttp.RateLimit{Limit: 1e300}},
	} {
		bubble.Run(t, name, func(t *testing.T) {
			steps := []step{status(200), status(503), failing(errReset), status(429, "Retry-After", "1"), status(200), status(500)}
			base := script(steps...)
			tr.Base = base
			var sent atomic.Int64
			tr.Trace = &resilienthttp.Trace{AttemptStart: func(*resilienthttp.Attempt) { sent.Add(1) }}
			start := time.Now()
			for range 50 {
				resp, err := tr.RoundTrip(get(t).WithContext(withDeadline(t, time.Minute)))
				require.NotEqual(t, resp == nil, err == nil)
				finish(t, resp, err)
			}
			require.LessOrEqual(t, sent.Load(), int64(8*50))
			require.LessOrEqual(t, time.Since(start), 50*time.Minute)
			synctest.Wait()
			base.requireBalance(t)
		})
	}
}

// §4.1: the functions of net/http accept the response.
func TestResponseCanBeWritten(t *testing.T) {
	resp := roundTrip(t, &resilienthttp.Transport{Base: script(status(200))}, get(t))
	var buf bytes.Buffer
	require.NoError(t, resp.Write(&buf))
	require.NoError(t, resp.Body.Close())
	again, err := http.ReadResponse(bufio.NewReader(&buf), nil)
	require.NoError(t, err)
	require.Equal(t, "status 200", readAll(t, again))
}
