package resilienthttp_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"net/url"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/endpoints"
	"github.com/resilienthttp/resilienthttp/internal/bubble"
)

// uncapped is the number of retries where nothing but MaxAttempts ends them.
const uncapped = 99

// budgetRetries makes calls that succeed and then one that fails, at one time, and returns the
// number of its retries in that instant: later ones wait for their turn.
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
		return atOnceOf(resilienthttp.Attempts(resp)) - 1
	}
}

// atOnceOf counts the attempts that were sent in the instant of the first one.
func atOnceOf(attempts []resilienthttp.Attempt) (n int) {
	for i := range attempts {
		if attempts[i].Start.Equal(attempts[0].Start) {
			n++
		}
	}
	return n
}

// §4.16: a part of the responses are 503 and ask for a wait, as those of one backend of some. The other ones show that retries help.
func TestBudget_scattered503(t *testing.T) {
	for share, least := range map[float64]float64{.12: .98, .2: .95, .3: .9} {
		bubble.Run(t, fmt.Sprint(share), func(t *testing.T) {
			const calls = 600
			var served atomic.Int64
			tr := &resilienthttp.Transport{Base: roundTripper(func(r *http.Request) (*http.Response, error) {
				time.Sleep(20 * time.Millisecond)
				if rand.Float64() < share {
					return response(r, http.StatusServiceUnavailable, "", "Retry-After", "1"), nil
				}
				return response(r, http.StatusOK, ""), nil
			})}
			var all sync.WaitGroup
			for range calls {
				time.Sleep(100 * time.Millisecond)
				all.Go(func() {
					resp, err := tr.RoundTrip(get(t))
					if finish(t, resp, err) {
						served.Add(1)
					}
				})
			}
			all.Wait()
			require.GreaterOrEqual(t, float64(served.Load()), least*calls)
		})
	}
}

// §4.16, L1: the number of retries of a failing call after calls that succeed. TestBudget_defaultsWrittenOut has those of the
// zero value.
func TestBudget_retriesOfAFailingCall(t *testing.T) {
	type budget = resilienthttp.Budget
	nan, inf := math.NaN(), math.Inf(1)
	for _, tt := range []struct {
		name   string
		budget *budget
		calls  int // at the same instant, the last of which fails
		want   int
	}{
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
		require.Equal(t, 1+50, atOnceOf(tripped(t, transport, get(t))))
	})
}

// L1: a failure that comes in less than half of a usual response has cost the server little. Of failures that take as long as responses
// half come sooner than the median, by chance.
func TestBudget_costOfAFailure(t *testing.T) {
	const usual = 100 * time.Millisecond
	for _, row := range []struct {
		name    string
		took    time.Duration
		retries int // with five tokens
	}{
		{"at once", 0, 10},
		{"in less than half of it", 49 * time.Millisecond, 10},
		{"in half of it", 50 * time.Millisecond, 5},
		{"later", 150 * time.Millisecond, 5},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			base := script(after(usual, status(http.StatusOK)))
			transport := &resilienthttp.Transport{
				Budget: &resilienthttp.Budget{Ratio: 1e-9}, Breaker: never(),
				Base:   roundTripper(func(r *http.Request) (*http.Response, error) { return base.RoundTrip(r) }),
				Policy: resilienthttp.Policy{MaxAttempts: 99, Backoff: resilienthttp.Constant(0)},
			}
			readAll(t, roundTrip(t, transport, get(t)))
			base = script(after(row.took, status(http.StatusInternalServerError)))
			begun := time.Now()
			retries := 0
			for _, a := range tripped(t, transport, get(t))[1:] {
				if a.Start.Sub(begun) != time.Duration(retries+1)*row.took {
					break // it has waited for a token
				}
				retries++
			}
			require.Equal(t, row.retries, retries)
		})
	}
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
			require.ErrorIs(t, discard(transport, get(t)), resilienthttp.ErrAttemptTimeout)
			require.InDelta(t, tt.want, transport.State().Scopes[0].Budget.Remaining, 1e-6)
		})
	}
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
			base.next(copyOf{status: 500})
			for range 5 {
				tripped(t, transport, newCall(t.Context(), t, http.MethodGet, ""))
			}
			before := known(t, transport).Budget.Remaining
			base.next(row.copies...)
			require.Equal(t, row.want, story(tripped(t, transport, newCall(t.Context(), t, http.MethodGet, ""))))
			synctest.Wait() // a second attempt has its reward just after the call has its response
			require.InDelta(t, row.change, known(t, transport).Budget.Remaining-before, 0.01)
			base.balanced(t)
		})
	}
}

