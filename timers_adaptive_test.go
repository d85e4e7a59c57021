package resilienthttp_test

import (
	"context"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
)

// usual is the latency of a response in these tests.
const usual = 200 * time.Millisecond

// adapting returns a Transport after a number of usual responses, and its Base. copies are the
// results of the next attempts.
func adapting(t *testing.T, answers int, policy resilienthttp.Policy, arrange func(*resilienthttp.Transport), copies ...copyOf) (*resilienthttp.Transport, *hedgeBase) {
	base := newHedgeBase(copyOf{after: usual})
	transport := bareTransport(base, policy.MaxAttempts)
	policy.Backoff = nil
	transport.Policy = policy
	if arrange != nil {
		arrange(transport)
	}
	for range answers {
		tripped(t, transport, newCall(t.Context(), t, http.MethodGet, ""))
	}
	base.copies, base.arrivals, base.begin = copies, nil, time.Now()
	return transport, base
}

// timeoutOf returns the Transport's adaptive timeout from State.
func timeoutOf(t *testing.T, transport *resilienthttp.Transport) time.Duration {
	return known(t, transport).Latency.AdaptiveTimeout
}

// requireTimes requires that times are multiples of the adaptive timeout, exactly, because a
// bubble's clock is exact.
func requireTimes(t *testing.T, timeout time.Duration, multiples []float64, times []time.Duration) {
	t.Helper()
	var want []time.Duration
	for _, m := range multiples {
		want = append(want, time.Duration(m*float64(timeout)))
	}
	require.Equal(t, want, times)
}

