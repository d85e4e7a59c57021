//go:build !race

package admission

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// tenants draws one of n keys, each as often, and one that sends hog times as much as each.
func tenants(n int, hog float64, hogClass, othersClass int) func(r *rand.Rand) (string, int) {
	return func(r *rand.Rand) (string, int) {
		x := r.Float64() * (float64(n) + hog)
		if x >= float64(n) {
			return "hog", hogClass
		}
		class := othersClass
		if class < 0 {
			for y := r.Float64(); class < 0 || class < classes-1 && y >= usual()[class]; {
				if class >= 0 {
					y -= usual()[class]
				}
				class++
			}
		}
		return fmt.Sprint(int(x)), class
	}
}

// A15: one key that sends 20 times its share, all critical, leaves each other key at least
// .95 of what it gets alone, whatever the others' priority.
func TestShedder_isFairToKeys(t *testing.T) {
	const critical, normal, batch, mixed = 0, 1, 2, -1
	for _, row := range []struct {
		name     string
		workers  int
		mean     time.Duration
		service  func(time.Duration) func(time.Duration, *rand.Rand) time.Duration
		keys     int
		each     float64 // load of each key, as a ratio of the capacity
		hog      float64 // times as much as each
		class    int
		deadline time.Duration
	}{
		{"all are critical: served", 12, 10 * ms, exponentially, 9, 0.08, 20, critical, 500 * ms},
		{"the others are default: served", 12, 10 * ms, exponentially, 9, 0.08, 20, normal, 500 * ms},
		{"the others are batch: served", 12, 10 * ms, exponentially, 9, 0.08, 20, batch, 500 * ms},
		{"the others are mixed: served", 12, 10 * ms, constant, 9, 0.08, 20, mixed, 500 * ms},
		{"no deadline: served", 12, 10 * ms, exponentially, 9, 0.08, 20, critical, 0},
		{"two keys: served", 12, 10 * ms, exponentially, 1, 0.4, 20, normal, 500 * ms},
		{"three keys, slow requests: served", 4, 100 * ms, constant, 2, 0.2, 20, normal, 2 * time.Second},
		{"100 keys: served", 40, 10 * ms, exponentially, 100, 0.008, 500, normal, 500 * ms},
		{"ten times the capacity: served", 12, 10 * ms, constant, 9, 0.05, 190, critical, 500 * ms},
	} {
		t.Run(row.name, func(t *testing.T) {
			load := row.each * (float64(row.keys) + row.hog)
			s := loaded(row.workers, row.mean, load, row.service(row.mean), 20*time.Second)
			s.request, s.deadline = tenants(row.keys, row.hog, critical, row.class), row.deadline
			s.run()
			came, ok := map[string]float64{}, map[string]float64{}
			for _, o := range s.outcomes {
				if o.came >= 2*time.Second {
					came[o.key]++
					if o.ok {
						ok[o.key]++
					}
				}
			}
			worst, served := 1.0, 0.0
			for key := range came {
				if key != "hog" {
					worst = min(worst, ok[key]/came[key])
				}
				served += ok[key]
			}
			goodput := served / (18 * capacity(row.workers, row.mean))
			t.Logf("worst %.3f, hog %.3f, goodput %.3f", worst, ok["hog"]/came["hog"], goodput)
			assert.GreaterOrEqual(t, worst, 0.95)
			assert.GreaterOrEqual(t, goodput, 0.9)
			assert.Empty(t, s.gate.keys, "idle keys")
		})
	}
}

// A15: with keys, critical requests within their key's share still come first.
func TestShedder_keepsPrioritiesWithinShares(t *testing.T) {
	for _, keys := range []int{1, 2, 10, 50} {
		t.Run(fmt.Sprintf("%d keys", keys), func(t *testing.T) {
			s := loaded(12, 10*ms, 3, exponentially(10*ms), 20*time.Second)
			s.request = tenants(keys, 0, 0, -1)
			got := s.run().between(2*time.Second, s.length)
			t.Logf("%+v", got)
			assert.GreaterOrEqual(t, got.success[0], 0.99)
			assert.GreaterOrEqual(t, got.goodput, 0.95)
		})
	}
}
