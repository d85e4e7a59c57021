package resilienthttp_test

import (
	"context"
	"errors"
	"io"
	"math"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/internal/bubble"
	"github.com/resilienthttp/resilienthttp/internal/memhttp"
	"github.com/resilienthttp/resilienthttp/internal/sleep"
)

// copyOf is the outcome of one copy of a request.
type copyOf struct {
	after  time.Duration
	status int // 0: 200
	err    error
	panics bool
	exits  bool
}

// hedgeBase is a scriptedBase of copies, which obey their contexts.
type hedgeBase struct {
	scriptedBase
	flying atomic.Int64
}

func newHedgeBase(copies ...copyOf) *hedgeBase {
	b := &hedgeBase{}
	b.next(copies...)
	return b
}

// next forgets the requests so far, and gives the next ones the outcomes in order. The last one is repeated.
func (b *hedgeBase) next(copies ...copyOf) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.steps, b.sent = nil, nil
	for _, c := range copies {
		b.steps = append(b.steps, b.step(c))
	}
}

// step responds with the number of the request in X-Copy and in the body, which fails after the request's context ends, as
// net/http's bodies do.
func (b *hedgeBase) step(c copyOf) step {
	return func(req *http.Request) (*http.Response, error) {
		b.flying.Add(1)
		defer b.flying.Add(-1)
		n := 1 + slices.IndexFunc(b.calls(), func(s sent) bool { return s.Request == req })
		if err := sleep.Context(req.Context(), c.after); err != nil && !c.panics {
			return nil, err
		}
		switch {
		case c.panics:
			panic("Base is broken")
		case c.exits:
			runtime.Goexit()
		case c.err != nil:
			return nil, c.err
		}
		body := contextBody{strings.NewReader("body of " + strconv.Itoa(n)), req.Context()}
		return withBody(max(c.status, 200), body, "X-Copy", strconv.Itoa(n))(req)
	}
}

// balanced requires that each opened body is closed, and that no copy is in flight (§4.5, §4.13).
func (b *hedgeBase) balanced(tb testing.TB) {
	tb.Helper()
	synctest.Wait()
	b.requireBalance(tb)
	require.Zero(tb, b.flying.Load(), "§4.13: the loser is canceled")
}

// hedging is a bareTransport with the hedge.
func hedging(base http.RoundTripper, attempts int, hedge *resilienthttp.Hedge) *resilienthttp.Transport {
	transport := bareTransport(base, attempts)
	transport.Hedge = hedge
	return transport
}

