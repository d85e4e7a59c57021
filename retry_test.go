package resilienthttp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/internal/bubble"
)

// The order of the checks before a retry: the first that fails is the StopReason. In each row one
// check and all later ones fail.
func TestStopReason_order(t *testing.T) {
	// The setup with which each reason applies.
	type setup struct {
		t   *testing.T
		tr  *resilienthttp.Transport
		req *http.Request
		ctx context.Context
	}
	reasons := []struct {
		name  string
		stop  error
		apply func(*setup)
	}{
		{"not idempotent", resilienthttp.ErrNotIdempotent, func(s *setup) {
			s.tr.Idempotency.Disabled, s.req.Method = true, "POST"
		}},
		{"another layer owns retries", resilienthttp.ErrSingleAttempt, func(s *setup) {
			s.ctx = resilienthttp.WithSingleAttempt(s.ctx)
		}},
		{"not replayable", resilienthttp.ErrNotReplayable, func(s *setup) { s.req.GetBody = nil }},
		{"no attempts left", resilienthttp.ErrMaxAttempts, func(s *setup) { s.tr.Policy.MaxAttempts = -1 }},
		{"the breaker is open", resilienthttp.ErrBreakerOpen, func(s *setup) { s.tr.Breaker = nervous(24 * time.Hour) }},
		{"the server asks for more than allowed", resilienthttp.ErrRetryAfter, func(s *setup) { s.tr.Policy.MaxRetryAfter = time.Second }},
		{"the deadline comes first", resilienthttp.ErrDeadline, func(s *setup) { s.ctx = until(s.t, s.ctx, 10*time.Second) }},
		{"no budget", resilienthttp.ErrBudgetExhausted, func(s *setup) { s.tr.Budget = tokens(0) }},
	}
	for i := range reasons {
		for _, alone := range []bool{true, false} {
			bubble.Run(t, fmt.Sprintf("%s, alone %v", reasons[i].name, alone), func(t *testing.T) {
				base := script(status(500, "Retry-After", "20"), status(200))
				s := &setup{
					t: t, tr: &resilienthttp.Transport{
						Base: base, Breaker: never(), Budget: &resilienthttp.Budget{Ratio: -1},
						Policy: resilienthttp.Policy{Backoff: resilienthttp.Constant(time.Second), MaxRetryAfter: -1},
					},
					req: newRequest(t, "PUT", "http://api.test/", "body"), ctx: t.Context(),
				}
				for j := i; j < len(reasons); j++ {
					if j == i || !alone {
						reasons[j].apply(s)
					}
				}
				start := time.Now()
				resp := roundTrip(t, s.tr, s.req.WithContext(s.ctx))
				require.Zero(t, time.Since(start), "there is no wait after the last attempt (§4.13)")
				require.Equal(t, 500, resp.StatusCode)
				require.Len(t, base.calls(), 1)
				last := lastOf(t, resp)
				require.Equal(t, reasons[i].stop, last.StopReason)
				require.Equal(t, 20*time.Second, last.RetryWait, "the wait that the server asked for")
				require.Equal(t, resilienthttp.VerdictTransient, last.Verdict)
				require.Equal(t, "status 500", readAll(t, resp))
				base.requireBalance(t)
			})
		}
	}
	bubble.Run(t, "the verdict is the first of all", func(t *testing.T) {
		for _, code := range []int{200, 302, 400, 404, 422, 501} {
			base := script(status(code))
			s := &setup{t: t, tr: &resilienthttp.Transport{Base: base}, req: newRequest(t, "PUT", "http://api.test/", "body"), ctx: t.Context()}
			for _, r := range reasons {
				r.apply(s)
			}
			resp := roundTrip(t, s.tr, s.req.WithContext(s.ctx))
			require.NoError(t, lastOf(t, resp).StopReason)
			readAll(t, resp)
		}
	})
}