// X1: an attempt ends early if a retry is allowed and there is another attempt and time for it.
// The last attempt has the full AttemptTimeout. Without AttemptTimeout, only a safe request ends
// early.
func TestAdaptiveTimeout_eligibleAttempts(t *testing.T) {
	const s = time.Second
	set := resilienthttp.Policy{AttemptTimeout: 30 * s, AdaptiveTimeout: &resilienthttp.AdaptiveTimeout{}}
	unset := resilienthttp.Policy{AdaptiveTimeout: &resilienthttp.AdaptiveTimeout{}}
	attempts := func(n int, p resilienthttp.Policy) resilienthttp.Policy { p.MaxAttempts = n; return p }
	never := copyOf{after: 10 * time.Hour}
	for _, row := range []struct {
		name     string
		policy   resilienthttp.Policy
		method   string
		arrange  func(*resilienthttp.Transport)
		ctx      func(context.Context) context.Context
		request  func(*http.Request)
		deadline float64 // times the timeout
		copies   []copyOf
		want     string
		sent     []float64 // times the timeout; nil: 0 alone
	}{
		{name: "cut and repeated at once", policy: set, copies: []copyOf{never, {}}, want: "1 timeout, 2 200", sent: []float64{0, 1}},
		{name: "a keyed POST", policy: set, method: "POST", copies: []copyOf{never, {}}, want: "1 timeout, 2 200", sent: []float64{0, 1}},
		{name: "a POST without a key", policy: set, method: "POST", arrange: func(t *resilienthttp.Transport) { t.Idempotency.Disabled = true }, copies: []copyOf{{after: 20 * s}, {}}, want: "1 200"},
		{name: "a body that cannot be replayed", policy: set, method: "PUT", request: func(r *http.Request) { r.GetBody = nil }, copies: []copyOf{{after: 20 * s}, {}}, want: "1 200"},
		{name: "another layer owns retries", policy: set, ctx: resilienthttp.WithSingleAttempt, copies: []copyOf{{after: 20 * s}, {}}, want: "1 200"},
		{name: "a single attempt", policy: attempts(-1, set), copies: []copyOf{{after: 20 * s}, {}}, want: "1 200"},
		{name: "the last attempt has the whole AttemptTimeout", policy: attempts(2, set), copies: []copyOf{never, {after: 29 * s}}, want: "1 timeout, 2 200", sent: []float64{0, 1}},
		{name: "and not more than that", policy: attempts(2, set), copies: []copyOf{never, never}, want: "1 timeout, 2 timeout", sent: []float64{0, 1}},
		{name: "no time for another", policy: set, deadline: 1.9, copies: []copyOf{never}, want: "1 gone"},
		{name: "time for another", policy: set, deadline: 2.1, copies: []copyOf{never, {}}, want: "1 timeout, 2 200", sent: []float64{0, 1}},
		{name: "the budget has no token", policy: set, arrange: func(t *resilienthttp.Transport) { t.Budget = tokens(0) }, copies: []copyOf{{after: 20 * s}, {}}, want: "1 200"},
		{name: "the budget has tokens", policy: set, arrange: func(t *resilienthttp.Transport) { t.Budget = tokens(1) }, copies: []copyOf{never, {}}, want: "1 timeout, 2 200", sent: []float64{0, 1}},
		{name: "AttemptTimeout is less", policy: resilienthttp.Policy{AttemptTimeout: 300 * time.Millisecond, AdaptiveTimeout: set.AdaptiveTimeout}, copies: []copyOf{{after: 299 * time.Millisecond}}, want: "1 200"},
		{name: "Backoff is set", policy: set, ctx: func(ctx context.Context) context.Context {
			p := set
			p.Backoff = resilienthttp.Constant(0)
			return resilienthttp.WithPolicy(ctx, p)
		}, copies: []copyOf{never, {}}, want: "1 timeout, 2 200", sent: []float64{0, 1}},

		{name: "a safe request without AttemptTimeout", policy: unset, copies: []copyOf{never, {}}, want: "1 timeout, 2 200", sent: []float64{0, 1}},
		{name: "the last attempt without AttemptTimeout", policy: attempts(2, unset), deadline: 5, copies: []copyOf{never}, want: "1 timeout, 2 gone", sent: []float64{0, 1}},
		{name: "a POST without AttemptTimeout", policy: unset, method: "POST", copies: []copyOf{{after: 40 * s}, {}}, want: "1 200"},
		{name: "a PUT without AttemptTimeout", policy: unset, method: "PUT", copies: []copyOf{{after: 40 * s}, {}}, want: "1 200"},
		{name: "no token without AttemptTimeout", policy: unset, arrange: func(t *resilienthttp.Transport) { t.Budget = tokens(0) }, copies: []copyOf{{after: 20 * s}, {}}, want: "1 200"},
		{name: "AttemptTimeout is off", policy: resilienthttp.Policy{AttemptTimeout: -1, AdaptiveTimeout: set.AdaptiveTimeout}, copies: []copyOf{{after: time.Hour}}, want: "1 200"},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				transport, base := adapting(t, 300, row.policy, row.arrange, row.copies...)
				length := timeoutOf(t, transport)
				ctx := t.Context()
				if row.ctx != nil {
					ctx = row.ctx(ctx)
				}
				if row.deadline > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, time.Duration(row.deadline*float64(length)))
					defer cancel()
				}
				method, body := row.method, ""
				if method == "" {
					method = http.MethodGet
				} else {
					body = "body"
				}
				req := newCall(ctx, t, method, body)
				if row.request != nil {
					row.request(req)
				}
				require.Equal(t, row.want, story(tripped(t, transport, req)))
				if row.sent == nil {
					row.sent = []float64{0}
				}
				requireTimes(t, length, row.sent, base.arrivals)
				base.balanced(t)
			})
		})
	}
	t.Run("a circuit that is half-open takes no retry", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			transport, base := adapting(t, 300, set, func(tr *resilienthttp.Transport) { tr.Breaker = nervous(s) }, copyOf{status: 501})
			for range 10 {
				tripped(t, transport, newCall(t.Context(), t, http.MethodGet, ""))
			}
			require.Equal(t, resilienthttp.StateOpen, transport.Breaker.State("api.test", resilienthttp.PriorityDefault))
			time.Sleep(2 * s)
			base.copies, base.arrivals = []copyOf{{after: 20 * s}, {}}, nil
			require.Equal(t, "1 200", story(tripped(t, transport, newCall(t.Context(), t, http.MethodGet, ""))))
		})
	})
}

// X2: attempts that ended early never make the timeout shorter.
func TestAdaptiveTimeout_doesNotShortenItself(t *testing.T) {
	for name, policy := range map[string]resilienthttp.Policy{
		"cut":                    {AttemptTimeout: time.Hour, AdaptiveTimeout: &resilienthttp.AdaptiveTimeout{}},
		"without AttemptTimeout": {AdaptiveTimeout: &resilienthttp.AdaptiveTimeout{}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				transport, base := adapting(t, 300, policy, nil)
				before := timeoutOf(t, transport)
				for range 3 { // of some 250
					base.copies, base.arrivals = []copyOf{{after: time.Hour}, {after: usual}}, nil
					require.Len(t, tripped(t, transport, newCall(t.Context(), t, http.MethodGet, "")), 2)
					now := timeoutOf(t, transport)
					require.GreaterOrEqual(t, now, before)
					before = now
				}
				require.Less(t, before, time.Second, "the timeout stays below a second")
				require.Zero(t, known(t, transport).Breaker.Failures, "the breaker does not count stuck attempts")
			})
		})
	}
}

