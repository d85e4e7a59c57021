package admission_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/admission"
	"github.com/resilienthttp/resilienthttp/internal/bubble"
	"github.com/resilienthttp/resilienthttp/quotastore"
)

// A12: whatever a store does, a request waits at most Timeout for it. Then a local
// bucket decides, or the request is rejected with 503.
func TestQuota_storeFails(t *testing.T) {
	for name, store := range map[string]storeFunc{
		"an error": func(context.Context, string, int, int, quotastore.Rule) (quotastore.Result, error) {
			return quotastore.Result{}, errRefused
		},
		"late": func(ctx context.Context, _ string, _, _ int, _ quotastore.Rule) (quotastore.Result, error) {
			<-ctx.Done()
			return quotastore.Result{}, ctx.Err()
		},
		"late, ignores its context": func(context.Context, string, int, int, quotastore.Rule) (quotastore.Result, error) {
			sleep(30 * time.Second)
			return quotastore.Result{OK: true}, nil
		},
		"panics": func(context.Context, string, int, int, quotastore.Rule) (quotastore.Result, error) { panic("store") },
		"ends its goroutine": func(context.Context, string, int, int, quotastore.Rule) (quotastore.Result, error) {
			runtime.Goexit()
			return quotastore.Result{}, nil
		},
	} {
		bubble.Run(t, name, func(t *testing.T) {
			var failures atomic.Int64
			trace := &admission.Trace{StoreFailed: func(e *admission.Event) {
				failures.Add(1)
				require.Error(t, e.Err)
			}}
			h := (&admission.Quota{Limit: 3, Store: store, Trace: trace}).Handler(ok())
			for n := range 4 {
				began := time.Now()
				want := http.StatusOK
				if n == 3 {
					want = http.StatusTooManyRequests
				}
				resp := ask(t, h)
				require.Equal(t, want, resp.StatusCode)
				require.Empty(t, resp.Header.Get("RateLimit"), "A3: a local bucket does not know what is left in the store")
				require.LessOrEqual(t, time.Since(began), 100*time.Millisecond)
			}
			require.Positive(t, failures.Load())

			closed := &admission.Quota{Limit: 3, Store: store, FailClosed: true}
			rejected := ask(t, closed.Handler(ok()))
			require.Equal(t, http.StatusServiceUnavailable, rejected.StatusCode)
			require.NotEmpty(t, rejected.Header.Get("Retry-After"))
			require.Contains(t, readProblem(t, rejected).Type, "#store")
			require.ErrorIs(t, errOf(closed.Take(t.Context(), "k", 1)), admission.ErrStore)
			sleep(time.Minute) // until the store's goroutines have ended
		})
	}
}

// A12: the fallback begins when more than half of the last 20 answers are late, and ends
// with the first good answer to a probe, which is sent once a second, with up to a quarter of it as jitter.
func TestQuota_fallbackBeginsAndEnds(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			store := newSlowStore(time.Millisecond)
			var failures atomic.Int64
			q := &admission.Quota{Limit: 1_000_000, Store: store, Trace: &admission.Trace{
				StoreFailed: func(*admission.Event) { failures.Add(1) },
			}}
			l := &load{handler: q.Handler(ok()), random: rand.New(rand.NewPCG(seed, 14)), rate: 20}
			l.send(t, 10*time.Second)
			require.Zero(t, failures.Load())
			before := store.calls.Load()
			store.setDelay(hangs)
			l.send(t, 5*time.Second)
			late := failures.Load()
			require.Equal(t, late, store.calls.Load()-before)
			require.GreaterOrEqual(t, late, int64(11+3)) // 3 or 4 probes
			require.LessOrEqual(t, late, int64(11+9+4), "at most 9 others were sent within Timeout")
			require.LessOrEqual(t, l.slow, 100*time.Millisecond)

			store.setDelay(time.Millisecond)
			sleep(1300 * time.Millisecond)
			before = store.calls.Load()
			sent := l.send(t, time.Second)[http.StatusOK]
			require.Equal(t, int64(sent), store.calls.Load()-before)
			require.Equal(t, late, failures.Load())
		})
	}
}

