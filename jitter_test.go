package resilienthttp

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// backoffStrategies are the constructors with a base and a max. Both draw.
func backoffStrategies() map[string]func(base, max time.Duration) Backoff {
	return map[string]func(base, max time.Duration) Backoff{
		"full":         FullJitter,
		"decorrelated": DecorrelatedJitter,
	}
}

const longestWait = time.Duration(math.MaxInt64)

// §4.14: each strategy draws from its documented interval, with both ends if the interval is
// small.
func TestBackoffBounds(t *testing.T) {
	for _, tt := range []struct {
		name      string
		strategy  string
		base, max time.Duration
		retry     int
		prev      time.Duration
		low, high time.Duration
	}{
		{"full, first retry", "full", 4, 100, 1, 0, 0, 4},
		{"full, second retry", "full", 4, 100, 2, 3, 0, 8},
		{"full, at the cap", "full", 4, 10, 3, 3, 0, 10},
		{"full, far beyond the cap", "full", 4, 10, math.MaxInt, 3, 0, 10},
		{"full, base above max", "full", 100, 10, 1, 0, 0, 10},
		{"full, retry 0 counts as 1", "full", 4, 100, 0, 0, 0, 4},
		{"full, negative retry counts as 1", "full", 4, 100, math.MinInt, 0, 0, 4},
		{"full, prev has no effect", "full", 4, 100, 1, 90, 0, 4},
		{"full, zero base", "full", 0, 10, 5, 3, 0, 0},
		{"full, negative base", "full", -1, 10, 5, 3, 0, 0},
		{"full, zero max", "full", 4, 0, 5, 3, 0, 0},
		{"full, negative max", "full", 4, -10, 5, 3, 0, 0},
		{"full, all at its most", "full", longestWait, longestWait, math.MaxInt, longestWait, 0, longestWait},
		{"full, all at its least", "full", math.MinInt64, math.MinInt64, math.MinInt, math.MinInt64, 0, 0},

		{"decorrelated, first retry", "decorrelated", 4, 100, 1, 0, 4, 12},
		{"decorrelated, retry has no effect", "decorrelated", 4, 100, math.MaxInt, 0, 4, 12},
		{"decorrelated, after a wait", "decorrelated", 4, 100, 2, 5, 4, 15},
		{"decorrelated, after the shortest wait", "decorrelated", 4, 100, 2, 4, 4, 12},
		{"decorrelated, prev below base", "decorrelated", 4, 100, 2, 1, 4, 12},
		{"decorrelated, negative prev", "decorrelated", 4, 100, 2, math.MinInt64, 4, 12},
		{"decorrelated, last bound before the cap", "decorrelated", 4, 15, 2, 5, 4, 15},
		{"decorrelated, first bound beyond the cap", "decorrelated", 4, 15, 2, 6, 4, 15},
		{"decorrelated, at the cap", "decorrelated", 4, 10, 9, 10, 4, 10},
		{"decorrelated, a server's wait beyond the cap", "decorrelated", 4, 10, 9, longestWait, 4, 10},
		{"decorrelated, base above max", "decorrelated", 100, 10, 1, 0, 10, 10},
		{"decorrelated, zero base", "decorrelated", 0, 10, 5, 3, 0, 0},
		{"decorrelated, negative max", "decorrelated", 4, -10, 5, 3, 0, 0},
		{"decorrelated, all at its most", "decorrelated", longestWait, longestWait, math.MaxInt, longestWait, longestWait, longestWait},
		{"decorrelated, the greatest interval", "decorrelated", 1, longestWait, math.MaxInt, longestWait, 1, longestWait},
	} {
		t.Run(tt.name, func(t *testing.T) {
			backoff := backoffStrategies()[tt.strategy](tt.base, tt.max)
			seen := map[time.Duration]bool{}
			for range 1000 {
				d := backoff(tt.retry, tt.prev)
				require.GreaterOrEqual(t, d, tt.low)
				require.LessOrEqual(t, d, tt.high)
				seen[d] = true
			}
			if tt.high-tt.low < 20 {
				// To miss one of at most 20 values in 1000 draws has a chance
				// below 1e-20.
				require.Len(t, seen, int(tt.high-tt.low)+1, "each wait in the interval")
			}
		})
	}
}