// story describes the attempts in short form: "1 lost", "1h 200".
func story(attempts []resilienthttp.Attempt) string {
	var parts []string
	for _, a := range attempts {
		part := attemptName(&a)
		switch {
		case a.Response != nil:
			part += " " + strconv.Itoa(a.Response.StatusCode)
		case strings.Contains(a.Err.Error(), "had its response first"):
			part += " lost"
		case errors.Is(a.Err, resilienthttp.ErrAttemptTimeout):
			part += " timeout"
		case errors.Is(a.Err, context.Canceled), errors.Is(a.Err, context.DeadlineExceeded):
			part += " gone"
		default:
			part += " " + a.Err.Error()
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, ", ")
}

// A hedge after one second, with every kind of outcome. A failure never wins while a response is
// possible.
func TestHedge(t *testing.T) {
	const (
		ms = time.Millisecond
		s  = time.Second
	)
	broken := errors.New("broken")
	for _, row := range []struct {
		name     string
		attempts int // 0: never retry
		copies   []copyOf
		want     string
		body     string // "" for an error
		took     time.Duration
	}{
		{"the first in time", 0, []copyOf{{after: 900 * ms}}, "1 200", "body of 1", 900 * ms},
		{"the hedge wins", 0, []copyOf{{after: 10 * s}, {after: 100 * ms}}, "1 lost, 1h 200", "body of 2", 1100 * ms},
		{"the first wins after all", 0, []copyOf{{after: 1500 * ms}, {after: 10 * s}}, "1 200, 1h lost", "body of 1", 1500 * ms},
		{"a permanent response wins", 0, []copyOf{{after: 10 * s}, {after: 100 * ms, status: 501}}, "1 lost, 1h 501", "body of 2", 1100 * ms},
		{"the hedge fails with an error", 0, []copyOf{{after: 3 * s}, {after: 100 * ms, err: broken}}, "1 200, 1h broken", "body of 1", 3 * s},
		{"the hedge fails with a status", 0, []copyOf{{after: 3 * s}, {after: 100 * ms, status: 503}}, "1 200, 1h 503", "body of 1", 3 * s},
		{"the first fails with an error", 0, []copyOf{{after: 1500 * ms, err: broken}, {after: 3 * s}}, "1 broken, 1h 200", "body of 2", 4 * s},
		{"the first fails with a status", 0, []copyOf{{after: 1500 * ms, status: 503}, {after: 3 * s}}, "1 503, 1h 200", "body of 2", 4 * s},
		{"the first attempt fails permanently", 0, []copyOf{{after: 1500 * ms, err: http.ErrSchemeMismatch}, {after: 3 * s}}, "1 broken, 1h 200", "body of 2", 4 * s},
		{"both fail, the first first", 0, []copyOf{{after: 1500 * ms, status: 500}, {after: 3 * s, status: 503}}, "1 500, 1h 503", "body of 1", 4 * s},
		{"both fail, the hedge first", 0, []copyOf{{after: 3 * s, status: 500}, {after: 100 * ms, status: 503}}, "1 500, 1h 503", "body of 1", 3 * s},
		{"both fail with errors", 0, []copyOf{{after: 3 * s, err: broken}, {after: 100 * ms, err: broken}}, "1 broken, 1h broken", "", 3 * s},
		{"both fail, and the retry is quick", 2,
			[]copyOf{{after: 1500 * ms, status: 500}, {after: 1 * s, err: broken}, {after: 0}}, "1 500, 1h broken, 2 200", "body of 3", 2 * s},
		{"both fail, and the retry is hedged too", 2,
			[]copyOf{{after: 1500 * ms, err: broken}, {after: 1 * s, err: broken}, {after: 10 * s}, {after: 0}},
			"1 broken, 1h broken, 2 lost, 2h 200", "body of 4", 3 * s},
		{"a quick failure is not hedged, its retry is", 2,
			[]copyOf{{after: 0, status: 503}, {after: 10 * s}, {after: 500 * ms}}, "1 503, 2 lost, 2h 200", "body of 3", 1500 * ms},
		{"hedges are not counted against MaxAttempts", 2, []copyOf{{after: 2 * s, status: 500}},
			"1 500, 1h 500, 2 500, 2h 500", "body of 3", 6 * s},
	} {
		for _, kind := range []string{"GET", "POST"} {
			bubble.Run(t, row.name+"/"+kind, func(t *testing.T) {
				base := newHedgeBase(row.copies...)
				attempts := row.attempts
				if attempts == 0 {
					attempts = -1
				}
				transport := hedging(base, attempts, &resilienthttp.Hedge{Delay: s, MaxRatio: -1})
				body := ""
				if kind == "POST" {
					body = "charge"
				}
				req := newCall(t.Context(), t, kind, body)
				start := time.Now()
				resp, err := transport.RoundTrip(req)
				require.Equal(t, row.took, time.Since(start))
				want := row.want
				if strings.Contains(row.name, "permanently") {
					want = strings.Replace(want, "broken", http.ErrSchemeMismatch.Error(), 1)
				}
				if row.body == "" {
					require.Equal(t, want, story(asError(t, err).Attempts))
					require.ErrorIs(t, err, broken)
					require.ErrorIs(t, err, resilienthttp.ErrMaxAttempts)
					base.balanced(t)
					return
				}
				require.NoError(t, err)
				require.Equal(t, want, story(resilienthttp.Attempts(resp)))
				synctest.Wait()
				require.Equal(t, row.body, readAll(t, resp), "the winner's body stays readable")
				base.balanced(t)
				require.Equal(t, kind == "POST", base.keys()[0] != "<none>")
				for i, sent := range base.calls() {
					require.Equal(t, base.keys()[0], base.keys()[i], "§4.8: the same key on both")
					require.Equal(t, body, sent.Text)
				}
			})
		}
	}
}

// Only requests that may be repeated and can be replayed are hedged.
func TestHedge_eligibleRequests(t *testing.T) {
	off := resilienthttp.Idempotency{Disabled: true}
	keyed := func(ctx context.Context) context.Context { return resilienthttp.WithIdempotencyKey(ctx, "k") }
	getBody := func(f func() (io.ReadCloser, error)) func(*http.Request) {
		return func(r *http.Request) { r.GetBody = f }
	}
	stream := func(r *http.Request) {
		r.Body, r.GetBody, r.ContentLength = io.NopCloser(strings.NewReader("body")), nil, -1
	}
	for _, row := range []struct {
		name   string
		method string
		body   string
		config resilienthttp.Idempotency
		change func(*http.Request)
		ctx    func(context.Context) context.Context
		hedged bool
	}{
		{name: "GET", method: "GET", hedged: true},
		{name: "HEAD", method: "HEAD", hedged: true},
		{name: "PUT", method: "PUT", body: "body"},
		{name: "PUT, context key", method: "PUT", body: "body", ctx: keyed, hedged: true},
		{name: "DELETE, and the second copy gets a 404", method: "DELETE"},
		{name: "POST, keyed", method: "POST", body: "body", hedged: true},
		{name: "PATCH, keyed", method: "PATCH", body: "body", hedged: true},
		{name: "POST, header key", method: "POST", body: "body", config: off, change: func(r *http.Request) { r.Header.Set("Idempotency-Key", "k") }, hedged: true},
		{name: "POST, context key", method: "POST", body: "body", config: off, ctx: keyed, hedged: true},
		{name: "NoBody", method: "GET", change: func(r *http.Request) { r.Body = http.NoBody }, hedged: true},
		{name: "POST, no key", method: "POST", body: "body", config: off},
		{name: "PATCH, no key", method: "PATCH", body: "body", config: off},
		{name: "unknown method", method: "FROB"},
		{name: "PUT of a stream", method: "PUT", change: stream},
		{name: "keyed POST of a stream", method: "POST", change: stream},
		{name: "single attempt", method: "GET", ctx: resilienthttp.WithSingleAttempt},
		{name: "GetBody fails", method: "POST", body: "body", change: getBody(func() (io.ReadCloser, error) { return nil, errors.New("gone") })},
		{name: "GetBody gives nothing", method: "POST", body: "body", change: getBody(func() (io.ReadCloser, error) { return nil, nil })},
		{name: "GetBody panics", method: "POST", body: "body", change: getBody(func() (io.ReadCloser, error) { panic("gone") })},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			base := newHedgeBase(copyOf{after: 5 * time.Second}, copyOf{after: time.Second})
			// One hedge in ten seconds.
			transport := hedging(base, -1, &resilienthttp.Hedge{Delay: time.Second, MaxRatio: 1e-9})
			transport.Idempotency = row.config
			ctx := applied(t.Context(), row.ctx)
			req := newCall(ctx, t, row.method, row.body)
			if row.change != nil {
				row.change(req)
			}
			attempts := tripped(t, transport, req)
			if row.hedged {
				require.Equal(t, "1 lost, 1h 200", story(attempts))
			} else {
				require.Equal(t, "1 200", story(attempts))
				// No token was taken: another call gets the hedge.
				base.next(copyOf{after: 5 * time.Second})
				require.Len(t, tripped(t, transport, newCall(t.Context(), t, http.MethodGet, "")), 2)
			}
			base.balanced(t)
		})
	}
}

