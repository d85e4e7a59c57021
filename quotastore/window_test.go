package quotastore

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

type granted struct{ at, units int64 }

// mostInAnyWindow returns the maximum number of units within one window.
func mostInAnyWindow(grants []granted, length int64) int64 {
	most, sum, first := int64(0), int64(0), 0
	for _, g := range grants {
		sum += g.units
		for grants[first].at <= g.at-length {
			sum -= grants[first].units
			first++
		}
		most = max(most, sum)
	}
	return most
}

// A5: in any Window at most Limit units are taken, and with more demand hardly fewer.
func TestWindow_grantsLimit(t *testing.T) {
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 3))
		r := Rule{Limit: 1 + random.IntN(300), Window: time.Duration(1+random.IntN(3000)) * time.Millisecond, Sliding: true}
		length := int64(r.Window)
		var w window
		var grants []granted
		total, now := int64(0), int64(0)
		for now < 20*length {
			now += random.Int64N(length/int64(r.Limit) + 1)
			units, ok := w.take(now, 1+random.Int64N(2), 1, &r)
			if ok {
				grants, total = append(grants, granted{now, units}), total+units
			}
			require.LessOrEqual(t, len(w.slots), windowSlots+1)
		}
		require.LessOrEqual(t, mostInAnyWindow(grants, length), int64(r.Limit), "seed %d, %+v", seed, r)
		require.GreaterOrEqual(t, float64(total), 0.96*20*float64(r.Limit), "seed %d, %+v", seed, r)
	}
}

// A3: the wait is exact: a take is rejected before it and accepted after it.
func TestWindow_waitIsExact(t *testing.T) {
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 4))
		r := Rule{Limit: 1 + random.IntN(200), Window: time.Second, Sliding: true}
		var w window
		now := int64(0)
		for range 500 {
			now += random.Int64N(int64(r.Window) / 20)
			n := 1 + random.Int64N(int64(r.Limit))
			if _, ok := w.take(now, n, n, &r); ok {
				continue
			}
			enough := w.wait(now, n, &r)
			require.LessOrEqual(t, enough, w.reset(now, &r))
			early, late := clone(w), clone(w)
			_, ok := early.take(now+enough-1, n, n, &r)
			require.False(t, ok)
			_, ok = late.take(now+enough, n, n, &r)
			require.True(t, ok)
		}
	}
}

func clone(w window) window {
	w.slots = append([]slot(nil), w.slots...)
	return w
}

// Returned units are removed from the oldest takes, so the others count for long enough.
func TestWindow_returnedUnits(t *testing.T) {
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 5))
		r := Rule{Limit: 1 + random.IntN(100), Window: time.Second, Sliding: true}
		length := int64(r.Window)
		var w window
		var grants []granted
		now := int64(0)
		for range 2000 {
			now += random.Int64N(2 * length / int64(r.Limit))
			if random.IntN(4) == 0 && len(grants) > 0 {
				// Any take of the last window is returned.
				i := len(grants) - 1 - random.IntN(min(len(grants), 10))
				if now-grants[i].at < length && grants[i].units > 0 {
					require.Equal(t, -grants[i].units, w.giveBack(grants[i].units))
					grants[i].units = 0
				}
			} else if units, ok := w.take(now, 1+random.Int64N(3), 1, &r); ok {
				grants = append(grants, granted{now, units})
			}
			require.LessOrEqual(t, mostInAnyWindow(grants[max(0, len(grants)-500):], length), int64(r.Limit), "seed %d", seed)
		}
	}
}

// If the clock is set back, the takes move with it. If it is set forward, they expire.
func TestWindow_clockJumps(t *testing.T) {
	r := Rule{Limit: 10, Window: time.Second, Sliding: true}
	var w window
	hour := int64(time.Hour)
	w.take(hour, 10, 10, &r)
	_, ok := w.take(0, 1, 1, &r) // an hour back
	require.False(t, ok)
	require.LessOrEqual(t, w.reset(0, &r), int64(time.Second))
	units, _ := w.take(int64(time.Second), 20, 1, &r)
	require.EqualValues(t, 10, units)
	units, _ = w.take(hour*1000, 20, 1, &r)
	require.EqualValues(t, 10, units)
}
