package resilientotel

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
)

// TestT4Cardinality: whatever the hosts, ports, scopes, methods, buckets and codes are.
func TestT4Cardinality(t *testing.T) {
	const most, hosts = 10, 300
	synctest.Test(t, func(t *testing.T) {
		r := record()
		r.MaxScopes = most
		n := 0
		rt := r.Wrap(&resilienthttp.Transport{Policy: resilienthttp.Policy{MaxAttempts: -1}, Base: roundTripper(func(req *http.Request) (*http.Response, error) {
			n++
			return respond(req, 200, "X-RateLimit-Limit", "9", "X-RateLimit-Remaining", "7", "X-RateLimit-Reset", "60", "X-RateLimit-Bucket", fmt.Sprint("bucket-", n)), nil
		})})
		for i := range hosts {
			for _, to := range []string{fmt.Sprintf("http://host-%d.test/%d", i, i), fmt.Sprintf("https://one.test:%d/", 1000+i)} {
				req := get(t, t.Context(), to)
				req.Method = fmt.Sprint("METHOD", i)
				require.NoError(t, called(t, rt, req))
			}
		}
		series := map[string]int{}
		for s := range r.metrics(t) {
			name, _, _ := strings.Cut(s, "{")
			series[name]++
		}
		for name, least := range map[string]int{
			"http.client.request.duration": most + 1, "http.client.request.body.size": most + 1, "resilienthttp.client.call.duration": most + 1,
			"resilienthttp.client.in_flight": most + 1, "resilienthttp.client.breaker.state": most + 1, "resilienthttp.client.budget.room": most + 1,
		} {
			require.Equal(t, least, series[name], name)
		}
		require.LessOrEqual(t, series["resilienthttp.client.quota.remaining"], (most+1)*(mostBuckets+1))
		require.Contains(t, r.metrics(t), "resilienthttp.client.in_flight{scope=_OTHER}")
		all := r.metrics(t)
		near(t, float64(2*hosts), total(all, "#http.client.request.duration"), "and all are counted")
		near(t, float64(2*hosts), total(all, "#resilienthttp.client.call.duration"))
	})
}

// TestMaxScopes: zero is a hundred, negative all.
func TestMaxScopes(t *testing.T) {
	for most, want := range map[int]int{0: 101, -1: 150, 7: 8} {
		synctest.Test(t, func(t *testing.T) {
			r := record()
			r.MaxScopes = most
			rt := r.Wrap(&resilienthttp.Transport{Base: script(answer{status: 200})})
			for i := range 150 {
				require.NoError(t, called(t, rt, get(t, t.Context(), fmt.Sprintf("http://host-%d.test/", i))))
			}
			n := 0
			for series := range r.metrics(t) {
				if strings.HasPrefix(series, "resilienthttp.client.in_flight{") {
					n++
				}
			}
			require.Equal(t, want, n, most)
		})
	}
}

