package admission_test

import (
	"errors"
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

func tenant(r *http.Request) (string, error) {
	if name := r.Header.Get("X-Tenant"); name != "" {
		return name, nil
	}
	return "", errors.New("no tenant")
}

// makeKnown makes a Shedder admit each key in several different seconds.
func makeKnown(t *testing.T, g *gated, h http.Handler, keys ...string) {
	t.Helper()
	for range 3 {
		for _, key := range keys {
			later(t, h, header("X-Tenant", key))
			synctest.Wait()
			g.gate <- struct{}{}
			synctest.Wait()
		}
		time.Sleep(time.Second)
	}
	g.order = nil
}

// A15: the order in which waiting requests get a slot.
func TestShedder_servesKeysWithFewSlotsFirst(t *testing.T) {
	type request struct{ name, key, priority string }
	for _, row := range []struct {
		name     string
		key      func(*http.Request) (string, error)
		limit    int
		inFlight []request
		waiting  []request
		want     []string // the order of those that waited
	}{
		{"no key: by priority, then the newest", nil, 1,
			[]request{{"0", "hog", "critical"}},
			[]request{{"1", "hog", "critical"}, {"2", "a", ""}, {"3", "b", ""}},
			[]string{"1", "3", "2"}},
		{"one key holds all slots: until it holds less than half, the other keys are next, whatever the priority", tenant, 4,
			[]request{{"0", "hog", "critical"}, {"0", "hog", "critical"}, {"0", "hog", "critical"}, {"0", "hog", "critical"}},
			[]request{{"1", "hog", "critical"}, {"2", "a", "batch"}, {"3", "b", ""}, {"4", "c", "critical"}},
			[]string{"4", "3", "1", "2"}},
		{"one key only: by priority", tenant, 2,
			[]request{{"0", "a", ""}, {"0", "a", ""}},
			[]request{{"1", "a", "batch"}, {"2", "a", "critical"}, {"3", "a", ""}},
			[]string{"2", "3", "1"}},
		{"nothing is held: priority first", tenant, 1,
			[]request{{"0", "hog", ""}},
			[]request{{"1", "a", "batch"}, {"2", "b", "critical"}, {"3", "c", ""}},
			[]string{"2", "3", "1"}},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			g := newGated()
			s := &admission.Shedder{
				Initial: row.limit, Min: row.limit, Max: row.limit, Queue: 10, MaxWait: time.Hour,
				Priority: admission.PriorityFromHeader, Key: row.key,
			}
			h := s.Handler(g)
			if row.key != nil {
				makeKnown(t, g, h, "hog", "a", "b", "c")
			}
			ask := func(r request) {
				later(t, h, by(r.priority), header("X-Name", r.name), header("X-Tenant", r.key))
				synctest.Wait()
			}
			for _, r := range row.inFlight {
				ask(r)
			}
			for _, r := range row.waiting {
				ask(r)
			}
			require.Equal(t, len(row.waiting), s.State().Queued)
			for range len(row.inFlight) + len(row.waiting) {
				g.gate <- struct{}{}
				synctest.Wait()
			}
			require.Equal(t, row.want, g.order[len(row.inFlight):])
			require.Zero(t, s.State().InFlight)
		})
	}
}

// A15: a key that fills the queue loses its own requests, not those of the others.
func TestShedder_evictsTheKeyWithTheMostWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGated()
		evicted := map[string]int{}
		s := &admission.Shedder{
			Max: 1, Queue: 4, MaxWait: time.Hour, Priority: admission.PriorityFromHeader, Key: tenant,
			Trace: &admission.Trace{Rejected: func(e *admission.Event) { evicted[e.Key+" "+string(e.Reason)]++ }},
		}
		h := s.Handler(g)
		makeKnown(t, g, h, "hog", "a", "b")
		ask := func(key, priority string) {
			later(t, h, by(priority), header("X-Tenant", key), header("X-Name", key))
			synctest.Wait()
		}
		for range 10 {
			ask("hog", "critical")
		}
		for _, key := range []string{"a", "b"} {
			ask(key, "batch")
		}
		require.Equal(t, map[string]int{"hog evicted": 7}, evicted)
		close(g.gate)
		synctest.Wait()
		require.Equal(t, []string{"hog", "hog", "hog", "b", "a"}, g.order, "the newest key first")
	})
}

// A15: a request without a known key gets 403.
func TestShedder_rejectsARequestWithoutAKey(t *testing.T) {
	var events []*admission.Event
	s := &admission.Shedder{Key: tenant, Trace: &admission.Trace{Rejected: func(e *admission.Event) { events = append(events, e) }}}
	h := s.Handler(ok())
	resp := ask(t, h)
	require.Equal(t, http.StatusForbidden, resp.StatusCode)
	require.Contains(t, readProblem(t, resp).Type, "#key")
	require.Empty(t, resp.Header.Get("Retry-After"))
	require.Len(t, events, 1)
	require.Equal(t, admission.ReasonKeyError, events[0].Reason)
	require.Equal(t, http.StatusForbidden, events[0].Status)
	require.NotNil(t, events[0].Request)
	require.ErrorContains(t, events[0].Err, "no tenant")
	require.Equal(t, http.StatusOK, ask(t, h, header("X-Tenant", "a")).StatusCode)
	require.EqualValues(t, 1, s.State().Admitted)
	require.EqualValues(t, 1, s.State().Rejected)
}

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
