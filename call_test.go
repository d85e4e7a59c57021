package resilienthttp_test

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/internal/bubble"
	"github.com/resilienthttp/resilienthttp/internal/memhttp"
)

// Bad input causes a clear error or a documented clamp, and never a panic of this module, a hang, a
// leak or a hot loop. The bubbles of synctest detect hangs and leaks.

// §4.9: a request that cannot be sent fails once, its body is closed, and the circuit does not count it. The texts are those of
// net/http, for HTTP/1 and HTTP/2.
func TestBadRequests(t *testing.T) {
	header := func(name, value string) func(*http.Request) {
		return func(r *http.Request) { r.Header = http.Header{name: {value}} }
	}
	tests := []struct {
		name  string
		spoil func(*http.Request)
		text  string // of the error over HTTP/1
		text2 string // over HTTP/2, where it is another; "-": it is taken
		early bool   // fails before any attempt
	}{
		{"nil URL", func(r *http.Request) { r.URL = nil }, "nil Request.URL", "", true},
		{"nil body with a length", func(r *http.Request) { r.Body = nil }, "ContentLength 7 with nil Body", "", true},
		{"nil body with an unknown length", func(r *http.Request) { r.Body, r.ContentLength = nil, -1 }, "ContentLength -1 with nil Body", "", true},
		{"empty host", func(r *http.Request) { r.URL.Host = "" }, "no Host in request URL", "", false},
		{"empty URL", func(r *http.Request) { r.URL = &url.URL{} }, "unsupported protocol scheme", "", false},
		{"unknown scheme", func(r *http.Request) { r.URL.Scheme = "gopher" }, "unsupported protocol scheme", "", false},
		{"no scheme", func(r *http.Request) { r.URL.Scheme = "" }, "unsupported protocol scheme", "", false},
		{"method with a blank", func(r *http.Request) { r.Method = "GE T" }, "invalid method", "", false},
		{"header value with a newline", header("X-A", "a\r\nX-Injected: "+secret), "invalid header field value", "", false},
		{"header value with a NUL", header("X-A", secret+"\x00"), "invalid header field value", "", false},
		{"header name with a newline", header("X-A\r\nX-B", secret), "invalid header field name", "", false},
		{"empty header name", header("", secret), "invalid header field name", "", false},
		{"trailer with a newline", func(r *http.Request) {
			r.Trailer = http.Header{"X-T": {secret + "\n"}}
		}, "invalid trailer field value", "", false},
		{"trailer name with a blank", func(r *http.Request) { r.Trailer = http.Header{"a b": nil} }, "invalid trailer field name", "", false},
		{"trailer that is none", func(r *http.Request) {
			r.Trailer, r.ContentLength = http.Header{"Content-Length": nil}, -1
		}, "invalid Trailer key", "-", false},
		{"host with a blank", func(r *http.Request) { r.Host = "a b" }, "-", "invalid Host header", false}, // HTTP/1 sends an empty one
		{"path with a control character", func(r *http.Request) {
			r.URL = &url.URL{Scheme: r.URL.Scheme, Host: r.URL.Host, Opaque: "/a\nb?" + secret}
		}, "can't write control character in Request.URL", "-", false},
		{"length too small", func(r *http.Request) { r.ContentLength = 3 }, "http: ContentLength", "request body larger than specified content length", false},
		{"length too large", func(r *http.Request) { r.ContentLength = 30 }, "http: ContentLength", "-", false}, // HTTP/2 leaves that to the server
		{"HTTP/2 and Upgrade", header("Upgrade", secret), "-", "invalid Upgrade request header", false},
		{"HTTP/2 and Connection", header("Connection", "upgrade, "+secret), "-", "invalid Connection request header", false},
		{"HTTP/2 and Transfer-Encoding", header("Transfer-Encoding", secret), "-", "invalid Transfer-Encoding request header", false},
		{"HTTP/2 and a path without a slash", func(r *http.Request) {
			r.URL = &url.URL{Scheme: r.URL.Scheme, Host: r.URL.Host, Opaque: "x?" + secret}
		}, "-", "invalid request :path", false},
	}
	for _, tt := range tests {
		for protocol, options := range protocols {
			text := tt.text
			if options != nil && tt.text2 != "" {
				text = tt.text2
			}
			if text == "-" {
				continue
			}
			t.Run(tt.name+", "+protocol, func(t *testing.T) {
				const tries = 3
				raced := true
				for try := 0; raced && try < tries; try++ {
					synctest.Test(t, func(t *testing.T) {
						raced = false
						s := memhttp.NewServer(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
							_, _ = io.Copy(io.Discard, r.Body)
							<-r.Context().Done() // a response could arrive before the error
						}), options...)
						base := &countingBase{base: s.Transport()}
						tr := &resilienthttp.Transport{Base: base, Breaker: nervous(time.Hour)}
						req := newRequest(t, "PUT", s.URL, "")
						body := trackBody(req, "content").bodies[0]
						tt.spoil(req)
						start := time.Now()
						resp, err := tr.RoundTrip(req)
						require.Nil(t, resp)
						require.Error(t, err)
						require.NotContains(t, err.Error(), secret)
						// net/http closes the connection at a request that it cannot write, and rarely sees that first.
						if raced = strings.Contains(err.Error(), "use of closed network connection"); raced {
							return
						}
						require.ErrorContains(t, err, text)
						require.NotContains(t, err.Error(), "\n")
						synctest.Wait()
						if req.Body != nil {
							require.Positive(t, body.closes.Load(), "the body is closed")
						}
						attempts := asError(t, err).Attempts
						if tt.early {
							require.Empty(t, attempts)
							require.Zero(t, time.Since(start))
							return
						}
						require.Len(t, attempts, 1, "%v", attempts)
						require.Equal(t, resilienthttp.VerdictPermanent, attempts[0].Verdict)
						require.NoError(t, attempts[0].StopReason)
						require.Zero(t, time.Since(start))
						if req.URL.Host != "" {
							require.Equal(t, resilienthttp.StateClosed, tr.Breaker.State(req.URL.Host, resilienthttp.PriorityDefault), "the breaker does not count it")
						}
					})
				}
				require.False(t, raced, "in %d tries", tries)
			})
		}
	}
}

