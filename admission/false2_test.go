//go:build !race

package admission

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"
)

func TestCold(t *testing.T) {
	n, _ := strconv.Atoi(os.Getenv("N"))
	if n == 0 {
		n = 20
	}
	for _, w := range []struct {
		workers int
		mean    time.Duration
	}{{4, 10 * ms}, {12, 10 * ms}, {40, 10 * ms}, {12, ms}, {12, 50 * ms}, {2, 5 * ms}} {
		for _, dep := range []string{"const", "exp"} {
			for _, deadline := range []time.Duration{0, time.Second} {
				worst, worstSecond, seedsBad, base := 0.0, 0, 0, 0
				for seed := range n {
					s := loaded(w.workers, w.mean, 0.5, exponentially(w.mean), 12*time.Second)
					s.deadline = deadline
					s.extra = constant(100 * ms)
					if dep == "exp" {
						s.extra = exponentially(100 * ms)
					}
					s.seed = uint64(seed + 100)
					s.run()
					var came, rej [13]float64
					for _, o := range s.outcomes {
						came[o.came/time.Second]++
						if o.rejected {
							rej[o.came/time.Second]++
						}
					}
					bad := false
					for i := 2; i < 12; i++ {
						if r := rej[i] / came[i]; r > worst {
							worst, worstSecond = r, i
						}
						bad = bad || rej[i]/came[i] > 0.05
					}
					if bad {
						seedsBad++
					}
					base += s.limits[len(s.limits)-1]
				}
				t.Logf("%2d x %5v dep %-5s deadline %v: bad %d/%d worst %.3f in second %d, limit %d", w.workers, w.mean, dep, deadline, seedsBad, n, worst, worstSecond, base/n)
			}
		}
	}
}

func TestPause(t *testing.T) {
	n, _ := strconv.Atoi(os.Getenv("N"))
	if n == 0 {
		n = 10
	}
	for _, w := range []struct {
		workers int
		mean    time.Duration
	}{{4, 10 * ms}, {12, 10 * ms}, {40, 10 * ms}, {12, 2 * ms}, {12, 50 * ms}, {2, 5 * ms}} {
		for _, dist := range []string{"const", "exp"} {
			for _, mode := range []string{"frozen", "workers"} {
				out := ""
				for _, load := range []float64{0.6,0.8} {
					for _, every := range []time.Duration{2 * time.Second} {
						worst, sum, rejd := 1.0, 0.0, 0.0
						for seed := range n {
							service := map[string]func(time.Duration, *rand.Rand) time.Duration{"const": constant(w.mean), "exp": exponentially(w.mean)}[dist]
							s := loaded(w.workers, w.mean, load, service, 62*time.Second)
							s.deadline = time.Second
							s.pause, s.frozen = every, mode == "frozen"
							s.shared = mode == "ps"
							s.seed = uint64(seed + 100)
							s.run()
							all, ok, rej := 0.0, 0.0, 0.0
							for _, o := range s.outcomes {
								if o.came > 2*time.Second {
									all++
									if o.ok {
										ok++
									}
									if o.rejected {
										rej++
									}
								}
							}
							worst = min(worst, ok/all)
							sum += ok / all
							rejd += rej / all
						}
						out += fmt.Sprintf(" | %.1f every %v: %.4f worst %.4f rej %.4f", load, every, sum/float64(n), worst, rejd/float64(n))
					}
				}
				t.Logf("%2d x %5v %-5s %-7s%s", w.workers, w.mean, dist, mode, out)
			}
		}
	}
}
