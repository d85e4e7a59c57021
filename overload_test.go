package resilienthttp_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/internal/memhttp"
)

// This file holds the defaults to what they are for: docs/defaults.md has the
// figures. All tests look on from outside, and those of a default are followed by
// a row in which the user has set the field, and gets what was set.

// switchedServer answers with a status after a time; both may be changed.
type switchedServer struct {
	status   atomic.Int64
	delay    atomic.Int64
	requests atomic.Int64
}

func (s *switchedServer) set(status int, delay time.Duration) {
	s.status.Store(int64(status))
	s.delay.Store(int64(delay))
}

func (s *switchedServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.requests.Add(1)
	select {
	case <-time.After(time.Duration(s.delay.Load())):
	case <-r.Context().Done():
	}
	w.WriteHeader(int(s.status.Load()))
}

// switched is a server that answers 200 after a millisecond, until told
// otherwise, and a way to call it through a Transport.
func switched(t *testing.T, transport *resilienthttp.Transport) (s *switchedServer, call func(context.Context) (status, attempts int, err error)) {
	s = new(switchedServer)
	s.set(200, time.Millisecond)
	server := memhttp.NewServer(t, s)
	transport.Base = server.Transport()
	return s, func(ctx context.Context) (int, int, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL, http.NoBody)
		if err != nil {
			return 0, 0, err
		}
		resp, err := transport.RoundTrip(req)
		if err != nil {
			return 0, 0, err
		}
		_ = resp.Body.Close()
		return resp.StatusCode, len(resilienthttp.Attempts(resp)), nil
	}
}

// passing makes so many calls at once and returns how many were not refused.
func passing(t *testing.T, call func(context.Context) (int, int, error), n int) int {
	var passed atomic.Int64
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			if _, _, err := call(t.Context()); !errors.Is(err, resilienthttp.ErrBreakerOpen) {
				passed.Add(1)
			}
		})
	}
	wg.Wait()
	return int(passed.Load())
}

// A lone client gets all its attempts, whatever it was that failed, and again
// with its next call.
func TestLoneClientGetsItsAttempts(t *testing.T) {
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
		{"429", status(429), true, 0},
		{"429 with Retry-After", status(429, "Retry-After", "1"), true, 0},
		{"reset", failing(errReset), true, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				base := script(status(200))
				transport := &resilienthttp.Transport{Base: base}
				if tt.served {
					_, err := transport.RoundTrip(get(t))
					require.NoError(t, err)
				}
				for range 3 {
					base.mu.Lock()
					base.steps = []step{tt.failure, tt.failure, tt.failure, status(200)}
					base.sent = nil
					base.mu.Unlock()
					ctx, cancel := t.Context(), context.CancelFunc(func() {})
					if tt.deadline > 0 {
						ctx, cancel = context.WithTimeout(ctx, tt.deadline)
					}
					resp, err := transport.RoundTrip(get(t).WithContext(ctx))
					require.NoError(t, err)
					require.Equal(t, 200, resp.StatusCode)
					require.Len(t, resilienthttp.Attempts(resp), 4)
					readAll(t, resp)
					cancel()
				}
			})
		})
	}
}

// The first wait after a server has turned a call away that it served before.
func TestBackoffOfTheHerd(t *testing.T) {
	const short, long = 100 * time.Millisecond, 3 * time.Second
	own := resilienthttp.Policy{Backoff: resilienthttp.FullJitter(short, long)}
	for _, tt := range []struct {
		name     string
		policy   resilienthttp.Policy
		served   int
		failure  step
		deadline time.Duration
		most     time.Duration // jitter comes close to it and never above
	}{
		{"503", resilienthttp.Policy{}, 1, status(503), 0, long},
		{"529", resilienthttp.Policy{}, 1, status(529), 0, long},
		{"never served", resilienthttp.Policy{}, 0, status(503), 0, short},
		{"so many calls that they make up for it", resilienthttp.Policy{}, 20, status(503), 0, short},
		{"a tenth of the time left", resilienthttp.Policy{}, 1, status(503), 5 * time.Second, 500 * time.Millisecond},
		{"hardly any time left", resilienthttp.Policy{}, 1, status(503), 200 * time.Millisecond, short},
		{"the server says how long", resilienthttp.Policy{}, 1, status(503, "Retry-After", "0"), 0, short},
		{"500", resilienthttp.Policy{}, 1, status(500), 0, short},
		{"429", resilienthttp.Policy{}, 1, status(429), 0, short},
		{"no answer", resilienthttp.Policy{}, 1, failing(errReset), 0, short},
		{"Backoff of one's own", own, 1, status(503), 0, short},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var longest time.Duration
				for range 100 {
					base := script(status(200))
					transport := &resilienthttp.Transport{Base: base, Policy: tt.policy}
					for range tt.served {
						resp, err := transport.RoundTrip(get(t))
						require.NoError(t, err)
						readAll(t, resp)
					}
					base.mu.Lock()
					base.steps, base.sent = []step{tt.failure, status(200)}, nil
					base.mu.Unlock()
					ctx, cancel := t.Context(), context.CancelFunc(func() {})
					if tt.deadline > 0 {
						ctx, cancel = context.WithTimeout(ctx, tt.deadline)
					}
					resp, err := transport.RoundTrip(get(t).WithContext(ctx))
					require.NoError(t, err)
					require.Equal(t, 200, resp.StatusCode)
					longest = max(longest, resilienthttp.Attempts(resp)[0].Wait)
					readAll(t, resp)
					cancel()
				}
				require.LessOrEqual(t, longest, tt.most)
				require.Greater(t, longest, tt.most*3/4)
			})
		})
	}
}

