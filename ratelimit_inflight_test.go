package resilienthttp_test

import (
	"context"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/internal/bubble"
)

// crowd counts the requests at a server.
type crowd struct{ now, most, total atomic.Int64 }

// enter counts a request until the returned function is called.
func (c *crowd) enter() (leave func()) {
	c.total.Add(1)
	n := c.now.Add(1)
	for {
		if most := c.most.Load(); n <= most || c.most.CompareAndSwap(most, n) {
			break
		}
	}
	return func() { c.now.Add(-1) }
}

func (c *crowd) counting(next step) step {
	return func(r *http.Request) (*http.Response, error) {
		leave := c.enter()
		defer leave()
		return next(r)
	}
}

// inFlight is a Transport with a MaxInFlight, without retries.
func inFlight(n int, wait time.Duration, steps ...step) *resilienthttp.Transport {
	return &resilienthttp.Transport{
		Base: script(steps...), Breaker: never(), Policy: resilienthttp.Policy{MaxAttempts: -1},
		RateLimit: &resilienthttp.RateLimit{MaxInFlight: n, MaxWait: wait},
	}
}

// slots returns the quota of MaxInFlight in the State.
func slots(tb testing.TB, tr *resilienthttp.Transport) resilienthttp.QuotaStatus {
	tb.Helper()
	for _, q := range tr.State().Scopes[0].Quotas {
		if q.Bucket == "in_flight" {
			return q
		}
	}
	require.Fail(tb, "no bucket in_flight")
	return resilienthttp.QuotaStatus{}
}

// try makes a call in a goroutine of its own, and returns its result without the body. A panic or
// Goexit of Base has no result.
func try(tr *resilienthttp.Transport, req *http.Request) (*http.Response, error) {
	type result struct {
		resp *http.Response
		err  error
	}
	done := make(chan result, 1)
	go func() {
		defer close(done)
		defer func() { _ = recover() }()
		resp, err := tr.RoundTrip(req)
		if err == nil {
			_ = resp.Body.Close()
		}
		done <- result{resp, err}
	}()
	r := <-done
	return r.resp, r.err
}

// §4.26: twenty callers with two slots on real sockets. The server never has more than two requests,
// and gets them in the order of their calls.
func TestMaxInFlight_sockets(t *testing.T) {
	for name, http2 := range map[string]bool{"HTTP/1.1": false, "HTTP/2": true} {
		t.Run(name, func(t *testing.T) {
			const callers, limit = 20, 2
			var at crowd
			arrived, release := make(chan string, callers), make(chan struct{})
			s := newProtocolServer(t, http2, true, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				leave := at.enter()
				defer leave()
				arrived <- r.Proto[:6] + r.Header.Get("X-Caller")
				<-release
			}))
			proto := map[bool]string{false: "HTTP/1", true: "HTTP/2"}[http2]
			tr := &resilienthttp.Transport{Base: s.base, Breaker: never(), RateLimit: &resilienthttp.RateLimit{MaxInFlight: limit}}
			var calls sync.WaitGroup
			for i := range callers {
				calls.Go(func() {
					req := newRequest(t, http.MethodPost, s.url, "content")
					req.Header.Set("X-Caller", strconv.Itoa(i))
					resp, err := tr.RoundTrip(req)
					if assert.NoError(t, err) {
						assert.Equal(t, http.StatusOK, resp.StatusCode)
						_ = resp.Body.Close()
					}
				})
				if i < limit {
					require.Equal(t, proto+strconv.Itoa(i), <-arrived)
					continue
				}
				for tr.State().Scopes[0].Queued != i-limit+1 {
					require.LessOrEqual(t, at.now.Load(), int64(limit))
					runtime.Gosched()
				}
			}
			require.Empty(t, arrived, "the others wait")
			for i := limit; i < callers; i++ {
				release <- struct{}{}
				require.Equal(t, proto+strconv.Itoa(i), <-arrived, "in the order of the calls")
			}
			close(release)
			calls.Wait()
			require.EqualValues(t, limit, at.most.Load())
			require.EqualValues(t, callers, at.total.Load())
			require.Equal(t, resilienthttp.QuotaStatus{Bucket: "in_flight", Limit: limit, Remaining: limit}, slots(t, tr))
		})
	}
}

