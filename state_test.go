package resilienthttp_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/internal/bubble"
)

// known returns the State of the only scope.
func known(tb testing.TB, tr *resilienthttp.Transport) resilienthttp.ScopeState {
	tb.Helper()
	state := tr.State()
	require.Len(tb, state.Scopes, 1)
	require.Equal(tb, time.Now(), state.At)
	return state.Scopes[0]
}

// answered makes a call and reads its response.
func answered(tb testing.TB, tr *resilienthttp.Transport) {
	tb.Helper()
	if resp, err := tr.RoundTrip(get(tb)); err == nil {
		readAll(tb, resp)
	}
}

func TestState(t *testing.T) {
	const s = time.Second
	t.Run("nothing is known before the first call, and fields may still be set", func(t *testing.T) {
		tr := &resilienthttp.Transport{}
		require.Empty(t, tr.State().Scopes)
		tr.Base = script(status(200))
		answered(t, tr)
		require.Len(t, tr.State().Scopes, 1)
	})
	t.Run("scopes by name, and State adds none", func(t *testing.T) {
		tr := &resilienthttp.Transport{Base: script(status(200))}
		for _, host := range []string{"c.test", "a.test", "b.test"} {
			readAll(t, roundTrip(t, tr, newRequest(t, http.MethodGet, "http://"+host, "")))
		}
		for range 2 {
			var names []string
			for _, scope := range tr.State().Scopes {
				names = append(names, scope.Scope)
			}
			require.Equal(t, []string{"a.test", "b.test", "c.test"}, names)
		}
	})
	bubble.Run(t, "scopes that reject, until when and why", func(t *testing.T) {
		tr := &resilienthttp.Transport{Base: script(failing(errReset)), Breaker: nervous(4 * s), Policy: resilienthttp.Policy{MaxAttempts: -1}}
		answered(t, tr)
		opened := time.Now()
		time.Sleep(s)
		scope := known(t, tr)
		require.Equal(t, "api.test", scope.Scope)
		b := scope.Breaker
		require.Equal(t, resilienthttp.StateOpen, b.State)
		require.Equal(t, opened, b.Since)
		require.WithinRange(t, b.NotBefore, opened.Add(4*s), opened.Add(5*s))
		require.Equal(t, 1, b.Failures)
		require.Equal(t, 1, b.Calls)
		require.Equal(t, resilienthttp.FailureStatus{At: opened, ErrorType: "_OTHER", Err: "connection broke"}, scope.Failure)
		time.Sleep(4 * s)
		b = known(t, tr).Breaker
		require.Equal(t, resilienthttp.StateHalfOpen, b.State)
		require.Zero(t, b.NotBefore, "the numbers are zero")
	})
	t.Run("an open batch circuit of such a scope: its shared quotas are at the scope itself", func(t *testing.T) {
		breaker, limit := nervous(time.Hour), &resilienthttp.RateLimit{}
		first := &resilienthttp.Transport{
			Base:    script(status(500, "RateLimit-Limit", "10", "RateLimit-Remaining", "4", "RateLimit-Reset", "60")),
			Breaker: breaker, RateLimit: limit, Policy: resilienthttp.Policy{MaxAttempts: -1},
		}
		readAll(t, roundTrip(t, first, get(t).WithContext(resilienthttp.WithPriority(t.Context(), resilienthttp.PriorityBatch))))
		other := &resilienthttp.Transport{Base: script(status(200)), Breaker: breaker, RateLimit: limit}
		readAll(t, roundTrip(t, other, newRequest(t, http.MethodGet, "http://other.test", "")))
		scopes := other.State().Scopes
		require.Len(t, scopes, 3)
		require.Len(t, scopes[0].Quotas, 1)
		require.Equal(t, resilienthttp.PriorityBatch, scopes[1].Priority)
		require.Equal(t, resilienthttp.StateOpen, scopes[1].Breaker.State)
	})
	bubble.Run(t, "the limit after timeouts", func(t *testing.T) {
		tr := &resilienthttp.Transport{
			Base:    script(after(2*s, status(200)), after(s/2, status(200))),
			Breaker: fragile(s),
			Policy:  resilienthttp.Policy{MaxAttempts: -1, AttemptTimeout: s},
		}
		require.Error(t, discard(tr, get(t)))
		time.Sleep(2 * s)
		answered(t, tr)
		require.Positive(t, known(t, tr).Breaker.SlowStartLimit)
	})
	bubble.Run(t, "how full the quotas are", func(t *testing.T) {
		tr := &resilienthttp.Transport{
			Base: script(status(200, "X-RateLimit-Limit-Requests", "10", "X-RateLimit-Remaining-Requests", "7", "X-RateLimit-Reset-Requests", "30s",
				"X-RateLimit-Limit-Tokens", "1000", "X-RateLimit-Remaining-Tokens", "0", "X-RateLimit-Reset-Tokens", "2s")),
			RateLimit: &resilienthttp.RateLimit{Limit: 2, Burst: 4},
		}
		begun := time.Now()
		answered(t, tr)
		quotas := known(t, tr).Quotas
		require.Len(t, quotas, 3)
		own, requests, words := quotas[0], quotas[1], quotas[2]
		require.Equal(t, resilienthttp.QuotaStatus{Bucket: "fixed", Limit: 4, Remaining: 3, Reset: begun.Add(s / 2)}, own)
		require.Equal(t, "requests", requests.Bucket)
		require.Equal(t, []int64{10, 7}, []int64{requests.Limit, requests.Remaining})
		require.WithinDuration(t, begun.Add(30*s), requests.Reset, s)
		require.Equal(t, "tokens", words.Bucket)
		require.Zero(t, words.Remaining)
		time.Sleep(3 * s)
		require.EqualValues(t, 1000, known(t, tr).Quotas[2].Remaining, "after the reset")
		require.Zero(t, known(t, tr).Quotas[2].Reset)
	})
	bubble.Run(t, "blocked by a rejection", func(t *testing.T) {
		tr := &resilienthttp.Transport{Base: script(status(429, "Retry-After", "20", "RateLimit-Remaining", "0")), Policy: resilienthttp.Policy{MaxAttempts: -1}}
		for range 20 {
			answered(t, tr)
			time.Sleep(25 * s)
		}
		answered(t, tr)
		scope := known(t, tr)
		require.NotEmpty(t, scope.Quotas)
		held := scope.Quotas[0]
		until := held.BlockedUntil
		if until.IsZero() {
			until = held.Reset
		}
		require.True(t, until.After(time.Now()), "%+v", held)
		require.Equal(t, 429, scope.Failure.Status)
	})
	bubble.Run(t, "numbers in flight, queued and before a retry", func(t *testing.T) {
		tr := &resilienthttp.Transport{
			Base:      script(after(5*s, status(503)), after(5*s, status(200))),
			RateLimit: &resilienthttp.RateLimit{Limit: 0.1, Burst: 1}, Policy: every(5 * s), Breaker: never(),
		}
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() { answered(t, tr) })
			synctest.Wait()
		}
		at := func() []int {
			synctest.Wait()
			scope := known(t, tr)
			return []int{scope.InFlight, scope.Queued, scope.RetryWaiting}
		}
		require.Equal(t, []int{1, 2, 0}, at())
		time.Sleep(6 * s)
		require.Equal(t, []int{0, 2, 1}, at())
		time.Sleep(5 * s)
		require.Equal(t, []int{1, 2, 0}, at(), "the retry is queued")
		wg.Wait()
		require.Equal(t, []int{0, 0, 0}, at())
	})
	bubble.Run(t, "the slowest call, with its times", func(t *testing.T) {
		tr := &resilienthttp.Transport{
			Base:   script(status(200), after(2*s, status(503)), after(s, status(200)), status(204)),
			Policy: every(3 * s), RateLimit: &resilienthttp.RateLimit{Limit: 0.1, Burst: 1},
		}
		answered(t, tr)
		begun := time.Now()
		answered(t, tr) // 10 s queued, 2 s, 3 s of backoff and 5 s queued, 1 s
		want := resilienthttp.CallStatus{Start: begun, Latency: 21 * s, QueueWait: 15 * s, InFlight: 3 * s, RetryWait: 3 * s, Attempts: 2, Status: 200}
		got := known(t, tr).Slowest
		near := func(a, b time.Duration) { require.InDelta(t, a.Seconds(), b.Seconds(), 0.001) }
		near(want.QueueWait, got.QueueWait)
		near(want.Latency, got.Latency)
		want.QueueWait, want.Latency = got.QueueWait, got.Latency
		require.Equal(t, want, got)
		answered(t, tr) // is quicker
		require.Equal(t, want, known(t, tr).Slowest)
		time.Sleep(time.Minute)
		require.Zero(t, known(t, tr).Slowest, "it is forgotten")
	})
	t.Run("a budget without a limit", func(t *testing.T) {
		tr := &resilienthttp.Transport{Base: script(status(200)), Budget: &resilienthttp.Budget{Ratio: -1}}
		answered(t, tr)
		require.Equal(t, resilienthttp.BudgetStatus{Remaining: -1}, tr.State().Scopes[0].Budget)
	})
}