// A12: the fallback begins with few requests too, and soon if the store never answers.
func TestQuota_fallbackWithFewRequests(t *testing.T) {
	for _, row := range []struct {
		name     string
		interval time.Duration
		delay    time.Duration // hangs: late; 0: an error at once
		slowest  int           // requests that wait, at most; probes included
		calls    int64         // of the store, at most; in 20 requests
	}{
		{"late, a request per 3 s: each is a probe after the third", 3 * time.Second, hangs, 20, 20},
		{"late, one after the other: the first second, and two more", 0, hangs, 13, 13},
		{"late, 10 a second: the first second, and a probe a second", 100 * time.Millisecond, hangs, 9, 9},
		{"errors, one after the other: three", 0, 0, 0, 3},
		{"errors, 10 a second: three, and a probe a second", 100 * time.Millisecond, 0, 0, 5},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			var calls atomic.Int64
			store := storeFunc(func(ctx context.Context, _ string, _, _ int, _ quotastore.Rule) (quotastore.Result, error) {
				calls.Add(1)
				if row.delay > 0 {
					<-ctx.Done()
				}
				return quotastore.Result{}, errRefused
			})
			h := (&admission.Quota{Limit: 1000, Store: store}).Handler(ok())
			slow := 0
			for range 20 {
				began := time.Now()
				require.Equal(t, http.StatusOK, ask(t, h).StatusCode)
				if time.Since(began) > 0 {
					slow++
				}
				sleep(row.interval)
			}
			t.Logf("%d requests waited, %d calls", slow, calls.Load())
			require.LessOrEqual(t, slow, row.slowest)
			require.LessOrEqual(t, calls.Load(), row.calls)
		})
	}
}

// A12: after a quiet time, two late answers begin no fallback, and three do.
func TestQuota_fallbackAfterQuietTime(t *testing.T) {
	for late, fallback := range map[int]bool{1: false, 2: false, 3: true} {
		synctest.Test(t, func(t *testing.T) {
			store := newSlowStore(time.Millisecond)
			h := (&admission.Quota{Limit: 1000, Store: store}).Handler(ok())
			asks(t, h, 20)
			sleep(11 * time.Second)
			store.setDelay(hangs)
			asks(t, h, late)
			before := store.calls.Load()
			ask(t, h)
			require.Equal(t, fallback, store.calls.Load() == before)
		})
	}
}

// A12: only one request a second is a probe. If its client goes away, the next request is
// the probe.
func TestQuota_probes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, h := hangingStore(t, 0)
		asks(t, h, 3)
		require.EqualValues(t, 3, store.calls.Load(), "the fallback began: 2 of 3 answers were late")
		sleep(990 * time.Millisecond)
		asks(t, h, 10)
		require.EqualValues(t, 3, store.calls.Load())
		sleep(300 * time.Millisecond) // the jitter of a probe
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() { ask(t, h) })
		}
		all.Wait()
		require.EqualValues(t, 4, store.calls.Load(), "one probe")

		sleep(1300 * time.Millisecond)
		ask(t, h, within(t, 10*time.Millisecond))
		require.EqualValues(t, 5, store.calls.Load())
		store.setDelay(time.Millisecond)
		asks(t, h, 10)
		require.EqualValues(t, 15, store.calls.Load(), "the first of them was the probe")
	})
}

// A12: connecting is not counted. The first answers take longer than Timeout, and no
// request is rejected and no fallback begins.
func TestQuota_storeConnects(t *testing.T) {
	for _, connect := range []time.Duration{150 * time.Millisecond, 400 * time.Millisecond, 900 * time.Millisecond} {
		for _, failClosed := range []bool{false, true} {
			for _, parallel := range []int{1, 50} {
				synctest.Test(t, func(t *testing.T) {
					began := time.Now()
					store := &slowStore{delay: func() time.Duration { // as a pool that dials in the background
						return max(time.Millisecond, connect-time.Since(began))
					}}
					h := (&admission.Quota{Limit: 1_000_000, Store: store, FailClosed: failClosed}).Handler(ok())
					var all sync.WaitGroup
					var sent atomic.Int64
					for range parallel {
						all.Go(func() {
							for time.Since(began) < 2*time.Second {
								sleep(10 * time.Millisecond)
								start := time.Now()
								sent.Add(1)
								require.Equal(t, http.StatusOK, ask(t, h).StatusCode)
								if !failClosed {
									require.LessOrEqual(t, time.Since(start), 100*time.Millisecond)
								}
							}
						})
					}
					all.Wait()
					require.Equal(t, sent.Load(), store.calls.Load(), "no fallback")
				})
			}
		}
	}
}

