package fleet

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestQuantile(t *testing.T) {
	hundred := make([]time.Duration, 100)
	for i := range hundred {
		hundred[i] = time.Duration(100 - i)
	}
	s := sorted(hundred)
	for _, row := range []struct {
		q    float64
		want time.Duration
	}{{0, 1}, {0.5, 51}, {0.99, 100}, {0.999, 100}, {1, 100}} {
		require.Equal(t, row.want, quantile(s, row.q), "%v", row.q)
	}
	require.Zero(t, quantile(nil, 0.5))
	require.Equal(t, time.Duration(7), quantile([]time.Duration{7}, 0.999))
}

func TestSeries(t *testing.T) {
	var s series
	for _, at := range []time.Duration{0, 999 * time.Millisecond, time.Second, 3500 * time.Millisecond} {
		s.add(at)
	}
	require.Equal(t, []int{2, 1, 0, 1}, s.counts)
	require.Equal(t, 4, s.total())
	require.Equal(t, 1, s.sum(1, 3))
	require.Equal(t, 2, s.sum(-1, 1))
	require.Equal(t, 1, s.sum(3, 100))
	require.Equal(t, 1, s.at(3))
	require.Zero(t, s.at(-1))
	require.Zero(t, s.at(4))

	tenths := series{width: fine}
	tenths.add(250 * time.Millisecond)
	require.Equal(t, []int{0, 0, 1}, tenths.counts)
}

func TestRecovery(t *testing.T) {
	scenario := Scenario{Before: time.Second, During: time.Second, After: 8 * time.Second}
	for _, row := range []struct {
		name string
		good func(tenth int) int // of ten arrivals
		want time.Duration
		back bool
	}{
		{"at once", func(int) int { return 10 }, 0, true},
		{"95 % are enough", func(i int) int { return 9 + i%2 }, 0, true},
		{"after 1.5 s", func(i int) int { return ifElse(i < 35, 0, 10) }, 1500 * time.Millisecond, true},
		{"a moment is no recovery", func(i int) int { return ifElse(i < 30 || i >= 45, 10, 0) }, 2500 * time.Millisecond, true},
		{"never", func(int) int { return 5 }, 0, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			tallied := tally(nil)
			for tenth := range 100 {
				for range 10 {
					tallied.fine.add(time.Duration(tenth) * fine)
				}
				for range row.good(tenth) {
					tallied.good.add(time.Duration(tenth) * fine)
				}
			}
			got, back := scenario.recovery(tallied)
			require.Equal(t, row.back, back)
			require.Equal(t, row.want, got)
		})
	}
}

func ifElse(condition bool, then, otherwise int) int {
	if condition {
		return then
	}
	return otherwise
}
