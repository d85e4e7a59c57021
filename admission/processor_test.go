package admission_test

import (
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/admission"
)

// A9: if handlers only compute, critical requests do not wait for batch either. Requests that
// wait in Go's scheduler reach the Shedder before the next handler begins.
//
// The test has one processor. Without the yield, each request is served before the next one
// arrives. The scheduler sometimes prefers a goroutine that has just yielded, so one attempt
// in ten must succeed.
func TestShedder_queuesRequestsThatCompute(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	const attempts, enough, each = 200, 20, 4
	well := 0
	for range attempts {
		b := &bursts{each: each}
		b.run(t)
		first, second := b.known[0] == 3*each, b.known[1] == 6*each-1
		if first && second && slices.IsSorted(b.served[2:]) {
			if well++; well == enough {
				return
			}
		}
	}
	require.Failf(t, "requests wait in the scheduler", "they wait in the Shedder in only %d of %d attempts", well, attempts)
}

// bursts sends a number of requests of each class at once, the least important first, and the
// same again while the first one is served.
type bursts struct {
	each   int
	known  []int    // requests in the Shedder when each handler began
	served []string // their classes
}

func (b *bursts) run(t *testing.T) {
	t.Helper()
	s := &admission.Shedder{Max: 1, Queue: 6 * b.each, MaxWait: time.Hour, Priority: admission.PriorityFromHeader}
	var all sync.WaitGroup
	var come func()
	computed := 0
	h := s.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		state := s.State()
		b.known = append(b.known, state.InFlight+state.Queued)
		b.served = append(b.served, r.Header.Get("X-Name"))
		if len(b.served) == 1 {
			come()
		}
		for began := time.Now(); time.Since(began) < 50*time.Microsecond; {
			computed++
		}
	}))
	come = func() {
		for _, class := range []struct{ name, priority string }{{"3", "batch"}, {"2", ""}, {"1", "critical"}} {
			for range b.each {
				r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody)
				r.Header.Set("X-Name", class.name)
				r.Header.Set("X-Request-Priority", class.priority)
				all.Go(func() { h.ServeHTTP(httptest.NewRecorder(), r) })
			}
		}
	}
	come()
	all.Wait()
}
