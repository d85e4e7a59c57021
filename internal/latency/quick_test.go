package latency

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestQuick(t *testing.T) {
	const ms = time.Millisecond
	for _, row := range []struct {
		name string
		took []time.Duration
		want time.Duration
	}{
		{"none", nil, 0},
		{"one", []time.Duration{100 * ms}, 100 * ms},
		{"one that took no time", []time.Duration{0}, 1},
		{"a clock that went back", []time.Duration{-time.Hour}, 1},
		{"the same again", []time.Duration{100 * ms, 100 * ms}, 100 * ms},
		{"a quicker one", []time.Duration{100 * ms, 20 * ms}, 80 * ms},
		{"down to the last nanosecond", []time.Duration{2, 0}, 1},
		{"a slower one", []time.Duration{256 * ms, time.Hour}, 257 * ms},
		{"one that is hardly slower", []time.Duration{256 * ms, 256*ms + 5}, 256*ms + 5},
		{"up from the first nanosecond", []time.Duration{1, time.Hour}, 2},
	} {
		t.Run(row.name, func(t *testing.T) {
			var q Quick
			for _, took := range row.took {
				q.Follow(took)
			}
			require.Equal(t, row.want, q.Get())
		})
	}
}