// §4.12, §4.13: a wait that would pass the deadline is not begun, no wait follows the last
// attempt, and all others take exactly as long as backoff and server say.
func TestWaits(t *testing.T) {
	exponential := resilienthttp.Policy{Backoff: func(retry int, _ time.Duration) time.Duration { return time.Second << (retry - 1) }}
	tests := []struct {
		name     string
		policy   resilienthttp.Policy
		deadline time.Duration // 0: none
		steps    []step
		took     time.Duration
		attempts int
		status   int // 0: an error
		is       error
	}{
		{"none after the last", every(time.Second), 0, []step{status(503)}, 5 * time.Second, 6, 503, nil},
		{"none after the last error", every(time.Second), 0, []step{failing(errReset)}, 5 * time.Second, 6, 0, errReset},
		{"none before the first", every(time.Second), 0, []step{status(200)}, 0, 1, 200, nil},
		{"they grow", exponential, 0, []step{status(503)}, 31 * time.Second, 6, 503, nil},
		{"the server's wait is added", every(time.Second), 0, []step{status(503, "Retry-After", "10"), status(200)}, 11 * time.Second, 2, 200, nil},
		{"a wait that fits", every(time.Second), 1001 * time.Millisecond, []step{status(503), status(200)}, time.Second, 2, 200, nil},
		{"a wait that ends with the deadline", every(time.Second), time.Second, []step{status(503)}, 0, 1, 503, nil},
		{"the second wait does not fit", every(time.Second), 1500 * time.Millisecond, []step{status(503)}, time.Second, 2, 503, nil},
		{"an error, and no wait fits", every(time.Minute), time.Second, []step{failing(errReset)}, 0, 1, 0, resilienthttp.ErrDeadline},
		{"the server's wait does not fit", every(0), 5 * time.Second, []step{status(503, "Retry-After", "10")}, 0, 1, 503, nil},
		{"the server asks too much", every(0), 0, []step{status(503, "Retry-After", "61")}, 0, 1, 503, nil},
		{"the server asks the most", every(0), 0, []step{status(503, "Retry-After", "60"), status(200)}, time.Minute, 2, 200, nil},
		{"no waits at all", every(0), 0, []step{status(503)}, 0, 6, 503, nil},
	}
	for _, tt := range tests {
		bubble.Run(t, tt.name, func(t *testing.T) {
			base := script(tt.steps...)
			tr := &resilienthttp.Transport{Base: base, Policy: tt.policy, Breaker: never()}
			ctx := withDeadline(t, tt.deadline)
			start := time.Now()
			resp, err := tr.RoundTrip(get(t).WithContext(ctx))
			require.Equal(t, tt.took, time.Since(start))
			require.Len(t, base.calls(), tt.attempts)
			if tt.status > 0 {
				require.NoError(t, err)
				require.Equal(t, tt.status, resp.StatusCode)
				require.Equal(t, fmt.Sprintf("status %d", tt.status), readAll(t, resp))
			} else {
				require.ErrorIs(t, err, tt.is)
				require.Len(t, asError(t, err).Attempts, tt.attempts)
			}
			base.requireBalance(t)
		})
	}
}

// The strategy gets the number of the retry, from 1, and its last result.
func TestBackoffArguments(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked []string
		policy := resilienthttp.Policy{MaxAttempts: 5, Backoff: func(retry int, prev time.Duration) time.Duration {
			asked = append(asked, fmt.Sprint(retry, " ", prev))
			return time.Duration(retry) * time.Second
		}}
		readAll(t, roundTrip(t, (&resilienthttp.Transport{Base: script(status(503, "Retry-After", "7")), Policy: policy}), get(t)))
		require.Equal(t, []string{"1 0s", "2 1s", "3 2s", "4 3s"}, asked)
	})
}