// lostCalls makes a call at each interval of a length, with a deadline, and counts those that get no 200 and began
// from a time to another. All of them are accounted for.
func lostCalls(t *testing.T, tr *resilienthttp.Transport, deadline, length, every, from, to time.Duration) int64 {
	t.Helper()
	var lost atomic.Int64
	var calls sync.WaitGroup
	begun := time.Now()
	for at := time.Duration(0); at < length; at = time.Since(begun) {
		calls.Go(func() {
			trace := &resilienthttp.Trace{CallDone: func(done *resilienthttp.Call) { requireAccounted(t, done) }}
			resp, err := tr.RoundTrip(get(t).WithContext(resilienthttp.WithTrace(withDeadline(t, deadline), trace)))
			if !finish(t, resp, err) && at >= from && at < to {
				lost.Add(1)
			}
		})
		time.Sleep(every)
	}
	calls.Wait()
	return lost.Load()
}

// L1: a server hangs for two seconds, or some requests hang for ever. After a timeout the retries of other calls wait for the
// first one, and its success releases them.
func TestBudget_hang(t *testing.T) {
	const from, to = 5 * time.Second, 7 * time.Second
	for _, row := range []struct {
		name  string
		usual time.Duration
		share int // one of so many requests hangs
		most  int // of 600 calls that are lost
	}{
		{"usually 20 ms: the circuit opens, and its calls wait three seconds", 20 * time.Millisecond, 1, 170},
		{"usually 100 ms", 100 * time.Millisecond, 1, 10},
		{"one of ten, usually 20 ms", 20 * time.Millisecond, 10, 10},
		{"one of ten, usually 300 ms", 300 * time.Millisecond, 10, 10},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			begun, requests := time.Now(), atomic.Int64{}
			tr := &resilienthttp.Transport{Policy: resilienthttp.Policy{AttemptTimeout: time.Second}}
			tr.Base = roundTripper(func(r *http.Request) (*http.Response, error) {
				if at := time.Since(begun); at >= from && at < to && requests.Add(1)%int64(row.share) == 0 {
					return hanging(r)
				}
				time.Sleep(row.usual)
				return status(200)(r)
			})
			require.LessOrEqual(t, int(lostCalls(t, tr, 10*time.Second, to+2*time.Second, time.Second/300, from, to)), row.most)
		})
	}
}

// L1: after a timeout the retry takes all tokens. A 409 says that the server is still at work on the attempt that timed out, so
// the tokens return, and the call asks again.
func TestBudget_stillAtWork(t *testing.T) {
	for _, row := range []struct {
		name     string
		deadline time.Duration
		retries  []int // what the server answers to them
		want     int
		requests int
	}{
		{"one 409", time.Minute, []int{409, 201}, 201, 3},
		{"one 409, without a deadline", 0, []int{409, 201}, 201, 3},
		{"two", time.Minute, []int{409, 409, 201}, 201, 4},
		{"a third is the result", time.Minute, []int{409, 409, 409}, 409, 4},
		{"a 500 has failed, so the tokens are spent", time.Minute, []int{500, 201}, 500, 2},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			steps := []step{hanging}
			for _, code := range row.retries {
				steps = append(steps, status(code))
			}
			tr := &resilienthttp.Transport{Base: script(steps...), Policy: resilienthttp.Policy{AttemptTimeout: time.Second}}
			resp := roundTrip(t, tr, newCall(until(t, t.Context(), row.deadline), t, http.MethodPost, "x"))
			readAll(t, resp)
			require.Equal(t, row.want, resp.StatusCode)
			require.Len(t, resilienthttp.Attempts(resp), row.requests)
		})
	}
}