// TestT8NumbersAgree: metrics, State, Trace and Budget say the same of the same calls.
func TestT8NumbersAgree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := record()
		var told struct {
			sync.Mutex
			calls, attempts, retries, waits, refused, stops, hedges, changes int
			queued, waited, latency                                          time.Duration
		}
		// No 429: hedges are not sent in the minute after one.
		statuses := []int{200, 503, 200, 500, 200, 425, 200, 200, 404, 200, 503, 503}
		n := 0
		tr := &resilienthttp.Transport{
			Base: roundTripper(func(req *http.Request) (*http.Response, error) {
				told.Lock()
				n++
				status := statuses[n%len(statuses)]
				slow := n%17 == 0
				if req.URL.Host == "down.test" {
					status = 500
				}
				told.Unlock()
				if slow {
					select {
					case <-time.After(5 * time.Second):
					case <-req.Context().Done():
						return nil, req.Context().Err()
					}
				}
				return respond(req, status), nil
			}),
			Hedge: &resilienthttp.Hedge{Delay: time.Second, MaxRatio: -1}, RateLimit: &resilienthttp.RateLimit{Limit: 30, Burst: 1},
			Breaker: &resilienthttp.Breaker{MinRequests: 10},
			Trace: &resilienthttp.Trace{
				AttemptDone:   func(a *resilienthttp.Attempt) { told.Lock(); told.attempts++; told.Unlock() },
				Rejected:      func(*resilienthttp.Call) { told.Lock(); told.refused++; told.Unlock() },
				BreakerChange: func(resilienthttp.BreakerChange) { told.Lock(); told.changes++; told.Unlock() },
				CallDone: func(c *resilienthttp.Call) {
					told.Lock()
					defer told.Unlock()
					queued, _, waited := c.Timings()
					told.calls, told.queued, told.waited, told.latency = told.calls+1, told.queued+queued, told.waited+waited, told.latency+c.Latency
					for i, a := range c.Attempts {
						switch {
						case a.Hedge:
							told.hedges++
						case i > 0:
							told.retries++
						}
						if a.StopReason != nil {
							told.stops++
						}
					}
				},
			},
		}
		rt := r.Wrap(tr)
		var wg sync.WaitGroup
		for i := range 120 {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				host := "up.test"
				if i%4 == 0 {
					host = "down.test"
				}
				err := called(t, rt, get(t, ctx, "http://"+host+"/"))
				if err != nil {
					_, ok := errors.AsType[*resilienthttp.Error](err)
					require.True(t, ok)
				}
			})
			if i%6 == 5 { // the last of a handful stands in line for those before it
				time.Sleep(600 * time.Millisecond)
			}
		}
		wg.Wait()
		synctest.Wait()
		all, state := r.metrics(t), tr.State()
		for name, want := range map[string]float64{
			"#resilienthttp.client.call.duration": float64(told.calls), "#http.client.request.duration": float64(told.attempts),
			"resilienthttp.client.call.duration": told.latency.Seconds(), "resilienthttp.client.retries": float64(told.retries),
			"resilienthttp.client.refusals": float64(told.refused), "resilienthttp.client.stops": float64(told.stops),
			"resilienthttp.client.hedges": float64(told.hedges), "resilienthttp.client.breaker.transitions": float64(told.changes),
			"resilienthttp.client.wait.duration": (told.queued + told.waited).Seconds(), "resilienthttp.client.in_flight": 0,
		} {
			near(t, want, total(all, name), name)
			if name != "resilienthttp.client.in_flight" {
				require.Positive(t, want, "%s: it proves nothing", name)
			}
		}
		require.Equal(t, 120, told.calls)
		for _, s := range state.Scopes {
			scope := "{scope=" + s.Scope + "}"
			near(t, float64(s.Breaker.State), all["resilienthttp.client.breaker.state"+scope])
			near(t, s.Budget.Remaining, all["resilienthttp.client.budget.room"+scope])
			for _, q := range s.Quotas {
				near(t, float64(q.Remaining), all["resilienthttp.client.quota.remaining{bucket="+q.Bucket+" scope="+s.Scope+"}"])
			}
		}
		require.Equal(t, []string{"down.test", "up.test"}, []string{state.Scopes[0].Scope, state.Scopes[1].Scope})
		require.Positive(t, all["resilienthttp.client.wait.duration{for=line scope=up.test}"])
		require.Positive(t, all["resilienthttp.client.wait.duration{for=backoff scope=up.test}"])
		require.Zero(t, all["resilienthttp.client.wait.duration{for=quota scope=up.test}"])
		spans := 0
		for _, s := range r.spans.Ended() {
			if s.SpanKind().String() == "client" {
				spans++
			}
		}
		require.Equal(t, told.attempts, spans)
	})
}

// TestT8Budget: what the Budget counts is what was repeated, and what is in flight is so.
func TestT8Budget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, tr := record(), &resilienthttp.Transport{
			Base: script(answer{after: time.Second, status: 500}), Breaker: never(), Budget: &resilienthttp.Budget{Ratio: 1, MinTokens: 10, Static: true},
			Policy: resilienthttp.Policy{MaxAttempts: 2, Backoff: resilienthttp.Constant(time.Millisecond)},
		}
		rt := r.Wrap(tr)
		for range 3 {
			require.NoError(t, called(t, rt, get(t, t.Context(), url)))
		}
		all, of := r.metrics(t), tr.State().Scopes[0]
		near(t, 3.0, all["resilienthttp.client.retries{reason=500 scope=api.test:8443}"])
		near(t, 3.0, total(all, "#resilienthttp.client.call.duration"))
		near(t, of.Budget.Remaining, all["resilienthttp.client.budget.room{scope=api.test:8443}"])
		near(t, 3.0, all["resilienthttp.client.stops{reason=max_attempts scope=api.test:8443}"])
		inBackground(t, rt, url)
		time.Sleep(500 * time.Millisecond)
		near(t, 1.0, r.metrics(t)["resilienthttp.client.in_flight{scope=api.test:8443}"])
		require.Equal(t, 1, tr.State().Scopes[0].InFlight)
		time.Sleep(time.Minute)
	})
}

