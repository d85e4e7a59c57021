package quota

import (
	"context"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/faulttest"
)

func queued(b *bucket) int64 {
	b.Mu.Lock()
	defer b.Mu.Unlock()
	return b.Len()
}

// Calls that are sent, rejected, lost and canceled at random leave no request in flight, no queued call and no timer.
func TestBucket_stress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newQuotaScript(t, with(Config{Limit: 400, MaxWait: 20 * time.Second}), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(rand.N(50 * time.Millisecond))
			switch rand.N(10) {
			case 0:
				exhausted(time.Second).ServeHTTP(w, r)
			case 1, 2:
				setFields(w.Header(), "RateLimit-Limit", 50, "RateLimit-Remaining", rand.N(50), "RateLimit-Reset", (rand.N(500*time.Millisecond) + time.Millisecond).Seconds())
			case 3, 4, 5, 6:
				w.Header().Set("Retry-After", "1")
				w.WriteHeader(http.StatusTooManyRequests)
			case 7:
				faulttest.ResetAfterRead.ServeHTTP(w, r)
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
		fixed := s.limiter.Set("mem.test").fixed
		require.Zero(t, queued(b)+fixed.Len())
		require.True(t, b.Alarm().IsZero())
		require.True(t, fixed.Alarm().IsZero())
	})
}
