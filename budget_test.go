package resilienthttp_test

import (
	"math"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/internal/bubble"
)

// uncapped is the number of retries where nothing but MaxAttempts ends them.
const uncapped = 99

// budgetRetries makes calls that succeed and then one that fails, at one time, and returns the
// number of its retries.
func budgetRetries(t *testing.T, budget *resilienthttp.Budget, calls int) int {
	t.Helper()
	failing, call := switchedCalls(t, budget)
	for range calls - 1 {
		require.Zero(t, call())
	}
	failing.Store(true)
	return call()
}

// switchedCalls are calls that succeed, or fail with as many retries as they get.
func switchedCalls(t *testing.T, budget *resilienthttp.Budget) (failing *atomic.Bool, call func() (retries int)) {
	failing = new(atomic.Bool)
	transport := &resilienthttp.Transport{
		Budget: budget, Breaker: never(),
		Policy: resilienthttp.Policy{MaxAttempts: uncapped + 1, Backoff: resilienthttp.Constant(0)},
		Base: roundTripper(func(r *http.Request) (*http.Response, error) {
			if failing.Load() {
				return status(500)(r)
			}
			return status(200)(r)
		}),
	}
	return failing, func() int {
		resp := roundTrip(t, transport, get(t))
		readAll(t, resp)
		return len(resilienthttp.Attempts(resp)) - 1
	}
}

// Calls that fail once are all retried, with five tokens, if the tokens are returned.
func TestBudget_retriesThatSucceed(t *testing.T) {
	for _, tt := range []struct {
		name   string
		failed step
		want   int
	}{
		{"500: the tokens come back", status(500), 20},
		{"503: the tokens come back", status(503), 20},
		{"429 with Retry-After: the tokens come back", status(429, "Retry-After", "1"), 20},
		{"429 with Retry-After 0: they do not", status(429, "Retry-After", "0"), 5},
		{"429 without Retry-After: they do not", status(429), 5},
		{"503 with Retry-After: they do not", status(503, "Retry-After", "1"), 5},
	} {
		bubble.Run(t, tt.name, func(t *testing.T) {
			var base http.RoundTripper
			transport := &resilienthttp.Transport{
				Base:   roundTripper(func(r *http.Request) (*http.Response, error) { return base.RoundTrip(r) }),
				Budget: &resilienthttp.Budget{Ratio: 1e-9}, Breaker: never(),
			}
			retried := 0
			for range 20 {
				base = script(tt.failed, status(200))
				retried += len(tripped(t, transport, get(t))) - 1
			}
			require.Equal(t, tt.want, retried)
		})
	}
}

// §4.16, L1: the number of retries of a failing call after calls that succeed.
func TestBudget_retriesOfAFailingCall(t *testing.T) {
	type budget = resilienthttp.Budget
	nan, inf := math.NaN(), math.Inf(1)
	for _, tt := range []struct {
		name   string
		budget *budget
		calls  int // at the same instant, the last of which fails
		want   int
	}{
		{"no Budget: five tokens, a half for each", nil, 1, 10},
		{"zero value: the same", &budget{}, 1, 10},
		{"zero value: a tenth of the calls beside", &budget{}, 100, 30},
		{"rounded down to half tokens", &budget{}, 109, 31},
		{"no Burst, too few calls", &budget{Burst: -1}, 4, 0},
		{"no Burst", &budget{Burst: -1}, 10, 2},
		{"Burst is the least number: none", &budget{Burst: math.MinInt}, 10, 2},
		{"Burst is huge", &budget{Burst: math.MaxInt}, 1, uncapped},
		{"Burst", &budget{Burst: 30}, 1, 60},
		{"negative ratio: no limit", &budget{Ratio: -1, Burst: -1}, 1, uncapped},
		{"ratio is NaN: no limit", &budget{Ratio: nan}, 1, uncapped},
		{"ratio is -Inf: no limit", &budget{Ratio: -inf}, 1, uncapped},
		{"ratio is tiny: Burst alone", &budget{Ratio: math.SmallestNonzeroFloat64}, 1000, 10},
		{"ratio above one", &budget{Ratio: 3, Burst: -1}, 7, 42},
		{"ratio is +Inf", &budget{Ratio: inf, Burst: -1}, 1, uncapped},
		{"static", &budget{Static: true}, 109, 15},
	} {
		bubble.Run(t, tt.name, func(t *testing.T) {
			require.Equal(t, tt.want, budgetRetries(t, tt.budget, tt.calls))
		})
	}
}