// §4.16: while a server is overloaded, the minimum is for few calls at once, and
// then for the next ones.
func TestMinimumUnderOverload(t *testing.T) {
	for _, tt := range []struct {
		name   string
		budget *resilienthttp.Budget
		fails  int
		want   int64 // attempts of two calls at once
	}{
		{"zero value", nil, 504, 2 + 3},
		{"zero value, a failure that is no overload", nil, 500, 2 + 6},
		{"Ratio of one's own", &resilienthttp.Budget{Ratio: 0.1}, 504, 2 + 6},
		{"MinPerSecond of one's own", &resilienthttp.Budget{MinPerSecond: 1}, 504, 2 + 6},
		{"Window of one's own", &resilienthttp.Budget{Window: 10 * time.Second}, 504, 2 + 6},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				transport := &resilienthttp.Transport{Budget: tt.budget, Breaker: never()}
				server, call := switched(t, transport)
				server.set(tt.fails, time.Millisecond)
				for range 3 {
					server.requests.Store(0)
					passing(t, call, 2)
					require.Equal(t, tt.want, server.requests.Load())
					time.Sleep(time.Minute)
				}
			})
		})
	}
}

// §4.15, from closed to closed, as the documentation has it.
func TestZeroBreaker(t *testing.T) {
	for _, tt := range []struct {
		name          string
		breaker       *resilienthttp.Breaker
		enough        int // failures
		took          time.Duration
		least, most   int // milliseconds of the first cooldown
		probes        int
		answer        time.Duration // latency when it is back
		everybodyInIs bool          // once it has closed
	}{
		{"zero value, quick failures", nil, 20, time.Millisecond, 100, 125, 3, 1 * time.Millisecond, true},
		{"zero value, failures quicker than answers", nil, 20, time.Millisecond, 100, 125, 3, 80 * time.Millisecond, true},
		{"zero value, failures slower than answers", nil, 20, 90 * time.Millisecond, 180, 225, 3, 1 * time.Millisecond, true},
		{"zero value, timeouts", nil, 20, 700 * time.Millisecond, 1000, 1250, 3, 1 * time.Millisecond, false},
		{"all set", &resilienthttp.Breaker{FailureRatio: 0.5, MinRequests: 10, Window: 10 * time.Second, Cooldown: time.Second},
			10, time.Millisecond, 1000, 1250, 3, 1 * time.Millisecond, true},
		{"all set, timeouts", &resilienthttp.Breaker{FailureRatio: 0.5, MinRequests: 10, Window: 10 * time.Second, Cooldown: time.Second},
			10, 700 * time.Millisecond, 1000, 1250, 3, 1 * time.Millisecond, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const ms = time.Millisecond
				breaker := tt.breaker
				if breaker == nil {
					breaker = &resilienthttp.Breaker{}
				}
				transport := &resilienthttp.Transport{Breaker: breaker, Policy: resilienthttp.Policy{MaxAttempts: -1, AttemptTimeout: 500 * ms}}
				server, call := switched(t, transport)
				server.set(500, tt.took)
				require.Equal(t, tt.enough-1, passing(t, call, tt.enough-1))
				passed := passing(t, call, 1)
				require.Equal(t, 1, passed, "one less does not open it")
				opened := time.Now()
				_, _, err := call(t.Context())
				require.ErrorIs(t, err, resilienthttp.ErrBreakerOpen)
				until := asError(t, err).NotBefore
				require.GreaterOrEqual(t, int(until.Sub(opened).Milliseconds()), tt.least)
				require.LessOrEqual(t, int(until.Sub(opened).Milliseconds()), tt.most)
				require.Zero(t, passing(t, call, 10))

				time.Sleep(time.Until(until))
				server.set(200, tt.answer)
				require.Equal(t, tt.probes, passing(t, call, 10), "half-open")
				if tt.everybodyInIs {
					require.Equal(t, 100, passing(t, call, 100))
					return
				}
				require.Equal(t, 1, passing(t, call, 100), "what drowned it must not come back at once")
				for range 40 {
					passing(t, call, 100)
					time.Sleep(10 * ms)
				}
				require.Equal(t, 100, passing(t, call, 100), "and yet soon")
			})
		})
	}
}