// The delay is fixed, or measured after 20 latencies.
func TestHedgeDelay(t *testing.T) {
	const ms = time.Millisecond
	// learn makes n calls of which the i-th takes latency(i).
	learn := func(t *testing.T, transport *resilienthttp.Transport, base *hedgeBase, n int, latency func(int) time.Duration) {
		t.Helper()
		for i := range n {
			base.next(copyOf{after: latency(i)})
			tripped(t, transport, newCall(t.Context(), t, http.MethodGet, ""))
		}
	}
	// after makes a call that hangs, and returns the time of its hedge.
	after := func(t *testing.T, transport *resilienthttp.Transport, base *hedgeBase) (time.Duration, bool) {
		t.Helper()
		base.next(copyOf{after: time.Hour})
		tripped(t, transport, newCall(withDeadline(t, time.Minute), t, http.MethodGet, ""))
		sent := base.calls()
		if len(sent) == 1 {
			return 0, false
		}
		require.Len(t, sent, 2)
		return sent[1].At.Sub(sent[0].At), true
	}
	ramp := func(i int) time.Duration { return time.Duration(i%100+1) * ms }
	flat := func(int) time.Duration { return 50 * ms }
	for _, row := range []struct {
		name     string
		hedge    *resilienthttp.Hedge
		calls    int
		latency  func(int) time.Duration
		min, max time.Duration // 0: none
	}{
		{"nothing known", &resilienthttp.Hedge{MaxRatio: -1}, 0, flat, 0, 0},
		{"19 known", &resilienthttp.Hedge{MaxRatio: -1}, 19, flat, 0, 0},
		{"20 known", &resilienthttp.Hedge{MaxRatio: -1}, 20, flat, 50 * ms, 50 * ms},
		{"p95 of 100", &resilienthttp.Hedge{MaxRatio: -1}, 100, ramp, 95 * ms, 96 * ms},
		{"p50 of 100", &resilienthttp.Hedge{Quantile: 0.5, MaxRatio: -1}, 100, ramp, 50 * ms, 51 * ms},
		{"smallest", &resilienthttp.Hedge{Quantile: 1e-9, MaxRatio: -1}, 100, ramp, 1 * ms, 1 * ms},
		{"largest", &resilienthttp.Hedge{Quantile: 1, MaxRatio: -1}, 100, ramp, 100 * ms, 100 * ms},
		{"more than 1 means 1", &resilienthttp.Hedge{Quantile: 7, MaxRatio: -1}, 100, ramp, 100 * ms, 100 * ms},
		{"NaN means the default", &resilienthttp.Hedge{Quantile: math.NaN(), MaxRatio: -1}, 100, ramp, 95 * ms, 96 * ms},
		{"negative quantile: off", &resilienthttp.Hedge{Quantile: -0.1, MaxRatio: -1}, 100, ramp, 0, 0},
		{"negative delay: off", &resilienthttp.Hedge{Delay: -1}, 100, ramp, 0, 0},
		{"fixed delay needs no measure", &resilienthttp.Hedge{Delay: 7 * ms}, 0, flat, 7 * ms, 7 * ms},
		{"fixed delay before the quantile", &resilienthttp.Hedge{Delay: 7 * time.Second, Quantile: 0.5}, 30, flat, 7 * time.Second, 7 * time.Second},
		{"a delay that never comes", &resilienthttp.Hedge{Delay: math.MaxInt64}, 0, flat, 0, 0},
		{"NaN ratio means the default", &resilienthttp.Hedge{Delay: 7 * ms, MaxRatio: math.NaN()}, 0, flat, 7 * ms, 7 * ms},
		{"infinite ratio", &resilienthttp.Hedge{Delay: 7 * ms, MaxRatio: math.Inf(1)}, 0, flat, 7 * ms, 7 * ms},
		{"only the recent ones count", &resilienthttp.Hedge{MaxRatio: -1}, 400, func(i int) time.Duration {
			if i < 250 {
				return time.Second
			}
			return 500 * ms
		}, 500 * ms, 500 * ms},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			base := newHedgeBase(copyOf{})
			transport := hedging(base, -1, row.hedge)
			learn(t, transport, base, row.calls, row.latency)
			delay, hedged := after(t, transport, base)
			require.Equal(t, row.max > 0, hedged)
			require.GreaterOrEqual(t, delay, row.min)
			most := row.max
			if row.hedge.Delay == 0 {
				most += row.max*3/10 + 1 // as precise as internal/latency is
			}
			require.LessOrEqual(t, delay, most, "longer than the quantile, within the precision")
		})
	}
	bubble.Run(t, "failures do not count", func(t *testing.T) {
		base := newHedgeBase(copyOf{after: ms, status: 503})
		transport := hedging(base, -1, &resilienthttp.Hedge{MaxRatio: -1})
		for range 40 {
			tripped(t, transport, newCall(t.Context(), t, http.MethodGet, ""))
		}
		_, hedged := after(t, transport, base)
		require.False(t, hedged)
	})
	bubble.Run(t, "responses with equal latencies are not slow", func(t *testing.T) {
		base := newHedgeBase(copyOf{after: 50 * ms})
		transport := hedging(base, -1, &resilienthttp.Hedge{MaxRatio: -1})
		for range 100 {
			require.Len(t, tripped(t, transport, newCall(t.Context(), t, http.MethodGet, "")), 1)
		}
	})
	bubble.Run(t, "hedges do not shorten the delay", func(t *testing.T) {
		// If canceled attempts did not count, the quantile would fall with each hedge.
		base := newHedgeBase(copyOf{})
		transport := hedging(base, -1, &resilienthttp.Hedge{MaxRatio: -1})
		tail := func(i int) time.Duration {
			if i%25 == 0 {
				return time.Second
			}
			return ramp(i)
		}
		learn(t, transport, base, 100, tail)
		hedges := 0
		for i := range 1000 {
			base.next(copyOf{after: tail(i * 37)}, copyOf{})
			hedges += len(tripped(t, transport, newCall(t.Context(), t, http.MethodGet, ""))) - 1
		}
		require.Less(t, hedges, 100, "of a thousand")
		require.Greater(t, hedges, 20)
	})
	bubble.Run(t, "each scope has its own", func(t *testing.T) {
		base := newHedgeBase(copyOf{})
		transport := hedging(base, -1, &resilienthttp.Hedge{MaxRatio: -1})
		learn(t, transport, base, 30, flat)
		base.next(copyOf{after: 10 * time.Second})
		other := newCall(t.Context(), t, http.MethodGet, "")
		other.URL.Host = "other.test"
		require.Equal(t, "1 200", story(tripped(t, transport, other)))
		require.Equal(t, "1 200, 1h lost", story(tripped(t, transport, newCall(t.Context(), t, http.MethodGet, ""))))
	})
}