// TestWhatIsCounted: hedges by whether they won, retries by what failed before them, copies
// of what is slow, and the waits of those that waited, and of nobody else.
func TestWhatIsCounted(t *testing.T) {
	const s = time.Second
	refused := answer{status: 503}
	for _, row := range []struct {
		name      string
		transport *resilienthttp.Transport
		base      *scripted
		cancel    time.Duration // of the last call; 0: not
		calls     int
		want      map[string]float64
	}{
		{
			"a hedge that wins", &resilienthttp.Transport{Hedge: &resilienthttp.Hedge{Delay: s}}, script(answer{after: 5 * s, status: 200}, answer{status: 200}), 0, 1,
			map[string]float64{"hedges{scope=api.test:8443 won=true}": 1},
		},
		{
			"a hedge that loses", &resilienthttp.Transport{Hedge: &resilienthttp.Hedge{Delay: s}}, script(answer{after: 2 * s, status: 200}, answer{after: 5 * s, status: 200}), 0, 1,
			map[string]float64{"hedges{scope=api.test:8443 won=false}": 1},
		},
		{
			"a retry behind a hedge", &resilienthttp.Transport{Hedge: &resilienthttp.Hedge{Delay: s}, Policy: every(s)},
			script(answer{after: 2 * s, status: 502}, answer{after: 2 * s, status: 503}, answer{status: 200}), 0, 1,
			map[string]float64{
				"hedges{scope=api.test:8443 won=false}": 1, "retries{reason=502 scope=api.test:8443}": 1,
				"wait.duration{for=backoff scope=api.test:8443}": 2, // the hedge's second among it
			},
		},
		{
			"a copy of what is slow", &resilienthttp.Transport{}, script(answer{after: time.Hour}, answer{status: 200}), time.Minute, 1,
			map[string]float64{"retries{reason=slow scope=api.test:8443}": 1},
		},
		{
			"an error", &resilienthttp.Transport{Policy: every(s)}, script(answer{err: &net.OpError{Op: "dial", Err: errors.New("x")}}, answer{status: 200}), 0, 1,
			map[string]float64{"retries{reason=not_connected scope=api.test:8443}": 1, "wait.duration{for=backoff scope=api.test:8443}": 1},
		},
		{
			"given up in line for the own limit", &resilienthttp.Transport{RateLimit: &resilienthttp.RateLimit{Limit: 0.1, Burst: 1}}, script(answer{status: 200}), 3 * s, 2,
			map[string]float64{"wait.duration{for=line scope=api.test:8443}": 3},
		},
		{
			"given up in line for a quota", &resilienthttp.Transport{},
			script(answer{status: 200, header: []string{"X-RateLimit-Limit", "1", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "30"}}), 3 * s, 2,
			map[string]float64{"wait.duration{for=quota scope=api.test:8443}": 3},
		},
		{
			"a retry in line for the own limit", &resilienthttp.Transport{RateLimit: &resilienthttp.RateLimit{Limit: 0.1, Burst: 1}, Policy: every(s)}, script(refused, answer{status: 200}), 0, 1,
			map[string]float64{
				"retries{reason=503 scope=api.test:8443}": 1, "wait.duration{for=backoff scope=api.test:8443}": 1,
				"wait.duration{for=line scope=api.test:8443}": 9,
			},
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := record()
				row.transport.Base, row.transport.Breaker = row.base, never()
				rt := r.Wrap(row.transport)
				for i := range row.calls {
					ctx := t.Context()
					if row.cancel > 0 && i == row.calls-1 {
						var cancel context.CancelFunc
						ctx, cancel = context.WithCancel(ctx)
						time.AfterFunc(row.cancel, cancel)
					}
					_ = called(t, rt, get(t, ctx, url))
				}
				got := map[string]float64{}
				for series, v := range r.metrics(t) {
					series, of := strings.CutPrefix(series, "resilienthttp.client.")
					if of && (strings.HasPrefix(series, "retries") || strings.HasPrefix(series, "hedges") || strings.HasPrefix(series, "wait")) {
						got[series] = v
					}
				}
				require.Len(t, got, len(row.want), "%v", got)
				for series, want := range row.want {
					near(t, want, got[series], series)
				}
			})
		})
	}
}

