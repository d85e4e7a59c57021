package resilienthttp_test

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/internal/bubble"
)

// brokenClose is a body that panics in Close.
type brokenClose struct{ io.Reader }

func (brokenClose) Close() error { panic("Close is broken") }

// stuckBody is a body that blocks until its context ends, and panics in Close.
type stuckBody struct {
	brokenClose

	ctx context.Context //nolint:containedctx // that of the request
}

func (b stuckBody) Read([]byte) (int, error) {
	<-b.ctx.Done()
	return 0, b.ctx.Err()
}

// §4.2: a hook that panics at the end of a call does not close the body of a retry twice.
func TestCleanUp_closesOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		transport := &resilienthttp.Transport{
			Base: script(status(503)), Budget: tokens(0),
			Trace: &resilienthttp.Trace{CallDone: func(*resilienthttp.Call) { panic("hook") }},
		}
		req := newRequest(t, http.MethodPut, "http://api.test/", "")
		body := trackBody(req, "content")
		require.Panics(t, func() { _, _ = transport.RoundTrip(req) })
		body.requireClosedOnce(t, 2)
	})
}

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
		{name: "ReadTimeout", status: 200, read: resilienthttp.ErrReadTimeout, body: func(ctx context.Context) io.ReadCloser {
			return stuckBody{ctx: ctx}
		}},
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
			resp, err := transport.RoundTrip(req)
			require.NoError(t, err)
			switch {
			case row.then != 0:
				readAll(t, resp)
			case row.read != nil:
				_, err = io.ReadAll(resp.Body)
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

// A hedge fails alone if Classify and Close of its body panic.
func TestCleanUp_copy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sent atomic.Int64
		transport := bareTransport(roundTripper(func(r *http.Request) (*http.Response, error) {
			if sent.Add(1) == 1 {
				time.Sleep(5 * time.Second)
				return response(r, 200, "x"), nil
			}
			return withBody(200, brokenClose{strings.NewReader("x")})(r)
		}), 3)
		transport.Hedge = &resilienthttp.Hedge{Delay: time.Second, MaxRatio: -1}
		transport.Policy.Classify = func(a *resilienthttp.Attempt) resilienthttp.Verdict {
			if a.Hedge {
				panic("Classify")
			}
			return resilienthttp.VerdictDefault
		}
		readAll(t, roundTrip(t, transport, get(t)))
	})
}

// TestCleanUp_returnsTokens checks that the token of a retry that a panic prevents is returned.
func TestCleanUp_returnsTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		transport := &resilienthttp.Transport{Budget: tokens(5), Base: script(status(503))}
		transport.Trace = &resilienthttp.Trace{AttemptStart: func(a *resilienthttp.Attempt) {
			if a.Number == 2 {
				panic("hook")
			}
		}}
		require.Panics(t, func() { _, _ = transport.RoundTrip(get(t)) })
		require.InDelta(t, 5, transport.State().Scopes[0].Budget.Remaining, 1e-6)
	})
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
	_, err := a.RoundTrip(get(t))
	require.ErrorContains(t, err, "its own Base")

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

// TestRecord_keepsOpenCircuits checks that a circuit that is open is not forgotten for other
// scopes, of one Transport or of two that share the Breaker.
func TestRecord_keepsOpenCircuits(t *testing.T) {
	for _, transports := range []int{1, 2} {
		bubble.Run(t, strconv.Itoa(transports), func(t *testing.T) {
			breaker := &resilienthttp.Breaker{FailureRatio: 0.01, MinRequests: 1, Cooldown: time.Hour, MaxCooldown: time.Hour}
			all := make([]*resilienthttp.Transport, transports)
			for i := range all {
				all[i] = bareTransport(puppet(func(r *http.Request) (*http.Response, error) {
					if strings.HasPrefix(r.URL.Path, "/bad") {
						return puppetAnswer(r, http.StatusInternalServerError), nil
					}
					return puppetAnswer(r, http.StatusOK), nil
				}), 1)
				all[i].Breaker = breaker
				all[i].Scope = func(r *http.Request) string {
					if strings.HasPrefix(r.URL.Path, "/bad") {
						return r.URL.Path
					}
					return strconv.Itoa(i) + r.URL.Path
				}
			}
			call := func(i int, path string) error {
				resp, err := all[i].RoundTrip(newRequest(t, http.MethodGet, "http://api.test"+path, ""))
				if err == nil {
					readAll(t, resp)
				}
				return err
			}
			const bad, good = 100, 8000
			for n := range bad {
				require.NoError(t, call(0, "/bad"+strconv.Itoa(n)))
			}
			for n := range good {
				for i := range all {
					require.NoError(t, call(i, "/good"+strconv.Itoa(n)))
				}
			}
			for n := range bad {
				path := "/bad" + strconv.Itoa(n)
				require.Equal(t, resilienthttp.StateOpen, breaker.State(path, resilienthttp.PriorityDefault))
				for i := range all {
					require.ErrorIs(t, call(i, path), resilienthttp.ErrBreakerOpen)
				}
			}
			require.Less(t, len(all[0].State().Scopes), 4096*2)
		})
	}
}