// §4.26: without a MaxInFlight nothing is counted.
func TestMaxInFlight_none(t *testing.T) {
	for _, n := range []int{0, -1, math.MinInt} {
		synctest.Test(t, func(t *testing.T) {
			var at crowd
			tr := inFlight(n, -1, at.counting(after(time.Second, status(200))))
			var calls sync.WaitGroup
			for range 20 {
				calls.Go(func() { answered(t, tr) })
			}
			calls.Wait()
			require.EqualValues(t, 20, at.most.Load())
			require.Empty(t, known(t, tr).Quotas)
		})
	}
}

// Limits that no process reaches are shown as they are, or as the largest that is counted.
func TestRateLimit_huge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := inFlight(math.MaxInt, -1, status(200))
		tr.RateLimit.Limit, tr.RateLimit.Burst = 1, math.MaxInt
		answered(t, tr)
		quotas := known(t, tr).Quotas
		require.Len(t, quotas, 2)
		for _, q := range quotas {
			require.EqualValues(t, math.MaxInt32, q.Limit)
			require.GreaterOrEqual(t, q.Remaining, q.Limit-1)
		}
	})
}

// §4.26: an attempt returns its slot when it has headers or an error, whatever ends it, and no
// earlier: a body that is not read holds none.
func TestMaxInFlight_slotIsReturned(t *testing.T) {
	const s = time.Second
	goexit := func(*http.Request) (*http.Response, error) { runtime.Goexit(); return nil, nil }
	for _, row := range []struct {
		name     string
		step     step
		change   func(*resilienthttp.Transport)
		deadline time.Duration
	}{
		{name: "a response", step: after(s, status(200))},
		{name: "a failure", step: after(s, status(503))},
		{name: "headers of an endless body", step: withBody(200, io.NopCloser(zeros{}))},
		{name: "an error", step: after(s, failing(errReset))},
		{name: "AttemptTimeout", step: hanging, change: func(tr *resilienthttp.Transport) { tr.Policy.AttemptTimeout = s }},
		{name: "the deadline", step: hanging, deadline: s},
		{name: "a panic of Base", step: panicking("Base")},
		{name: "Goexit of Base", step: goexit},
		{name: "retries, one after another", step: after(s, status(503)), change: func(tr *resilienthttp.Transport) { tr.Policy = every(s) }},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			var at crowd
			tr := inFlight(2, -1, at.counting(row.step))
			if row.change != nil {
				row.change(tr)
			}
			for range 5 { // more often than there are slots
				_, err := try(tr, get(t).WithContext(withDeadline(t, row.deadline)))
				require.NotErrorIs(t, err, resilienthttp.ErrRateLimited)
				require.EqualValues(t, 2, slots(t, tr).Remaining)
			}
		})
	}
}

