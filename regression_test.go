package resilienthttp_test

import (
	"bytes"
	"context"
	"io"
	"log"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/internal/memhttp"
)

// What an attack from outside has found once.

// TestHedgeLeavesTheRequestAlone is §4.2 and §4.13: when RoundTrip has returned,
// the request is the caller's again, also if a hedge was just being prepared.
func TestHedgeLeavesTheRequestAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := script(after(30*time.Millisecond, status(200)))
		tr := &resilienthttp.Transport{Base: base, Hedge: &resilienthttp.Hedge{Delay: 10 * time.Millisecond}}
		req := newRequest(t, http.MethodPost, "http://api.test/", "body")
		var asked, returned atomic.Bool
		req.GetBody = func() (io.ReadCloser, error) {
			asked.Store(true)
			time.Sleep(time.Minute) // the first copy is answered meanwhile
			require.False(t, returned.Load())
			return io.NopCloser(strings.NewReader("body")), nil
		}
		resp, err := tr.RoundTrip(req)
		returned.Store(true)
		require.NoError(t, err)
		require.True(t, asked.Load())
		readAll(t, resp)
		for range 100 { // under -race
			req.Method, req.URL.Path = http.MethodPatch, "/other"
			req.Header.Set("X-Other", "yes")
			*req = *req.WithContext(context.Background())
			time.Sleep(time.Millisecond)
		}
		require.Len(t, base.calls(), 1, "and there is no use for the hedge any more")
	})
}

// TestHedgedCopiesShareNothing is §4.2 for a Base that writes to what it is given.
func TestHedgedCopiesShareNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := roundTripper(func(r *http.Request) (*http.Response, error) {
			r.Header.Set("Authorization", "token")
			r.URL.Path = "/rewritten"
			return after(time.Second, status(200))(r)
		})
		tr := &resilienthttp.Transport{Base: base, Hedge: &resilienthttp.Hedge{Delay: time.Millisecond}}
		req := get(t)
		before := stateOf(req)
		resp, err := tr.RoundTrip(req)
		require.NoError(t, err)
		readAll(t, resp)
		before.requireUnchanged(t)
	})
}

// TestDiscardDoesNotWaitForTheRequest is §4.5 and §4.13 over HTTP/2, whose
// response bodies cannot be closed while the request's is blocked in Read, unless
// the context has ended.
func TestDiscardDoesNotWaitForTheRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var served atomic.Int64
		s := memhttp.NewServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if served.Add(1) == 1 {
				w.WriteHeader(http.StatusServiceUnavailable)
				_, _ = io.WriteString(w, "busy")
				http.NewResponseController(w).Flush() //nolint:errcheck // a test's server
				<-r.Context().Done()
			}
		}), memhttp.HTTP2())
		blocked, unblock := io.Pipe()
		t.Cleanup(func() { _ = unblock.Close() })
		req := newRequest(t, http.MethodPut, s.URL, "body")
		req.Body, req.ContentLength = blocked, -1
		tr := &resilienthttp.Transport{Base: s.Transport(), Policy: every(time.Second)}
		start := time.Now()
		resp, err := tr.RoundTrip(req)
		require.NoError(t, err)
		require.Equal(t, 200, resp.StatusCode)
		require.Equal(t, time.Second, time.Since(start), "the drain is a part of the wait")
		readAll(t, resp)
	})
}

// TestCloseThatBlocks is §4.5 for a response whose Close does not return.
func TestCloseThatBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		t.Cleanup(func() { close(release) })
		tr := &resilienthttp.Transport{Base: script(withBody(503, stubborn{release}), status(200)), Policy: every(time.Second)}
		start := time.Now()
		resp, err := tr.RoundTrip(get(t))
		require.NoError(t, err)
		require.Equal(t, 200, resp.StatusCode)
		require.Equal(t, time.Second, time.Since(start))
	})
}

// stubborn is a body that heeds nothing.
type stubborn struct{ release chan struct{} }

func (s stubborn) Read([]byte) (int, error) { <-s.release; return 0, io.EOF }
func (s stubborn) Close() error             { <-s.release; return nil }

// TestGetBodyOfNothing is §4.4: the body is the same on every attempt, or there
// is no other attempt.
func TestGetBodyOfNothing(t *testing.T) {
	base := script(status(503), status(200))
	req := newRequest(t, http.MethodPost, "http://api.test/", "body")
	req.GetBody = func() (io.ReadCloser, error) { return http.NoBody, nil }
	_, err := (&resilienthttp.Transport{Base: base, Policy: every(0)}).RoundTrip(req)
	require.ErrorIs(t, err, resilienthttp.ErrNotReplayable)
	require.Len(t, base.calls(), 1)
}