// §4.16: hedges count against MaxRatio, and not against the Budget.
func TestHedge_MaxRatio(t *testing.T) {
	// slow makes slow calls, gap apart, and counts their hedges.
	slow := func(t *testing.T, transport *resilienthttp.Transport, base *hedgeBase, calls int, gap time.Duration) (hedges int) {
		t.Helper()
		before := len(base.calls())
		for range calls {
			tripped(t, transport, newCall(t.Context(), t, http.MethodGet, ""))
			time.Sleep(gap)
		}
		return len(base.calls()) - before - calls
	}
	twoMS := copyOf{after: 2 * time.Millisecond}
	for _, row := range []struct {
		name     string
		ratio    float64
		calls    int
		min, max int
	}{
		{"at least one", 0, 1, 1, 1},
		{"at least one, however small", 1e-9, 50, 1, 1},
		{"no second one before 20 calls", 0, 19, 1, 1},
		{"the first, and 5 % by default", 0, 400, 20, 21},
		{"the first, and a quarter", 0.25, 400, 100, 101},
		{"all", 1, 400, 400, 400},
		{"more than all", 3, 400, 400, 400},
		{"no cap", -1, 400, 400, 400},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			base := newHedgeBase(twoMS)
			transport := hedging(base, -1, &resilienthttp.Hedge{Delay: time.Millisecond, MaxRatio: row.ratio})
			hedges := slow(t, transport, base, row.calls, 0)
			require.GreaterOrEqual(t, hedges, row.min)
			require.LessOrEqual(t, hedges, row.max)
		})
	}
	bubble.Run(t, "retries are not calls", func(t *testing.T) {
		base := newHedgeBase(copyOf{after: 2 * time.Millisecond, status: 500})
		transport := hedging(base, 50, &resilienthttp.Hedge{Delay: time.Millisecond, MaxRatio: 0.5})
		tripped(t, transport, newCall(t.Context(), t, http.MethodGet, ""))
		require.Len(t, base.calls(), 51)
	})
	bubble.Run(t, "a hedge that is not sent returns its token", func(t *testing.T) {
		base := newHedgeBase(twoMS)
		transport := hedging(base, -1, &resilienthttp.Hedge{Delay: time.Millisecond})
		transport.RateLimit = &resilienthttp.RateLimit{Limit: 1, Burst: 1}
		require.Zero(t, slow(t, transport, base, 3, 2*time.Second), "the limiter has no permit for the hedge")
		open := hedging(base, -1, transport.Hedge)
		require.Equal(t, 1, slow(t, open, base, 3, 0))
	})
	bubble.Run(t, "§4.16 hedges do not use the budget", func(t *testing.T) {
		base := newHedgeBase(twoMS)
		transport := hedging(base, 2, &resilienthttp.Hedge{Delay: time.Millisecond, MaxRatio: -1})
		transport.Budget = tokens(1)
		require.Equal(t, 100, slow(t, transport, base, 100, 0), "an exhausted budget does not matter")
		base.next(copyOf{status: 500})
		require.Len(t, tripped(t, transport, newCall(t.Context(), t, http.MethodGet, "")), 2, "the hedge's token remains")
	})
	bubble.Run(t, "§4.15 a half-open circuit admits no hedge", func(t *testing.T) {
		base := newHedgeBase(copyOf{status: 500}, copyOf{after: 2 * time.Millisecond})
		transport := hedging(base, -1, &resilienthttp.Hedge{Delay: time.Millisecond, MaxRatio: -1})
		transport.Breaker = &resilienthttp.Breaker{MinRequests: 1, Probes: 1, Cooldown: time.Second}
		tripped(t, transport, newCall(t.Context(), t, http.MethodGet, ""))
		time.Sleep(2 * time.Second)
		require.Equal(t, "1 200", story(tripped(t, transport, newCall(t.Context(), t, http.MethodGet, ""))))
		require.Equal(t, resilienthttp.StateClosed, transport.Breaker.State("api.test", resilienthttp.PriorityDefault))
		require.Len(t, tripped(t, transport, newCall(t.Context(), t, http.MethodGet, "")), 2)
	})
	bubble.Run(t, "§4.15 the breaker does not count a canceled attempt", func(t *testing.T) {
		base := newHedgeBase(copyOf{after: time.Hour}, copyOf{})
		transport := hedging(base, -1, &resilienthttp.Hedge{Delay: time.Millisecond, MaxRatio: -1})
		transport.Breaker = &resilienthttp.Breaker{MinRequests: 1, FailureRatio: 0.01}
		require.Equal(t, "1 lost, 1h 200", story(tripped(t, transport, newCall(t.Context(), t, http.MethodGet, ""))))
		require.Equal(t, resilienthttp.StateClosed, transport.Breaker.State("api.test", resilienthttp.PriorityDefault))
	})
}

