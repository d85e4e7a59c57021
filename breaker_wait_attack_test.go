package resilienthttp_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
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
	"github.com/resilienthttp/resilienthttp/faulttest"
	"github.com/resilienthttp/resilienthttp/internal/bubble"
)

// 1. A held call keeps the connection of its last response. With MaxConnsPerHost the held calls have all connections, and
// new calls, which are preferred as probes, wait for one: the healthy server is not reached until the held calls end.
func TestAttack_heldResponsesPinConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var away atomic.Bool
		srv := faulttest.NewInMemory(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			time.Sleep(150 * time.Millisecond)
			if away.Load() {
				w.WriteHeader(http.StatusServiceUnavailable)
				_, _ = io.WriteString(w, "away")
			}
		}))
		base := srv.Transport()
		base.MaxConnsPerHost = 8
		tr := &resilienthttp.Transport{Base: base}
		do := func(ctx context.Context) error {
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, srv.URL, nil)
			if err != nil {
				return err
			}
			resp, err := tr.RoundTrip(req)
			if err != nil {
				return err
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
			if resp.StatusCode != http.StatusOK {
				return errors.New(resp.Status)
			}
			return nil
		}
		for range 30 {
			require.NoError(t, do(t.Context()))
			time.Sleep(10 * time.Millisecond)
		}
		away.Store(true)
		begun := time.Now()
		time.AfterFunc(time.Second, func() { away.Store(false) }) // a restart of one second
		var calls sync.WaitGroup
		var failed, slow atomic.Int64
		for range 6 * 40 {
			calls.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				start := time.Now()
				err := do(ctx)
				if err != nil {
					failed.Add(1)
				} else if start.Sub(begun) > 2*time.Second && time.Since(start) > time.Second {
					slow.Add(1)
				}
			})
			time.Sleep(25 * time.Millisecond)
		}
		calls.Wait()
		t.Logf("failed %d, slow %d of 240", failed.Load(), slow.Load())
		require.LessOrEqual(t, failed.Load(), int64(12))
		require.Zero(t, slow.Load(), "calls that begin a second after the server is back take longer than a second")
	})
}

// 2. The probe is the call that began first: with equal deadlines the one that has no time left.
func TestAttack_probesHaveNoTime(t *testing.T) {
	for _, row := range []struct {
		name     string
		fault    step
		takes    time.Duration // after the outage
		away     time.Duration
		deadline time.Duration
		warm     bool
	}{
		{"503, warm, as usual", status(503), 20 * time.Millisecond, 6 * time.Second, time.Second, true},
		{"503, warm, one and a half of usual", status(503), 30 * time.Millisecond, 6 * time.Second, time.Second, true},
		{"503, cold start", status(503), 20 * time.Millisecond, 6 * time.Second, time.Second, false},
		{"503, warm, 2 s", status(503), 30 * time.Millisecond, 6 * time.Second, 2 * time.Second, true},
		{"hanging, warm", hanging, 30 * time.Millisecond, 6 * time.Second, time.Second, true},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			begun := time.Now()
			from := time.Duration(0)
			if row.warm {
				from = 10 * time.Second
			}
			back := from + row.away
			tr := &resilienthttp.Transport{Base: roundTripper(func(r *http.Request) (*http.Response, error) {
				at := time.Since(begun)
				switch {
				case at < from:
					return after(20*time.Millisecond, status(200))(r)
				case at < back:
					return row.fault(r)
				}
				return after(row.takes, status(200))(r)
			})}
			lost := lostCalls(t, tr, row.deadline, back+25*time.Second, time.Second/200, back+2*time.Second, back+3*time.Second)
			require.Less(t, lost, int64(20), "of 200 calls that begin two seconds after the server is back")
		})
	}
}

// 2b. Slow start releases the call that began first: it has no time left, so no response comes in time, and the limit does
// not grow. The server is healthy, and no call succeeds.
func TestAttack_slowStartHasNoTime(t *testing.T) {
	for _, away := range []time.Duration{time.Second, 3 * time.Second, 10 * time.Second} {
		for _, takes := range []time.Duration{20 * time.Millisecond, 30 * time.Millisecond, 50 * time.Millisecond} {
			bubble.Run(t, fmt.Sprint(away, ", ", takes), func(t *testing.T) {
				begun := time.Now()
				const from = 10 * time.Second
				back := from + away
				tr := &resilienthttp.Transport{Base: roundTripper(func(r *http.Request) (*http.Response, error) {
					switch at := time.Since(begun); {
					case at < from:
						return after(20*time.Millisecond, status(200))(r)
					case at < back:
						return hanging(r)
					}
					return after(takes, status(200))(r)
				})}
				lost := lostCalls(t, tr, time.Second, back+40*time.Second, time.Second/200, back+5*time.Second, back+6*time.Second)
				require.Less(t, lost, int64(20), "of 200 calls that begin five seconds after the server is back")
			})
		}
	}
}