// §4.15: with the defaults, the few places of a circuit that is not closed are
// for calls and not for retries.
func TestCallsComeFirst(t *testing.T) {
	for _, tt := range []struct {
		name    string
		breaker *resilienthttp.Breaker
		want    int // attempts
	}{
		{"zero value", &resilienthttp.Breaker{}, 1},
		{"MinRequests of one's own", &resilienthttp.Breaker{MinRequests: 20}, 1},
		{"Cooldown of one's own", &resilienthttp.Breaker{Cooldown: time.Second}, 2},
		{"MaxCooldown of one's own", &resilienthttp.Breaker{MaxCooldown: time.Minute}, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				transport := &resilienthttp.Transport{Breaker: tt.breaker, Policy: every(5 * time.Second)}
				transport.Policy.MaxAttempts = 2
				server, call := switched(t, transport)
				server.set(500, time.Millisecond)
				for range 19 {
					_, _, err := call(resilienthttp.SingleAttempt(t.Context()))
					require.NoError(t, err)
				}
				status, attempts, err := call(t.Context())
				require.NoError(t, err)
				require.Equal(t, 500, status)
				require.Equal(t, tt.want, attempts)
			})
		})
	}
}

// What all of it is for: how much more load than usual a fleet makes in any
// second of an outage, with a Transport for each client and with one for all.
func TestFleetInAnOutage(t *testing.T) {
	const clients, quiet, outage = 400, 10 * time.Second, 15 * time.Second
	for _, tt := range []struct {
		name   string
		shared bool
		most   float64 // times what is offered; a tenth more than docs/defaults.md promises, for the dice
	}{
		{"shared", true, 1.25},
		{"own", false, 1.6},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begin := time.Now()
				var seconds [int((quiet + outage) / time.Second)]atomic.Int64
				base := roundTripper(func(r *http.Request) (*http.Response, error) {
					since := time.Since(begin)
					if i := int(since / time.Second); i < len(seconds) {
						seconds[i].Add(1)
					}
					time.Sleep(10 * time.Millisecond)
					if since < quiet || since >= quiet+outage {
						return response(r, 200, ""), nil
					}
					return response(r, 503, ""), nil
				})
				transports := make([]*resilienthttp.Transport, clients)
				for i := range transports {
					if transports[i] = (&resilienthttp.Transport{Base: base}); tt.shared {
						transports[i] = transports[0]
					}
				}
				dice := rand.New(rand.NewPCG(1, 2))
				var wg sync.WaitGroup
				for time.Since(begin) < quiet+outage {
					time.Sleep(time.Duration(dice.ExpFloat64() * float64(time.Second) / clients))
					transport := transports[dice.IntN(clients)]
					wg.Go(func() {
						ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
						defer cancel()
						if resp, err := transport.RoundTrip(get(t).WithContext(ctx)); err == nil {
							_ = resp.Body.Close()
						}
					})
				}
				wg.Wait()
				for i := range seconds {
					assert.LessOrEqual(t, float64(seconds[i].Load())/clients, tt.most, "second %d", i)
				}
			})
		})
	}
}

// The first calls of a program, several at once, have come in their own time, and
// are no herd: each may have its retries, as the Budget's formula has room for.
func TestOverloadOfFirstCallsTogether(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		fail step
	}{
		{"503", status(http.StatusServiceUnavailable)},
		{"504", status(http.StatusGatewayTimeout)},
		{"429 without Retry-After", status(http.StatusTooManyRequests)},
		{"timeout", hanging},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				const calls = 5
				var sent, served atomic.Int64
				tr := &resilienthttp.Transport{Base: roundTripper(func(r *http.Request) (*http.Response, error) {
					if sent.Add(1) <= calls {
						return tt.fail(r)
					}
					return status(http.StatusOK)(r)
				})}
				var wg sync.WaitGroup
				for range calls {
					wg.Go(func() {
						resp, err := tr.RoundTrip(get(t))
						if err == nil && resp.StatusCode == http.StatusOK {
							served.Add(1)
							_ = resp.Body.Close()
						}
					})
				}
				wg.Wait()
				require.EqualValues(t, calls, served.Load())
				require.EqualValues(t, 2*calls, sent.Load())
			})
		})
	}
}