// §4.13: cancellation ends the wait at once, and the error has the result of the last attempt.
func TestCancelInBackoff(t *testing.T) {
	cause := errors.New("the user has left")
	canceled := func(cause error) func(*http.Request) *http.Request {
		return func(r *http.Request) *http.Request {
			ctx, cancel := context.WithCancelCause(r.Context())
			time.AfterFunc(time.Second, func() { cancel(cause) })
			return r.WithContext(ctx)
		}
	}
	tests := []struct {
		name  string
		step  step
		leave func(*http.Request) *http.Request // the caller leaves after a second
		is    []error
		text  string
	}{
		{"context, after a status", status(503), canceled(nil), []error{context.Canceled}, "context canceled (attempt 2 ended with status 503)"},
		{"context, after an error", failing(errReset), canceled(nil), []error{context.Canceled, errReset}, "context canceled (attempt 2 ended with connection broke)"},
		{"context with a cause", status(503), canceled(cause), []error{context.Canceled, cause},
			"context canceled: the user has left (attempt 2 ended with status 503)"},
		{"Request.Cancel", status(503), func(r *http.Request) *http.Request {
			cancel := make(chan struct{})
			time.AfterFunc(time.Second, func() { close(cancel) })
			r.Cancel = cancel
			return r
		}, []error{context.Canceled}, "context canceled (attempt 2 ended with status 503)"},
		{"Request.Cancel and a context", status(503), func(r *http.Request) *http.Request {
			r.Cancel = make(chan struct{})
			return canceled(nil)(r)
		}, []error{context.Canceled}, "context canceled (attempt 2 ended with status 503)"},
	}
	for _, tt := range tests {
		bubble.Run(t, tt.name, func(t *testing.T) {
			base := script(tt.step)
			tr := &resilienthttp.Transport{Base: base, Policy: every(800 * time.Millisecond)}
			start := time.Now()
			_, err := tr.RoundTrip(tt.leave(get(t)))
			require.Equal(t, time.Second, time.Since(start))
			require.Len(t, base.calls(), 2)
			for _, is := range tt.is {
				require.ErrorIs(t, err, is)
			}
			require.NotErrorIs(t, err, resilienthttp.ErrDeadline)
			require.False(t, asError(t, err).Timeout())
			attempts := asError(t, err).Attempts
			require.Len(t, attempts, 2)
			require.Equal(t, 800*time.Millisecond, attempts[1].RetryWait)
			require.Equal(t, "resilienthttp: "+tt.text, err.Error())
			base.requireBalance(t)
		})
	}
}

// requireTimeout requires the usual checks for timeouts of net, net/http and os.
func requireTimeout(tb testing.TB, err error) {
	tb.Helper()
	var timeout interface{ Timeout() bool }
	require.ErrorAs(tb, err, &timeout)
	require.True(tb, timeout.Timeout())
	require.True(tb, os.IsTimeout(err))
}

// The token of a retry that is not sent is returned, so that the next call has it.
func TestCanceledWait_returnsToken(t *testing.T) {
	retried := func(t *testing.T, tr *resilienthttp.Transport) bool {
		tr.Base.(*scriptedBase).steps = []step{status(408), status(200)}
		tr.Base.(*scriptedBase).sent = nil
		resp := roundTrip(t, tr, get(t))
		readAll(t, resp)
		return resp.StatusCode == http.StatusOK
	}
	tests := []struct {
		name string
		call func(*testing.T, *resilienthttp.Transport)
	}{
		{"canceled in the backoff", func(t *testing.T, tr *resilienthttp.Transport) {
			require.ErrorIs(t, discard(tr, get(t).WithContext(canceledAfter(t.Context(), time.Second))), context.Canceled)
		}},
		{"rejected by the breaker", func(t *testing.T, tr *resilienthttp.Transport) {
			time.AfterFunc(time.Second, func() { openBreaker(t, tr) })
			resp := roundTrip(t, tr, get(t))
			require.Equal(t, resilienthttp.ErrBreakerOpen, lastOf(t, resp).StopReason)
			readAll(t, resp)
			time.Sleep(2 * time.Minute) // the cooldown
		}},
		{"rejected by the rate limit", func(t *testing.T, tr *resilienthttp.Transport) {
			time.AfterFunc(time.Second, func() {
				base := script(status(429, "X-Ratelimit-Limit", "10", "X-Ratelimit-Remaining", "0", "X-Ratelimit-Reset", "3000"))
				same := &resilienthttp.Transport{Base: base, RateLimit: tr.RateLimit}
				_ = discard(same, get(t))
			})
			resp := roundTrip(t, tr, get(t))
			require.Equal(t, resilienthttp.ErrRateLimited, lastOf(t, resp).StopReason)
			readAll(t, resp)
			time.Sleep(3000 * time.Second)
		}},
		{"GetBody fails", func(t *testing.T, tr *resilienthttp.Transport) {
			req := newRequest(t, "PUT", "http://api.test/", "body")
			req.GetBody = func() (io.ReadCloser, error) { return nil, errReset }
			resp := roundTrip(t, tr, req)
			require.Equal(t, resilienthttp.ErrNotReplayable, lastOf(t, resp).StopReason)
			readAll(t, resp)
		}},
		{"GetBody panics", func(t *testing.T, tr *resilienthttp.Transport) {
			req := newRequest(t, "PUT", "http://api.test/", "body")
			req.GetBody = func() (io.ReadCloser, error) { panic("boom") }
			require.PanicsWithValue(t, "boom", func() { _, _ = tr.RoundTrip(req) })
		}},
		{"AttemptStart of the retry panics", func(t *testing.T, tr *resilienthttp.Transport) {
			ctx := resilienthttp.WithTrace(t.Context(), &resilienthttp.Trace{AttemptStart: func(a *resilienthttp.Attempt) {
				if a.Number == 2 {
					panic("boom")
				}
			}})
			require.PanicsWithValue(t, "boom", func() { _, _ = tr.RoundTrip(get(t).WithContext(ctx)) })
		}},
		{"RetryWait panics", func(t *testing.T, tr *resilienthttp.Transport) {
			ctx := resilienthttp.WithTrace(t.Context(), &resilienthttp.Trace{RetryWait: func(*resilienthttp.Attempt) { panic("boom") }})
			require.PanicsWithValue(t, "boom", func() { _, _ = tr.RoundTrip(get(t).WithContext(ctx)) })
		}},
	}
	for _, tt := range tests {
		bubble.Run(t, tt.name, func(t *testing.T) {
			base := script(status(408), status(200))
			tr := &resilienthttp.Transport{
				Base: base, Policy: every(10 * time.Second), Budget: tokens(1), Breaker: nervous(time.Minute),
				RateLimit: &resilienthttp.RateLimit{},
			}
			tt.call(t, tr)
			require.Len(t, base.calls(), 1)
			base.requireBalance(t)
			require.True(t, retried(t, tr), "the token is still taken")
			require.False(t, retried(t, tr), "there was one token")
		})
	}
}