// brokenClose is a body that panics in Close.
type brokenClose struct{ io.Reader }

func (brokenClose) Close() error { panic("Close is broken") }

// stuckBody is a body that blocks until its context ends, and panics in Close.
type stuckBody struct{ untilDone }

func (stuckBody) Close() error { panic("Close is broken") }

// §4.5: a response body that panics in Close does not end the program, and the context of its
// attempt ends.
func TestCleanUp_brokenClose(t *testing.T) {
	for _, row := range []struct {
		name   string
		body   func(context.Context) io.ReadCloser
		status int
		read   error // error of the caller's body; nil: Close panics
		then   int   // status of the next attempt; 0: there is none
	}{
		{name: "ReadTimeout", status: 200, read: resilienthttp.ErrReadTimeout, body: func(ctx context.Context) io.ReadCloser { return stuckBody{untilDone{ctx}} }},
		{name: "the caller's Close", status: 200, body: func(context.Context) io.ReadCloser { return brokenClose{strings.NewReader("x")} }},
		{name: "a discarded response", status: 503, then: 200, body: func(context.Context) io.ReadCloser { return brokenClose{strings.NewReader("x")} }},
	} {
		bubble.Run(t, "§4.5 "+row.name, func(t *testing.T) {
			var contexts []context.Context
			transport := &resilienthttp.Transport{
				Policy: resilienthttp.Policy{ReadTimeout: time.Second, Backoff: resilienthttp.Constant(0)},
				Base: roundTripper(func(r *http.Request) (*http.Response, error) {
					if contexts = append(contexts, r.Context()); len(contexts) > 1 {
						return response(r, row.then, "x"), nil
					}
					return withBody(row.status, row.body(r.Context()))(r)
				}),
			}
			req := get(t)
			req.Cancel = make(chan struct{}) // derives the call's context, which must end too
			resp := roundTrip(t, transport, req)
			switch {
			case row.then != 0:
				readAll(t, resp)
			case row.read != nil:
				_, err := io.ReadAll(resp.Body)
				require.ErrorIs(t, err, row.read)
			default:
				require.Panics(t, func() { _ = resp.Body.Close() })
			}
			for _, ctx := range contexts {
				require.Error(t, ctx.Err())
			}
		})
	}
}

// TestTransport_mutualBase checks that two Transports that are each other's Base end a call.
func TestTransport_mutualBase(t *testing.T) {
	a, b, sent := &resilienthttp.Transport{}, &resilienthttp.Transport{}, 0
	a.Base = roundTripper(func(r *http.Request) (*http.Response, error) {
		sent++
		require.Less(t, sent, 100)
		return b.RoundTrip(r)
	})
	b.Base = a
	require.ErrorContains(t, discard(a, get(t)), "its own Base")

	a.CloseIdleConnections()
	a, b = &resilienthttp.Transport{}, &resilienthttp.Transport{}
	a.Base, b.Base = b, a
	require.ErrorContains(t, a.Validate(), "Base is the Transport itself, or wraps it")
	a.CloseIdleConnections()
	(&resilienthttp.Transport{Base: a}).CloseIdleConnections()
}

