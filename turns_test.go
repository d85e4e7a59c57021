package resilienthttp_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/internal/bubble"
)

// timedCalls makes calls at random times, and returns how long each took that was served.
func timedCalls(t *testing.T, tr http.RoundTripper, method string, perSecond float64, lasts, deadline time.Duration) (took []time.Duration, failed int) {
	t.Helper()
	random := rand.New(rand.NewPCG(uint64(perSecond), 82))
	var mu sync.Mutex
	var all sync.WaitGroup
	for begun := time.Now(); time.Since(begun) < lasts; {
		all.Go(func() {
			start := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), deadline)
			defer cancel()
			resp, err := tr.RoundTrip(newRequest(t, method, "http://api.test/", "").WithContext(ctx))
			served := finish(t, resp, err)
			mu.Lock()
			defer mu.Unlock()
			if served {
				took = append(took, time.Since(start))
			} else {
				failed++
			}
		})
		time.Sleep(time.Duration(random.ExpFloat64() * float64(time.Second) / perSecond))
	}
	all.Wait()
	slices.Sort(took)
	return took, failed
}

// §4.16: a limiter rejects everything for one second of five and asks to wait for a second. Calls wait about as long as it asks,
// although the tokens for retries are spent.
func TestTurns_secondsOf429s(t *testing.T) {
	for _, perSecond := range []float64{5, 30, 100, 330} {
		bubble.Run(t, fmt.Sprint(perSecond), func(t *testing.T) {
			begun := time.Now()
			tr := &resilienthttp.Transport{Base: roundTripper(func(r *http.Request) (*http.Response, error) {
				time.Sleep(20 * time.Millisecond)
				if time.Since(begun)%(5*time.Second) < time.Second {
					return response(r, http.StatusTooManyRequests, "", "Retry-After", "1"), nil
				}
				return response(r, http.StatusOK, ""), nil
			})}
			took, failed := timedCalls(t, tr, http.MethodGet, perSecond, 40*time.Second, 10*time.Second)
			p99 := took[len(took)*99/100]
			t.Logf("p99 %v, %d of %d fail", p99, failed, len(took)+failed)
			require.Zero(t, failed)
			require.LessOrEqual(t, p99, 3*time.Second)
		})
	}
}

// §4.16: a batch begins while a server that has worked restarts or has too much work. Each call of it has time, so each is served,
// although there are far fewer tokens than calls.
func TestTurns_batch(t *testing.T) {
	for _, row := range []struct {
		name  string
		calls int
		away  time.Duration
		fault func(r *http.Request) (*http.Response, error)
	}{
		{"296 POSTs, 500 for a second", 296, time.Second, status(http.StatusInternalServerError)},
		{"40 POSTs, 503 for three seconds", 40, 3 * time.Second, status(http.StatusServiceUnavailable)},
		{"1000 POSTs, 502 for half a second", 1000, time.Second / 2, status(http.StatusBadGateway)},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			var away atomic.Bool
			tr := &resilienthttp.Transport{Base: roundTripper(func(r *http.Request) (*http.Response, error) {
				time.Sleep(20 * time.Millisecond)
				if away.Load() {
					return row.fault(r)
				}
				return response(r, http.StatusOK, ""), nil
			})}
			require.True(t, succeeds(t, tr, "/", time.Second))
			away.Store(true)
			time.AfterFunc(row.away, func() { away.Store(false) })
			var served atomic.Int64
			var all sync.WaitGroup
			for range row.calls {
				all.Go(func() {
					req := newRequest(t, http.MethodPost, "http://api.test/", "x").WithContext(withDeadline(t, 30*time.Second))
					resp, err := tr.RoundTrip(req)
					if finish(t, resp, err) {
						served.Add(1)
					}
				})
			}
			all.Wait()
			t.Logf("%d of %d", served.Load(), row.calls)
			require.EqualValues(t, row.calls, served.Load())
		})
	}
}