// TestQuotaWithoutLimit: what nobody has said is not told.
func TestQuotaWithoutLimit(t *testing.T) {
	buckets, sum := &names{most: mostBuckets}, scopeSum{}
	sum.add(&resilienthttp.ScopeState{Quotas: []resilienthttp.QuotaStatus{{Bucket: "requests"}}}, buckets)
	require.Empty(t, sum.left)
	for _, state := range []resilienthttp.BreakerState{resilienthttp.StateClosed, resilienthttp.StateOpen, resilienthttp.StateHalfOpen} {
		sum.add(&resilienthttp.ScopeState{Breaker: resilienthttp.BreakerStatus{State: state}}, buckets)
	}
	require.EqualValues(t, resilienthttp.StateOpen, sum.breaker, "the worst")
}

// TestTransportInside: what a Transport in another's Base does is not told of the outer
// one's call.
func TestTransportInside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		outer, inner := record(), record()
		inside := &resilienthttp.Transport{Base: script(answer{status: 200}), RateLimit: &resilienthttp.RateLimit{Limit: 0.1, Burst: 1}}
		inner.Wrap(inside)
		rt := outer.Wrap(&resilienthttp.Transport{Base: inside})
		for range 2 {
			require.NoError(t, called(t, rt, get(t, t.Context(), url)))
		}
		require.NotContains(t, outer.tree(), "queued resilienthttp.attempt")
		near(t, 2, total(inner.metrics(t), "#resilienthttp.client.call.duration"))
	})
}

// inBackground makes a call, whatever comes of it.
func inBackground(t *testing.T, rt http.RoundTripper, to string) {
	t.Helper()
	req := get(t, t.Context(), to)
	go func() {
		if resp, err := rt.RoundTrip(req); err == nil {
			_ = resp.Body.Close()
		}
	}()
}

// TestSeveralTransports: of one scope, what is in flight is added up, and the worst told.
func TestSeveralTransports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := record()
		well := r.Wrap(&resilienthttp.Transport{Base: script(answer{after: time.Second, status: 200, header: []string{"X-RateLimit-Limit", "9", "X-RateLimit-Remaining", "7", "X-RateLimit-Reset", "3600"}})})
		ill := r.Wrap(&resilienthttp.Transport{
			Base:   script(answer{after: time.Second, status: 500, header: []string{"X-RateLimit-Limit", "9", "X-RateLimit-Remaining", "4", "X-RateLimit-Reset", "3600"}}),
			Policy: resilienthttp.Policy{MaxAttempts: -1}, Breaker: &resilienthttp.Breaker{MinRequests: 1, FailureRatio: 0.01}, Budget: &resilienthttp.Budget{Ratio: -1},
		})
		for _, rt := range []http.RoundTripper{well, ill} {
			inBackground(t, rt, "http://api.test/")
		}
		time.Sleep(500 * time.Millisecond)
		near(t, 2.0, r.metrics(t)["resilienthttp.client.in_flight{scope=api.test}"])
		time.Sleep(time.Second)
		all := r.metrics(t)
		near(t, 2.0, all["resilienthttp.client.breaker.state{scope=api.test}"])
		near(t, 1.0, all["resilienthttp.client.breaker.transitions{scope=api.test to=open}"])
		left := slices.Collect(func(yield func(float64) bool) {
			for series, v := range all {
				if strings.HasPrefix(series, "resilienthttp.client.quota.remaining") && !yield(v) {
					return
				}
			}
		})
		require.Equal(t, []float64{4}, left)
		room, known := all["resilienthttp.client.budget.room{scope=api.test}"]
		require.True(t, known && room >= 0, "that of the one that has a cap")
	})
}

