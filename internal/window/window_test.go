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

// counts has events of two kinds.
type counts [2]atomic.Uint64

func add(w *Window[counts], now, length time.Duration, a, b uint64) {
	of := w.At(now, length, Buckets)
	of[0].Add(a)
	of[1].Add(b)
}

// sum returns the events in the buckets from one to before another.
func sum(w *Window[counts], now, length time.Duration, from, to int) (n [2]uint64) {
	for age, of := range w.All(now, length, Buckets) {
		if age >= from && age < to {
			n[0] += of[0].Load()
			n[1] += of[1].Load()
		}
	}
	return n
}

func TestWindow(t *testing.T) {
	type op struct {
		at   time.Duration
		a, b uint64
	}
	for _, tt := range []struct {
		name string
		ops  []op
		at   time.Duration
		want [2]uint64
	}{
		{name: "empty", at: time.Hour},
		{name: "now", ops: []op{{0, 1, 2}}, at: 0, want: [2]uint64{1, 2}},
		{name: "same bucket", ops: []op{{0, 1, 2}, {time.Second - 1, 3, 4}}, at: 0, want: [2]uint64{4, 6}},
		{name: "many buckets", ops: []op{{0, 1, 0}, {5 * time.Second, 1, 0}, {15 * time.Second, 1, 1}}, at: length - 1, want: [2]uint64{3, 1}},
		{name: "gone after one window", ops: []op{{0, 1, 1}}, at: length},
		{name: "the oldest goes first", ops: []op{{0, 1, 0}, {time.Second, 0, 1}}, at: length, want: [2]uint64{0, 1}},
		{name: "a window later", ops: []op{{0, 1, 0}, {length, 0, 1}}, at: length, want: [2]uint64{0, 1}},
		{name: "looking does not forget", ops: []op{{20 * time.Second, 1, 0}}, at: 34 * time.Second, want: [2]uint64{1, 0}},
		{name: "clock goes back", ops: []op{{20 * time.Second, 1, 0}, {3 * time.Second, 0, 1}}, at: 20 * time.Second, want: [2]uint64{1, 1}},
		{name: "asked with a clock that goes back", ops: []op{{20 * time.Second, 1, 0}}, at: time.Second, want: [2]uint64{1, 0}},
		{name: "before the origin", ops: []op{{-time.Hour, 1, 0}}, at: 0, want: [2]uint64{1, 0}},
		{name: "asked before the origin", ops: []op{{0, 1, 0}}, at: math.MinInt64, want: [2]uint64{1, 0}},
		{name: "first event very late", ops: []op{{1 << 20 * length, 1, 0}}, at: 1 << 20 * length, want: [2]uint64{1, 0}},
		{name: "idle for two windows", ops: []op{{0, 1, 0}, {2 * length, 0, 1}}, at: 2 * length, want: [2]uint64{0, 1}},
		{name: "idle for years", ops: []op{{0, 1, 0}, {1 << 24 * length, 0, 1}}, at: 1 << 24 * length, want: [2]uint64{0, 1}},
		{name: "asked after years", ops: []op{{0, 1, 0}}, at: 1 << 24 * length},
		{name: "the end of time", ops: []op{{math.MaxInt64, 1, 0}}, at: math.MaxInt64, want: [2]uint64{1, 0}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var w Window[counts]
			for _, o := range tt.ops {
				add(&w, o.at, length, o.a, o.b)
			}
			require.Equal(t, tt.want, sum(&w, tt.at, length, 0, Buckets))
		})
	}
}

func TestWindow_lengths(t *testing.T) {
	for _, length := range []time.Duration{MinLength, 1000001 * time.Nanosecond, time.Hour, math.MaxInt64} {
		t.Run(length.String(), func(t *testing.T) {
			var w Window[counts]
			add(&w, time.Second, length, 1, 1)
			require.Equal(t, [2]uint64{1, 1}, sum(&w, time.Second, length, 0, Buckets))
		})
	}
}

// A model: each event of the last fifteen buckets counts, and no event older than the window,
// for times that go forward and back. The newest buckets are a part of it. No more buckets than a window has are kept.
func TestWindow_model(t *testing.T) {
	type event struct {
		at   time.Duration
		a, b uint64
	}
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		length := MinLength + time.Duration(r.Int64N(int64(time.Minute)))
		width := length / Buckets
		var w Window[counts]
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
			e := event{latest, uint64(r.IntN(3)), uint64(r.IntN(3))}
			events = append(events, e)
			add(&w, now, length, e.a, e.b)

			from := r.IntN(Buckets)
			for _, part := range [][2]int{{0, Buckets}, {0, 1 + r.IntN(Buckets)}, {from, from + 1 + r.IntN(Buckets-from)}} {
				var want [2]uint64
				for _, e := range events {
					if age := int(latest/width - e.at/width); age >= part[0] && age < part[1] {
						want[0], want[1] = want[0]+e.a, want[1]+e.b
					}
				}
				require.Equal(t, want, sum(&w, now, length, part[0], part[1]), "seed %d at %v, buckets %v", seed, now, part)
			}
			kept := 0
			for b := w.newest.Load(); b != nil; b = b.before.Load() {
				kept++
			}
			require.LessOrEqual(t, kept, Buckets)
		}
	}
}

// No event is lost or counted twice, also while the buckets change.
func TestWindow_stress(t *testing.T) {
	const goroutines, each = 32, 3000
	for _, tt := range []struct {
		name string
		jump time.Duration // sometimes, of the clock of all goroutines
	}{
		{name: "within a window", jump: 0},
		{name: "after an idle time", jump: 40 * length},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var w Window[counts]
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
							add(&w, now, length, 1, 2)
						}
					})
				}
				wg.Wait()
				const n = goroutines * (each / 20)
				require.Equal(t, [2]uint64{n, 2 * n}, sum(&w, time.Duration(clock.Load()), length, 0, Buckets))
			}
		})
	}
}

// All goroutines begin at once after an idle time: one of them makes the bucket, and all count in it.
func TestWindow_stressAwakening(t *testing.T) {
	const goroutines, rounds, gap = 4, 3000, 20 * MinLength
	var w Window[counts]
	var round, done atomic.Int64
	var wg sync.WaitGroup
	for range goroutines {
		wg.Go(func() {
			for r := int64(1); r <= rounds; r++ {
				for round.Load() < r {
					runtime.Gosched()
				}
				add(&w, time.Duration(r)*gap, MinLength, 1, 0)
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
		if sum(&w, time.Duration(r)*gap, MinLength, 0, Buckets)[0] != goroutines {
			lost++
		}
	}
	wg.Wait()
	require.Zero(t, lost, "rounds in which the count was wrong")
}

// Only the first event of a bucket allocates.
func TestWindow_allocatesOnceABucket(t *testing.T) {
	var w Window[counts]
	var now time.Duration
	require.LessOrEqual(t, testing.AllocsPerRun(100, func() {
		for range 10 {
			now += 100 * time.Millisecond
			add(&w, now, length, 1, 0)
			sum(&w, now, length, 0, Buckets)
		}
	}), 1.0)
}