// Each copy has its own attempt timeout. Both have the call's deadline.
func TestHedgeTimeout(t *testing.T) {
	bubble.Run(t, "the first times out, the hedge does not", func(t *testing.T) {
		base := newHedgeBase(copyOf{after: time.Hour}, copyOf{after: 2500 * time.Millisecond})
		transport := hedging(base, -1, &resilienthttp.Hedge{Delay: 2 * time.Second})
		transport.Policy.AttemptTimeout = 3 * time.Second
		start := time.Now()
		require.Equal(t, "1 timeout, 1h 200", story(tripped(t, transport, newCall(t.Context(), t, http.MethodGet, ""))))
		require.Equal(t, 4500*time.Millisecond, time.Since(start))
		base.balanced(t)
	})
	bubble.Run(t, "both time out", func(t *testing.T) {
		base := newHedgeBase(copyOf{after: time.Hour})
		transport := hedging(base, -1, &resilienthttp.Hedge{Delay: 2 * time.Second})
		transport.Policy.AttemptTimeout = 3 * time.Second
		start := time.Now()
		require.Equal(t, "1 timeout, 1h timeout", story(tripped(t, transport, newCall(t.Context(), t, http.MethodGet, ""))))
		require.Equal(t, 5*time.Second, time.Since(start))
	})
	bubble.Run(t, "the call's deadline", func(t *testing.T) {
		ctx := withDeadline(t, 3*time.Second)
		base := newHedgeBase(copyOf{after: time.Hour})
		transport := hedging(base, 3, &resilienthttp.Hedge{Delay: 2 * time.Second})
		transport.Policy.AttemptTimeout = -1
		start := time.Now()
		_, err := transport.RoundTrip(newCall(ctx, t, http.MethodGet, ""))
		require.ErrorIs(t, err, resilienthttp.ErrDeadline)
		require.Equal(t, "1 gone, 1h gone", story(asError(t, err).Attempts))
		require.Equal(t, 3*time.Second, time.Since(start))
	})
	bubble.Run(t, "§4.13 the caller cancels with both in flight", func(t *testing.T) {
		base := newHedgeBase(copyOf{after: time.Hour})
		start := time.Now()
		_, err := hedging(base, 3, &resilienthttp.Hedge{Delay: time.Second}).RoundTrip(newCall(canceledAfter(t.Context(), 5*time.Second), t, http.MethodGet, ""))
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, 5*time.Second, time.Since(start))
		require.Len(t, base.calls(), 2, "there is no retry")
		base.balanced(t)
	})
	bubble.Run(t, "§4.19 each copy has its own deadline header", func(t *testing.T) {
		ctx := withDeadline(t, 10*time.Second)
		var recorded minutes
		base := newHedgeBase(copyOf{after: 2 * time.Second}, copyOf{after: time.Second})
		transport := hedging(puppet(func(req *http.Request) (*http.Response, error) {
			recorded.addf("%s", req.Header.Get("X-Request-Timeout-Ms"))
			return base.RoundTrip(req)
		}), 3, &resilienthttp.Hedge{Delay: 1500 * time.Millisecond})
		tripped(t, transport, newCall(ctx, t, http.MethodGet, ""))
		require.Equal(t, []string{"10000", "8500"}, recorded.read())
	})
}