// TestAttemptContext_errIsStable checks that Err of an attempt's context never changes, and
// agrees with Done, whether Base asks for it before the call's deadline, after it, or later.
func TestAttemptContext_errIsStable(t *testing.T) {
	for _, row := range []struct {
		name    string
		asks    time.Duration // when Err is called for the first time
		closes  time.Duration // when the response body is closed
		context error
	}{
		{"after the deadline, then closed", 2 * time.Second, 3 * time.Second, context.DeadlineExceeded},
		{"closed, then the deadline", 500 * time.Millisecond, 100 * time.Millisecond, context.Canceled},
		{"closed after the deadline", 4 * time.Second, 3 * time.Second, context.DeadlineExceeded},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			ctx := withDeadline(t, time.Second)
			var sent context.Context
			transport := &resilienthttp.Transport{Base: roundTripper(func(r *http.Request) (*http.Response, error) {
				sent = r.Context() //nolint:fatcontext // checked after the call
				return response(r, 200, "x"), nil
			})}
			resp := roundTrip(t, transport, get(t).WithContext(ctx))
			time.AfterFunc(row.closes, func() { _ = resp.Body.Close() })
			time.Sleep(row.asks)
			synctest.Wait()
			require.Equal(t, row.context, sent.Err())
			time.Sleep(5 * time.Second)
			<-sent.Done()
			require.Equal(t, row.context, sent.Err())
		})
	}
}

// TestTransport_bubbles checks that a package-level client works inside and outside of synctest
// bubbles, one after the other: a timer of one must not be used in the other.
func TestTransport_bubbles(t *testing.T) {
	for name, transport := range map[string]func() *resilienthttp.Transport{
		"zero value": func() *resilienthttp.Transport { return &resilienthttp.Transport{Base: script(status(200))} },
		"fixed limit": func() *resilienthttp.Transport {
			return rateLimited(&resilienthttp.RateLimit{Limit: 100, Burst: 1}, status(200))
		},
		"quota": func() *resilienthttp.Transport {
			return rateLimited(&resilienthttp.RateLimit{}, status(200, "X-RateLimit-Limit", "2", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset-After", "1"))
		},
	} {
		calls := func(transport *resilienthttp.Transport) func(*testing.T) {
			return func(t *testing.T) {
				for range 3 {
					readAll(t, roundTrip(t, transport, get(t)))
				}
			}
		}
		t.Run(name, func(t *testing.T) {
			do := calls(transport())
			synctest.Test(t, do)
			do(t)
			synctest.Test(t, do) // years behind
			synctest.Test(t, do)
		})
	}
}

// rateLimited is a Transport with a rate limit.
func rateLimited(l *resilienthttp.RateLimit, steps ...step) *resilienthttp.Transport {
	return &resilienthttp.Transport{Base: script(steps...), RateLimit: l}
}

// §4.17: a Transport of a package may be used in several testing/synctest bubbles, which all begin
// in the year 2000, and before outside of them. Calls wait for the fixed limit as in the first one.
func TestRateLimit_clockThatGoesBack(t *testing.T) {
	const calls, interval = 5, 10 * time.Second
	transport := func() http.RoundTripper {
		return &resilienthttp.Transport{
			RateLimit: &resilienthttp.RateLimit{Limit: 0.1, Burst: 1},
			Base:      roundTripper(status(200)),
		}
	}
	// waits makes calls, and returns the time that they take.
	waits := func(t *testing.T, tr http.RoundTripper) time.Duration {
		t.Helper()
		start := time.Now()
		for range calls {
			readAll(t, roundTrip(t, tr, get(t)))
		}
		return time.Since(start)
	}
	bubble := func(t *testing.T, tr http.RoundTripper, pause time.Duration) (took time.Duration) {
		t.Helper()
		synctest.Test(t, func(t *testing.T) {
			took = waits(t, tr)
			time.Sleep(pause)
		})
		return took
	}
	for _, tt := range []struct {
		name  string
		first func(*testing.T, http.RoundTripper)
	}{
		{"a bubble", func(t *testing.T, tr http.RoundTripper) { bubble(t, tr, 0) }},
		{"a bubble of an hour", func(t *testing.T, tr http.RoundTripper) { bubble(t, tr, time.Hour) }},
		{"outside of bubbles", func(t *testing.T, tr http.RoundTripper) {
			readAll(t, roundTrip(t, tr, get(t)))
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tr := transport()
			tt.first(t, tr)
			for range 2 {
				took := bubble(t, tr, time.Minute)
				require.GreaterOrEqual(t, took, (calls-1)*interval, "the limit holds")
				require.LessOrEqual(t, took, calls*interval+time.Second, "one more, because the bucket may be empty")
			}
		})
	}
}