// §4.26: what a call does that gets no slot at once. The first call has the slot for 10 s.
func TestMaxInFlight_wait(t *testing.T) {
	const s = time.Second
	for _, row := range []struct {
		name     string
		maxWait  time.Duration
		deadline time.Duration
		cancel   time.Duration // when the caller cancels; 0: never
		limit    float64
		is       error
		took     time.Duration
	}{
		{name: "it waits", took: 20 * s},
		{name: "never wait", maxWait: -1, is: resilienthttp.ErrRateLimited},
		{name: "at most MaxWait", maxWait: 3 * s, is: resilienthttp.ErrRateLimited, took: 3 * s},
		{name: "MaxWait is long enough", maxWait: 10*s + 1, took: 20 * s},
		{name: "the deadline", deadline: 4 * s, is: resilienthttp.ErrDeadline, took: 4 * s},
		{name: "a cancel", cancel: 2 * s, is: context.Canceled, took: 2 * s},
		{name: "no wait for a slot if the token comes too late", limit: 0.01, is: resilienthttp.ErrRateLimited},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			tr := inFlight(1, row.maxWait, after(10*s, status(200)))
			if row.limit > 0 {
				tr.RateLimit.Limit, tr.RateLimit.Burst = 0.01, 1
			}
			first := get(t)
			go func() { _, _ = try(tr, first) }()
			synctest.Wait()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			ctx = until(t, ctx, row.deadline)
			if row.cancel > 0 {
				time.AfterFunc(row.cancel, cancel)
			}
			begun := time.Now()
			resp, err := try(tr, get(t).WithContext(ctx))
			require.Equal(t, row.took, time.Since(begun))
			if row.is != nil {
				require.ErrorIs(t, err, row.is)
				require.Empty(t, asError(t, err).Attempts, "it was not sent")
				require.Equal(t, row.limit == 0, asError(t, err).NotBefore.IsZero(), "when a slot is free is unknown")
			} else {
				require.NoError(t, err)
				a := lastOf(t, resp)
				require.Equal(t, 10*s, a.QueueWait)
				require.True(t, a.FixedLimit, "the wait is for a limit of the client's own")
			}
			time.Sleep(20 * s)
			require.Equal(t, resilienthttp.QuotaStatus{Bucket: "in_flight", Limit: 1, Remaining: 1}, slots(t, tr))
			require.Zero(t, known(t, tr).Queued)
		})
	}
}

// §4.26: hedges and second attempts need a free slot, and never wait for one.
func TestMaxInFlight_copies(t *testing.T) {
	const s = time.Second
	for _, row := range []struct {
		name  string
		slots int
		hedge *resilienthttp.Hedge
		sent  int64
	}{
		{"a hedge without a slot", 1, &resilienthttp.Hedge{Delay: s, MaxRatio: -1}, 1},
		{"a hedge", 2, &resilienthttp.Hedge{Delay: s, MaxRatio: -1}, 2},
		{"a second attempt without a slot", 1, nil, 1},
		{"a second attempt", 2, nil, 2},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			var at crowd
			tr := inFlight(row.slots, 0, at.counting(after(100*s, status(200))))
			tr.Hedge, tr.Policy = row.hedge, resilienthttp.Policy{MaxAttempts: 2}
			tr.Trace = &resilienthttp.Trace{QueueWait: func(*resilienthttp.Attempt) { assert.Fail(t, "it waits") }}
			_, err := try(tr, get(t))
			require.NoError(t, err)
			require.Equal(t, row.sent, at.total.Load())
			synctest.Wait()
			require.EqualValues(t, row.slots, slots(t, tr).Remaining)
		})
	}
	bubble.Run(t, "a copy goes behind the calls that wait", func(t *testing.T) {
		var at crowd
		tr := inFlight(1, time.Hour, at.counting(after(40*s, status(200))))
		tr.Policy = resilienthttp.Policy{MaxAttempts: 2}
		var calls sync.WaitGroup
		for range 3 {
			calls.Go(func() { answered(t, tr) })
		}
		calls.Wait()
		require.EqualValues(t, 3, at.total.Load())
		require.EqualValues(t, 1, at.most.Load())
	})
}