// L1: an attempt that was not sent has cost the server nothing.
func TestBudget_retriesOfARefusedCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		transport := &resilienthttp.Transport{
			Budget: &resilienthttp.Budget{Ratio: 1e-9}, Breaker: never(), Base: script(refused),
			Policy: resilienthttp.Policy{MaxAttempts: 99, Backoff: resilienthttp.Constant(0)},
		}
		require.Len(t, tripped(t, transport, get(t)), 1+50)
	})
}

// §4.23: each default written out has the effect of the zero value.
func TestBudget_defaultsWrittenOut(t *testing.T) {
	type budget = resilienthttp.Budget
	for _, tt := range []struct {
		name   string
		budget func() *budget
	}{
		{"none", func() *budget { return nil }},
		{"zero value", func() *budget { return &budget{} }},
		{"Ratio", func() *budget { return &budget{Ratio: 0.1} }},
		{"Burst", func() *budget { return &budget{Burst: 5} }},
		{"both", func() *budget { return &budget{Ratio: 0.1, Burst: 5} }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				// A hundred calls a second for 10 s: those of the last 1.25 s count.
				failing, call := switchedCalls(t, tt.budget())
				for range 1000 {
					require.Zero(t, call())
					time.Sleep(10 * time.Millisecond)
				}
				failing.Store(true)
				retries := call()
				require.GreaterOrEqual(t, retries, 2*(5+11))
				require.LessOrEqual(t, retries, 2*(5+12))
			})
			synctest.Test(t, func(t *testing.T) { require.Equal(t, 10, budgetRetries(t, tt.budget(), 1)) })
			synctest.Test(t, func(t *testing.T) { require.Equal(t, 30, budgetRetries(t, tt.budget(), 100)) })
		})
	}
}

// §4.16: a retry that succeeds returns its token and adds two. The bucket is then full.
func TestBudget_successfulRetriesAreFree(t *testing.T) {
	for _, tt := range []struct {
		name  string
		fails int // attempts of each call
		final int // the status of the next one
	}{
		{"the first attempt fails", 1, 200},
		{"so does the first retry", 2, 200},
		{"the first attempt fails, the retry gets a 404", 1, 404},
	} {
		bubble.Run(t, tt.name, func(t *testing.T) {
			succeeded := 0
			attempt := 0
			transport := &resilienthttp.Transport{
				Budget: &resilienthttp.Budget{Ratio: 1e-9, Burst: 2}, Breaker: never(), Policy: every(0),
				Base: roundTripper(func(r *http.Request) (*http.Response, error) {
					if attempt++; attempt%(tt.fails+1) != 0 {
						return status(500)(r)
					}
					return status(tt.final)(r)
				}),
			}
			for range 100 {
				resp := roundTrip(t, transport, get(t))
				readAll(t, resp)
				if resp.StatusCode == tt.final {
					succeeded++
				}
			}
			require.Equal(t, 100, succeeded)
		})
	}
}