// openBreaker makes failing calls through another Transport with the same Breaker until the
// circuit of get's scope is open.
func openBreaker(tb testing.TB, tr *resilienthttp.Transport) {
	other := &resilienthttp.Transport{Base: script(status(500)), Breaker: tr.Breaker, Policy: resilienthttp.Policy{MaxAttempts: -1}}
	for tr.Breaker.State("api.test", resilienthttp.PriorityDefault) == resilienthttp.StateClosed {
		_ = discard(other, get(tb))
	}
}

// If the caller cancels when an attempt fails, in Base or before the wait begins, the result is returned at once.
func TestCancel_withResult(t *testing.T) {
	for name, next := range map[string]step{"a status": status(503), "an error": failing(errReset)} {
		for _, inBase := range []bool{true, false} {
			bubble.Run(t, fmt.Sprintf("%s, in Base %v", name, inBase), func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				base := script(func(r *http.Request) (*http.Response, error) {
					if inBase {
						cancel()
					}
					return next(r)
				})
				tr := &resilienthttp.Transport{Base: base, Policy: every(time.Hour), Budget: tokens(1), Trace: &resilienthttp.Trace{
					AttemptDone: func(*resilienthttp.Attempt) { cancel() },
				}}
				start := time.Now()
				resp, err := tr.RoundTrip(get(t).WithContext(ctx))
				require.Zero(t, time.Since(start))
				if name == "a status" {
					require.NoError(t, err)
					require.Equal(t, "status 503", readAll(t, resp))
				} else {
					require.ErrorIs(t, err, context.Canceled)
					require.ErrorIs(t, err, errReset)
					require.Len(t, asError(t, err).Attempts, 1)
				}
				require.Len(t, base.calls(), 1)
				base.requireBalance(t)
			})
		}
	}
}

// §4.13: no goroutine is left after a call; otherwise the bubble would not end.
func TestNoGoroutineOutlivesACall(t *testing.T) {
	for i := range 20 {
		synctest.Test(t, func(t *testing.T) {
			base := script(withBody(503, newBlocking()), failing(errReset), hanging, status(200))
			tr := &resilienthttp.Transport{Base: base, Policy: resilienthttp.Policy{AttemptTimeout: time.Second}}
			req := get(t)
			req.Cancel = make(chan struct{})
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*200*time.Millisecond)
			_ = discard(tr, req.WithContext(ctx))
			cancel()
			base.requireBalance(t)
		})
	}
}

