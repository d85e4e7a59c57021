package hold

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func TestHold_next(t *testing.T) {
	const s = time.Second
	for _, tt := range []struct {
		name string
		do   func(h *Hold, at func(time.Duration) time.Time)
		now  time.Duration
		want time.Duration // without the jitter
	}{
		{"after the step", func(*Hold, func(time.Duration) time.Time) {}, 0, s},
		{"a test: a step after it", func(h *Hold, at func(time.Duration) time.Time) { h.Test(at(5 * s)) }, 5 * s, 6 * s},
		{"a test and its failure: no later", func(h *Hold, at func(time.Duration) time.Time) { h.Test(at(5 * s)); h.Fail(at(5*s), 0, 8*s) }, 5 * s, 6 * s},
		{"the step has doubled", func(h *Hold, at func(time.Duration) time.Time) { h.Fail(at(s), 0, 8*s); h.Test(at(5 * s)) }, 5 * s, 7 * s},
		{"up to the longest", func(h *Hold, at func(time.Duration) time.Time) { h.Fail(at(s), 0, 3*s/2); h.Test(at(5 * s)) }, 5 * s, 6*s + s/2},
		{"the longest is shorter: it stays", func(h *Hold, at func(time.Duration) time.Time) { h.Fail(at(s), 0, s/2); h.Test(at(5 * s)) }, 5 * s, 6 * s},
		{"a pause after a late failure", func(h *Hold, at func(time.Duration) time.Time) { h.Test(at(5 * s)); h.Fail(at(9*s), 4*s, s) }, 9 * s, 13 * s},
		{"canceled: at once", func(h *Hold, at func(time.Duration) time.Time) { h.Test(at(5 * s)); h.Cancel(at(5 * s)) }, 5 * s, 5 * s},
		{"the clock was set back: at once", func(h *Hold, at func(time.Duration) time.Time) { h.Test(at(5 * s)) }, -2 * s, -2 * s},
		{"read a little earlier", func(*Hold, func(time.Duration) time.Time) {}, -s, s},
		{"nothing is held", func(h *Hold, at func(time.Duration) time.Time) { h.End(at(0)) }, 0, time.Time{}.Sub(epoch)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			at, jitters := epoch.Add, map[time.Duration]bool{}
			for range 20 {
				var h Hold
				h.Begin(epoch, s)
				tt.do(&h, at)
				got := h.Next(at(tt.now)).Sub(at(tt.want))
				if tt.want < tt.now || tt.name == "nothing is held" {
					require.LessOrEqual(t, h.Next(at(tt.now)), at(tt.now))
					return
				}
				require.GreaterOrEqual(t, got, time.Duration(0))
				require.LessOrEqual(t, got, s)
				jitters[got] = true
			}
			require.Equal(t, tt.want != tt.now, len(jitters) > 5, "the jitter is random")
		})
	}
}

func TestHold_lasts(t *testing.T) {
	var h Hold
	require.False(t, h.Held())
	require.Zero(t, h.End(epoch))
	h.Begin(epoch, time.Second)
	require.True(t, h.Held())
	require.Equal(t, epoch, h.since)
	h.Test(epoch.Add(time.Second))
	h.Fail(epoch.Add(time.Second), time.Second, time.Minute)
	require.Equal(t, epoch, h.since, "a failure begins nothing")
	require.Equal(t, time.Minute, h.End(epoch.Add(time.Minute)))
	require.Equal(t, Hold{}, h)
	h.Begin(epoch, time.Second)
	require.Zero(t, h.End(epoch.Add(-time.Minute)), "the clock was set back")
}

func TestRelease(t *testing.T) {
	const s = time.Second
	for _, tt := range []struct {
		name              string
		calls             int
		interval, longest time.Duration
		least             time.Duration
		want              time.Duration // between two calls
	}{
		{"one in each interval", 10, s, time.Minute, 0, s},
		{"all within the longest time", 100, s, 10 * s, 0, s / 10},
		{"no call", 0, s, time.Minute, 0, s},
		{"a least interval", 100, s, 10 * s, 3 * s, 3 * s},
		{"no time", 10, s, 0, 0, 0},
		{"a clock that was set back", 10, s, -s, 0, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var r Release
			require.False(t, epoch.Before(r.Next()), "the zero value releases at once")
			r.Begin(epoch, tt.calls, tt.interval, tt.longest)
			require.Equal(t, epoch, r.Next(), "the first one at once")
			r.Take(epoch.Add(s), tt.least)
			require.Equal(t, epoch.Add(s+tt.want), r.Next())
		})
	}
}

// FuzzHold requires for any calls, times and steps that nothing overflows, and that the next test follows in time.
// Each byte is an operation, and a time that passes before it.
func FuzzHold(f *testing.F) {
	f.Add(uint64(1e9), uint64(8e9), []byte{0, 1, 2, 3, 2, 1, 4})
	f.Add(uint64(math.MaxInt64), uint64(math.MaxInt64), []byte{0, 2, 2, 1, 255, 1})
	f.Add(uint64(0), uint64(0), []byte{2, 1, 3, 4, 0, 2, 1})
	f.Fuzz(func(t *testing.T, step, most uint64, ops []byte) {
		const limit = math.MaxInt64 / 5 * 4
		first, longest := time.Duration(step%(limit+1)), time.Duration(most%(limit+1))
		var h Hold
		now, latest, held := epoch, epoch, false
		for _, op := range ops {
			now = now.Add(time.Duration(int8(op)) * 100 * time.Millisecond) // also back
			switch op % 5 {
			case 0:
				h.Begin(now, first)
				held, latest = true, now
			case 1:
				h.Test(now)
			case 2:
				h.Fail(now, first, longest)
			case 3:
				h.Cancel(now)
			case 4:
				lasted := h.End(now)
				require.GreaterOrEqual(t, lasted, time.Duration(0))
				require.True(t, held || lasted == 0)
				held = false
			}
			if now.After(latest) {
				latest = now
			}
			require.Equal(t, held, h.Held())
			if !held {
				continue
			}
			require.LessOrEqual(t, h.step, max(first, longest))
			require.GreaterOrEqual(t, h.step, min(first, longest))
			ahead := h.Next(now).Sub(latest)
			require.LessOrEqual(t, ahead, max(first, longest)/4*5+4)
			if WentBack(h.since, now) {
				require.Equal(t, now, h.Next(now))
			}
		}
	})
}

// Any step: the jitter neither panics nor overflows.
func FuzzJittered(f *testing.F) {
	for _, d := range []int64{0, 1, -1, -5, math.MaxInt64, math.MinInt64, math.MaxInt64 / 5 * 4} {
		f.Add(d)
	}
	f.Fuzz(func(t *testing.T, n int64) {
		d := time.Duration(n)
		got := jittered(d)
		require.GreaterOrEqual(t, got, d)
		require.LessOrEqual(t, got-d, max(d/4, 0))
	})
}
