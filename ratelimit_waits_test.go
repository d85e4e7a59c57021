package resilienthttp_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
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
	"github.com/resilienthttp/resilienthttp/quotastore"
)

// rejected is a number of rejections, and then a 200.
func rejected(times int, rejection step) []step {
	return append(slices.Repeat([]step{rejection}, times), status(http.StatusOK))
}

// §4.16: without tokens, a call that a limit rejects is not refused: it waits as long as the server asks, and then for its turn.
func TestRateLimit_waitsWithoutTokens(t *testing.T) {
	const s, never = time.Second, 1000 // rejections
	asks := status(http.StatusTooManyRequests, "Retry-After", "1")
	for _, row := range []struct {
		name      string
		steps     []step
		policy    resilienthttp.Policy
		static    bool // the budget
		served    bool // another call before
		tokens    int  // 0: none
		maxWait   time.Duration
		deadline  time.Duration // 0: none
		context   func(context.Context) context.Context
		status    int
		attempts  int // 0: any
		least     time.Duration
		most      time.Duration // of the call
		stoppedBy error
		orBy      error // if its last turn came shortly before the end of the wait
	}{
		{name: "as long as the server asks", steps: rejected(1, asks), deadline: 5 * time.Minute, status: 200, attempts: 2, least: s, most: 2 * s},
		{name: "it does not say how long: three usual intervals", served: true, steps: rejected(1, status(429)), deadline: 5 * time.Minute, status: 200, attempts: 2, least: s, most: 4 * s},
		{name: "the same, and nothing was served", steps: rejected(1, status(429)), deadline: time.Minute, status: 200, attempts: 2, least: 2 * s, most: 6 * s},
		{name: "each time", steps: rejected(3, asks), deadline: 5 * time.Minute, status: 200, attempts: 4, least: 3 * s, most: 8 * s},
		{name: "the server asks for more", steps: rejected(1, status(429, "Retry-After", "50")), deadline: 5 * time.Minute, status: 200, attempts: 2, least: 50 * s, most: 76 * s},
		{name: "a 403 that asks", steps: rejected(1, status(403, "Retry-After", "1")), deadline: 5 * time.Minute, status: 200, attempts: 2, least: s, most: 2 * s},
		{name: "until the deadline, and then its own response", steps: rejected(never, asks), policy: resilienthttp.Policy{MaxAttempts: 100}, deadline: 20 * s, status: 429, least: 8 * s, most: 20 * s, stoppedBy: resilienthttp.ErrBudgetExhausted, orBy: resilienthttp.ErrDeadline},
		{name: "without a deadline, until MaxWait", steps: rejected(never, asks), maxWait: 4 * s, status: 429, least: 2 * s, most: 4200 * time.Millisecond, stoppedBy: resilienthttp.ErrBudgetExhausted},
		{name: "waits that the server asks for are no attempts of MaxAttempts", steps: rejected(5, asks), policy: resilienthttp.Policy{MaxAttempts: 3}, deadline: 5 * time.Minute, status: 200, attempts: 6, least: 5 * s, most: 30 * s},
		{name: "nor after them: a failure has as many attempts as without them", steps: append(rejected(4, asks)[:4], status(503), status(502), status(200)), tokens: 20, policy: resilienthttp.Policy{MaxAttempts: 4}, deadline: 5 * time.Minute, status: 200, attempts: 7, least: 4 * s, most: 30 * s},
		{name: "nor after them, and no more", steps: append(rejected(4, asks)[:4], status(503)), tokens: 20, policy: resilienthttp.Policy{MaxAttempts: 3}, deadline: 5 * time.Minute, status: 503, attempts: 7, least: 4 * s, most: time.Minute, stoppedBy: resilienthttp.ErrMaxAttempts},
		{name: "rejections that do not ask are", steps: rejected(never, status(429)), policy: resilienthttp.Policy{MaxAttempts: 3}, deadline: 5 * time.Minute, status: 429, attempts: 3, least: 5 * s, most: time.Minute, stoppedBy: resilienthttp.ErrMaxAttempts},
		{name: "with tokens, as long as the server asks", steps: rejected(1, asks), tokens: 5, deadline: 5 * time.Minute, status: 200, attempts: 2, least: s, most: 2 * s},
		{name: "a Static budget", steps: rejected(1, asks), static: true, deadline: time.Minute, status: 429, attempts: 1, stoppedBy: resilienthttp.ErrBudgetExhausted},
		{name: "another layer retries", steps: rejected(1, asks), context: resilienthttp.WithSingleAttempt, deadline: time.Minute, status: 429, attempts: 1, stoppedBy: resilienthttp.ErrSingleAttempt},
		{name: "beyond MaxRetryAfter", steps: rejected(1, status(429, "Retry-After", "61")), deadline: 5 * time.Minute, status: 429, attempts: 1, stoppedBy: resilienthttp.ErrRetryAfter},
		{name: "beyond the deadline", steps: rejected(1, asks), deadline: s / 2, status: 429, attempts: 1, stoppedBy: resilienthttp.ErrDeadline},
		{name: "beyond MaxWait", steps: rejected(1, asks), maxWait: s / 2, status: 429, attempts: 1, stoppedBy: resilienthttp.ErrBudgetExhausted},
		{name: "beyond MaxWait, with tokens: attempts of MaxAttempts", steps: rejected(never, asks), policy: resilienthttp.Policy{MaxAttempts: 2}, tokens: 5, maxWait: s / 2, status: 429, attempts: 2, least: s, most: 2 * s, stoppedBy: resilienthttp.ErrMaxAttempts},
		{name: "calls never wait", steps: rejected(1, asks), maxWait: -1, status: 429, attempts: 1, stoppedBy: resilienthttp.ErrBudgetExhausted},
		{name: "calls never wait, with a deadline", steps: rejected(1, asks), maxWait: -1, deadline: 5 * time.Minute, status: 429, attempts: 1, stoppedBy: resilienthttp.ErrBudgetExhausted},
		{name: "a 503 that asks", steps: rejected(1, status(503, "Retry-After", "1")), deadline: time.Minute, status: 200, attempts: 2, least: s, most: 6 * s},
		{name: "a 403 that asks for no wait is no rejection", steps: rejected(1, status(403)), deadline: time.Minute, status: 403, attempts: 1},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			base := script(row.steps...)
			if row.served {
				base = script(append([]step{status(200)}, row.steps...)...)
			}
			budget := &resilienthttp.Budget{Burst: cmp.Or(row.tokens, -1), Static: row.static}
			tr := &resilienthttp.Transport{Base: base, Policy: row.policy, Budget: budget, RateLimit: &resilienthttp.RateLimit{MaxWait: row.maxWait}}
			if row.served {
				_ = readAll(t, roundTrip(t, tr, get(t)))
			}
			ctx, begun := withDeadline(t, row.deadline), time.Now()
			if row.context != nil {
				ctx = row.context(ctx)
			}
			resp := roundTrip(t, tr, get(t).WithContext(ctx))
			took := time.Since(begun)
			_ = readAll(t, resp)
			require.Equal(t, row.status, resp.StatusCode)
			require.GreaterOrEqual(t, took, row.least)
			require.LessOrEqual(t, took, row.most)
			if stop := lastOf(t, resp).StopReason; row.orBy == nil || !errors.Is(stop, row.orBy) {
				require.ErrorIs(t, stop, row.stoppedBy)
			}
			if row.attempts > 0 {
				require.Len(t, resilienthttp.Attempts(resp), row.attempts)
			}
			base.requireBalance(t)
		})
	}
}