// A single client gets all its attempts after each kind of failure, also for its next call. Only
// the tokens of retries after a 429 without a wait are not returned.
func TestSingleClient_getsItsAttempts(t *testing.T) {
	for _, tt := range []struct {
		name     string
		failure  step
		served   bool          // once, before
		deadline time.Duration // 0: none
	}{
		{"500", status(500), false, 0},
		{"503", status(503), false, 0},
		{"503, of a server that answered before", status(503), true, 0},
		{"503, and ten seconds to go", status(503), true, 10 * time.Second},
		{"504", status(504), true, 0},
		{"529", status(529), true, 0},
		{"429 with Retry-After", status(429, "Retry-After", "1"), true, 0},
		{"reset", failing(errReset), true, 0},
	} {
		bubble.Run(t, tt.name, func(t *testing.T) {
			base := script(status(200))
			transport := &resilienthttp.Transport{Base: base}
			if tt.served {
				roundTrip(t, transport, get(t))
			}
			for range 3 {
				base.mu.Lock()
				base.steps = []step{tt.failure, tt.failure, tt.failure, status(200)}
				base.sent = nil
				base.mu.Unlock()
				resp := roundTrip(t, transport, get(t).WithContext(withDeadline(t, tt.deadline)))
				require.Equal(t, 200, resp.StatusCode)
				require.Len(t, resilienthttp.Attempts(resp), 4)
				readAll(t, resp)
			}
		})
	}
}

// A route on which no call has ended may be away for a moment only, so a call that begins later has all its waits.
func TestWaitsBeforeRetries_besideOthers(t *testing.T) {
	bubble.Run(t, "another call is still at its retries", func(t *testing.T) {
		tr := &resilienthttp.Transport{Breaker: never(), Budget: &resilienthttp.Budget{Ratio: -1}, Base: script(status(500))}
		var first sync.WaitGroup
		first.Go(func() { tripped(t, tr, get(t).WithContext(withDeadline(t, 30*time.Second))) })
		time.Sleep(3 * time.Second)
		attempts := tripped(t, tr, get(t).WithContext(withDeadline(t, 30*time.Second)))
		require.Len(t, attempts, 6)
		first.Wait()
	})
}

// The waits of a call grow because a server that is away needs time. If most requests succeed beside the call, they do not grow.
func TestWaitsBeforeRetries_failsAlone(t *testing.T) {
	const (
		ms = time.Millisecond
		s  = time.Second
	)
	timesOut := &net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}
	for _, tt := range []struct {
		name   string
		status int   // of the call; 0: err
		err    error // of the call
		beside string
		fails  int           // so many of three requests beside it fail
		takes  time.Duration // the latency of one
		until  bool          // they are sent until the call begins
		grow   bool
	}{
		{name: "500, and the others of the route succeed", status: 500, beside: "/items/2"},
		{name: "a reset, and the others of the route succeed", err: errReset, beside: "/items/2"},
		{name: "one of three others fails", status: 500, beside: "/items/2", fails: 1},
		{name: "two of three others fail", status: 500, beside: "/items/2", fails: 2, grow: true},
		{name: "those that succeed are of another route", status: 500, beside: "/others", grow: true},
		{name: "they have succeeded before the call", status: 500, beside: "/items/2", until: true, grow: true},
		{name: "they were sent before the call, and succeed later", status: 500, beside: "/items/2", until: true, takes: 2 * s, grow: true},
		{name: "503: the server has too much work", status: 503, beside: "/items/2", grow: true},
		{name: "a timeout", err: timesOut, beside: "/items/2", grow: true},
	} {
		bubble.Run(t, tt.name, func(t *testing.T) {
			begun := time.Now().Add(20 * s)
			var n atomic.Int64
			tr := &resilienthttp.Transport{Breaker: never(), Budget: &resilienthttp.Budget{Ratio: -1}, Base: roundTripper(func(r *http.Request) (*http.Response, error) {
				code := http.StatusOK
				switch {
				case r.URL.RawQuery != "bad":
					time.Sleep(tt.takes)
					if int(n.Add(1)%3) < tt.fails {
						code = http.StatusInternalServerError
					}
				case tt.err != nil:
					return nil, tt.err
				default:
					code = tt.status
				}
				return script(status(code)).RoundTrip(r)
			})}
			ctx, cancel := context.WithCancel(t.Context())
			var others sync.WaitGroup
			beside := func() {
				for ctx.Err() == nil && !(tt.until && time.Since(begun) >= 0) {
					req := get(t).WithContext(resilienthttp.WithSingleAttempt(t.Context()))
					req.URL.Path = tt.beside
					tripped(t, tr, req)
					time.Sleep(10 * ms)
				}
			}
			for range 3 {
				others.Go(beside)
			}
			time.Sleep(time.Until(begun))
			req := get(t).WithContext(withDeadline(t, time.Minute))
			req.URL.Path, req.URL.RawQuery = "/items/1", "bad"
			attempts := tripped(t, tr, req)
			took := time.Since(begun)
			cancel()
			others.Wait()
			if tt.grow {
				require.Greater(t, took, 40*s)
				return
			}
			require.Len(t, attempts, 6)
			require.LessOrEqual(t, took, 250*ms+4*1250*ms)
		})
	}
}