// hangingStore returns a store that hangs after its first answer, and a handler that waits for it.
func hangingStore(t *testing.T, timeout time.Duration) (*slowStore, http.Handler) {
	t.Helper()
	store := newSlowStore(time.Millisecond)
	h := (&admission.Quota{Limit: 1000, Store: store, Timeout: timeout}).Handler(ok())
	ask(t, h)
	store.setDelay(hangs)
	return store, h
}

// A12: a late answer to a call from before the fallback says nothing about the store after
// it.
func TestQuota_lateAnswerAfterFallback(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, h := hangingStore(t, 3*time.Second)
		var all sync.WaitGroup
		for n := range 32 { // late from 3 s to 6.1 s; the fallback begins at 3.1 s
			all.Go(func() {
				sleep(time.Duration(n) * 100 * time.Millisecond)
				ask(t, h)
			})
		}
		sleep(4400 * time.Millisecond)
		store.setDelay(time.Millisecond)
		before := store.calls.Load()
		ask(t, h) // the probe ends the fallback
		all.Wait()
		ask(t, h)
		require.Equal(t, before+2, store.calls.Load(), "no second fallback")
	})
}

// A12: a late answer to a probe says nothing about the store after the fallback that it tested.
func TestQuota_lateProbeAfterFallback(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, h := hangingStore(t, 3*time.Second)
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() { ask(t, h) })
		}
		all.Wait() // the fallback begins at 3 s
		sleep(1300 * time.Millisecond)
		probed := store.calls.Load()
		all.Go(func() { ask(t, h) }) // a probe that is late after 3 s
		sleep(1300 * time.Millisecond)
		store.setDelay(time.Millisecond)
		ask(t, h) // a second probe ends the fallback
		require.Equal(t, probed+2, store.calls.Load(), "two probes")
		all.Wait()
		ask(t, h)
		require.Equal(t, probed+3, store.calls.Load(), "the store is called")
	})
}

// A12: what the store rejects is not admitted by the local bucket when a later answer is
// late or the fallback begins.
func TestQuota_localBucketOfRejectedKey(t *testing.T) {
	for _, sliding := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			store := newSlowStore(time.Millisecond)
			h := (&admission.Quota{Limit: 5, Sliding: sliding, Store: store}).Handler(ok())
			for range 5 {
				require.Equal(t, http.StatusOK, ask(t, h).StatusCode)
			}
			require.Equal(t, http.StatusTooManyRequests, ask(t, h).StatusCode)
			store.setDelay(hangs)
			for range 10 {
				require.Equal(t, http.StatusTooManyRequests, ask(t, h).StatusCode)
			}
			require.Equal(t, http.StatusOK, ask(t, h, from("192.0.2.77:1")).StatusCode, "another key")
		})
	}
}

// The names and keys of two quotas in one store are never the same account.
func TestQuota_namesInSharedStore(t *testing.T) {
	var store quotastore.Memory
	for _, account := range [][2]string{
		{"api", "write:a"}, {"api:write", "a"}, {"api%3Awrite", "a"}, {"api", ":write:a"}, {"api:", "write:a"}, {"api%", "a"}, {"api%25", "a"},
	} {
		q := &admission.Quota{Name: account[0], Limit: 1, Store: &store, Timeout: time.Minute}
		result, err := q.Take(t.Context(), account[1], 1)
		require.NoError(t, err)
		require.True(t, result.OK, "%q has its own account", account)
	}
}