// §4.17: a job that a limit admits in less than its time is done, although its workers send more at once. A client that
// refuses calls without tokens loses most of it, because their workers take the next call at once.
func TestRateLimit_jobs(t *testing.T) {
	const s = time.Second
	silent := func(w *fixedWindow, at time.Duration, path string) (status int, _ []any) {
		status, _ = w.asksToWait(at, path)
		return status, nil
	}
	for _, row := range []struct {
		name  string
		least int // percent of the calls
		model func(w *fixedWindow, at time.Duration, path string) (int, []any)
	}{
		{"asks to wait", 85, (*fixedWindow).asksToWait},
		{"rejections show a quota", 85, (*fixedWindow).shownBy429s},
		{"says nothing", 60, silent}, // .1 to .15 without the wait, .64 to .73 with it
	} {
		servedOfAll, all := 0, 0
		for seed := range uint64(4) {
			bubble.Run(t, fmt.Sprint(row.name, ", ", seed), func(t *testing.T) {
				r := rand.New(rand.NewPCG(seed, 2))
				window := fixedWindow{limit: 3 + r.IntN(20), length: time.Duration(1+r.IntN(10)) * s, offset: time.Duration(r.Int64N(int64(s)))}
				const deadline = 2 * time.Minute
				workers := min(100, window.limit*int(40*s/window.length)) // so that a call waits 40 s in the queue
				calls := 5 * workers
				t.Logf("%d calls by %d workers, %d in %v", calls, workers, window.limit, window.length)
				limiter := func(at time.Duration, path string) (int, []any) { return row.model(&window, at, path) }
				served := runJob(t, limiter, calls, workers, deadline)
				t.Logf("served %d", served)
				require.GreaterOrEqual(t, served, calls*row.least/100)
				servedOfAll, all = servedOfAll+served, all+calls
			})
		}
		require.GreaterOrEqual(t, servedOfAll, all*70/100, "%s: of all jobs", row.name) // one alone varies more
	}
}