// L3: the waits of one call to a server that fails in one way. The early ones are random from zero, and one that might not fit is
// the last one instead, which is drawn from the last quarter of the time that is left.
func TestWaitsBeforeRetries(t *testing.T) {
	const (
		ms   = time.Millisecond
		s    = time.Second
		rest = -1 // up to the deadline, or 10 s after the first failure
	)
	succeeds := []step{after(ms, status(200)), status(200)}
	succeedsLate := []step{after(ms, status(200)), after(s, status(200))}
	timesOut := failing(&net.OpError{Op: "read", Err: os.ErrDeadlineExceeded})
	all := []time.Duration{250 * ms, 1250 * ms, 3 * s, 6 * s, rest}
	later := all[1:] // after overload
	for _, tt := range []struct {
		name     string
		max      int           // MaxAttempts
		before   []step        // calls before, one attempt each
		path     string        // of the calls before
		pause    time.Duration // after them
		deadline time.Duration // 0: none
		failure  step
		want     []time.Duration // at most
	}{
		{name: "500, no deadline: until 10 s after the first failure", failure: status(500), want: all},
		{name: "500, deadline 30 s: all five", failure: status(500), deadline: 30 * s, want: all},
		{name: "500, deadline 10 min: as without", failure: status(500), deadline: 10 * time.Minute, want: all},
		{name: "500, deadline 5 s: three or four", failure: status(500), deadline: 5 * s, want: []time.Duration{250 * ms, 1250 * ms, 3 * s, rest}},
		{name: "500, deadline 4 s: 3 s may leave too little", failure: status(500), deadline: 4 * s, want: []time.Duration{250 * ms, 1250 * ms, 3 * s, rest}},
		{name: "500, deadline 150 ms: the last at once", failure: status(500), deadline: 150 * ms, want: []time.Duration{rest}},
		{name: "a reset is like a 500", failure: failing(errReset), want: all},
		{name: "503: from 1.25 s on", failure: status(503), deadline: 30 * s, want: later},
		{name: "529: from 1.25 s on", failure: status(529), deadline: 30 * s, want: later},
		{name: "429: from 1.25 s on", failure: status(429), deadline: 30 * s, want: later},
		{name: "connection refused: from 1.25 s on", failure: failing(&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}), deadline: 30 * s, want: later},
		{name: "a timeout of a server that never responded: the rest", failure: timesOut, deadline: 30 * s, want: []time.Duration{rest}},
		{name: "a timeout, 2.9 s after a request that was answered: 3 s, then the rest", before: succeeds, pause: 2900 * ms, deadline: 30 * s, failure: timesOut, want: []time.Duration{3 * s, rest}},
		{name: "a timeout, 3.1 s after a request that was answered: the rest", before: succeeds, pause: 3100 * ms, deadline: 30 * s, failure: timesOut, want: []time.Duration{rest}},
		{name: "a timeout, 3.1 s after a request that was answered 1 s later: the rest", before: succeedsLate, pause: 2100 * ms, deadline: 30 * s, failure: timesOut, want: []time.Duration{rest}},
		{name: "the route has only failed, for 1.5 s: the rest alone", before: []step{status(500)}, pause: 1500 * ms, failure: status(500), deadline: 30 * s, want: []time.Duration{rest}},
		{name: "the route has only failed, no deadline", before: []step{status(500)}, pause: 1500 * ms, failure: status(500), want: []time.Duration{rest}},
		{name: "it has only failed, for 1.4 s: all five", before: []step{status(500)}, pause: 1400 * ms, failure: status(500), deadline: 30 * s, want: all},
		{name: "another route has only failed: all five", path: "/other", before: []step{status(500)}, pause: 1500 * ms, failure: status(500), deadline: 30 * s, want: all},
		{name: "a call failed, the next succeeded: all five", before: []step{status(500), status(200)}, pause: 1500 * ms, failure: status(500), deadline: 30 * s, want: all},
		{name: "the last call got a 429: all five", before: []step{status(429)}, pause: 1500 * ms, failure: status(500), deadline: 30 * s, want: all},
		{name: "the last call got a 404: all five", before: []step{status(404)}, pause: 1500 * ms, failure: status(500), deadline: 30 * s, want: all},
		{name: "MaxAttempts 2: the first alone", max: 2, failure: status(500), deadline: 30 * s, want: []time.Duration{250 * ms}},
		{name: "MaxAttempts 3: the first and the last", max: 3, failure: status(500), deadline: 30 * s, want: []time.Duration{250 * ms, rest}},
		{name: "MaxAttempts 5: three and the last", max: 5, failure: status(500), deadline: 30 * s, want: []time.Duration{250 * ms, 1250 * ms, 3 * s, rest}},
		{name: "MaxAttempts 9: 6 s again and again, and the last up to 10 s", max: 9, failure: status(500), want: []time.Duration{250 * ms, 1250 * ms, 3 * s, 6 * s, 6 * s, 6 * s, 6 * s, rest}},
		{name: "MaxAttempts 7", max: 7, failure: status(500), want: []time.Duration{250 * ms, 1250 * ms, 3 * s, 6 * s, 6 * s, rest}},
		{name: "MaxAttempts 7, deadline 10 min: as without", max: 7, failure: status(500), deadline: 10 * time.Minute, want: []time.Duration{250 * ms, 1250 * ms, 3 * s, 6 * s, 6 * s, rest}},
		{name: "MaxAttempts 7, a timeout of a server that never responded: up to 10 s", max: 7, failure: timesOut, want: []time.Duration{rest}},
		{name: "MaxAttempts 9, deadline 18 s: as long as there is time", max: 9, failure: status(500), deadline: 16 * s, want: []time.Duration{250 * ms, 1250 * ms, 3 * s, 6 * s, 6 * s, 6 * s, 6 * s, rest}},
		{name: "responses after 8 s: the last wait is as short as the first", failure: after(8*s, status(500)), want: []time.Duration{250 * ms, 1250 * ms, rest}},
	} {
		bubble.Run(t, tt.name, func(t *testing.T) {
			for range 20 {
				var base http.RoundTripper
				tr := &resilienthttp.Transport{
					Base:   roundTripper(func(r *http.Request) (*http.Response, error) { return base.RoundTrip(r) }),
					Policy: resilienthttp.Policy{MaxAttempts: tt.max}, Budget: &resilienthttp.Budget{Ratio: -1}, Breaker: never(),
				}
				for _, one := range tt.before {
					base = script(one)
					req := get(t).WithContext(resilienthttp.WithSingleAttempt(t.Context()))
					req.URL = req.URL.JoinPath(tt.path)
					tripped(t, tr, req)
				}
				time.Sleep(tt.pause)
				base = script(tt.failure)
				end := time.Now().Add(tt.deadline - ms)
				attempts := tripped(t, tr, get(t).WithContext(withDeadline(t, tt.deadline)))
				near := tt.deadline > 0 && tt.deadline <= time.Minute
				if !near {
					end = attempts[0].Start.Add(attempts[0].Latency + 10*s)
				}
				waits := attempts[:len(attempts)-1]
				require.LessOrEqual(t, len(waits), len(tt.want))
				for i := range waits {
					failed := waits[i].Start.Add(waits[i].Latency)
					left := end.Sub(failed)
					if !near {
						left = max(left, 250*ms)
					}
					if tt.max > 6 && !near {
						left = 10 * s
					}
					if upper := tt.want[i]; upper != rest && upper <= left {
						require.LessOrEqual(t, waits[i].RetryWait, upper, "wait %d", i+1)
						continue
					}
					require.LessOrEqual(t, waits[i].RetryWait, left, "wait %d", i+1)
					require.GreaterOrEqual(t, waits[i].RetryWait, left*3/4, "wait %d", i+1)
					require.Len(t, waits, i+1, "it is the last")
				}
			}
		})
	}
}

