package fleet

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A random value depends only on the seed, call, attempt and purpose.
func TestRandom_dependsOnlyOnItsArguments(t *testing.T) {
	const n = 10000
	d := Chance{Seed}
	sum, low := 0.0, 0
	for call := range n {
		v := d.Fraction(call, 1, drawFault)
		require.Equal(t, v, d.Fraction(call, 1, drawFault)) //nolint:testifylint // exactly
		require.GreaterOrEqual(t, v, 0.0)
		require.Less(t, v, 1.0)
		sum += v
		if v < 0.1 {
			low++
		}
	}
	require.InDelta(t, 0.5, sum/n, 0.012, "four standard deviations")
	require.InDelta(t, 0.1*n, low, 120, "four standard deviations")
	same := d.Fraction(7, 2, drawFault)
	for _, other := range []float64{d.Fraction(8, 2, drawFault), d.Fraction(7, 3, drawFault), d.Fraction(7, 2, drawFault+1), Chance{Seed + 1}.Fraction(7, 2, drawFault)} {
		require.NotEqual(t, same, other)
	}
	for call := range 100 {
		v := d.between(time.Second, 2*time.Second, call, 1, drawFault)
		require.GreaterOrEqual(t, v, time.Second)
		require.Less(t, v, 2*time.Second)
	}
	require.Equal(t, time.Second, d.between(time.Second, 0, 1, 1, drawFault))
}