// X3: if more than 2 % of the attempts would end early, none does for 15 s, and then the timeout
// is doubled.
func TestAdaptiveTimeout_safetyLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		transport, base := adapting(t, 300, resilienthttp.Policy{AttemptTimeout: time.Minute, AdaptiveTimeout: &resilienthttp.AdaptiveTimeout{}}, nil, copyOf{after: 10 * usual})
		before := timeoutOf(t, transport)
		var calls sync.WaitGroup
		for range 50 {
			calls.Go(func() { tripped(t, transport, newCall(t.Context(), t, http.MethodGet, "")) })
		}
		calls.Wait()
		require.Equal(t, 55, base.sent(), "five attempts may end early")
		require.Zero(t, timeoutOf(t, transport))
		time.Sleep(15 * time.Second)
		require.GreaterOrEqual(t, timeoutOf(t, transport), 2*before)
	})
}

// X4: each retry of a call has twice the timeout, and the last has AttemptTimeout.
func TestAdaptiveTimeout_doublesPerRetry(t *testing.T) {
	for name, policy := range map[string]resilienthttp.Policy{
		"cut":                    {AttemptTimeout: 20 * time.Second, AdaptiveTimeout: &resilienthttp.AdaptiveTimeout{}},
		"without AttemptTimeout": {AdaptiveTimeout: &resilienthttp.AdaptiveTimeout{}},
	} {
		policy.MaxAttempts = 4
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				transport, base := adapting(t, 300, policy, nil, copyOf{after: time.Hour}, copyOf{after: time.Hour}, copyOf{after: time.Hour}, copyOf{after: 19 * time.Second})
				length := timeoutOf(t, transport)
				attempts := tripped(t, transport, newCall(t.Context(), t, http.MethodGet, ""))
				require.Len(t, attempts, 4)
				require.Equal(t, 200, attempts[3].Response.StatusCode)
				requireTimes(t, length, []float64{0, 1, 3, 7}, base.arrivals)
			})
		})
	}
}

// X5: the minimum of the timeout, and when there is none.
func TestAdaptiveTimeout_minimum(t *testing.T) {
	const ms = time.Millisecond
	type adaptive = resilienthttp.AdaptiveTimeout
	nan := math.NaN()
	for _, row := range []struct {
		name     string
		adaptive *adaptive
		answers  int
		hedge    *resilienthttp.Hedge
		header   http.Header
		want     time.Duration // 0: none
		copies   int           // hedges among them
	}{
		{name: "as it is", adaptive: &adaptive{}, answers: 200, want: 500 * ms},
		{name: "written out", adaptive: &adaptive{Multiple: 2.5, Quantile: 0.99, Min: 250 * ms, MinSamples: 200}, answers: 200, want: 500 * ms},
		{name: "too little is known", adaptive: &adaptive{}, answers: 199},
		{name: "less is enough", adaptive: &adaptive{MinSamples: 10}, answers: 10, want: 500 * ms},
		{name: "one is", adaptive: &adaptive{MinSamples: -1}, answers: 1, want: 500 * ms},
		{name: "not below Min", adaptive: &adaptive{Min: 2 * time.Second}, answers: 200, want: 2 * time.Second},
		{name: "not below the default Min", adaptive: &adaptive{Multiple: 1}, answers: 200, want: 250 * ms},
		{name: "there is no Min", adaptive: &adaptive{Multiple: 1.25, Min: -1}, answers: 200, want: 250 * ms},
		{name: "not below the hedge's delay", adaptive: &adaptive{}, answers: 200, hedge: &resilienthttp.Hedge{Delay: 5 * time.Second, MaxRatio: -1}, want: 5 * time.Second, copies: 1},
		{name: "an upgrade", adaptive: &adaptive{}, answers: 200, header: http.Header{"Connection": {"Upgrade"}, "Upgrade": {"websocket"}}},
		{name: "events", adaptive: &adaptive{}, answers: 200, header: http.Header{"Accept": {"application/json", "Text/Event-Stream; q=1"}}},
		{name: "other answers", adaptive: &adaptive{}, answers: 200, header: http.Header{"Accept": {"application/json"}}, want: 500 * ms},
		{name: "nil", answers: 200},
		{name: "a negative Multiple", adaptive: &adaptive{Multiple: -1}, answers: 200},
		{name: "a Multiple of NaN", adaptive: &adaptive{Multiple: nan}, answers: 200},
		{name: "a negative Quantile", adaptive: &adaptive{Quantile: -1}, answers: 200},
		{name: "a Quantile of NaN", adaptive: &adaptive{Quantile: nan}, answers: 200},
		{name: "an infinite Multiple", adaptive: &adaptive{Multiple: math.Inf(1)}, answers: 200},
		{name: "more than all", adaptive: &adaptive{Quantile: 7}, answers: 200, want: 500 * ms},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				policy := resilienthttp.Policy{AttemptTimeout: 20 * time.Second, AdaptiveTimeout: row.adaptive, MaxAttempts: 2}
				transport, base := adapting(t, row.answers, policy, func(tr *resilienthttp.Transport) { tr.Hedge = row.hedge }, copyOf{after: time.Hour}, copyOf{after: time.Hour}, copyOf{})
				req := newCall(t.Context(), t, http.MethodGet, "")
				if row.header != nil {
					req.Header = row.header
				}
				attempts := tripped(t, transport, req)
				cut := attempts[0].Latency
				if row.want == 0 {
					row.want = policy.AttemptTimeout
				}
				if row.copies > 0 { // which have not hung
					require.GreaterOrEqual(t, len(base.arrivals), 2)
					require.Equal(t, row.want, base.arrivals[1])
					return
				}
				require.InDelta(t, row.want.Seconds(), cut.Seconds(), row.want.Seconds()/7)
			})
		})
	}
}