// L3: clients that failed in the same instant come back at any time until the upper bound, and not at its end.
func TestEarlyWaits_areFromZero(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const calls = 200
		early := 0
		for range calls {
			tr := &resilienthttp.Transport{Base: script(status(500), status(200))}
			if tripped(t, tr, get(t))[0].RetryWait < 125*time.Millisecond {
				early++
			}
		}
		require.InDelta(t, calls/2, early, calls/5, "half of them wait less than half of the bound")
	})
}

// L3: clients of which the last call has failed call at the tick of a cron. Their circuits hold the retries, which come at different
// times, although the deadlines of their calls are the same.
func TestHeldRetries_comeAtDifferentTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		sent := map[time.Duration]int{}
		begun := time.Now().Add(10 * time.Second)
		var all sync.WaitGroup
		const clients = 100
		for range clients {
			tr := &resilienthttp.Transport{Breaker: holding(), Base: roundTripper(func(r *http.Request) (*http.Response, error) {
				mu.Lock()
				defer mu.Unlock()
				if at := time.Since(begun); at > time.Second {
					sent[at.Truncate(10*time.Millisecond)]++
				}
				return status(500)(r)
			})}
			all.Go(func() {
				tripped(t, tr, get(t).WithContext(resilienthttp.WithSingleAttempt(t.Context())))
				time.Sleep(time.Until(begun))
				tripped(t, tr, get(t).WithContext(withDeadline(t, 10*time.Second)))
			})
		}
		all.Wait()
		require.NotEmpty(t, sent)
		for at, n := range sent {
			require.LessOrEqual(t, n, clients/10, "at %v", at)
		}
	})
}

