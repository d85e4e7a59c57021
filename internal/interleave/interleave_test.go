package interleave_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/resilienthttp/resilienthttp/internal/interleave"
)

func TestQuantile(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name   string
		values []float64
		q      float64
		want   float64
	}{
		{"no values", nil, 0.5, 0},
		{"one value", []float64{3}, 0.99, 3},
		{"the median", []float64{9, 1, 5}, 0.5, 5},
		{"the median of an even number", []float64{4, 1, 3, 2}, 0.5, 3},
		{"the maximum", []float64{4, 1, 3, 2}, 1, 4},
		{"the minimum", []float64{4, 1, 3, 2}, 0, 1},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			assert.InDelta(t, row.want, interleave.Quantile(row.values, row.q), 0)
		})
	}
}

func TestTurns(t *testing.T) {
	t.Parallel()
	var order []string
	contender := func(name string, took ...time.Duration) interleave.Contender {
		return interleave.Contender{Name: name, Work: func() (int, time.Duration) {
			order = append(order, name)
			now := took[0]
			took = took[1:]
			return 100, now
		}}
	}
	left := 3
	rates := interleave.Turns(
		func() bool { left--; return left >= 0 },
		contender("ours", time.Second, 10*time.Second, time.Second), // all contenders are slow in a slow round
		contender("theirs", 2*time.Second, 20*time.Second, 4*time.Second),
	)
	assert.Equal(t, []string{"ours", "theirs", "theirs", "ours", "ours", "theirs"}, order)
	assert.Equal(t, [][]float64{{100, 10, 100}, {50, 5, 25}}, rates)
	assert.Equal(t, []float64{2, 2, 4}, interleave.Ratios(rates[0], rates[1]))
}
