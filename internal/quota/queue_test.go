package quota

import (
	"context"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/faulttest"
)

func queued(b *bucket) int64 {
	b.Mu.Lock()
	defer b.Mu.Unlock()
	return b.Len()
}

// Calls that wait for a quota over several windows are sent in their order.
func TestBucket_isFIFO(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newQuotaScript(t, with(Config{}), faulttest.Sequence(
			says(3, 0, 10*time.Second), says(3, 2, 10*time.Second), says(3, 1, 10*time.Second), says(3, 0, 10*time.Second),
			says(3, 2, 10*time.Second), says(3, 1, 10*time.Second), says(3, 0, 10*time.Second),
		))
		_, _ = s.get(t, "/")
		var calls sync.WaitGroup
		var mu sync.Mutex
		var came, served []int
		for i := range 6 {
			time.Sleep(time.Millisecond)
			came = append(came, i)
			calls.Go(func() {
				_, refused := s.get(t, "/")
				assert.Nil(t, refused)
				mu.Lock()
				defer mu.Unlock()
				served = append(served, i)
			})
		}
		calls.Wait()
		require.Equal(t, came, served)
		s.bucket(t)
	})
}

// A new call is sent after the calls that are released after a reset.
func TestBucket_newCallIsLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newQuotaScript(t, with(Config{}), faulttest.Sequence(says(1000, 0, 10*time.Second), says(1000, 900, 10*time.Second)))
		_, _ = s.get(t, "/")
		var calls sync.WaitGroup
		var mu sync.Mutex
		var order []string
		call := func(name string) {
			_, _ = s.get(t, "/")
			mu.Lock()
			defer mu.Unlock()
			order = append(order, name)
		}
		for range 50 {
			calls.Go(func() { call("queued") })
			synctest.Wait()
		}
		time.Sleep(10*time.Second + 50*time.Millisecond)
		require.Positive(t, queued(s.bucket(t)), "they are released")
		call("new")
		calls.Wait()
		require.Len(t, order, 51)
		require.Equal(t, "new", order[50])
	})
}

// Calls that are sent, rejected and canceled at random leave nothing behind.
func TestBucket_stress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newQuotaScript(t, with(Config{MaxWait: 20 * time.Second}), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(rand.N(50 * time.Millisecond))
			switch rand.N(8) {
			case 0:
				exhausted(time.Second).ServeHTTP(w, r)
			case 1:
				setFields(w.Header(), "RateLimit-Limit", 50, "RateLimit-Remaining", rand.N(50), "RateLimit-Reset", 1)
			case 2, 3, 4, 5:
				w.Header().Set("Retry-After", "1")
				w.WriteHeader(http.StatusTooManyRequests)
			}
		}))
		_, _ = s.get(t, "/")
		b := s.bucket(t)
		var callers sync.WaitGroup
		for range 90 {
			callers.Go(func() {
				for range 10 {
					ctx, cancel := context.WithTimeout(t.Context(), rand.N(5*time.Second))
					_, _ = get(ctx, s.client, s.URL)
					cancel()
				}
			})
		}
		callers.Wait()
		require.Zero(t, queued(b))
		require.True(t, b.Alarm().IsZero())
	})
}