// A Base that panics in the hedge's goroutine fails only the hedge. In the caller's goroutine the
// caller gets the panic.
func TestHedgePanic(t *testing.T) {
	hedge := func() *resilienthttp.Hedge { return &resilienthttp.Hedge{Delay: time.Second, MaxRatio: -1} }
	for _, row := range []struct {
		name   string
		copies []copyOf
		want   string
	}{
		{"hedge panics, first answers", []copyOf{{after: 5 * time.Second}, {panics: true}}, "1 200, 1h panic in a concurrent attempt: Base is broken"},
		{"hedge exits, first answers", []copyOf{{after: 5 * time.Second}, {exits: true}}, "1 200, 1h goroutine of a concurrent attempt exited"},
		{"first fails, hedge panics", []copyOf{{after: 2 * time.Second, status: 503}, {after: 3 * time.Second, panics: true}}, "1 503, 1h panic in a concurrent attempt: Base is broken"},
		{"first fails, hedge exits", []copyOf{{after: 2 * time.Second, status: 503}, {after: 3 * time.Second, exits: true}}, "1 503, 1h goroutine of a concurrent attempt exited"},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			base := newHedgeBase(row.copies...)
			require.Equal(t, row.want, story(tripped(t, hedging(base, -1, hedge()), newCall(t.Context(), t, http.MethodGet, ""))))
			base.balanced(t)
		})
	}
	for name, copies := range map[string][]copyOf{
		"first panics, hedge in flight":       {{after: 2 * time.Second, panics: true}, {after: time.Hour}},
		"first panics when the hedge has won": {{after: time.Hour, panics: true}, {after: time.Second}},
		"first panics, a 4xx was kept":        {{after: 3 * time.Second, panics: true}, {status: 422}},
	} {
		bubble.Run(t, name, func(t *testing.T) {
			base := newHedgeBase(copies...)
			require.PanicsWithValue(t, "Base is broken", func() {
				_, _ = hedging(base, 3, hedge()).RoundTrip(newCall(t.Context(), t, http.MethodPost, ""))
			})
			base.balanced(t)
			require.Len(t, base.calls(), 2)
		})
	}
	bubble.Run(t, "first exits, hedge in flight", func(t *testing.T) {
		base := newHedgeBase(copyOf{after: 2 * time.Second, exits: true}, copyOf{after: time.Hour})
		var wg sync.WaitGroup
		wg.Go(func() { _, _ = hedging(base, 3, hedge()).RoundTrip(newCall(t.Context(), t, http.MethodGet, "")) })
		wg.Wait()
		base.balanced(t)
	})
	bubble.Run(t, "the hedge returns its permits", func(t *testing.T) {
		base := newHedgeBase(copyOf{status: 500}, copyOf{after: 2 * time.Second}, copyOf{panics: true}, copyOf{})
		transport := hedging(base, -1, hedge())
		transport.Breaker = &resilienthttp.Breaker{MinRequests: 1, Probes: 2, Cooldown: time.Hour, Static: true}
		call := func() []resilienthttp.Attempt {
			return tripped(t, transport, newCall(t.Context(), t, http.MethodGet, ""))
		}
		call() // opens the circuit
		time.Sleep(2 * time.Hour)
		require.Equal(t, "1 200, 1h panic in a concurrent attempt: Base is broken", story(call()))
		require.Equal(t, "1 200", story(call()), "the slot is free")
		require.Equal(t, resilienthttp.StateClosed, transport.Breaker.State("api.test", resilienthttp.PriorityDefault))
	})
	odd := func(a *resilienthttp.Attempt) {
		if a.Hedge {
			panic("odd")
		}
	}
	for name, sent := range map[string]int{"AttemptStart": 1, "Classify": 2} {
		bubble.Run(t, name+" panics for the hedge", func(t *testing.T) {
			base := newHedgeBase(copyOf{after: 5 * time.Second}, copyOf{})
			transport := hedging(base, -1, hedge())
			if name == "AttemptStart" {
				transport.Trace = &resilienthttp.Trace{AttemptStart: odd}
			} else {
				transport.Policy.Classify = func(a *resilienthttp.Attempt) resilienthttp.Verdict { odd(a); return resilienthttp.VerdictDefault }
			}
			require.Equal(t, "1 200, 1h panic in a concurrent attempt: odd", story(tripped(t, transport, newCall(t.Context(), t, http.MethodGet, ""))))
			require.Len(t, base.calls(), sent)
			base.balanced(t)
		})
	}
}

