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
)

// uncapped is the number of retries where nothing but MaxAttempts ends them.
const uncapped = 99

// budgetRetries makes calls that succeed, and then one that always fails, all in
// the same moment, and returns how often that was retried.
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
		resp, err := transport.RoundTrip(get(t))
		require.NoError(t, err)
		readAll(t, resp)
		return len(resilienthttp.Attempts(resp)) - 1
	}
}

// §4.16: retries that fail are at most a share of the calls, and a small floor,
// rounded down.
func TestBudget(t *testing.T) {
	type budget = resilienthttp.Budget
	nan, inf := math.NaN(), math.Inf(1)
	for _, tt := range []struct {
		name   string
		budget *budget
		calls  int
		want   int
	}{
		{"none: one per second", nil, 1, 10},
		{"zero value: one per second", &budget{}, 1, 10},
		{"zero value: a tenth on top", &budget{}, 100, 20},
		{"rounded down", &budget{}, 109, 20},
		{"no floor, too few calls", &budget{MinPerSecond: -1}, 9, 0},
		{"no floor", &budget{MinPerSecond: -1}, 10, 1},
		{"floor is NaN: none", &budget{MinPerSecond: nan}, 10, 1},
		{"floor is -Inf: none", &budget{MinPerSecond: -inf}, 10, 1},
		{"floor is +Inf", &budget{MinPerSecond: inf}, 1, uncapped},
		{"floor is of the window", &budget{MinPerSecond: 0.5, Window: time.Minute}, 1, 30},
		{"floor of a short window", &budget{MinPerSecond: 10, Window: 100 * time.Millisecond}, 1, 1},
		{"floor is less than one", &budget{MinPerSecond: 0.01}, 1, 0},
		{"negative ratio: no cap", &budget{Ratio: -1, MinPerSecond: -1}, 1, uncapped},
		{"ratio is NaN: no cap", &budget{Ratio: nan}, 1, uncapped},
		{"ratio is -Inf: no cap", &budget{Ratio: -inf}, 1, uncapped},
		{"ratio is tiny: the floor alone", &budget{Ratio: math.SmallestNonzeroFloat64}, 1000, 10},
		{"ratio above one", &budget{Ratio: 3, MinPerSecond: -1}, 7, 21},
		{"ratio is +Inf", &budget{Ratio: inf, MinPerSecond: -1}, 1, uncapped},
		{"ratio and floor are +Inf", &budget{Ratio: inf, MinPerSecond: inf}, 1, uncapped},
		{"everything is huge", &budget{Ratio: math.MaxFloat64, MinPerSecond: math.MaxFloat64, Window: math.MaxInt64}, 1, uncapped},
		{"negative window: the default", &budget{Window: -1}, 1, 10},
		{"tiny window", &budget{Window: 1, MinPerSecond: -1}, 20, 2},
		{"static", &budget{Static: true}, 109, 20},
		{"static: rounded down after the sum", &budget{Ratio: 0.5, MinPerSecond: 0.05, Static: true}, 1, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				require.Equal(t, tt.want, budgetRetries(t, tt.budget, tt.calls))
			})
		})
	}
}

// §4.23: each default written out is the zero value: what was saved up, who gets
// the floor, and what comes back are the same.
func TestBudgetDefaults(t *testing.T) {
	type budget = resilienthttp.Budget
	for _, tt := range []struct {
		name   string
		budget func() *budget
	}{
		{"none", func() *budget { return nil }},
		{"zero value", func() *budget { return &budget{} }},
		{"Ratio", func() *budget { return &budget{Ratio: 0.1} }},
		{"MinPerSecond", func() *budget { return &budget{MinPerSecond: 1} }},
		{"Window", func() *budget { return &budget{Window: 10 * time.Second} }},
		{"written out", func() *budget { return &budget{Ratio: 0.1, MinPerSecond: 1, Window: 10 * time.Second} }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				// Ten good seconds of a hundred calls each have saved nothing up.
				failing, call := switchedCalls(t, tt.budget())
				for range 1000 {
					require.Zero(t, call())
					time.Sleep(10 * time.Millisecond)
				}
				failing.Store(true)
				retries := call()
				require.GreaterOrEqual(t, retries, 10+5)
				require.LessOrEqual(t, retries, 10+100/6)
			})
			synctest.Test(t, func(t *testing.T) { minimumIsForOne(t, tt.budget(), 429, 2+3, 2+3) })
			synctest.Test(t, func(t *testing.T) { require.Equal(t, 10, budgetRetries(t, tt.budget(), 1)) })
			synctest.Test(t, func(t *testing.T) { require.Equal(t, 20, budgetRetries(t, tt.budget(), 100)) })
		})
	}
}

