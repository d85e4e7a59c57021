// Package latency records the latencies of the recent responses of a scope.
package latency

import (
	"math"
	"slices"
	"sync/atomic"
	"time"
)

// Window holds the latencies of the last 45 to 60 seconds. It has the last few samples, and from
// the first minute with more of them also histograms of 15 seconds each, which take a kilobyte:
// most of many hosts get few calls.
//
// The zero value is ready for use. It is safe for concurrent use and takes no lock. Samples that
// arrive while a slot is cleared may be lost. None counts twice.
type Window struct {
	few  [maxFew]atomic.Uint32 // epochs and bins of the last samples; zero means none
	next atomic.Uint32         // number of samples in few
	many atomic.Pointer[histograms]

	slowest [slots]atomic.Uint64 // of each slot: its epoch, and the slowest sample in microseconds
}

type histograms [slots]slot

const (
	maxFew   = 19 // the number of samples in a minute that need no histogram
	binBits  = 6  // of an entry of few; the others are the epoch
	maxEpoch = 1<<(32-binBits) - 1

	slots  = 4
	length = 15 * time.Second // length of a slot
	bins   = 64

	// The first bin ends at 2^lowest nanoseconds, about 65 µs: no network is faster. With
	// perOctave bins for each power of two, the last one ends above ten minutes.
	lowest    = 16
	perOctave = 8.0 / 3
)

type slot struct {
	epoch  atomic.Int64 // number of the slot since the origin, from 1; zero means unused
	counts [bins]atomic.Uint32
}

func epochOf(at time.Duration) int64 { return int64(max(at, 0)/length) + 1 }

// Add records a response that arrived at a time since the origin.
func (w *Window) Add(at, took time.Duration) {
	epoch, bin := epochOf(at), binOf(took)
	w.noteSlowest(epoch, took)
	many := w.many.Load()
	if many == nil {
		if w.addFew(epoch, bin) {
			return
		}
		w.many.CompareAndSwap(nil, new(histograms))
		many = w.many.Load()
	}
	many.add(epoch, bin)
}

// tookBits are those of a latency in microseconds: up to an hour.
const tookBits = 32

func (w *Window) noteSlowest(epoch int64, took time.Duration) {
	place := &w.slowest[epoch%slots]
	micros := (max(took, 0) + time.Microsecond - 1) / time.Microsecond
	sample := uint64(epoch)<<tookBits | uint64(min(micros, 1<<tookBits-1))
	for old := place.Load(); sample > old; old = place.Load() {
		if place.CompareAndSwap(old, sample) {
			return
		}
	}
}

// addFew replaces the oldest of the few samples, if that is no longer in the window.
func (w *Window) addFew(epoch int64, bin int) bool {
	epoch = min(epoch, maxEpoch)
	place := &w.few[(w.next.Add(1)-1)%maxFew]
	old := place.Load()
	if old != 0 && int64(old>>binBits) > epoch-slots {
		return false
	}
	return place.CompareAndSwap(old, uint32(epoch<<binBits|int64(bin)))
}

func (h *histograms) add(epoch int64, bin int) {
	s := &h[epoch%slots]
	if old := s.epoch.Load(); old != epoch {
		if old > epoch {
			return // a minute late
		}
		if s.epoch.CompareAndSwap(old, epoch) {
			for i := range s.counts {
				s.counts[i].Store(0)
			}
		}
	}
	s.counts[bin].Add(1)
}

// Histogram returns a copy of the latencies.
func (w *Window) Histogram(at time.Duration) (h Histogram) {
	oldest := max(epochOf(at)-slots+1, 1)
	for i := range w.few {
		if sample := w.few[i].Load(); int64(sample>>binBits) >= min(oldest, maxEpoch) {
			h.counts[sample%bins]++
			h.Samples++
		}
	}
	for i := range w.slowest {
		if sample := w.slowest[i].Load(); int64(sample>>tookBits) >= oldest {
			h.Slowest = max(h.Slowest, time.Duration(sample&(1<<tookBits-1))*time.Microsecond)
		}
	}
	many := w.many.Load()
	if many == nil {
		return h
	}
	for i := range many {
		s := &many[i]
		if s.epoch.Load() < oldest {
			continue
		}
		for b := range s.counts {
			count := uint64(s.counts[b].Load())
			h.counts[b] += count
			h.Samples += int(count)
		}
	}
	return h
}

// Histogram is a histogram of latencies. Each bin ends at 1.3 times the end of the previous
// one.
type Histogram struct {
	counts  [bins]uint64
	Samples int
	Slowest time.Duration // rounded up to a microsecond
}

// Quantile returns the latency that a ratio q of the samples did not exceed. It is at most a
// third too high, and never too low. Without samples it is 0. A q below 0 means 0; a q above
// 1, and NaN, mean 1.
func (h *Histogram) Quantile(q float64) time.Duration {
	if h.Samples == 0 {
		return 0
	}
	rank := uint64(h.Samples)
	if q < 1 {
		rank = uint64(max(math.Ceil(q*float64(h.Samples)), 1))
	}
	b := 0
	for upTo := h.counts[0]; upTo < rank && b < bins-1; upTo += h.counts[b] {
		b++
	}
	return ends[b]
}

// binOf returns the first bin that ends at the latency or later.
func binOf(took time.Duration) int {
	b, _ := slices.BinarySearch(ends[:bins-1], took)
	return b
}

// ends are the longest latencies of the bins.
var ends = func() (e [bins]time.Duration) { //nolint:gochecknoglobals // never written to
	for b := range e {
		e[b] = time.Duration(math.Exp2(lowest + float64(b)/perOctave))
	}
	return e
}()