// L1: one path is overloaded for ever, beside many quick answers, which fill the bucket. Retries after timeouts do not
// multiply its load, also if they are answered just in time.
func TestBudget_overloadBesideQuickAnswers(t *testing.T) {
	for _, row := range []struct {
		name  string
		retry step
	}{
		{"retries time out", hanging},
		{"they are answered late", after(900*time.Millisecond, status(200))},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			var flying crowd
			tr := &resilienthttp.Transport{Policy: resilienthttp.Policy{AttemptTimeout: time.Second}, Breaker: never()}
			tr.Base = roundTripper(func(r *http.Request) (*http.Response, error) {
				number, _ := resilienthttp.AttemptNumber(r.Context())
				switch {
				case r.URL.Path != "/slow":
					return after(10*time.Millisecond, status(200))(r)
				case number == 1:
					return hanging(r)
				}
				defer flying.enter()()
				return row.retry(r)
			})
			begun, calls := time.Now(), sync.WaitGroup{}
			for i := 0; time.Since(begun) < time.Minute; i++ {
				path := "/quick"
				if i%20 == 0 {
					path = "/slow"
				}
				calls.Go(func() {
					_ = discard(tr, newRequest(t, http.MethodGet, "http://api.test"+path, "").WithContext(withDeadline(t, 5*time.Second)))
				})
				time.Sleep(time.Second / 400)
			}
			calls.Wait()
			require.EqualValues(t, 1, flying.most.Load())
			require.GreaterOrEqual(t, int(flying.total.Load()), 20)
			require.LessOrEqual(t, int(flying.total.Load()), 150, "of 1,200 calls that time out")
		})
	}
}

// L1: while the retry of a first call is in flight, that of a second one waits. It goes when the first one is over, however it
// ends, or the second call ends without it.
func TestBudget_retryWaitsForAnother(t *testing.T) {
	const s = time.Second
	end := func(after time.Duration, how func()) step {
		return func(r *http.Request) (*http.Response, error) {
			time.Sleep(after)
			how()
			return status(200)(r)
		}
	}
	for _, row := range []struct {
		name    string
		maxWait time.Duration
		first   step          // the retry of the first call, which is sent after 1.1 s
		ended   time.Duration // when the second call has its result
		want    error         // its StopReason; nil: 200
		second  string        // what is special about the second call
	}{
		{"answered", 0, end(s/2, func() {}), 1600 * time.Millisecond, nil, ""},
		{"times out: no tokens are left", 0, hanging, 2100 * time.Millisecond, resilienthttp.ErrBudgetExhausted, ""},
		{"panics: no tokens are left", 0, end(s/2, func() { panic("Base") }), 1600 * time.Millisecond, resilienthttp.ErrBudgetExhausted, ""},
		{"exits", 0, end(s/2, runtime.Goexit), 1600 * time.Millisecond, resilienthttp.ErrBudgetExhausted, ""},
		{"the second must not wait", -1, end(s/2, func() {}), 1200 * time.Millisecond, resilienthttp.ErrBudgetExhausted, ""},
		{"a batch call does not wait", 0, end(s/2, func() {}), 1200 * time.Millisecond, resilienthttp.ErrBudgetExhausted, "batch"},
		{"with a static Breaker none waits", 0, end(s/2, func() {}), 1200 * time.Millisecond, resilienthttp.ErrBudgetExhausted, "static breaker"},
		{"static: the second does not wait", 0, end(s/2, func() {}), 1300 * time.Millisecond, nil, "static budget"},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			begun := time.Now()
			tr := &resilienthttp.Transport{
				Policy:  resilienthttp.Policy{AttemptTimeout: s, MaxAttempts: 2, Backoff: resilienthttp.Constant(s / 10)},
				Budget:  &resilienthttp.Budget{Ratio: 1e-9, Static: row.second == "static budget"},
				Breaker: &resilienthttp.Breaker{FailureRatio: -1, MaxWait: row.maxWait, Static: row.second == "static breaker"},
			}
			tr.Base = roundTripper(func(r *http.Request) (*http.Response, error) {
				switch number, _ := resilienthttp.AttemptNumber(r.Context()); {
				case number == 1:
					return hanging(r)
				case r.URL.Path == "/first":
					return row.first(r)
				}
				return status(200)(r)
			})
			firstCall, done := newRequest(t, http.MethodGet, "http://api.test/first", ""), make(chan struct{})
			go func() {
				defer close(done)
				defer func() { _ = recover() }()
				_ = discard(tr, firstCall)
			}()
			time.Sleep(s / 5)
			ctx := withDeadline(t, 20*s)
			if row.second == "batch" {
				ctx = resilienthttp.WithPriority(ctx, resilienthttp.PriorityBatch)
			}
			resp, err := tr.RoundTrip(get(t).WithContext(ctx))
			if row.want == nil {
				require.NoError(t, err)
				require.NoError(t, resp.Body.Close())
			} else {
				require.ErrorIs(t, err, row.want)
				require.Equal(t, resilienthttp.ErrAttemptTimeout, asError(t, err).Reason, "as if it had not waited")
			}
			require.InDelta(t, row.ended.Seconds(), time.Since(begun).Seconds(), 0.01)
			<-done
			require.Zero(t, tr.State().Scopes[0].RetryWaiting)
			again := tripped(t, tr, newRequest(t, http.MethodGet, "http://api.test/second", ""))
			require.LessOrEqual(t, len(again), 2, "no call waits for ever")
		})
	}
}