// T9: Responses counts how the calls of the last five minutes ended.
func TestState_responses(t *testing.T) {
	type counts struct{ calls, client, server, network, timeouts, throttled, failures int }
	single := resilienthttp.Policy{MaxAttempts: -1}
	for _, row := range []struct {
		name    string
		steps   []step
		policy  resilienthttp.Policy
		timeout time.Duration
		want    counts
		failing bool
	}{
		{"successes and redirects: no failure", []step{status(200), status(204), status(302)}, single, 0, counts{calls: 3}, false},
		{"each class once", []step{status(401), status(404), status(429), status(500), failing(io.EOF)}, single, 0, counts{5, 3, 1, 1, 0, 1, 3}, true},
		{"408 and 429: failures", []step{status(408), status(429), status(200), status(200), status(200), status(200)}, single, 0, counts{calls: 6, client: 1, timeouts: 1, throttled: 1, failures: 2}, false},
		{"half of the calls are 404: no failure", []step{status(404), status(404), status(200), status(200)}, single, 0, counts{calls: 4, client: 2}, false},
		{"more than half are 404: failures", []step{status(404), status(404), status(200)}, single, 0, counts{calls: 3, client: 2, failures: 2}, false},
		{"a deadline: a timeout", []step{hanging}, single, time.Second, counts{calls: 1, timeouts: 1, failures: 1}, true},
		{"Base's own timeout: a timeout", []step{failing(os.ErrDeadlineExceeded)}, single, 0, counts{calls: 1, timeouts: 1, failures: 1}, true},
		{"an error of unknown type: network", []step{failing(errReset)}, single, 0, counts{calls: 1, network: 1, failures: 1}, true},
		{"a retry that succeeds: one call", []step{status(503), status(200)}, resilienthttp.Policy{MaxAttempts: 2, Backoff: atOnce}, 0, counts{calls: 1}, false},
		{"a retry that fails otherwise: the last attempt counts", []step{status(503), status(404)}, resilienthttp.Policy{MaxAttempts: 2, Backoff: atOnce}, 0, counts{calls: 1, client: 1, failures: 1}, true},
		{"Classify declares 404 a success: no failure", []step{status(404)}, resilienthttp.Policy{MaxAttempts: -1, Classify: func(*resilienthttp.Attempt) resilienthttp.Verdict {
			return resilienthttp.VerdictSuccess
		}}, 0, counts{calls: 1}, false},
		{"Classify declares 200 a failure: a server error", []step{status(200)}, resilienthttp.Policy{MaxAttempts: -1, Classify: func(*resilienthttp.Attempt) resilienthttp.Verdict {
			return resilienthttp.VerdictPermanent
		}}, 0, counts{calls: 1, server: 1, failures: 1}, true},
		{"a success after failures: not failing", []step{status(500), status(500), status(200)}, single, 0, counts{calls: 3, server: 2, failures: 2}, false},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			began := time.Now()
			tr := &resilienthttp.Transport{Base: script(row.steps...), Policy: row.policy}
			for range row.want.calls {
				_ = discard(tr, get(t).WithContext(withDeadline(t, row.timeout)))
			}
			check := func(r resilienthttp.ResponseStatus) {
				t.Helper()
				require.Equal(t, row.want, counts{r.Calls, r.ClientErrors, r.ServerErrors, r.NetworkErrors, r.Timeouts, r.Throttled, r.Failures()})
			}
			check(known(t, tr).Responses)
			minute := resilienthttp.MinuteStatus{Calls: row.want.calls, Failures: row.want.failures}
			require.Equal(t, minute, known(t, tr).LastMinute)
			if since := known(t, tr).Responses.Since; row.failing {
				require.WithinRange(t, since, began, began.Add(row.timeout+time.Microsecond))
			} else {
				require.Zero(t, since)
			}
			time.Sleep(55 * time.Second)
			require.Equal(t, minute, known(t, tr).LastMinute)
			time.Sleep(20 * time.Second)
			require.Zero(t, known(t, tr).LastMinute)
			time.Sleep(3*time.Minute + 15*time.Second)
			check(known(t, tr).Responses)
			time.Sleep(time.Minute)
			require.Zero(t, known(t, tr).Responses.Calls, "older results do not count")
			require.Equal(t, row.failing, !known(t, tr).Responses.Since.IsZero(), "Since stays")
		})
	}
	bubble.Run(t, "the breaker rejects the retry of a lost response: rejected", func(t *testing.T) {
		tr := &resilienthttp.Transport{Base: script(failing(errReset)), Breaker: &resilienthttp.Breaker{MinRequests: 1, Cooldown: time.Minute}}
		require.ErrorIs(t, discard(tr, get(t)), resilienthttp.ErrBreakerOpen)
		require.Equal(t, 1, responsesOf(tr).Rejected)
		require.Zero(t, responsesOf(tr).NetworkErrors)
	})
	t.Run("canceled by the caller: not counted", func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		tr := &resilienthttp.Transport{Policy: single, Base: script(func(*http.Request) (*http.Response, error) {
			stop()
			return nil, context.Canceled
		})}
		require.ErrorIs(t, discard(tr, get(t).WithContext(ctx)), context.Canceled)
		require.Zero(t, responsesOf(tr).Calls)
		require.Zero(t, responsesOf(tr).Since)
	})
	bubble.Run(t, "canceled in the wait after a 503: not counted", func(t *testing.T) {
		tr := &resilienthttp.Transport{Base: script(status(503)), Policy: every(time.Hour)}
		require.ErrorIs(t, discard(tr, get(t).WithContext(canceledAfter(t.Context(), time.Second))), context.Canceled)
		require.Zero(t, responsesOf(tr).Calls)
	})
	t.Run("rejected by the breaker: failures of their own", func(t *testing.T) {
		tr := &resilienthttp.Transport{Base: script(status(500)), Policy: single, Breaker: nervous(time.Hour)}
		for range 10 {
			answered(t, tr)
		}
		r := responsesOf(tr)
		require.Equal(t, []int{10, 1, 9, 10}, []int{r.Calls, r.ServerErrors, r.Rejected, r.Failures()})
	})
	bubble.Run(t, "rejected by the rate limit before the first attempt: since then", func(t *testing.T) {
		tr := &resilienthttp.Transport{Base: script(status(200)), RateLimit: &resilienthttp.RateLimit{Limit: 1, Burst: 1, MaxWait: -1}}
		answered(t, tr)
		answered(t, tr)
		r := responsesOf(tr)
		require.Equal(t, []int{2, 1, 1}, []int{r.Calls, r.Rejected, r.Failures()})
		require.WithinRange(t, r.Since, time.Now(), time.Now().Add(time.Microsecond))
	})
	bubble.Run(t, "the deadline passes in the queue: a timeout", func(t *testing.T) {
		tr := &resilienthttp.Transport{Base: script(status(200)), Policy: single, RateLimit: &resilienthttp.RateLimit{Limit: 0.001, Burst: 1, MaxWait: time.Hour}}
		answered(t, tr)
		ctx, stop := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { stop(context.DeadlineExceeded) })
		require.Error(t, discard(tr, get(t).WithContext(ctx)))
		require.Equal(t, 1, responsesOf(tr).Calls, "canceled with a cause: not counted")
		require.ErrorIs(t, discard(tr, get(t).WithContext(withDeadline(t, time.Second))), resilienthttp.ErrDeadline)
		r := responsesOf(tr)
		require.Equal(t, []int{2, 1}, []int{r.Calls, r.Failures()})
	})
	bubble.Run(t, "the slowest call: its cause, and why it was not repeated", func(t *testing.T) {
		tr := &resilienthttp.Transport{Policy: single, Base: script(after(time.Second, failing(errReset)))}
		answered(t, tr)
		require.Equal(t, "no retries left: connection broke", known(t, tr).Slowest.Err)
		time.Sleep(time.Minute)
		req := get(t)
		req.Method, req.Body = http.MethodPut, io.NopCloser(strings.NewReader("charge")) // as package durable sends it
		require.Error(t, discard(tr, req))
		require.Equal(t, "request body cannot be replayed: connection broke", known(t, tr).Slowest.Err)
	})
	bubble.Run(t, "Since: the first failed attempt, while the call waits before its retry", func(t *testing.T) {
		began := time.Now()
		tr := &resilienthttp.Transport{Base: script(status(503), status(200)), Policy: every(time.Minute)}
		done, req := make(chan struct{}), get(t)
		go func() {
			defer close(done)
			resp, err := tr.RoundTrip(req)
			if assert.NoError(t, err) {
				assert.NoError(t, resp.Body.Close())
			}
		}()
		time.Sleep(30 * time.Second)
		require.WithinRange(t, responsesOf(tr).Since, began, began.Add(time.Microsecond))
		<-done
		require.Zero(t, responsesOf(tr).Since)
	})
	bubble.Run(t, "a call each 10 s, all 403: all fail, with the last one", func(t *testing.T) {
		tr := &resilienthttp.Transport{Base: script(status(403)), Policy: single}
		for range 60 {
			answered(t, tr)
			time.Sleep(10 * time.Second)
		}
		scope := known(t, tr)
		require.InDelta(t, 29, scope.Responses.Calls, 1.5)
		require.Equal(t, scope.Responses.Calls, scope.Responses.ClientErrors)
		require.Equal(t, 10*time.Minute, time.Since(scope.Responses.Since).Round(time.Second))
		require.Equal(t, resilienthttp.FailureStatus{At: time.Now().Add(-10 * time.Second), Status: 403, ErrorType: "403"}, scope.Failure)
	})
}