// TestWords: each end has its word, and no error more.
func TestWords(t *testing.T) {
	failed := func(e resilienthttp.Error) *resilienthttp.Call { return &resilienthttp.Call{Err: &e} }
	for name, row := range map[string]struct {
		call             *resilienthttp.Call
		errType, outcome string
	}{
		"breaker":            {failed(resilienthttp.Error{Reason: resilienthttp.ErrBreakerOpen}), "breaker_open", outcomeRefused},
		"rate limit":         {failed(resilienthttp.Error{Reason: resilienthttp.ErrRateLimited}), "rate_limited", outcomeRefused},
		"a turn too late":    {failed(resilienthttp.Error{Reason: resilienthttp.ErrDeadline, Err: resilienthttp.ErrRateLimited}), "deadline", outcomeRefused},
		"deadline":           {failed(resilienthttp.Error{Reason: resilienthttp.ErrDeadline, Err: context.DeadlineExceeded}), "deadline", outcomeTimedOut},
		"canceled":           {failed(resilienthttp.Error{Err: context.Canceled}), "canceled", outcomeCanceled},
		"a breaker inside":   {failed(resilienthttp.Error{Reason: resilienthttp.ErrBreakerOpen, Err: &resilienthttp.Error{Reason: resilienthttp.ErrBreakerOpen}}), "breaker_open", outcomeFailed},
		"a limit inside":     {failed(resilienthttp.Error{Reason: resilienthttp.ErrRateLimited, Err: &resilienthttp.Error{Reason: resilienthttp.ErrRateLimited}}), "rate_limited", outcomeFailed},
		"attempts spent":     {failed(resilienthttp.Error{Reason: resilienthttp.ErrMaxAttempts, Err: errors.New("x")}), "_OTHER", outcomeFailed},
		"attempt timeout":    {failed(resilienthttp.Error{Reason: resilienthttp.ErrAttemptTimeout, Err: resilienthttp.ErrAttemptTimeout}), "attempt_timeout", outcomeFailed},
		"another's error":    {&resilienthttp.Call{Err: errors.New("x")}, "_OTHER", outcomeFailed},
		"an odd status":      {&resilienthttp.Call{Response: &http.Response{StatusCode: 1000}}, "_OTHER", outcomeSuccess},
		"a status":           {&resilienthttp.Call{Response: &http.Response{StatusCode: http.StatusNotFound}}, "404", outcomeSuccess},
		"what is unfinished": {failed(resilienthttp.Error{Reason: resilienthttp.ErrNotReplayable}), "not_replayable", outcomeFailed},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, row.errType, errorType(row.call))
			require.Equal(t, row.outcome, outcomeOf(row.call))
		})
	}
	for err, want := range map[error]string{
		nil: "", resilienthttp.ErrBreakerOpen: "breaker_open", resilienthttp.ErrRateLimited: "rate_limited", resilienthttp.ErrDeadline: "deadline",
		resilienthttp.ErrAttemptTimeout: "attempt_timeout", resilienthttp.ErrReadTimeout: "read_timeout", resilienthttp.ErrMaxAttempts: "max_attempts",
		resilienthttp.ErrBudgetExhausted: "budget_exhausted", resilienthttp.ErrNotReplayable: "not_replayable", resilienthttp.ErrNotIdempotent: "not_idempotent",
		resilienthttp.ErrRetryAfter: "retry_after", resilienthttp.ErrSingleAttempt: "single_attempt", context.Canceled: "_OTHER",
	} {
		require.Equal(t, want, sentinelName(err))
	}
	require.Equal(t, []string{"closed", "half_open", "open", other}, []string{
		stateName(resilienthttp.StateClosed), stateName(resilienthttp.StateHalfOpen), stateName(resilienthttp.StateOpen), stateName(math.MaxInt8),
	})
	for given, want := range map[string]string{
		"https://api.test/a?b#c": "https://api.test", "https://api.test": "https://api.test", "http://a.test:80?x": "http://a.test:80",
		"http://[::1]:8/x": "http://[::1]:8", "mailto:somebody@example.com": "mailto:", "": ":", "unix:///run/x": "unix://",
	} {
		require.Equal(t, want, origin(given), given)
	}
}
