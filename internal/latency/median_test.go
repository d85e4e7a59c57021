package latency

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A second of slow responses before an outage must not make its failures look usual. Ten seconds of them are the new baseline.
func TestMedian_follows(t *testing.T) {
	const before = 100 * time.Millisecond
	for _, tt := range []struct {
		name      string
		took, now time.Duration // later latency, and for how long
		every     time.Duration // between the responses
		min, max  time.Duration // of the result
	}{
		{"slow for a second: less than doubled", time.Minute, time.Second, time.Millisecond, 3 * before / 2, 2 * before},
		{"slow for ten seconds: hundreds of times", time.Minute, 10 * time.Second, time.Millisecond, 200 * before, time.Minute},
		{"a little slower for ten seconds: reached", before * 6 / 5, 10 * time.Second, time.Millisecond, before * 11 / 10, before * 13 / 10},
		{"quick for a second: about half", time.Millisecond, time.Second, time.Millisecond, before / 2, 3 * before / 5},
		{"quick for ten seconds: reached", time.Millisecond, 10 * time.Second, time.Millisecond, time.Millisecond * 9 / 10, time.Millisecond * 11 / 10},
		{"as before", before, 10 * time.Second, time.Millisecond, before, before},
		{"few and slow: each counts", time.Minute, 10 * time.Second, time.Second, 3 * before / 2, 2 * before},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var l Median
			require.Zero(t, l.Get(), "unknown")
			l.Follow(0, before)
			require.Equal(t, before, l.Get(), "the first sample")
			for at := 100 * time.Millisecond; at < 100*time.Millisecond+tt.now; at += tt.every {
				l.Follow(at, tt.took)
			}
			require.GreaterOrEqual(t, l.Get(), tt.min)
			require.LessOrEqual(t, l.Get(), tt.max)
		})
	}
	t.Run("a response without latency is known", func(t *testing.T) {
		var l Median
		l.Follow(0, 0)
		require.Positive(t, l.Get())
	})
}