// runJob makes a number of calls and counts those that are served.
func runJob(t *testing.T, model limiterModel, calls, workers int, deadline time.Duration) int {
	t.Helper()
	tr := &resilienthttp.Transport{Base: model.server()}
	var served atomic.Int64
	next := make(chan struct{}, calls)
	for range calls {
		next <- struct{}{}
	}
	close(next)
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for range next {
				if succeeds(t, tr, "/", deadline) {
					served.Add(1)
				}
			}
		})
	}
	all.Wait()
	return int(served.Load())
}

// §4.16: the calls of a scope that wait without tokens take turns. So under overload that lasts, a server serves more than from a
// client that never retries, and sends few 429s for it.
func TestRateLimit_takesTurnsWithoutTokens(t *testing.T) {
	const limit, lasts = 20, time.Minute
	for _, times := range []float64{1.5, 2, 3, 5} {
		bubble.Run(t, fmt.Sprint(times), func(t *testing.T) {
			window, rejections := fixedWindow{limit: limit, length: time.Second}, 0
			tr := &resilienthttp.Transport{Base: limiterModel(func(at time.Duration, path string) (int, []any) {
				code, fields := window.asksToWait(at, path)
				if code == http.StatusTooManyRequests {
					rejections++
				}
				return code, fields
			}).server()}
			var served atomic.Int64
			var all sync.WaitGroup
			calls := int(lasts.Seconds() * limit * times)
			for range calls {
				all.Go(func() {
					resp := roundTrip(t, tr, get(t).WithContext(withDeadline(t, 5*time.Minute)))
					if _ = readAll(t, resp); resp.StatusCode == http.StatusOK {
						served.Add(1)
					}
				})
				time.Sleep(lasts / time.Duration(calls))
			}
			all.Wait()
			inTime := limit * int(lasts.Seconds()) // by a client that never retries
			t.Logf("served %d of %d, %d without retries; rejections %d, %d without", served.Load(), calls, inTime, rejections, calls-inTime)
			require.GreaterOrEqual(t, int(served.Load()), inTime*99/100)
			require.LessOrEqual(t, rejections-(calls-inTime), 2*(int(served.Load())-inTime), "two more for each call more that is served")
		})
	}
}