// §4.26: a call inside an attempt of its own scope needs no slot while the attempt holds one.
// Otherwise the two would wait for each other.
func TestMaxInFlight_nested(t *testing.T) {
	token := func(r *http.Request, tr http.RoundTripper, url string) error {
		req, err := http.NewRequestWithContext(r.Context(), http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		return discard(tr, req)
	}
	const main, login, other = "http://api.test/", "http://api.test/token", "http://other.test/token"
	for _, row := range []struct {
		name string
		urls map[string]string // what Base fetches with the attempt's context before each URL
	}{
		{"of its own scope", map[string]string{main: login}},
		{"of its own scope, two levels", map[string]string{main: login, login: login + "/key"}},
		{"through another scope", map[string]string{main: other, other: login}},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			tr, sent := &resilienthttp.Transport{RateLimit: &resilienthttp.RateLimit{MaxInFlight: 1}}, atomic.Int64{}
			tr.Base = roundTripper(func(r *http.Request) (*http.Response, error) {
				if url := row.urls[r.URL.String()]; url != "" {
					if err := token(r, tr, url); err != nil {
						return nil, err
					}
				}
				sent.Add(1)
				return after(time.Second, status(200))(r)
			})
			var calls sync.WaitGroup
			begun, each := time.Now(), 1+len(row.urls)
			for range 3 {
				calls.Go(func() {
					_, err := try(tr, newRequest(t, http.MethodGet, main, ""))
					assert.NoError(t, err)
				})
			}
			calls.Wait()
			require.EqualValues(t, 3*each, sent.Load())
			require.Equal(t, time.Duration(3*each)*time.Second, time.Since(begun), "one call after another")
			require.EqualValues(t, 1, slots(t, tr).Remaining)
		})
	}
	bubble.Run(t, "through a Transport with the same RateLimit and one without", func(t *testing.T) {
		shared := &resilienthttp.RateLimit{MaxInFlight: 1, MaxWait: -1}
		inner := &resilienthttp.Transport{Base: script(status(200)), RateLimit: shared}
		middle := &resilienthttp.Transport{Base: inner}
		outer := &resilienthttp.Transport{Base: middle, RateLimit: shared}
		_, err := try(outer, get(t))
		require.NoError(t, err)
		require.EqualValues(t, 1, slots(t, outer).Remaining)
	})
	bubble.Run(t, "an attempt that has returned its slot lends none", func(t *testing.T) {
		tr, later := inFlight(1, -1, nil), make(chan *http.Request, 1)
		tr.Base = roundTripper(func(r *http.Request) (*http.Response, error) {
			switch r.URL.Path {
			case "/first":
				later <- r
				return status(200)(r)
			default:
				return after(time.Minute, status(200))(r)
			}
		})
		resp := roundTrip(t, tr, newRequest(t, http.MethodGet, "http://api.test/first", ""))
		first := get(t)
		go func() { _, _ = try(tr, first) }()
		synctest.Wait()
		require.ErrorIs(t, token(<-later, tr, login), resilienthttp.ErrRateLimited, "another call has the slot")
		readAll(t, resp)
		time.Sleep(time.Hour)
	})
}

// §4.26: a thousand goroutines, whatever ends their calls: never more than the limit, and each slot is
// returned once.
func TestMaxInFlight_thousandGoroutines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit, goroutines, each = 7, 1000, 5
		const ms = time.Millisecond
		var at crowd
		tr := inFlight(limit, time.Hour)
		tr.Policy, tr.Hedge = every(ms), &resilienthttp.Hedge{Delay: 3 * ms, MaxRatio: -1}
		tr.Base = roundTripper(func(r *http.Request) (*http.Response, error) {
			leave := at.enter()
			defer leave()
			ends := [...]step{status(200), status(503), failing(errReset), hanging, panicking("Base"), func(*http.Request) (*http.Response, error) { runtime.Goexit(); return nil, nil }}
			return after(rand.N(10*ms), ends[max(0, rand.N(20)-14)])(r)
		})
		var calls sync.WaitGroup
		for range goroutines {
			calls.Go(func() {
				for range each {
					_, _ = try(tr, get(t).WithContext(withDeadline(t, ms+rand.N(4*time.Second))))
				}
			})
		}
		calls.Wait()
		synctest.Wait()
		require.EqualValues(t, limit, at.most.Load())
		require.Greater(t, at.total.Load(), int64(goroutines))
		require.Equal(t, resilienthttp.QuotaStatus{Bucket: "in_flight", Limit: limit, Remaining: limit}, slots(t, tr))
		require.Zero(t, known(t, tr).Queued+known(t, tr).InFlight)
	})
}