// Hooks see the start of a hedge before its end, even if it loses at its start, and nothing after
// CallDone.
func TestHedgeTrace(t *testing.T) {
	for _, row := range []struct {
		name   string
		copies []copyOf
		want   []string
	}{
		{"hedge wins", []copyOf{{after: 10 * time.Second}, {}}, []string{
			"T start 1", "T start 1h", "T done 1 permanent", "T done 1h success", "T call 2",
		}},
		{"first wins", []copyOf{{after: 2 * time.Second}, {after: 10 * time.Second}}, []string{
			"T start 1", "T start 1h", "T done 1 success", "T done 1h permanent", "T call 2",
		}},
		{"both fail", []copyOf{{after: 2 * time.Second, status: 500}, {after: 10 * time.Second, status: 429}, {}}, []string{
			"T start 1", "T start 1h", "T done 1 transient", "T done 1h throttled", "T wait 1 0s", "T start 2", "T done 2 success", "T call 3",
		}},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			var m minutes
			base := newHedgeBase(row.copies...)
			transport := hedging(base, 2, &resilienthttp.Hedge{Delay: time.Second})
			transport.Trace = m.trace("T")
			tripped(t, transport, newCall(t.Context(), t, http.MethodGet, ""))
			synctest.Wait()
			require.Equal(t, row.want, m.read())
		})
	}
	bubble.Run(t, "never out of order", func(t *testing.T) {
		for n := range 500 {
			var m minutes
			base := newHedgeBase(copyOf{after: time.Millisecond})
			transport := hedging(base, -1, &resilienthttp.Hedge{Delay: time.Millisecond, MaxRatio: -1})
			transport.Trace = m.trace("T")
			start := transport.Trace.AttemptStart
			transport.Trace.AttemptStart = func(a *resilienthttp.Attempt) {
				if a.Hedge && n%2 == 0 {
					runtime.Gosched()
				}
				start(a)
			}
			tripped(t, transport, newCall(t.Context(), t, http.MethodGet, ""))
			synctest.Wait()
			lines := m.read()
			require.Equal(t, "T call "+strconv.Itoa(len(lines)/2), lines[len(lines)-1], "%q", lines)
			if len(lines) > 3 {
				require.Contains(t, lines[:2+1], "T start 1h", "%q", lines)
				require.Contains(t, lines[len(lines)-2], "done 1h", "%q", lines)
			}
		}
	})
	bubble.Run(t, "LogTrace", func(t *testing.T) {
		_, raw := logged(t, func(trace *resilienthttp.Trace) {
			base := newHedgeBase(copyOf{after: 10 * time.Second}, copyOf{})
			tripped(t, hedging(base, -1, &resilienthttp.Hedge{Delay: time.Second}), newCall(resilienthttp.WithTrace(t.Context(), trace), t, http.MethodGet, ""))
		})
		require.Equal(t, 1, strings.Count(raw, `"hedge":true`))
		require.NotContains(t, raw, "WARN", "a canceled hedge is not a failure")
		require.NotContains(t, raw, "ERROR")
	})
	bubble.Run(t, "LogTrace, a failure before a hedge", func(t *testing.T) {
		records, _ := logged(t, func(trace *resilienthttp.Trace) {
			base := newHedgeBase(copyOf{after: 2 * time.Second, status: 500})
			transport := hedging(base, -1, &resilienthttp.Hedge{Delay: time.Second})
			transport.Trace = trace
			require.Equal(t, "1 500, 1h 500", story(tripped(t, transport, newCall(t.Context(), t, http.MethodGet, ""))))
		})
		call := records[len(records)-1]
		require.Equal(t, "call_failed", call["event"])
		require.Equal(t, "ERROR", call["level"])
		require.Equal(t, "max_attempts", call["stop_reason"])
	})
}

// If events happen at the same time, there is one winner with a readable body, and the other
// response is closed.
func TestHedge_simultaneousEvents(t *testing.T) {
	for _, row := range []struct {
		name   string
		copies []copyOf
	}{
		{"first answers when the hedge would start", []copyOf{{after: time.Millisecond}, {after: time.Millisecond}}},
		{"both answer together", []copyOf{{after: 2 * time.Millisecond}, {after: time.Millisecond}}},
		{"first fails when the hedge would start", []copyOf{{after: time.Millisecond, status: 503}, {after: time.Millisecond}}},
		{"one fails, the other answers", []copyOf{{after: 2 * time.Millisecond, status: 503}, {after: time.Millisecond}}},
		{"one answers, the other fails", []copyOf{{after: 2 * time.Millisecond}, {after: time.Millisecond, status: 503}}},
		{"both fail together", []copyOf{{after: 2 * time.Millisecond, status: 503}, {after: time.Millisecond, status: 500}}},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			stories := map[string]int{}
			for range 300 {
				base := newHedgeBase(row.copies...)
				transport := hedging(base, -1, &resilienthttp.Hedge{Delay: time.Millisecond})
				resp := roundTrip(t, transport, newCall(t.Context(), t, http.MethodGet, ""))
				if row.copies[0].status == 0 || row.copies[1].status == 0 && len(base.calls()) == 2 {
					require.Equal(t, 200, resp.StatusCode, "a failure has won: %s", story(resilienthttp.Attempts(resp)))
				}
				require.Equal(t, "body of "+resp.Header.Get("X-Copy"), readAll(t, resp))
				stories[story(resilienthttp.Attempts(resp))]++
				base.balanced(t)
			}
			t.Log(stories)
		})
	}
	bubble.Run(t, "the caller cancels at the time of the response", func(t *testing.T) {
		for range 300 {
			base := newHedgeBase(copyOf{after: 2 * time.Millisecond}, copyOf{after: time.Millisecond})
			req := newCall(canceledAfter(t.Context(), 2*time.Millisecond), t, http.MethodGet, "")
			if err := discard(hedging(base, -1, &resilienthttp.Hedge{Delay: time.Millisecond}), req); err != nil {
				require.ErrorIs(t, err, context.Canceled)
			}
			base.balanced(t)
		}
	})
}