// §4.16: the turns become more with each call that is served, so a slow server serves them soon.
func TestRateLimit_turnsBecomeMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const calls = 100
		var requests atomic.Int64
		tr := &resilienthttp.Transport{
			Budget: &resilienthttp.Budget{Ratio: 1e-9, Burst: -1},
			Base: roundTripper(func(r *http.Request) (*http.Response, error) {
				if requests.Add(1) <= calls {
					return response(r, http.StatusTooManyRequests, "", "Retry-After", "1"), nil
				}
				time.Sleep(800 * time.Millisecond)
				return response(r, http.StatusOK, ""), nil
			}),
		}
		begun := time.Now()
		var all sync.WaitGroup
		for range calls {
			all.Go(func() {
				resp := roundTrip(t, tr, get(t).WithContext(withDeadline(t, 5*time.Minute)))
				_ = readAll(t, resp)
				assert.Equal(t, http.StatusOK, resp.StatusCode)
			})
		}
		all.Wait()
		require.Less(t, time.Since(begun), time.Minute) // one after the other: two
	})
}

// §4.16: a call that does not get its turn before its deadline returns its own response.
func TestRateLimit_turnThatComesTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := script(rejected(1000, status(http.StatusTooManyRequests, "Retry-After", "25"))...)
		tr := &resilienthttp.Transport{Base: base, Budget: &resilienthttp.Budget{Ratio: 1e-9, Burst: -1}}
		const calls = 10
		var late atomic.Int64
		var all sync.WaitGroup
		for range calls {
			all.Go(func() {
				resp := roundTrip(t, tr, get(t).WithContext(withDeadline(t, time.Minute)))
				assert.Equal(t, http.StatusTooManyRequests, resp.StatusCode)
				assert.Equal(t, "status 429", readAll(t, resp))
				if errors.Is(lastOf(t, resp).StopReason, resilienthttp.ErrBudgetExhausted) {
					late.Add(1)
				}
			})
		}
		all.Wait()
		require.GreaterOrEqual(t, late.Load(), int64(calls-3))
		base.requireBalance(t)
	})
}

// §4.16: a turn that is rejected for an hour, for example because of its customer, holds the others for a minute.
func TestRateLimit_turnOfAnotherCustomer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const calls = 10
		base := script(append(rejected(calls, status(http.StatusTooManyRequests, "Retry-After", "1")),
			status(http.StatusTooManyRequests, "Retry-After", "3600"), status(http.StatusOK))...)
		tr := &resilienthttp.Transport{Base: base, Budget: &resilienthttp.Budget{Ratio: 1e-9, Burst: -1}}
		var served atomic.Int64
		var all sync.WaitGroup
		for range calls {
			all.Go(func() {
				resp := roundTrip(t, tr, get(t).WithContext(withDeadline(t, 5*time.Minute)))
				if _ = readAll(t, resp); resp.StatusCode == http.StatusOK {
					served.Add(1)
				}
			})
		}
		all.Wait()
		require.EqualValues(t, calls-1, served.Load())
	})
}

