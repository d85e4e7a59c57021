//go:build !race

package admission

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// heavyTail is lognormal with σ 2: one request in a thousand takes 65 times the mean.
func heavyTail(mean time.Duration) func(time.Duration, *rand.Rand) time.Duration {
	return func(_ time.Duration, r *rand.Rand) time.Duration {
		return time.Duration(float64(mean) * math.Exp(2*r.NormFloat64()-2))
	}
}

// A18: at half load, a latency with a heavy tail makes the Shedder reject requests for at
// most 10 s. SHEDDER_ALL_SEEDS=144 takes a minute.
func TestShedder_heavyTailIsRejectedBriefly(t *testing.T) {
	tail := server{"200 workers of 100 ms, heavy tail", 200, 100 * ms, heavyTail, nil, 5 * time.Second, false}
	seeds := []int{88, 94, 99} // with a probe every 200 windows, up to 63 s
	if n := allSeeds(); n > 0 {
		seeds = nil
		for seed := range n {
			seeds = append(seeds, seed)
		}
	}
	for _, seed := range seeds {
		s := tail.at(0.5, 120*time.Second, seed).run()
		var down, longest time.Duration
		for from := time.Duration(0); from < s.length; from += time.Second {
			down += time.Second
			if s.rejected(from, from+time.Second) == 0 {
				down = 0
			}
			longest = max(longest, down)
		}
		assert.LessOrEqual(t, longest, 10*time.Second, "seed %d, limits %v", seed, s.limits)
	}
}