// backoffInRange checks a strategy for any arguments: the wait is in [0, max], and 0 if base or
// max is not positive.
func backoffInRange(base, max time.Duration, retry int, prev time.Duration) error {
	for name, strategy := range backoffStrategies() {
		d := strategy(base, max)(retry, prev)
		switch {
		case d < 0:
			return fmt.Errorf("%s: negative: %d", name, d)
		case base <= 0 || max <= 0:
			if d != 0 {
				return fmt.Errorf("%s: %d without a base or a max", name, d)
			}
		case d > max:
			return fmt.Errorf("%s: %d above max", name, d)
		}
	}
	if d := Constant(base)(retry, prev); d < 0 || base > 0 && d != base {
		return fmt.Errorf("constant: %d", d)
	}
	return nil
}

func FuzzBackoff(f *testing.F) {
	f.Add(int64(100*time.Millisecond), int64(10*time.Second), 1, int64(0))
	f.Add(int64(0), int64(0), 0, int64(0))
	f.Add(int64(-1), int64(math.MinInt64), math.MinInt, int64(-1))
	f.Add(int64(math.MaxInt64), int64(math.MaxInt64), math.MaxInt, int64(math.MaxInt64))
	f.Add(int64(1), int64(math.MaxInt64), 64, int64(math.MaxInt64/3+1))
	f.Add(int64(10), int64(3), 2, int64(5))
	f.Fuzz(func(t *testing.T, base, max int64, retry int, prev int64) {
		require.NoError(t, backoffInRange(time.Duration(base), time.Duration(max), retry, time.Duration(prev)))
	})
}

// jitterMoments returns the mean and the standard deviation of n draws, in units of
// max, and the share of draws that are exactly max.
func jitterMoments(n int, max time.Duration, draw func() time.Duration) (mean, deviation, atMax float64) {
	var sum, squares float64
	for range n {
		d := draw()
		x := float64(d) / float64(max)
		sum += x
		squares += x * x
		if d == max {
			atMax += 1 / float64(n)
		}
	}
	mean = sum / float64(n)
	return mean, math.Sqrt(squares/float64(n) - mean*mean), atMax
}

// The distribution at the cap, which a call with many retries reaches, is even. With 20000 draws
// the standard error of a mean is at most 0.002 of max, a fifteenth of the tolerance.
func TestBackoffDistribution(t *testing.T) {
	const base, max, n = 100 * time.Millisecond, 10 * time.Second, 20000
	for _, tt := range []struct {
		strategy        string
		mean, deviation float64
	}{
		// Even over [low, 1]: mean (1+low)/2, deviation (1-low)/sqrt(12).
		{"full", 0.5, 1 / math.Sqrt(12)},
		{"decorrelated", 0.505, 0.99 / math.Sqrt(12)},
	} {
		t.Run(tt.strategy, func(t *testing.T) {
			backoff := backoffStrategies()[tt.strategy](base, max)
			mean, deviation, atMax := jitterMoments(n, max, func() time.Duration { return backoff(50, max) })
			require.InDelta(t, tt.mean, mean, 0.03)
			require.InDelta(t, tt.deviation, deviation, 0.03)
			require.Less(t, atMax, 0.001)
		})
	}
	t.Run("full, first retry", func(t *testing.T) {
		backoff := FullJitter(base, max)
		mean, deviation, _ := jitterMoments(n, base, func() time.Duration { return backoff(1, 0) })
		require.InDelta(t, 0.5, mean, 0.03)
		require.InDelta(t, 1/math.Sqrt(12), deviation, 0.03)
	})
}

func TestBackoffDoesNotAllocate(t *testing.T) {
	for name, strategy := range backoffStrategies() {
		t.Run(name, func(t *testing.T) {
			backoff := strategy(100*time.Millisecond, 10*time.Second)
			var prev time.Duration
			require.Zero(t, testing.AllocsPerRun(100, func() { prev = backoff(3, prev) }))
		})
	}
}