// A request that ends before the store answers is no failure of the store.
func TestQuota_clientGoesAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newSlowStore(50 * time.Millisecond)
		var failures atomic.Int64
		q := &admission.Quota{Limit: 1000, Store: store, Trace: &admission.Trace{
			StoreFailed: func(*admission.Event) { failures.Add(1) },
			Rejected:    func(e *admission.Event) { require.Equal(t, admission.ReasonCanceled, e.Reason) },
		}}
		h := q.Handler(ok())
		for range 30 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			time.AfterFunc(10*time.Millisecond, cancel)
			resp := ask(t, h, func(r *http.Request) { *r = *r.WithContext(ctx) })
			require.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
		}
		require.Zero(t, failures.Load())
		before := store.calls.Load()
		require.Equal(t, http.StatusOK, ask(t, h).StatusCode)
		require.Equal(t, before+1, store.calls.Load(), "no fallback")
	})
}

// A12: the return of a replay's cost waits at most Timeout, and is not sent during the
// fallback.
func TestQuota_replayWithLateStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newSlowStore(time.Millisecond)
		var failures atomic.Int64
		q := &admission.Quota{Limit: 1000, Store: store, Timeout: 20 * time.Millisecond, Trace: &admission.Trace{
			StoreFailed: func(*admission.Event) { failures.Add(1) },
		}}
		h := q.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Idempotency-Replayed", "true")
			store.setDelay(hangs)
		}))
		for range 3 {
			store.setDelay(time.Millisecond)
			began := time.Now()
			ask(t, h)
			require.Equal(t, 21*time.Millisecond, time.Since(began))
		}
		require.EqualValues(t, 3, failures.Load())
		require.EqualValues(t, 6, store.calls.Load(), "3 of 6 late are not more than half")
		asks(t, h, 2)
		require.EqualValues(t, 7, store.calls.Load(), "4 of 7 are")
	})
}

// storeFunc is a Store that consists of its Take.
type storeFunc func(ctx context.Context, key string, want, minUnits int, r quotastore.Rule) (quotastore.Result, error)

func (f storeFunc) Take(ctx context.Context, key string, want, minUnits int, r quotastore.Rule) (quotastore.Result, error) {
	return f(ctx, key, want, minUnits, r)
}

func (f storeFunc) Block(context.Context, string, time.Time) error { return nil }

func newSlowStore(delay time.Duration) *slowStore {
	s := new(slowStore)
	s.setDelay(delay)
	return s
}

// slowStore is a Memory that answers after a delay, or when the context is done. Half of
// the takes that end with the context are counted.
type slowStore struct {
	memory quotastore.Memory
	calls  atomic.Int64

	mu    sync.Mutex
	delay func() time.Duration // called under the lock
}

func (s *slowStore) setDelay(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.delay = func() time.Duration { return d }
}

func (s *slowStore) Take(ctx context.Context, key string, want, minUnits int, r quotastore.Rule) (quotastore.Result, error) {
	n := s.calls.Add(1)
	s.mu.Lock()
	timer := time.NewTimer(s.delay())
	s.mu.Unlock()
	defer timer.Stop()
	select {
	case <-timer.C:
		return s.memory.Take(ctx, key, want, minUnits, r)
	case <-ctx.Done():
		if n%2 == 0 {
			_, _ = s.memory.Take(context.WithoutCancel(ctx), key, want, minUnits, r)
		}
		return quotastore.Result{}, ctx.Err()
	}
}

func (s *slowStore) Block(ctx context.Context, key string, until time.Time) error {
	return s.memory.Block(ctx, key, until)
}

// hangs is a delay that no test waits for.
const hangs = time.Hour

var errRefused = errors.New("connection refused")

// load sends requests with one key at random times, and counts their statuses.
type load struct {
	handler http.Handler
	random  *rand.Rand
	rate    float64 // requests per second

	mu     sync.Mutex
	status map[int]int
	slow   time.Duration // the longest request
	all    sync.WaitGroup
}

func (l *load) send(t *testing.T, length time.Duration) (status map[int]int) {
	t.Helper()
	l.status = map[int]int{}
	for end := time.Now().Add(length); time.Now().Before(end); {
		l.all.Go(func() {
			began := time.Now()
			code := ask(t, l.handler).StatusCode
			l.mu.Lock()
			defer l.mu.Unlock()
			l.status[code]++
			l.slow = max(l.slow, time.Since(began))
		})
		sleep(time.Duration(l.random.ExpFloat64() / l.rate * float64(time.Second)))
	}
	l.all.Wait()
	return l.status
}