// TestPanicsBeforeBase is §4.2: the body is closed once, also when a function of
// the user's panics before Base has got it.
func TestPanicsBeforeBase(t *testing.T) {
	for name, tr := range map[string]*resilienthttp.Transport{
		"Scope":        {Scope: func(*http.Request) string { panic("user") }},
		"NewKey":       {Idempotency: resilienthttp.Idempotency{NewKey: func(*http.Request) string { panic("user") }}},
		"AttemptStart": {Trace: &resilienthttp.Trace{AttemptStart: func(*resilienthttp.Attempt) { panic("user") }}},
	} {
		t.Run(name, func(t *testing.T) {
			tr.Base = script(status(200))
			req := newRequest(t, http.MethodPost, "http://api.test/", "body")
			bodies := trackBody(req, "body")
			require.Panics(t, func() { _, _ = tr.RoundTrip(req) })
			bodies.requireClosedOnce(t, 1)
		})
	}
	t.Run("AttemptStart of the second attempt", func(t *testing.T) {
		tr := &resilienthttp.Transport{Base: script(status(503)), Policy: every(0), Trace: &resilienthttp.Trace{
			AttemptStart: func(a *resilienthttp.Attempt) {
				if a.Number == 2 {
					panic("user")
				}
			},
		}}
		req := newRequest(t, http.MethodPost, "http://api.test/", "body")
		bodies := trackBody(req, "body")
		require.Panics(t, func() { _, _ = tr.RoundTrip(req) })
		bodies.requireClosedOnce(t, 2)
	})
}

// TestRefusalFromInside is §4.7: an outer Transport passes on what an inner one's
// gate says.
func TestRefusalFromInside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := &resilienthttp.Transport{Base: script(status(500)), Breaker: nervous(time.Minute)}
		outer := &resilienthttp.Transport{Base: inner, Breaker: never(), Policy: resilienthttp.Policy{MaxAttempts: -1}}
		resp, err := outer.RoundTrip(get(t))
		require.NoError(t, err)
		readAll(t, resp)
		_, err = outer.RoundTrip(get(t))
		failed := asError(t, err)
		require.Equal(t, resilienthttp.ErrBreakerOpen, failed.Reason)
		require.GreaterOrEqual(t, time.Until(failed.NotBefore), time.Minute)
	})
}

// TestPlanningIsNotAnAttempt: the time that a user's Scope or NewKey takes is not
// the attempt's, and what the server is told of its deadline holds.
func TestPlanningIsNotAnAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := script(func(r *http.Request) (*http.Response, error) {
			deadline, _ := r.Context().Deadline()
			require.Equal(t, 100*time.Millisecond, time.Until(deadline))
			require.Equal(t, "100", r.Header.Get("X-Request-Timeout-Ms"))
			told, err := time.Parse(time.RFC3339, r.Header.Get("X-Request-Deadline"))
			require.NoError(t, err)
			require.WithinDuration(t, deadline, told, time.Millisecond)
			return response(r, 200, ""), nil
		})
		tr := &resilienthttp.Transport{
			Base: base, Policy: resilienthttp.Policy{AttemptTimeout: 100 * time.Millisecond},
			Idempotency: resilienthttp.Idempotency{NewKey: func(*http.Request) string {
				time.Sleep(time.Second)
				return "key"
			}},
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		resp, err := tr.RoundTrip(newRequest(t, http.MethodPost, "http://api.test/", "body").WithContext(ctx))
		require.NoError(t, err)
		require.Zero(t, lastOf(t, resp).Latency)
	})
}

// TestClientTimeoutIsADeadline: http.Client.Timeout ends the context and closes
// Request.Cancel, in either order, and is a deadline to the hooks in both.
func TestClientTimeoutIsADeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 50 {
			var ended error
			client := &http.Client{Timeout: time.Second, Transport: &resilienthttp.Transport{
				Base:  script(hanging),
				Trace: &resilienthttp.Trace{CallDone: func(c *resilienthttp.Call) { ended = c.Err }},
			}}
			_, err := client.Get("http://api.test/")
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.ErrorIs(t, ended, resilienthttp.ErrDeadline)
			require.NotErrorIs(t, ended, context.Canceled)
		}
	})
}