// 3. Retries that wait for Retry-After while the circuit is open have no jitter and no token: all are sent at once if the
// circuit has closed in the meantime.
func TestAttack_retryAfterHerd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		var mu sync.Mutex
		perMS := map[int]int{}
		tr := &resilienthttp.Transport{Base: roundTripper(func(r *http.Request) (*http.Response, error) {
			at := time.Since(begun)
			mu.Lock()
			perMS[int(at/time.Millisecond)]++
			mu.Unlock()
			if at >= 10*time.Second && at < 10*time.Second+600*time.Millisecond {
				return after(10*time.Millisecond, status(503, "Retry-After", "3"))(r)
			}
			return after(10*time.Millisecond, status(200))(r)
		})}
		var calls sync.WaitGroup
		one := func() {
			calls.Go(func() { _ = discard(tr, get(t)) })
		}
		for time.Since(begun) < 10*time.Second {
			one()
			time.Sleep(20 * time.Millisecond)
		}
		for i := range 20 {
			one()
			time.Sleep(25 * time.Millisecond)
			if i == 11 { // the circuit opens while a batch is in flight
				for range 500 {
					one()
				}
			}
		}
		for range 100 {
			one()
			time.Sleep(20 * time.Millisecond)
		}
		calls.Wait()
		most := 0
		for ms, n := range perMS {
			if ms > 10_800 {
				most = max(most, n)
			}
		}
		require.Less(t, most, 50, "requests in one millisecond")
	})
}

// 4. The drain of the last response is a part of the retry's latency, and of its timeout.
func TestAttack_drainCountsInLatency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := withBody(503, newBlocking())
		b := fragile(time.Second)
		base := script(slow, status(200))
		tr := &resilienthttp.Transport{Base: base, Breaker: b, Policy: resilienthttp.Policy{AttemptTimeout: 90 * time.Millisecond}}
		resp := roundTrip(t, tr, get(t))
		require.Zero(t, lastOf(t, resp).Latency)
		require.NoError(t, resp.Body.Close())
		require.Len(t, resilienthttp.Attempts(resp), 2)
	})
}

// 5. A client that begins while its server is away does not know the usual latency: 100 ms are slow, so ten calls a second
// are released, and the healthy server's callers run out of time.
func TestAttack_releaseWithoutBaseline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		tr := &resilienthttp.Transport{Base: roundTripper(func(r *http.Request) (*http.Response, error) {
			if time.Since(begun) < 4*time.Second {
				return refused(r)
			}
			return after(150*time.Millisecond, status(200))(r)
		})}
		lost := lostCalls(t, tr, 10*time.Second, 20*time.Second, 10*time.Millisecond, 0, math.MaxInt64)
		t.Log("lost", lost, "of the 400 calls that began in the outage")
		require.Less(t, lost, int64(20))
	})
}

// 7. A held retry that the rate limit rejects loses the last response, although its body was kept.
func TestAttack_rateLimitAfterHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := script(status(503), status(200))
		tr := &resilienthttp.Transport{Base: base, Breaker: fragile(2 * time.Second), RateLimit: &resilienthttp.RateLimit{Limit: 0.01, Burst: 1, MaxWait: -1}}
		require.Equal(t, "status 503", readAll(t, roundTrip(t, tr, get(t))))
		base.requireBalance(t)
	})
}

// 10. A Base sends the request, and then makes a second call, which an open circuit rejects.
func TestAttack_innerSecondCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := &resilienthttp.Transport{Base: script(status(503)), Breaker: fragile(time.Hour)}
		once(t, inner, "/")
		var paid int
		base := roundTripper(func(r *http.Request) (*http.Response, error) {
			_, _ = io.Copy(io.Discard, r.Body)
			_ = r.Body.Close()
			paid++ // the payment is done
			_, err := inner.RoundTrip(newRequest(t, http.MethodPost, "http://api.test/audit", "x").WithContext(r.Context()))
			return nil, err
		})
		tr := withoutKeys(&resilienthttp.Transport{Base: base, Policy: every(time.Millisecond)})
		_, err := tr.RoundTrip(newRequest(t, http.MethodPost, "http://api.test/pay", "x"))
		require.Error(t, err)
		require.Equal(t, 1, paid)
	})
}