// A12: with 1 in 1,000 answers late, at most .2 % of the requests are rejected with
// FailClosed, and at most 1.02 × the limit is admitted without it, at any load.
func TestQuota_fewLateAnswers(t *testing.T) {
	const limit = 100
	for _, row := range []struct {
		name    string
		late    float64
		rate    float64 // of the requests, a second
		sliding bool
		servers int
		most    float64 // of the limit, admitted
		length  time.Duration
		seeds   uint64
	}{
		{"1 in 1,000, half of the limit", .001, 50, false, 1, 1, 20 * time.Second, 2},
		{"1 in 1,000, 3 times the limit", .001, 300, false, 1, 1.02, 10 * time.Second, 2},
		{"1 in 1,000, 30 times the limit", .001, 3000, false, 1, 1.02, 5 * time.Second, 1},
		{"1 in 1,000, 30 times the limit, sliding", .001, 3000, true, 1, 1.02, 5 * time.Second, 1},
		{"1 in 1,000, 20 times the limit, 10 servers", .001, 2000, false, 10, 1.02, 5 * time.Second, 1},
		{"1 in 100, 3 times the limit", .01, 300, false, 1, 1.02, 10 * time.Second, 2},
	} {
		t.Run(row.name, func(t *testing.T) {
			for seed := range row.seeds {
				for _, failClosed := range []bool{false, true} {
					synctest.Test(t, func(t *testing.T) {
						random := rand.New(rand.NewPCG(seed, 12))
						store := &slowStore{delay: func() time.Duration {
							if random.Float64() < row.late {
								return hangs
							}
							return time.Millisecond
						}}
						servers := make([]http.Handler, row.servers)
						for i := range servers {
							q := &admission.Quota{Limit: limit, Window: time.Second, Sliding: row.sliding, Store: store, FailClosed: failClosed}
							servers[i] = q.Handler(ok())
						}
						balance := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
							servers[rand.IntN(len(servers))].ServeHTTP(w, r)
						})
						l := &load{handler: balance, random: rand.New(rand.NewPCG(seed, 13)), rate: row.rate}
						got := l.send(t, row.length)
						total := float64(got[http.StatusOK] + got[http.StatusTooManyRequests] + got[http.StatusServiceUnavailable])
						unavailable := float64(got[http.StatusServiceUnavailable]) / total
						admitted := float64(got[http.StatusOK]) / (limit*row.length.Seconds() + limit)
						t.Logf("seed %d, FailClosed %v: %.4f rejected with 503, %.3f of the limit admitted", seed, failClosed, unavailable, admitted)
						require.LessOrEqual(t, admitted, row.most)
						require.LessOrEqual(t, l.slow, 100*time.Millisecond)
						if failClosed {
							// Twice the share, and as much as chance may add to a few.
							require.LessOrEqual(t, unavailable, 2*row.late+3/total)
						} else {
							require.Zero(t, unavailable)
						}
						if row.rate < limit {
							require.Zero(t, got[http.StatusTooManyRequests])
						}
					})
				}
			}
		})
	}
}

// A12: a store that never returns holds at most 1000 goroutines, and each request waits at
// most Timeout for it.
func TestQuota_storeHangs(t *testing.T) {
	for _, answers := range []int64{0, 100} {
		synctest.Test(t, func(t *testing.T) {
			var calls atomic.Int64
			var held, most atomic.Int64
			over := make(chan struct{})
			store := storeFunc(func(context.Context, string, int, int, quotastore.Rule) (quotastore.Result, error) {
				if calls.Add(1) <= answers {
					return quotastore.Result{OK: true}, nil
				}
				most.Store(max(most.Load(), held.Add(1)))
				<-over
				return quotastore.Result{}, errRefused
			})
			q := &admission.Quota{Limit: 1 << 30, Store: store}
			l := &load{handler: q.Handler(ok()), random: rand.New(rand.NewPCG(1, 15)), rate: 10_000}
			require.Len(t, l.send(t, 3*time.Second), 1)
			t.Logf("%d goroutines were held", most.Load())
			require.LessOrEqual(t, most.Load(), int64(1000))
			require.LessOrEqual(t, l.slow, 100*time.Millisecond)
			close(over)
			synctest.Wait()
		})
	}
}