// §4.16: a path fails beside others, and a call of it that may have only one attempt has ended. While it may be a short outage, the
// other calls wait for their turns, so nearly all are served. After it has failed for long, a call without a token ends at once.
func TestTurns_pathThatFails(t *testing.T) {
	for _, row := range []struct {
		name  string
		fails time.Duration
	}{{"for 7 s", 7 * time.Second}, {"always", time.Hour}} {
		bubble.Run(t, row.name, func(t *testing.T) {
			begun := time.Now()
			tr := &resilienthttp.Transport{Base: roundTripper(func(r *http.Request) (*http.Response, error) {
				if r.URL.Path == "/fails" && time.Since(begun) < row.fails {
					return response(r, http.StatusInternalServerError, ""), nil
				}
				return response(r, http.StatusOK, ""), nil
			})}
			resp, err := tr.RoundTrip(newRequest(t, http.MethodGet, "http://api.test/fails", "").WithContext(resilienthttp.WithSingleAttempt(t.Context())))
			require.False(t, finish(t, resp, err))
			var all sync.WaitGroup
			var mu sync.Mutex
			var failed int           // of those that began before 7 s
			var late []time.Duration // how long those took that began after 60 s
			for range 200 {
				time.Sleep(500 * time.Millisecond)
				succeeds(t, tr, "/works", time.Second)
				all.Go(func() {
					start := time.Now()
					served := succeeds(t, tr, "/fails", 30*time.Second)
					mu.Lock()
					defer mu.Unlock()
					if start.Sub(begun) < 7*time.Second && !served {
						failed++
					}
					if start.Sub(begun) > time.Minute {
						late = append(late, time.Since(start))
					}
				})
			}
			all.Wait()
			slices.Sort(late)
			t.Logf("%d fail; %v", failed, late)
			if row.fails < time.Hour {
				require.LessOrEqual(t, failed, 2) // of 14: one may have used all its attempts
				return
			}
			require.Less(t, late[len(late)*3/4], time.Second)
		})
	}
}

// §4.16: a limiter that says nothing but 429 gets few more of them than from a client that never retries, and the same or more is
// served. Without turns, each waiting call was sent again and again.
func TestTurns_silentLimiter(t *testing.T) {
	for _, times := range []float64{1.3, 2, 3} {
		for _, limit := range []int{5, 30, 100} {
			bubble.Run(t, fmt.Sprintf("%.1f times %d a second", times, limit), func(t *testing.T) {
				const lasts = time.Minute
				count := func(client func(http.RoundTripper) http.RoundTripper) (served int, rejected int64) {
					window := fixedWindow{limit: limit, length: time.Second}
					var rejections atomic.Int64
					base := limiterModel(func(at time.Duration, path string) (int, []any) {
						code, _ := window.asksToWait(at, path)
						if code != http.StatusOK {
							rejections.Add(1)
						}
						return code, nil
					}).server()
					took, _ := timedCalls(t, client(base), http.MethodGet, times*float64(limit), lasts, 10*time.Second)
					return len(took), rejections.Load()
				}
				bareServed, bare := count(func(base http.RoundTripper) http.RoundTripper { return base })
				minutes := max(30/limit, 1) // of few calls the rejections vary by a tenth, so several minutes are measured
				served, rejected := 0, int64(0)
				for range minutes {
					ok, no := count(func(base http.RoundTripper) http.RoundTripper { return &resilienthttp.Transport{Base: base} })
					served += ok
					rejected += no
				}
				t.Logf("a minute: bare: served %d, rejected %d; ours: served %d, rejected %d", bareServed, bare, served/minutes, rejected/int64(minutes))
				require.GreaterOrEqual(t, served, minutes*bareServed*99/100)
				require.LessOrEqual(t, float64(rejected), float64(minutes)*(2.2*float64(bare)+25))
			})
		}
	}
}
