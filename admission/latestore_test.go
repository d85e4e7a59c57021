package admission_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/admission"
	"github.com/resilienthttp/resilienthttp/quotastore"
)

// storeFunc is a Store that consists of its Take.
type storeFunc func(ctx context.Context, key string, want, minUnits int, r quotastore.Rule) (quotastore.Result, error)

func (f storeFunc) Take(ctx context.Context, key string, want, minUnits int, r quotastore.Rule) (quotastore.Result, error) {
	return f(ctx, key, want, minUnits, r)
}

func (f storeFunc) Block(context.Context, string, time.Time) error { return nil }

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

// A3: a local bucket that decides in place of a late store does not know what is left, so the
// response has no RateLimit field.
func TestQuota_headersOfALateStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var late atomic.Bool
		store := storeFunc(func(ctx context.Context, _ string, _, _ int, _ quotastore.Rule) (quotastore.Result, error) {
			if late.Load() {
				<-ctx.Done()
				return quotastore.Result{}, ctx.Err()
			}
			return quotastore.Result{OK: true, Allowed: 1, Remaining: 5, ResetAfter: time.Second}, nil
		})
		q := &admission.Quota{Limit: 100, Store: store}
		h := q.Handler(http.NotFoundHandler())
		ask := func() http.Header {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
			require.Equal(t, http.StatusNotFound, w.Code)
			return w.Header()
		}
		require.Contains(t, ask().Get("RateLimit"), "r=5")
		late.Store(true)
		require.Empty(t, ask().Get("RateLimit"))
		late.Store(false)
		require.Contains(t, ask().Get("RateLimit"), "r=5")
	})
}