// A server that is healthy, or healthy again, gets nearly all calls of the last minute, within
// five seconds. No earlier response blocks calls without end.
func TestHealthyServer_isServed(t *testing.T) {
	const (
		ms = time.Millisecond
		s  = time.Second
	)
	ok := after(20*ms, status(200))
	one := []string{"RateLimit-Limit", "1", "RateLimit-Remaining", "0", "RateLimit-Reset", "1"}
	always := func(of step) func(time.Duration, int64) step {
		return func(time.Duration, int64) step { return of }
	}
	for _, tt := range []struct {
		name   string
		rate   *resilienthttp.RateLimit
		length time.Duration
		server func(age time.Duration, n int64) step // n counts the requests from 1
		least  float64
	}{
		{"a quota of one a second, shown once", nil, 75 * s, func(_ time.Duration, n int64) step {
			if n == 1 {
				return after(20*ms, status(200, one...))
			}
			return ok
		}, 1},
		{"the same, and by one rejection", nil, 4 * time.Minute, func(_ time.Duration, n int64) step {
			switch n {
			case 1:
				return after(20*ms, status(200, one...))
			case 2:
				return after(20*ms, status(429, one...))
			}
			return ok
		}, 1},
		{"nothing remains, always", nil, 2 * time.Minute, always(after(20*ms, status(200, "RateLimit-Remaining", "0", "RateLimit-Reset", "3"))), 1},
		{"nothing remains of a hundred, always", nil, 2 * time.Minute, always(after(20*ms, status(200, "RateLimit-Limit", "100", "RateLimit-Remaining", "0", "RateLimit-Reset", "1"))), 1},
		{"a reset in the past, always", nil, 2 * time.Minute, always(after(20*ms, status(200, "X-RateLimit-Limit", "100", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "1000000001"))), 1},
		{"0 of 0, always", nil, 2 * time.Minute, always(after(20*ms, status(200, "RateLimit-Limit", "0", "RateLimit-Remaining", "0", "RateLimit-Reset", "60"))), 1},
		{"a negative count, always", nil, 2 * time.Minute, always(after(20*ms, status(200, "RateLimit-Limit", "100", "RateLimit-Remaining", "-1", "RateLimit-Reset", "60"))), 1},
		{"a reset an hour off, and nothing remains", nil, 3 * time.Minute, always(after(20*ms, status(200, "RateLimit-Limit", "100", "RateLimit-Remaining", "0", "RateLimit-Reset", "3600"))), 0.99}, // a call is rejected before one tests it
		{"a clock an hour ahead", nil, 2 * time.Minute, func(time.Duration, int64) step { return clockOff(time.Hour) }, 1},
		{"a clock an hour behind", nil, 2 * time.Minute, func(time.Duration, int64) step { return clockOff(-time.Hour) }, 1},
		{"a bad request that asks to wait, and an exhausted 503, which are over", nil, 3 * time.Minute, func(age time.Duration, n int64) step {
			switch {
			case age < 5*s && n%2 == 0:
				return after(20*ms, status(400, "Retry-After", "60"))
			case age < 5*s:
				return after(20*ms, status(503, "Retry-After", "60", "RateLimit-Remaining", "0"))
			}
			return ok
		}, 1},
		{"a block of ten minutes that is over", nil, 12 * time.Minute, func(age time.Duration, _ int64) step {
			if age < 5*s {
				return after(20*ms, status(429, "Retry-After", "600"))
			}
			return ok
		}, 1},
		{"slower than before an outage, and one of twenty fails", nil, 4 * time.Minute, func(age time.Duration, n int64) step {
			switch {
			case age < 10*s:
				return after(50*ms, status(200))
			case age < 20*s:
				return after(500*ms, status(503))
			case n%20 == 0:
				return after(300*ms, status(500))
			}
			return after(300*ms, status(200))
		}, 0.99},
		{"a first request that hangs, and a quota that processes share", &resilienthttp.RateLimit{Shared: new(quotastore.Memory)}, 2 * time.Minute, func(_ time.Duration, n int64) step {
			if n == 1 {
				return hanging
			}
			return ok
		}, 1},
	} {
		bubble.Run(t, tt.name, func(t *testing.T) {
			begin := time.Now()
			var n, calls, served atomic.Int64
			tr := &resilienthttp.Transport{RateLimit: tt.rate, Base: roundTripper(func(r *http.Request) (*http.Response, error) {
				return tt.server(time.Since(begin), n.Add(1))(r)
			})}
			ctx, over := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			for time.Since(begin) < tt.length {
				wg.Go(func() {
					start := time.Now()
					late := start.Sub(begin) > tt.length-time.Minute
					resp, err := tr.RoundTrip(get(t).WithContext(ctx))
					if !late {
						return
					}
					if calls.Add(1); err == nil && resp.StatusCode == http.StatusOK && time.Since(start) < 5*s {
						served.Add(1)
					}
				})
				time.Sleep(50 * ms)
			}
			time.Sleep(time.Minute)
			over()
			wg.Wait()
			require.GreaterOrEqual(t, float64(served.Load())/float64(calls.Load()), tt.least, "%+v", tr.State())
		})
	}
}

