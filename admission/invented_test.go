package admission_test

import (
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/admission"
	"github.com/resilienthttp/resilienthttp/internal/bubble"
)

// A17: a key that sends a fifth of the capacity, beside 5,000 requests a second that each have
// a new key.
func TestShedder_inventedKeysPushNoKeyOut(t *testing.T) {
	for _, workers := range []int{4, 40} {
		bubble.Run(t, strconv.Itoa(workers)+" workers", func(t *testing.T) {
			const service, length, invented = 10 * time.Millisecond, 6 * time.Second, 5000.0
			good := 0.2 * float64(workers) / service.Seconds()
			pool := make(chan struct{}, workers)
			s := &admission.Shedder{Key: tenant}
			h := s.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				pool <- struct{}{}
				sleep(service)
				<-pool
				w.WriteHeader(http.StatusNoContent)
			}))
			random := rand.New(rand.NewPCG(1, 17))
			var all sync.WaitGroup
			var came, served atomic.Int64
			send := func(key string) int {
				w, r := httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody)
				r.Header.Set("X-Tenant", key)
				h.ServeHTTP(w, r)
				return w.Code
			}
			queued, limit := 0, 0
			for begun, n := time.Now(), 0; time.Since(begun) < length; n++ {
				sleep(time.Duration(random.ExpFloat64() / (good + invented) * float64(time.Second)))
				if random.Float64() < invented/(good+invented) {
					all.Go(func() { send("invented " + strconv.Itoa(n)) })
					continue
				}
				all.Go(func() {
					known := time.Since(begun) >= length/2
					ok := send("good") == http.StatusNoContent
					if known {
						came.Add(1)
					}
					if known && ok {
						served.Add(1)
					}
				})
				state := s.State()
				queued, limit = max(queued, state.Queued), max(limit, state.Limit)
			}
			all.Wait()
			ratio := float64(served.Load()) / float64(came.Load())
			t.Logf("served %.3f of %d, queued at most %d with %d slots", ratio, came.Load(), queued, limit)
			require.GreaterOrEqual(t, ratio, 0.5)
			require.LessOrEqual(t, queued, 5*limit, "four keys for each slot wait, and the good key's requests")
		})
	}
}

// A17: of keys that hold nothing, the newest is served first, and the oldest is evicted.
func TestShedder_servesTheNewestKeyFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGated()
		var evicted []string
		s := &admission.Shedder{
			Max: 1, Queue: 100, MaxWait: time.Hour, Key: tenant,
			Trace: &admission.Trace{Rejected: func(e *admission.Event) { evicted = append(evicted, e.Key) }},
		}
		h := s.Handler(g)
		for _, key := range []string{"0", "1", "2", "3", "4", "5", "6"} {
			later(t, h, header("X-Tenant", key), header("X-Name", key))
			synctest.Wait()
		}
		require.Equal(t, []string{"1", "2"}, evicted)
		close(g.gate)
		synctest.Wait()
		require.Equal(t, []string{"0", "6", "5", "4", "3"}, g.order)
	})
}
