package zoo

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNew_sizes(t *testing.T) {
	const n = 2000
	calls, applied := 0.0, map[Criterion]int{}
	for number := range n {
		d := New(1, number)
		offered := d.Load.Rate * d.Length.Seconds()
		if offered > maxCalls*1.05+float64(d.Load.Burst) {
			t.Errorf("%d: %.0f calls: %v", number, offered, d)
		}
		calls += offered
		for _, c := range Criteria() {
			if d.applies(c) {
				applied[c]++
			}
		}
	}
	require.LessOrEqual(t, calls/n, 8000.0)
	t.Log(calls/n, applied)
}

func TestTry_repeats(t *testing.T) {
	for number := range 12 {
		d := New(2, number)
		require.Equal(t, d.bare(t), d.bare(t), "%d bare: %v", number, d)
		require.Equal(t, d.oracle(t), d.oracle(t), "%d oracle: %v", number, d)
		o := d.oracle(t)
		require.Zero(t, o.Rejected)
	}
}