// L1: the circuit opens while a call makes its retries. It holds the next one, which takes no tokens.
func TestBudget_heldAfterATimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var away atomic.Bool
		tr := &resilienthttp.Transport{
			Policy: resilienthttp.Policy{AttemptTimeout: time.Second, Backoff: resilienthttp.Constant(time.Second)},
			Budget: &resilienthttp.Budget{Ratio: 1e-9}, Breaker: &resilienthttp.Breaker{Cooldown: 3 * time.Second},
		}
		tr.Base = roundTripper(func(r *http.Request) (*http.Response, error) {
			switch number, _ := resilienthttp.AttemptNumber(r.Context()); {
			case r.URL.Path == "/held" && number <= 2:
				return hanging(r)
			case away.Load():
				return status(500)(r)
			}
			return status(200)(r)
		})
		other := newRequest(t, http.MethodGet, "http://api.test/", "")
		held := newRequest(t, http.MethodGet, "http://api.test/held", "").WithContext(withDeadline(t, 20*time.Second))
		var calls sync.WaitGroup
		time.AfterFunc(2500*time.Millisecond, func() { // its retry is in flight
			away.Store(true)
			for range 40 {
				time.Sleep(10 * time.Millisecond)
				calls.Go(func() { _ = discard(tr, other) })
			}
		})
		time.AfterFunc(4*time.Second, func() { away.Store(false) })
		attempts := tripped(t, tr, held)
		require.Len(t, attempts, 3)
		require.NotNil(t, attempts[2].Response)
		require.True(t, attempts[2].Held)
		calls.Wait()
	})
}

// L1, N3: when all endpoints were tried, a call with a list goes on without waiting for the retries of others.
func TestBudget_timeoutsOfEndpoints(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := &resilienthttp.Transport{
			Policy: resilienthttp.Policy{AttemptTimeout: time.Second, MaxAttempts: 4, Backoff: resilienthttp.Constant(time.Second / 10)},
			Budget: &resilienthttp.Budget{Burst: 1000}, Breaker: never(),
		}
		tr.Base = roundTripper(func(r *http.Request) (*http.Response, error) {
			if number, _ := resilienthttp.AttemptNumber(r.Context()); number <= 2 {
				return hanging(r)
			}
			return after(750*time.Millisecond, status(200))(r)
		})
		list := &endpoints.Transport{Transport: tr, Endpoints: []endpoints.Endpoint{
			{URL: &url.URL{Scheme: "http", Host: "a.test"}}, {URL: &url.URL{Scheme: "http", Host: "b.test"}},
		}}
		var calls sync.WaitGroup
		var took [8]time.Duration
		for i := range took {
			req := newRequest(t, http.MethodGet, "http://a.test/", "").WithContext(withDeadline(t, time.Minute))
			calls.Go(func() {
				begun := time.Now()
				if resp, err := list.RoundTrip(req); err == nil {
					_ = resp.Body.Close()
					took[i] = time.Since(begun)
				}
			})
		}
		calls.Wait()
		for _, one := range took {
			require.InDelta(t, 2.85, one.Seconds(), 0.1)
		}
	})
}
