package allowance

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/internal/window"
)

// Checked leaves values that one can reckon with: no sum of products is NaN, and
// none is infinite.
func TestRuleChecked(t *testing.T) {
	values := []float64{math.NaN(), math.Inf(-1), -1, 0, math.SmallestNonzeroFloat64, 0.1, 3, math.MaxFloat64, math.Inf(1)}
	for _, ratio := range values {
		for _, floor := range values {
			for _, least := range values {
				r := Rule{Ratio: ratio, Floor: floor, Least: least, Window: time.Second}.Checked()
				allowed := max(r.Ratio*window.CounterMax*window.Buckets+r.Floor, r.Least)
				require.False(t, math.IsNaN(allowed) || math.IsInf(allowed, 0) || allowed < 0, "%v, %v, %v", ratio, floor, least)
			}
		}
	}
	for length, want := range map[time.Duration]time.Duration{-1: time.Millisecond, 0: time.Millisecond, 1: time.Millisecond, time.Hour: time.Hour} {
		require.Equal(t, want, Rule{Window: length}.Checked().Window)
	}
	same := Rule{Origin: epoch, Window: time.Minute, Ratio: 0.5, Floor: 7, Least: 1, Static: true}
	require.Equal(t, same, same.Checked())
}