// responsesOf returns the Responses of the only scope.
func responsesOf(tr *resilienthttp.Transport) resilienthttp.ResponseStatus {
	return tr.State().Scopes[0].Responses
}

// T8: after n calls, State, Trace and Budget have the same numbers.
func TestState_numbersAgree(t *testing.T) {
	const calls = 50
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var attempts, failures, retries, failedRetries, done int
		step := 0
		tr := &resilienthttp.Transport{
			Base: roundTripper(func(r *http.Request) (*http.Response, error) {
				time.Sleep(10 * time.Millisecond)
				step++
				if step%5 == 2 || step%5 == 0 {
					return response(r, 200, ""), nil
				}
				return response(r, 500, ""), nil
			}),
			Policy: resilienthttp.Policy{MaxAttempts: 2, Backoff: atOnce}, Breaker: &resilienthttp.Breaker{Window: time.Minute},
			Budget: &resilienthttp.Budget{Ratio: 1e-9, Burst: 10 * calls},
			Trace: &resilienthttp.Trace{
				AttemptDone: func(a *resilienthttp.Attempt) {
					mu.Lock()
					defer mu.Unlock()
					attempts++
					failed := a.Response.StatusCode == http.StatusInternalServerError
					if failed {
						failures++
					}
					if a.Number > 1 {
						retries++
						if failed {
							failedRetries++
						}
					}
				},
				CallDone: func(*resilienthttp.Call) { mu.Lock(); defer mu.Unlock(); done++ },
			},
		}
		for range calls {
			answered(t, tr)
		}
		scope := known(t, tr)
		require.Equal(t, calls, done)
		require.Positive(t, retries)
		require.Less(t, failedRetries, retries)
		require.InDelta(t, 10*calls, scope.Budget.Used+scope.Budget.Remaining, 0.01)
		require.LessOrEqual(t, scope.Budget.Used, float64(failedRetries)+0.01)
		require.Equal(t, []int{attempts, failures}, []int{scope.Breaker.Calls, scope.Breaker.Failures})
		require.Equal(t, attempts-failures, scope.Latency.Samples)
		for _, q := range []time.Duration{scope.Latency.P50, scope.Latency.P95, scope.Latency.P99} {
			require.InDelta(t, 10, q.Milliseconds(), 3.4)
		}
		require.Zero(t, scope.InFlight+scope.Queued+scope.RetryWaiting)
	})
}

