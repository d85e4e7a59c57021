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
)

func queued(b *bucket) int64 {
	b.Mu.Lock()
	defer b.Mu.Unlock()
	return b.Len()
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
