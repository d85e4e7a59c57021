package window

import (
	"math"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const length = 16 * time.Second // a bucket is one second

func TestCounter(t *testing.T) {
	type op struct {
		at   time.Duration
		a, b uint32
	}
	const turn = length
	for _, tt := range []struct {
		name  string
		ops   []op
		at    time.Duration
		wantA uint64
		wantB uint64
	}{
		{name: "empty", at: time.Hour},
		{name: "now", ops: []op{{0, 1, 2}}, at: 0, wantA: 1, wantB: 2},
		{name: "same bucket", ops: []op{{0, 1, 2}, {time.Second - 1, 3, 4}}, at: 0, wantA: 4, wantB: 6},
		{name: "many buckets", ops: []op{{0, 1, 0}, {5 * time.Second, 1, 0}, {15 * time.Second, 1, 1}}, at: length - 1, wantA: 3, wantB: 1},
		{name: "gone after one window", ops: []op{{0, 1, 1}}, at: length},
		{name: "the oldest goes first", ops: []op{{0, 1, 0}, {time.Second, 0, 1}}, at: length, wantB: 1},
		{name: "bucket used again", ops: []op{{0, 1, 0}, {length, 0, 1}}, at: length, wantB: 1},
		{name: "looking does not forget", ops: []op{{20 * time.Second, 1, 0}}, at: 34 * time.Second, wantA: 1},
		{name: "clock goes back", ops: []op{{20 * time.Second, 1, 0}, {3 * time.Second, 0, 1}}, at: 20 * time.Second, wantA: 1, wantB: 1},
		{name: "asked with a clock that goes back", ops: []op{{20 * time.Second, 1, 0}}, at: time.Second, wantA: 1},
		{name: "before the origin", ops: []op{{-time.Hour, 1, 0}}, at: 0, wantA: 1},
		{name: "asked before the origin", ops: []op{{0, 1, 0}}, at: math.MinInt64, wantA: 1},
		{name: "first event late", ops: []op{{100 * turn, 1, 0}}, at: 100 * turn, wantA: 1},
		{name: "first event very late", ops: []op{{1 << 20 * turn, 1, 0}}, at: 1 << 20 * turn, wantA: 1},
		{name: "idle for two windows", ops: []op{{0, 1, 0}, {2 * turn, 0, 1}}, at: 2 * turn, wantB: 1},
		{name: "idle until the lock", ops: []op{{0, 1, 0}, {wrapsUntilLock * turn, 0, 1}}, at: wrapsUntilLock * turn, wantB: 1},
		{name: "idle until it is cleared", ops: []op{{0, 1, 0}, {wrapsUntilClear * turn, 0, 1}}, at: wrapsUntilClear * turn, wantB: 1},
		{name: "idle for half a round of tags", ops: []op{{0, 1, 0}, {1 << 15 * turn, 0, 1}}, at: 1 << 15 * turn, wantB: 1},
		{name: "idle for a round of tags", ops: []op{{0, 1, 0}, {1 << 16 * turn, 0, 1}}, at: 1 << 16 * turn, wantB: 1},
		{name: "idle for a round of tags, another bucket", ops: []op{{5 * time.Second, 1, 0}, {1<<16*turn + 9*time.Second, 0, 1}}, at: 1<<16*turn + 9*time.Second, wantB: 1},
		{name: "asked after a round of tags", ops: []op{{0, 1, 0}}, at: 1 << 16 * turn},
		{name: "saturates", ops: []op{{0, CounterMax - 1, CounterMax}, {0, 1, 1}, {0, 1, 1}, {0, math.MaxUint32, 0}}, at: 0, wantA: CounterMax, wantB: CounterMax},
		{name: "saturated buckets add up", ops: []op{{0, CounterMax, 0}, {time.Second, CounterMax, 0}}, at: time.Second, wantA: 2 * CounterMax},
		{name: "the end of time", ops: []op{{math.MaxInt64, 1, 0}}, at: math.MaxInt64, wantA: 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var c Counter
			for _, o := range tt.ops {
				c.Add(o.at, length, o.a, o.b)
			}
			a, b := c.Count(tt.at, length, 0, Buckets)
			require.Equal(t, [2]uint64{tt.wantA, tt.wantB}, [2]uint64{a, b})
		})
	}
}

func TestCounter_lengths(t *testing.T) {
	for _, length := range []time.Duration{math.MinInt64, -1, 0, 1, MinLength, 1000001 * time.Nanosecond, time.Hour, math.MaxInt64} {
		t.Run(length.String(), func(t *testing.T) {
			var c Counter
			c.Add(time.Second, length, 1, 1)
			a, b := c.Count(time.Second, length, 0, Buckets)
			require.Equal(t, [2]uint64{1, 1}, [2]uint64{a, b})
		})
	}
}

