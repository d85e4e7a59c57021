//go:build !race

package admission

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"
)

func lognormally(mean time.Duration) func(time.Duration, *rand.Rand) time.Duration {
	return func(_ time.Duration, r *rand.Rand) time.Duration {
		return time.Duration(float64(mean) * math.Exp(r.NormFloat64()-0.5))
	}
}

func TestFalse(t *testing.T) {
	n, _ := strconv.Atoi(os.Getenv("N"))
	if n == 0 {
		n = 20
	}
	loads := []float64{0.3, 0.5, 0.6, 0.7}
	for _, w := range []struct {
		workers int
		mean    time.Duration
	}{{4, 10 * ms}, {12, 10 * ms}, {40, 10 * ms}, {4, ms}, {12, 100 * ms}, {40, 100 * ms}, {4, 100 * ms}, {2, 5 * ms}} {
		for _, dist := range []string{"const", "exp", "logn", "bi"} {
			for _, mode := range []string{"fifo/none", "fifo/500", "ps/500", "dep/1s"} {
				out := fmt.Sprintf("%2d x %5v %-5s %-9s", w.workers, w.mean, dist, mode)
				bad := false
				for _, load := range loads {
					seedsBad, worst, minLimit := 0, 0.0, 1<<30
					for seed := range n {
						service := map[string]func(time.Duration, *rand.Rand) time.Duration{"const": constant(w.mean), "exp": exponentially(w.mean), "logn": lognormally(w.mean), "bi": bimodal(w.mean/2, w.mean*55/10, 0.1)}[dist]
						s := loaded(w.workers, w.mean, load, service, 70*time.Second)
						s.seed = uint64(seed + 100)
						switch mode {
						case "fifo/none":
							s.deadline = 0
						case "ps/500":
							s.shared = true
							s.deadline = max(500*ms, 20*w.mean)
						case "fifo/500":
							s.deadline = max(500*ms, 20*w.mean)
						case "dep/1s":
							s.deadline = 2000 * ms
							s.extra = exponentially(100 * ms)
						}
						s.run()
						rej, all := 0, 0
						for _, o := range s.outcomes {
							if o.came > 10*time.Second {
								all++
								if o.rejected {
									rej++
								}
							}
						}
						for _, l := range s.limits[10:] {
							minLimit = min(minLimit, l)
						}
						if rej > 0 {
							seedsBad++
							worst = max(worst, float64(rej)/float64(all))
						}
					}
					if seedsBad > 0 {
						bad = true
					}
					out += fmt.Sprintf(" | %2d/%d %.4f min %3d", seedsBad, n, worst, minLimit)
				}
				if bad {
					t.Log(out)
				}
			}
		}
	}
}
