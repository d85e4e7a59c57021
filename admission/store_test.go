package admission_test

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/admission"
	"github.com/resilienthttp/resilienthttp/quotastore"
)

// storeFunc is a Store that does what it is told.
type storeFunc func(ctx context.Context, key string, want, least int, r quotastore.Rule) (quotastore.Result, error)

func (f storeFunc) Take(ctx context.Context, key string, want, least int, r quotastore.Rule) (quotastore.Result, error) {
	return f(ctx, key, want, least, r)
}

func (f storeFunc) Block(context.Context, string, time.Time) error { return nil }

// A store that is down, slow, full or broken: nobody waits for it for long, and a
// bucket of the same size stands in; or 503, if the Quota has FailClosed.
func TestQuotaWhoseStoreFails(t *testing.T) {
	for name, store := range map[string]storeFunc{
		"down": func(context.Context, string, int, int, quotastore.Rule) (quotastore.Result, error) {
			return quotastore.Result{}, errors.New("connection refused")
		},
		"slow": func(ctx context.Context, _ string, _, _ int, _ quotastore.Rule) (quotastore.Result, error) {
			<-ctx.Done()
			return quotastore.Result{}, ctx.Err()
		},
		"deaf": func(context.Context, string, int, int, quotastore.Rule) (quotastore.Result, error) {
			sleep(30 * time.Second)
			return quotastore.Result{OK: true}, nil
		},
		"panicking": func(context.Context, string, int, int, quotastore.Rule) (quotastore.Result, error) { panic("store") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var told atomic.Int64
				trace := &admission.Trace{StoreFailed: func(e *admission.Event) {
					told.Add(1)
					require.Error(t, e.Err)
				}}
				h := (&admission.Quota{Limit: 3, Store: store, Trace: trace}).Handler(ok())
				began := time.Now()
				for range 3 {
					require.Equal(t, http.StatusOK, ask(t, h).StatusCode)
				}
				require.Equal(t, http.StatusTooManyRequests, ask(t, h).StatusCode)
				require.LessOrEqual(t, time.Since(began), 50*time.Millisecond)
				require.Positive(t, told.Load())

				strict := (&admission.Quota{Limit: 3, Store: store, FailClosed: true}).Handler(ok())
				refused := ask(t, strict)
				require.Equal(t, http.StatusServiceUnavailable, refused.StatusCode)
				require.NotEmpty(t, refused.Header.Get("Retry-After"))
				require.Contains(t, readProblem(t, refused).Type, "#store")
				_, err := (&admission.Quota{Limit: 3, Store: store, FailClosed: true}).Take(t.Context(), "k", 1)
				require.ErrorIs(t, err, admission.ErrStore)
				sleep(time.Minute) // so that nobody is left in the bubble
			})
		})
	}
}

// A store that was too slow is asked again after a second, by one; and by all, when it
// has answered.
func TestQuotaAsksASlowStoreAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var memory quotastore.Memory
		var asked atomic.Int64
		var slow atomic.Bool
		store := storeFunc(func(ctx context.Context, key string, want, least int, r quotastore.Rule) (quotastore.Result, error) {
			asked.Add(1)
			if slow.Load() {
				<-ctx.Done()
				return quotastore.Result{}, ctx.Err()
			}
			return memory.Take(ctx, key, want, least, r)
		})
		h := (&admission.Quota{Limit: 1000, Store: store}).Handler(ok())
		ask(t, h)
		slow.Store(true)
		ask(t, h)
		for range 9 {
			began := time.Now()
			for range 10 {
				require.Equal(t, http.StatusOK, ask(t, h).StatusCode)
			}
			require.Zero(t, time.Since(began))
			sleep(100 * time.Millisecond)
		}
		require.EqualValues(t, 2, asked.Load())
		sleep(200 * time.Millisecond)
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() { ask(t, h) })
		}
		all.Wait()
		require.EqualValues(t, 3, asked.Load(), "one finds out")
		slow.Store(false)
		sleep(2 * time.Second)
		for range 10 {
			ask(t, h)
		}
		require.EqualValues(t, 13, asked.Load())
	})
}

// Two processes that share a store share the quota, and two quotas in one store do
// not.
func TestQuotasThatShareAStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var store quotastore.Memory
		one := (&admission.Quota{Limit: 2, Store: &store}).Handler(ok())
		two := (&admission.Quota{Limit: 2, Store: &store}).Handler(ok())
		other := (&admission.Quota{Name: "other", Limit: 2, Store: &store}).Handler(ok())
		require.Equal(t, http.StatusOK, ask(t, one).StatusCode)
		require.Equal(t, http.StatusOK, ask(t, two).StatusCode)
		require.Equal(t, http.StatusTooManyRequests, ask(t, one).StatusCode)
		require.Equal(t, http.StatusTooManyRequests, ask(t, two).StatusCode)
		require.Equal(t, http.StatusOK, ask(t, other).StatusCode)
	})
}

// A6: a replay gives back to where it took from, also when its client has gone.
func TestReplayGivesBackToTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var store quotastore.Memory
		ctx, cancel := context.WithCancel(t.Context())
		q := &admission.Quota{Limit: 2, Store: &store}
		h := q.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Idempotency-Replayed", "true")
			cancel()
		}))
		ask(t, h, func(r *http.Request) { *r = *r.WithContext(ctx) })
		ticket, err := q.Take(t.Context(), "192.0.2.1", 0)
		require.NoError(t, err)
		require.Equal(t, 2, ticket.Remaining)
	})
}

// A client that has gone is no failure of the store.
func TestQuotaOfAClientThatHasGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := storeFunc(func(ctx context.Context, _ string, _, _ int, _ quotastore.Rule) (quotastore.Result, error) {
			<-ctx.Done()
			return quotastore.Result{}, ctx.Err()
		})
		failures := 0
		q := &admission.Quota{Limit: 2, Store: store, Trace: &admission.Trace{
			StoreFailed: func(*admission.Event) { failures++ },
			Rejected:    func(e *admission.Event) { require.Equal(t, admission.ReasonCanceled, e.Reason) },
		}}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		time.AfterFunc(10*time.Millisecond, cancel)
		resp := ask(t, q.Handler(ok()), func(r *http.Request) { *r = *r.WithContext(ctx) })
		require.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
		require.Zero(t, failures)
	})
}