// TestGatesTakeBack is §4.15 and §4.17: who passed the breaker and is turned away
// after it gives the probe's place back, and the turn.
func TestGatesTakeBack(t *testing.T) {
	halfOpen := func(t *testing.T, tr *resilienthttp.Transport) {
		t.Helper()
		resp, err := tr.RoundTrip(get(t))
		require.NoError(t, err)
		readAll(t, resp)
		time.Sleep(2 * time.Minute)
		require.Equal(t, resilienthttp.StateHalfOpen, tr.Breaker.State("api.test"))
	}
	t.Run("by the rate limit", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			tr := &resilienthttp.Transport{
				Base: script(status(500)), Breaker: &resilienthttp.Breaker{MinRequests: 1, Probes: 1, Cooldown: time.Minute},
				RateLimit: &resilienthttp.RateLimit{Limit: 0.001, Burst: 1, MaxWait: -1}, Policy: resilienthttp.Policy{MaxAttempts: -1},
			}
			halfOpen(t, tr)
			for range 3 {
				_, err := tr.RoundTrip(get(t))
				require.ErrorIs(t, err, resilienthttp.ErrRateLimited, "and not by the breaker")
			}
		})
	})
	t.Run("by the deadline", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			tr := &resilienthttp.Transport{
				Base: script(status(500)), Breaker: &resilienthttp.Breaker{MinRequests: 1, Probes: 1, Cooldown: time.Minute},
				Deadline: resilienthttp.Deadline{Margin: time.Hour}, Policy: resilienthttp.Policy{MaxAttempts: -1},
			}
			halfOpen(t, tr)
			for range 3 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				_, err := tr.RoundTrip(get(t).WithContext(ctx))
				cancel()
				require.ErrorIs(t, err, resilienthttp.ErrDeadline, "and not by the breaker")
			}
		})
	})
}

// TestServerRestart: idle connections whose server is gone cost no call.
func TestServerRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memhttp.NewServer(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			time.Sleep(time.Second) // so that there is a connection for each
		}))
		base := s.Transport()
		base.MaxIdleConnsPerHost = 100
		tr := &resilienthttp.Transport{Base: base}
		defer tr.CloseIdleConnections()
		load := func() (failed int) {
			errs := make(chan error)
			for range 100 {
				req := newRequest(t, http.MethodPost, s.URL, "body")
				go func() {
					resp, err := tr.RoundTrip(req)
					if err == nil {
						_ = resp.Body.Close()
					}
					errs <- err
				}()
			}
			for range 100 {
				if <-errs != nil {
					failed++
				}
			}
			return failed
		}
		require.Zero(t, load())
		s.ResetConns()
		require.Zero(t, load())
	})
}

// TestNothingAtRest is §4.22: nothing is logged that nobody asked for, and when
// the calls are over no goroutine is left, nor a timer.
func TestNothingAtRest(t *testing.T) {
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
			if resp, err := tr.RoundTrip(newRequest(t, http.MethodPost, "http://api.test/", "body")); err == nil {
				readAll(t, resp)
			}
			time.Sleep(time.Minute)
		}
	})
	require.Empty(t, logged.String())
}

// A call may fail while others hold all of the places: NotBefore is not now, then.
func TestBreakerNotBeforeOfLateFailure(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var steps atomic.Pointer[step]
		next := func(s step) { steps.Store(&s) }
		tr := &resilienthttp.Transport{
			Base:    roundTripper(func(r *http.Request) (*http.Response, error) { return (*steps.Load())(r) }),
			Breaker: &resilienthttp.Breaker{MinRequests: 1, Probes: 1},
		}
		call := func() *resilienthttp.Error {
			resp, err := tr.RoundTrip(get(t))
			if err == nil {
				_ = resp.Body.Close()
				return nil
			}
			return asError(t, err)
		}
		var late, again *resilienthttp.Error
		var end time.Time
		next(after(5*time.Second, failing(errReset)))
		var wg sync.WaitGroup
		wg.Go(func() {
			late, end = call(), time.Now()
			again = call()
		})
		time.Sleep(3 * time.Second)
		next(after(600*time.Millisecond, failing(errReset)))
		opener := call()
		time.Sleep(time.Until(opener.NotBefore))
		next(after(10*time.Second, status(http.StatusOK)))
		wg.Go(func() { call() }) // the probe
		wg.Wait()
		require.ErrorIs(t, late, resilienthttp.ErrBreakerOpen)
		require.NotNil(t, again, "the only place was taken")
		require.True(t, late.NotBefore.After(end))
		require.False(t, again.NotBefore.Before(end))
	})
}