// X6: one attempt in a hundred is stuck; none is, for several distributions of latencies; and all
// become ten times as slow.
func TestAdaptiveTimeout_simulated(t *testing.T) {
	const (
		rate   = 100 // a second
		stuck  = 30 * time.Second
		before = 30 * time.Second
		length = 60 * time.Second
	)
	normal := func(r *rand.Rand) time.Duration { return usual + time.Duration(r.NormFloat64()*float64(usual)/10) }
	logNormal := func(r *rand.Rand) time.Duration {
		return time.Duration(float64(usual) * math.Exp(r.NormFloat64()/2))
	}
	exponential := func(r *rand.Rand) time.Duration { return time.Duration(float64(usual) * r.ExpFloat64()) }
	for _, row := range []struct {
		name  string
		takes func(*rand.Rand) time.Duration
		slow  float64 // factor of the earlier latencies
		hangs float64 // share
	}{
		{name: "stuck", takes: normal, hangs: 0.01, slow: 1},
		{name: "healthy", takes: normal, slow: 1},
		{name: "healthy, log-normal", takes: logNormal, slow: 1},
		{name: "healthy, exponential", takes: exponential, slow: 1},
		{name: "ten times as slow", takes: normal, slow: 10},
		{name: "five times as slow, log-normal", takes: logNormal, slow: 5},
	} {
		for mode, ceiling := range map[string]time.Duration{"cut": stuck, "without AttemptTimeout": 0} {
			t.Run(row.name+", "+mode, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var mu sync.Mutex
					random := rand.New(rand.NewPCG(1, 2))
					begun := time.Now()
					transport := &resilienthttp.Transport{
						Policy: resilienthttp.Policy{AttemptTimeout: ceiling, AdaptiveTimeout: &resilienthttp.AdaptiveTimeout{}},
						Base: roundTripper(func(r *http.Request) (*http.Response, error) {
							mu.Lock()
							takes, hangs := row.takes(random), random.Float64() < row.hangs
							mu.Unlock()
							if time.Since(begun) > before {
								takes = time.Duration(float64(takes) * row.slow)
							}
							if hangs {
								takes = stuck
							}
							return after(takes, status(http.StatusOK))(r)
						}),
					}
					var calls sync.WaitGroup
					sent, early, lost := 0, 0, 0
					inForce := time.Duration(0) // two windows after the change
					var tail []time.Duration    // until the repeated were sent again
					for time.Since(begun) < before+length {
						calls.Go(func() {
							at := time.Since(begun)
							attempts := tripped(t, transport, newCall(t.Context(), t, http.MethodGet, ""))
							mu.Lock()
							defer mu.Unlock()
							sent++
							if last := attempts[len(attempts)-1]; last.Response == nil && attempts[0].Response == nil {
								lost++
							}
							if len(attempts) > 1 {
								early++
								if at > before {
									tail = append(tail, attempts[1].Start.Sub(attempts[0].Start))
								}
							}
						})
						time.Sleep(time.Second / rate)
						if inForce == 0 && time.Since(begun) > before+30*time.Second {
							inForce = timeoutOf(t, transport)
						}
					}
					calls.Wait()
					require.Zero(t, lost, "no call fails that the fixed timeout would serve")
					switch {
					case row.hangs > 0:
						p99 := usual + 233*usual/1000 // of a normal distribution
						require.Greater(t, early, sent*3/4/100)
						for _, took := range tail {
							require.LessOrEqual(t, took, 3*p99)
						}
					case row.slow == 1:
						require.LessOrEqual(t, float64(early), 0.001*float64(sent), "%d of %d ended early without need", early, sent)
					default:
						require.LessOrEqual(t, float64(early), 0.02*float64(sent), "%d of %d ended early without need", early, sent)
						require.Greater(t, inForce, time.Duration(row.slow)*usual, "the timeout is set again and follows the latencies")
					}
				})
			})
		}
	}
}