// clockOff is a response of a server with a wrong clock and a quota that is not short.
func clockOff(by time.Duration) step {
	return after(20*time.Millisecond, func(r *http.Request) (*http.Response, error) {
		now := time.Now().Add(by)
		return status(200, "Date", now.UTC().Format(http.TimeFormat), "X-RateLimit-Limit", "1000", "X-RateLimit-Remaining", "500",
			"X-RateLimit-Reset", strconv.FormatInt(now.Add(30*time.Second).Unix(), 10))(r)
	})
}

// §4.17: a bucket of 3 that refills 20 times a second tells a reset of a whole second. Once that is
// refuted, the calls that wait for it are sent evenly, and not all at once.
func TestRefutedQuota_releasesEvenly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var sent []time.Time
		tokens, filled := 3.0, time.Now()
		tr := &resilienthttp.Transport{Base: roundTripper(func(r *http.Request) (*http.Response, error) {
			mu.Lock()
			now := time.Now()
			sent = append(sent, now)
			tokens, filled = min(tokens+20*now.Sub(filled).Seconds(), 3), now
			code := 503
			if tokens >= 1 {
				tokens, code = tokens-1, 200
			}
			left := strconv.Itoa(int(tokens))
			mu.Unlock()
			time.Sleep(5 * time.Millisecond)
			return response(r, code, "", "RateLimit-Limit", "3", "RateLimit-Remaining", left, "RateLimit-Reset", "1"), nil
		})}
		var calls sync.WaitGroup
		for i := range 70 {
			calls.Go(func() {
				time.Sleep(time.Duration(i) * 13 * time.Millisecond)
				_ = discard(tr, get(t))
			})
		}
		calls.Wait()
		for i := range sent[:len(sent)-10] {
			require.Greater(t, sent[i+10].Sub(sent[i]), 20*time.Millisecond, "ten requests at once, %v after the start", sent[i].Sub(sent[0]))
		}
	})
}

// Rejections that ask for no wait may be those of one customer or path: they delay no new call of another.
func TestHealthyServer_beside429s(t *testing.T) {
	for _, row := range []struct {
		name            string
		healthy, others float64 // new calls a second
		path            string  // of the others
	}{
		{"one of twenty is served, another path: nearly at once", 1, 19, "/other"},
		{"one of ten, the same path: nearly at once", 2, 18, "/"},
		{"one of five, slowly: nearly at once", 1, 4, "/"},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			random, begun := rand.New(rand.NewPCG(1, 2)), time.Now()
			tr := &resilienthttp.Transport{Base: roundTripper(func(r *http.Request) (*http.Response, error) {
				if r.Header.Get("Customer") == "rejected" {
					return after(20*time.Millisecond, status(429))(r)
				}
				return after(50*time.Millisecond, status(200))(r)
			})}
			var calls, served atomic.Int64
			var wg sync.WaitGroup
			for time.Since(begun) < time.Minute {
				time.Sleep(time.Duration(random.ExpFloat64() * float64(time.Second) / (row.healthy + row.others)))
				healthy := random.Float64()*(row.healthy+row.others) < row.healthy
				wg.Go(func() {
					req, start := get(t).WithContext(withDeadline(t, 10*time.Second)), time.Now()
					if !healthy {
						req.URL.Path = row.path
						req.Header.Set("Customer", "rejected")
					}
					resp, err := tr.RoundTrip(req)
					if !healthy {
						return
					}
					if calls.Add(1); err == nil && resp.StatusCode == http.StatusOK && time.Since(start) < 100*time.Millisecond {
						served.Add(1)
					}
				})
			}
			wg.Wait()
			require.GreaterOrEqual(t, float64(served.Load())/float64(calls.Load()), .99)
			nothingLeft(t, tr)
		})
	}
}