// 12. Chaos: at most one POST without a key that may have done the work; all bodies are closed; nothing is left.
func TestAttack_chaos(t *testing.T) {
	for seed := range uint64(40) {
		bubble.Run(t, fmt.Sprint(seed), func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 1))
			begun := time.Now()
			var mu sync.Mutex
			work := map[string]int{}
			float := func() float64 { mu.Lock(); defer mu.Unlock(); return rnd.Float64() }
			ends := 10*time.Second + time.Duration(float()*float64(10*time.Second))
			base := script(func(r *http.Request) (*http.Response, error) {
				at := time.Since(begun)
				id := r.Header.Get("X-Id")
				does := func() { mu.Lock(); work[id]++; mu.Unlock() }
				time.Sleep(time.Duration(float() * float64(20*time.Millisecond)))
				if err := r.Context().Err(); err != nil {
					return nil, err
				}
				if at < 5*time.Second || at > ends {
					does()
					return status(200)(r)
				}
				switch x := float(); {
				case x < .2:
					return refused(r)
				case x < .4:
					does()
					return nil, errReset
				case x < .5:
					does()
					return status(500)(r)
				case x < .6:
					return status(503, "Retry-After", "1")(r)
				case x < .7:
					does()
					return hanging(r)
				case x < .75:
					return status(429)(r)
				case x < .8:
					does()
					return withBody(502, newBlocking())(r)
				default:
					return status(503)(r)
				}
			})
			limit := &resilienthttp.RateLimit{}
			if seed%3 == 0 {
				limit = &resilienthttp.RateLimit{Limit: 30, MaxWait: 2 * time.Second, MaxInFlight: 20}
			}
			tr := withoutKeys(&resilienthttp.Transport{Base: base, RateLimit: limit, Policy: resilienthttp.Policy{AttemptTimeout: time.Second}})
			if seed%4 == 1 {
				tr.Hedge = &resilienthttp.Hedge{Delay: 15 * time.Millisecond, MaxRatio: -1}
			}
			if seed%5 == 2 {
				tr.Trace = &resilienthttp.Trace{QueueWait: func(*resilienthttp.Attempt) {
					if float() < .05 {
						panic("hook")
					}
				}}
			}
			if seed%2 == 0 {
				tr.Breaker = fragile(300 * time.Millisecond)
			}
			var calls sync.WaitGroup
			for i := range 1500 {
				calls.Go(func() {
					defer func() { _ = recover() }()
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration((.2+5*float())*float64(time.Second)))
					defer cancel()
					if float() < .3 {
						time.AfterFunc(time.Duration(float()*float64(3*time.Second)), cancel)
					}
					method := http.MethodPost
					if float() < .3 {
						method = http.MethodGet
					}
					req := newRequest(t, method, "http://api.test/", "x").WithContext(ctx)
					id := fmt.Sprint(method, i)
					req.Header.Set("X-Id", id)
					resp, err := tr.RoundTrip(req)
					doubt := resilienthttp.InDoubt(resp, err)
					mu.Lock()
					n := work[id]
					mu.Unlock()
					if method == http.MethodPost {
						assert.LessOrEqual(t, n, 1, id)
						if n > 0 && (err != nil || resp.StatusCode != http.StatusOK) {
							assert.True(t, doubt, "%s: %s", id, resilienthttp.Explain(resp, err))
						}
					}
					var failed *resilienthttp.Error
					if errors.As(err, &failed) && n > 0 {
						assert.False(t, failed.NotSent())
					}
					if err == nil {
						if resp.StatusCode == http.StatusServiceUnavailable {
							text, err := io.ReadAll(resp.Body)
							assert.True(t, err != nil && ctx.Err() != nil || bytes.Equal(text, []byte("status 503")), "%q %v", text, err)
						}
						_ = resp.Body.Close()
					}
				})
				time.Sleep(time.Duration(float() * float64(40*time.Millisecond)))
			}
			calls.Wait()
			time.Sleep(time.Second)
			base.requireBalance(t)
			nothingLeft(t, tr)
		})
	}
}