// T5: State may be called concurrently with calls. The calls wait in virtual time, and run on all processors.
func TestState_concurrentCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := &resilienthttp.Transport{Base: roundTripper(func(r *http.Request) (*http.Response, error) {
			code := 200
			if strings.HasPrefix(r.URL.Host, "1") {
				code = 503
			}
			return response(r, code, "", "X-RateLimit-Limit", "1000000", "X-RateLimit-Remaining", "999999", "X-RateLimit-Reset", "60"), nil
		}), Policy: resilienthttp.Policy{Backoff: atOnce}, Hedge: &resilienthttp.Hedge{}, Breaker: &resilienthttp.Breaker{MaxWait: 20 * time.Millisecond}}
		var wg sync.WaitGroup
		for g := range 8 {
			wg.Go(func() {
				for i := range 50 {
					_ = discard(tr, newRequest(t, http.MethodGet, fmt.Sprintf("http://%d.test", (g+i)%16), ""))
				}
			})
		}
		over := make(chan struct{})
		go func() {
			wg.Wait()
			close(over)
		}()
		each := time.NewTicker(20 * time.Millisecond) // calls begin and end at these times too
		defer each.Stop()
		for {
			for _, s := range tr.State().Scopes {
				require.GreaterOrEqual(t, s.Breaker.Calls, s.Breaker.Failures)
			}
			select {
			case <-each.C:
			case <-over:
				nothingLeft(t, tr)
				return
			}
		}
	})
}