// State shows the timeout. It is zero if the timeout is off or the scope is evicted.
func TestAdaptiveTimeout_inState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		transport, _ := adapting(t, 200, resilienthttp.Policy{}, nil)
		require.Zero(t, timeoutOf(t, transport))
		transport, _ = adapting(t, 199, resilienthttp.Policy{AdaptiveTimeout: &resilienthttp.AdaptiveTimeout{}}, nil, copyOf{after: usual})
		require.Zero(t, timeoutOf(t, transport))
		tripped(t, transport, newCall(t.Context(), t, http.MethodGet, ""))
		require.InDelta(t, 0.5, timeoutOf(t, transport).Seconds(), 0.08)
		time.Sleep(time.Minute)
		require.Zero(t, timeoutOf(t, transport), "it is forgotten")
	})
}

// The tokens for a retry that is not needed are returned.
func TestAdaptiveTimeout_returnsTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		policy := resilienthttp.Policy{AttemptTimeout: time.Minute, AdaptiveTimeout: &resilienthttp.AdaptiveTimeout{}}
		transport, base := adapting(t, 300, policy, func(tr *resilienthttp.Transport) {
			tr.Budget, tr.Hedge = tokens(1), &resilienthttp.Hedge{Delay: 300 * time.Millisecond, MaxRatio: -1}
		}, copyOf{after: time.Hour}, copyOf{after: usual})
		for range 3 {
			base.arrivals = nil
			require.Equal(t, "1 timeout, 1h 200", story(tripped(t, transport, newCall(t.Context(), t, http.MethodGet, ""))))
			require.Zero(t, known(t, transport).Budget.Used)
		}
		base.balanced(t)
	})
}

// An upload that makes progress does not end early.
func TestAdaptiveTimeout_ignoresUploads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		transport, base := adapting(t, 300, resilienthttp.Policy{AttemptTimeout: time.Minute, AdaptiveTimeout: &resilienthttp.AdaptiveTimeout{}}, nil, copyOf{})
		body := strings.Repeat("x", 1<<20)
		req := newCall(t.Context(), t, http.MethodPut, body)
		req.Body = slowBody{req.Body}
		require.Equal(t, "1 200", story(tripped(t, transport, req)))
		base.balanced(t)
	})
}

// slowBody takes its time for each read.
type slowBody struct{ io.ReadCloser }

func (b slowBody) Read(p []byte) (int, error) {
	time.Sleep(2 * usual)
	return b.ReadCloser.Read(p[:min(len(p), 100<<10)])
}

// Concurrent calls with some stuck attempts leave nothing in flight.
func TestAdaptiveTimeout_stress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, ceiling := range []time.Duration{10 * time.Second, 0} {
			transport := &resilienthttp.Transport{
				Policy: resilienthttp.Policy{AttemptTimeout: ceiling, AdaptiveTimeout: &resilienthttp.AdaptiveTimeout{MinSamples: 20, Min: -1}},
				Hedge:  &resilienthttp.Hedge{},
				Base: roundTripper(func(r *http.Request) (*http.Response, error) {
					takes := rand.N(20 * time.Millisecond)
					if rand.N(50) == 0 {
						takes = time.Hour
					}
					return after(takes, status([]int{200, 200, 200, 503}[rand.N(4)]))(r)
				}),
			}
			var calls sync.WaitGroup
			for range 50 {
				calls.Go(func() {
					for range 20 {
						ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
						tripped(t, transport, newCall(ctx, t, http.MethodGet, ""))
						cancel()
					}
				})
			}
			calls.Wait()
			synctest.Wait()
			assert.Zero(t, known(t, transport).InFlight)
		}
	})
}