// Hedging over net/http's transport: the request of the loser is canceled at its server.
func TestHedgeOverNetHTTP(t *testing.T) {
	for name, options := range protocols {
		bubble.Run(t, name, func(t *testing.T) {
			var asked, left atomic.Int64
			server := memhttp.NewServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if asked.Add(1)%2 == 1 {
					<-r.Context().Done() // the server sees the cancellation
					left.Add(1)
					return
				}
				_, _ = io.WriteString(w, strings.Repeat("x", 1<<16))
				w.(http.Flusher).Flush()
				time.Sleep(3 * time.Second)
				_, _ = io.WriteString(w, "end")
			}), options...)
			client := &http.Client{Transport: hedging(server.Transport(), -1, &resilienthttp.Hedge{Delay: time.Second, MaxRatio: -1})}
			for range 5 {
				resp, err := client.Get(server.URL)
				require.NoError(t, err)
				require.Equal(t, "1 lost, 1h 200", story(resilienthttp.Attempts(resp)))
				require.Len(t, readAll(t, resp), 1<<16+3)
			}
			synctest.Wait()
			require.EqualValues(t, 10, asked.Load())
			require.EqualValues(t, 5, left.Load())
			_, open := server.Conns()
			require.LessOrEqual(t, open, 1)
		})
	}
	bubble.Run(t, "the body of a copy that is too late", func(t *testing.T) {
		var asked atomic.Int64
		server := memhttp.NewServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			// Both have sent their headers by the time the second is read.
			if asked.Add(1) == 1 {
				time.Sleep(2 * time.Second)
			} else {
				time.Sleep(time.Second)
			}
			w.(http.Flusher).Flush()
			for r.Context().Err() == nil { // without end
				if _, err := w.Write(make([]byte, 1<<10)); err != nil {
					return
				}
			}
		}))
		for range 20 {
			asked.Store(0)
			client := &http.Client{Transport: hedging(server.Transport(), -1, &resilienthttp.Hedge{Delay: time.Second})}
			resp, err := client.Get(server.URL)
			require.NoError(t, err)
			_, err = io.ReadFull(resp.Body, make([]byte, 1<<17))
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			synctest.Wait()
			_, open := server.Conns()
			require.Zero(t, open, "§4.5")
		}
	})
}

// With a measured delay, a client hedges while hedges win. If they lose, it
// stops and tries again later.
func TestHedge_stopsWhenLosing(t *testing.T) {
	const ms = time.Millisecond
	// load makes calls, 20 a second, of which every tenth has a first copy that takes
	// so long, and a hedge, if there is one, that takes half a second.
	load := func(t *testing.T, transport *resilienthttp.Transport, base *hedgeBase, calls int, slow time.Duration) (hedges int) {
		t.Helper()
		for i := range calls {
			base.next(copyOf{after: 10 * ms})
			if i%10 == 9 {
				base.next(copyOf{after: slow}, copyOf{after: 500 * ms})
			}
			hedges += len(tripped(t, transport, newCall(t.Context(), t, http.MethodGet, ""))) - 1
			time.Sleep(40 * ms)
		}
		return hedges
	}
	bubble.Run(t, "they win", func(t *testing.T) {
		base := newHedgeBase(copyOf{})
		require.Greater(t, load(t, hedging(base, -1, &resilienthttp.Hedge{Quantile: 0.5, MaxRatio: 0.1}), base, 1000, 3*time.Second), 75)
	})
	bubble.Run(t, "they lose", func(t *testing.T) {
		base := newHedgeBase(copyOf{})
		transport := hedging(base, -1, &resilienthttp.Hedge{Quantile: 0.5, MaxRatio: 0.1})
		require.Less(t, load(t, transport, base, 1000, 100*ms), 6)
		time.Sleep(5 * time.Minute)
		require.Greater(t, load(t, transport, base, 1000, 3*time.Second), 60, "hedges resume when they win")
	})
	bubble.Run(t, "a fixed delay always hedges", func(t *testing.T) {
		base := newHedgeBase(copyOf{})
		require.Greater(t, load(t, hedging(base, -1, &resilienthttp.Hedge{Delay: 20 * ms, MaxRatio: 0.1}), base, 1000, 100*ms), 90)
	})
}