// minimumIsForOne makes two calls at once, thrice, to a server that fails.
func minimumIsForOne(t *testing.T, budget *resilienthttp.Budget, fails int, first, then int64) {
	t.Helper()
	transport := &resilienthttp.Transport{Budget: budget, Breaker: never()}
	server, call := switched(t, transport)
	server.set(fails, time.Millisecond)
	for i := range 3 {
		server.requests.Store(0)
		passing(t, call, 2)
		if i == 0 {
			require.GreaterOrEqual(t, server.requests.Load(), first)
		} else {
			require.Equal(t, then, server.requests.Load(), "round %d", i)
		}
		time.Sleep(time.Minute)
	}
}

// §4.16: where servers turn calls away, the minimum is for one call at a time,
// and then for the next one.
func TestMinimumIsForOneCall(t *testing.T) {
	for _, tt := range []struct {
		name   string
		budget *resilienthttp.Budget
		fails  int
		// attempts of two calls at once, at least, and when it has lasted for a minute
		first, then int64
	}{
		{"trouble that has begun, and lasts", nil, 504, 2 + 2 + 2, 2 + 3},
		{"429", nil, 429, 2 + 3, 2 + 3},
		{"429, static", &resilienthttp.Budget{Static: true}, 429, 2 + 6, 2 + 6},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { minimumIsForOne(t, tt.budget, tt.fails, tt.first, tt.then) })
		})
	}
}

// §4.16: where others are served, a failure is its call's own, and the minimum is
// for all.
func TestMinimumWhereOthersAreServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var begun atomic.Int64
		transport := &resilienthttp.Transport{
			Policy: every(time.Second),
			Base: roundTripper(func(r *http.Request) (*http.Response, error) {
				if r.URL.Path == "/well" {
					return status(200)(r)
				}
				begun.Add(1)
				return status(500)(r)
			}),
		}
		call := func(path string) {
			resp, err := transport.RoundTrip(newRequest(t, http.MethodGet, "http://api.test"+path, ""))
			require.NoError(t, err)
			readAll(t, resp)
		}
		call("/well")
		go call("/broken")
		synctest.Wait()
		call("/well")
		go call("/broken")
		synctest.Wait()
		call("/well")
		time.Sleep(1500 * time.Millisecond)
		require.EqualValues(t, 2+2, begun.Load(), "each has its first retry")
		time.Sleep(time.Minute)
	})
}

// §4.16: a retry that succeeds costs nothing; where half of them help, they are free.
func TestRetriesThatHelpAreFree(t *testing.T) {
	for _, tt := range []struct {
		name  string
		fails int // attempts of each call
	}{
		{"the first fails", 1},
		{"so does the first retry", 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				succeeded := 0
				attempt := 0
				transport := &resilienthttp.Transport{
					Budget: &resilienthttp.Budget{Ratio: 1e-9, MinPerSecond: 0.2}, Breaker: never(), Policy: every(0),
					Base: roundTripper(func(r *http.Request) (*http.Response, error) {
						if attempt++; attempt%(tt.fails+1) != 0 {
							return status(500)(r)
						}
						return status(200)(r)
					}),
				}
				for range 100 {
					resp, err := transport.RoundTrip(get(t))
					require.NoError(t, err)
					readAll(t, resp)
					if resp.StatusCode == http.StatusOK {
						succeeded++
					}
				}
				require.Equal(t, 100, succeeded)
			})
		})
	}
}

func TestBudgetFieldsAreReadAtFirstUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &resilienthttp.Budget{}
		require.Equal(t, 10, budgetRetries(t, b, 1))
		b.Ratio, b.MinPerSecond, b.Window = -1, 1000, time.Hour
		require.Zero(t, budgetRetries(t, b, 1), "of another Transport, too")
		time.Sleep(10 * time.Second)
		require.Equal(t, 10, budgetRetries(t, b, 1))
	})
}