// L1: after a timeout a retry takes five tokens, or Burst if that is less. With Static it takes one.
func TestBudget_retryAfterATimeout(t *testing.T) {
	for _, tt := range []struct {
		name   string
		budget *resilienthttp.Budget
		want   float64
	}{
		{"five of five: none remains", &resilienthttp.Budget{Ratio: 1e-9}, 0},
		{"five of eight: three remain", &resilienthttp.Budget{Ratio: 1e-9, Burst: 8}, 3},
		{"three of three: none remains", &resilienthttp.Budget{Ratio: 1e-9, Burst: 3}, 0},
		{"static: four of five remain", &resilienthttp.Budget{Ratio: 1e-9, Static: true}, 4},
	} {
		bubble.Run(t, tt.name, func(t *testing.T) {
			transport := &resilienthttp.Transport{
				Budget: tt.budget, Breaker: never(), Base: script(hanging),
				Policy: resilienthttp.Policy{AttemptTimeout: time.Second, MaxAttempts: 2},
			}
			_, err := transport.RoundTrip(get(t))
			require.ErrorIs(t, err, resilienthttp.ErrAttemptTimeout)
			require.InDelta(t, tt.want, transport.State().Scopes[0].Budget.Remaining, 1e-6)
		})
	}
}

// L1: a server with a queue that is longer than the timeout answers no retry. So a client that has used
// a token makes none after a timeout, until its calls have refilled the bucket.
func TestBudget_timeoutAfterARetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		transport := &resilienthttp.Transport{
			Breaker: never(), Base: script(status(500), status(502), hanging),
			Policy: resilienthttp.Policy{AttemptTimeout: time.Second, MaxAttempts: 2},
		}
		attempts := func() int { return len(tripped(t, transport, get(t))) }
		require.Equal(t, 2, attempts(), "a quick failure takes half a token")
		for range 3 { // with the first call they add .4 of a token
			require.Equal(t, 1, attempts(), "a timeout takes five")
		}
	})
}

func TestBudget_fieldsAreReadAtFirstUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &resilienthttp.Budget{}
		require.Equal(t, 10, budgetRetries(t, b, 1))
		b.Ratio, b.Burst = -1, 1000
		require.Zero(t, budgetRetries(t, b, 1), "the Budget of another Transport")
	})
}

// §4.16: a success is rewarded once, also if a second attempt brings it.
func TestBudget_rewardsOnce(t *testing.T) {
	for _, row := range []struct {
		name   string
		copies []copyOf
		want   string
		change float64 // of the tokens
		new    bool    // the client has had no successful response
	}{
		{"retry succeeds: its token returns, and two", []copyOf{{status: 500}, {}}, "1 500, 2 200", 2, false},
		{"retry after too many requests: nothing returns", []copyOf{{status: 429}, {}}, "1 429, 2 200", -1, false},
		{"second attempt of a retry succeeds: the same, and its own token stays taken", []copyOf{{status: 500}, {after: 10 * time.Hour}, {}}, "1 500, 2 lost, 3 200", 1.5, false},
		{"retry succeeds beside a second attempt: the same", []copyOf{{status: 500}, {after: 40 * time.Second}, {after: 10 * time.Hour}}, "1 500, 2 200, 3 lost", 1, false},
		{"the same by a client that does not know what is slow: it takes five", []copyOf{{status: 500}, {after: 40 * time.Second}, {after: 10 * time.Hour}}, "1 500, 2 200, 3 lost", -3, true},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			base := newHedgeBase(copyOf{})
			transport := bareTransport(base, 4)
			transport.Budget = &resilienthttp.Budget{Ratio: 1e-9, Burst: 20}
			if !row.new {
				tripped(t, transport, newCall(t.Context(), t, http.MethodGet, ""))
			}
			base.copies = []copyOf{{status: 500}}
			for range 5 {
				tripped(t, transport, newCall(t.Context(), t, http.MethodGet, ""))
			}
			before := known(t, transport).Budget.Remaining
			base.copies, base.arrivals = row.copies, nil
			require.Equal(t, row.want, story(tripped(t, transport, newCall(t.Context(), t, http.MethodGet, ""))))
			synctest.Wait() // a second attempt has its reward just after the call has its response
			require.InDelta(t, row.change, known(t, transport).Budget.Remaining-before, 0.01)
			base.balanced(t)
		})
	}
}