// §4.11: the jitter on Retry-After never passes a deadline that Retry-After respects.
func TestRetryAfterShortlyBeforeTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 50 {
			tr := &resilienthttp.Transport{Base: script(status(503, "Retry-After", "5"), status(200))}
			attempts := tripped(t, tr, get(t).WithContext(withDeadline(t, 5100*time.Millisecond)))
			require.Equal(t, "1 503, 2 200", story(attempts))
			require.GreaterOrEqual(t, attempts[0].RetryWait, 5*time.Second)
		}
	})
}

// L3: after the last wait there is time for a response with the usual latency of the scope. The
// second wait is the last one here, because 500 ms would leave too little time.
func TestLastWaitLeavesTimeForTheResponse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 50 {
			base := script(after(300*time.Millisecond, status(200)))
			tr := &resilienthttp.Transport{Base: roundTripper(func(r *http.Request) (*http.Response, error) { return base.RoundTrip(r) })}
			tripped(t, tr, get(t))
			base = script(append(slices.Repeat([]step{status(500)}, 2), after(300*time.Millisecond, status(200)))...)
			attempts := tripped(t, tr, get(t).WithContext(withDeadline(t, 800*time.Millisecond)))
			require.Equal(t, "1 500, 2 500, 3 200", story(attempts))
		}
	})
}

// §4.11: a retry that the circuit holds comes when the server asks, and not after the last wait of the series, which would be longer
// than calls wait for a circuit.
func TestHeldRetries_comeWhenTheServerAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := script(status(http.StatusServiceUnavailable, "Retry-After", "2"))
		tr := &resilienthttp.Transport{Breaker: holding(), Base: base}
		attempts := tripped(t, tr, get(t).WithContext(withDeadline(t, time.Minute)))
		require.Greater(t, len(attempts), 3)
		for _, a := range attempts[:len(attempts)-1] {
			require.Less(t, a.RetryWait, 10*time.Second)
		}
	})
}

// holding is a Breaker that opens at the first failure, and for which calls wait.
func holding() *resilienthttp.Breaker {
	return &resilienthttp.Breaker{FailureRatio: 0.01, MinRequests: 1, Probes: 1}
}