// A bucket without events for a whole round of tags, while others are in use, must not count
// its old events again.
func TestCounter_roundOfTags(t *testing.T) {
	var c Counter
	c.Add(5*time.Second, length, 1, 1)
	for turn := range time.Duration(1<<16 + 1) {
		now := time.Duration(int64(turn)*int64(length)) + 7*time.Second // always in another bucket
		if turn > 0 {
			a, _ := c.Count(now, length, 0, Buckets)
			require.EqualValues(t, 1, a, "turn %d", turn)
		}
		c.Add(now, length, 1, 0)
		now += 8 * time.Second
		c.Add(now, length, 1, 0)
	}
}

// A model: each event of the last fifteen buckets counts, and no event older than the window,
// for times that go forward and back. The newest buckets are a part of it.
func TestCounter_model(t *testing.T) {
	type event struct {
		at   time.Duration
		a, b uint32
	}
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		length := time.Duration(1 + r.Int64N(int64(time.Minute)))
		width := max(length, MinLength) / Buckets
		var c Counter
		var events []event
		var now, latest time.Duration
		for range 300 {
			switch r.IntN(10) {
			case 0:
				now += time.Duration(r.Int64N(int64(3*length) + 1))
			case 1:
				now += time.Duration(r.Int64N(1<<17)) * width * Buckets
			case 2:
				now -= time.Duration(r.Int64N(int64(length)/2 + 1))
			default:
				now += time.Duration(r.Int64N(int64(width) + 1))
			}
			latest = max(latest, now)
			e := event{latest, uint32(r.IntN(3)), uint32(r.IntN(3))}
			events = append(events, e)
			c.Add(now, length, e.a, e.b)

			from := r.IntN(Buckets)
			for _, part := range [][2]int{{0, Buckets}, {0, 1 + r.IntN(Buckets)}, {from, from + 1 + r.IntN(Buckets-from)}} {
				var wantA, wantB uint64
				for _, e := range events {
					if age := int(latest/width - e.at/width); age >= part[0] && age < part[1] {
						wantA, wantB = wantA+uint64(e.a), wantB+uint64(e.b)
					}
				}
				a, b := c.Count(now, length, part[0], part[1])
				require.Equal(t, [2]uint64{wantA, wantB}, [2]uint64{a, b}, "seed %d at %v, buckets %v", seed, now, part)
			}
		}
	}
}

// No event is lost or counted twice, also while the buckets change.
func TestCounter_stress(t *testing.T) {
	const goroutines, each = 32, 3000
	for _, tt := range []struct {
		name string
		jump time.Duration // sometimes, of the clock of all goroutines
	}{
		{name: "within a window", jump: 0},
		{name: "after an idle time", jump: 40 * length},
		{name: "after a very long idle time", jump: 1 << 16 * length},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var c Counter
			for round := range time.Duration(20) {
				start := time.Duration(int64(round) * int64(max(tt.jump, 2*length)))
				var clock atomic.Int64
				clock.Store(int64(start))
				var wg sync.WaitGroup
				for range goroutines {
					wg.Go(func() {
						for range each / 20 {
							// All are within fifteen buckets.
							now := time.Duration(clock.Add(int64(length) * 20 * 14 / 16 / goroutines / each))
							c.Add(now, length, 1, 2)
						}
					})
				}
				wg.Wait()
				a, b := c.Count(time.Duration(clock.Load()), length, 0, Buckets)
				require.EqualValues(t, goroutines*(each/20), a)
				require.EqualValues(t, 2*goroutines*(each/20), b)
			}
		})
	}
}

// All goroutines begin at once after an idle time: the goroutine that prepares the buckets
// must not clear what another one has counted already.
func TestCounter_stressAwakening(t *testing.T) {
	const goroutines = 4
	for _, tt := range []struct {
		name string
		gap  time.Duration
	}{
		{name: "idle", gap: 20 * MinLength},
		{name: "idle until the lock", gap: wrapsUntilLock * MinLength},
		{name: "idle until it is cleared", gap: wrapsUntilClear * MinLength},
		{name: "idle for a round of tags", gap: 1 << 16 * MinLength},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rounds := int64(6000)
			if testing.Short() {
				rounds = 3000
			}
			var c Counter
			var round, done atomic.Int64
			var wg sync.WaitGroup
			for range goroutines {
				wg.Go(func() {
					for r := int64(1); r <= rounds; r++ {
						for round.Load() < r {
							runtime.Gosched()
						}
						c.Add(time.Duration(r)*tt.gap, MinLength, 1, 0)
						done.Add(1)
					}
				})
			}
			lost := 0
			for r := int64(1); r <= rounds; r++ {
				round.Store(r)
				for done.Load() < r*goroutines {
					runtime.Gosched()
				}
				if a, _ := c.Count(time.Duration(r)*tt.gap, MinLength, 0, Buckets); a != goroutines {
					lost++
				}
			}
			wg.Wait()
			require.Zero(t, lost, "rounds in which the count was wrong")
		})
	}
}

func TestCounter_doesNotAllocate(t *testing.T) {
	var c Counter
	var now time.Duration
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		now += 100 * time.Millisecond
		c.Add(now, length, 1, 0)
		c.Count(now, length, 0, Buckets)
	}))
}
