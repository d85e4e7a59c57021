// Package latency records the latencies of the recent responses of a scope.
package latency

import (
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/window"
)

// Window holds the latencies of the last 45 to 60 seconds, in histograms of 15 seconds each. The zero value is ready for use. It
// is safe for concurrent use and takes no lock.
type Window struct{ slots window.Window[slot] }

const (
	length = time.Minute
	slots  = 4
	bins   = 64

	// The first bin ends at 2^lowest nanoseconds, about 65 µs: no network is faster. With
	// perOctave bins for each power of two, the last one ends above ten minutes.
	lowest    = 16
	perOctave = 8.0 / 3
)

type slot struct {
	counts  [bins]atomic.Uint32
	slowest atomic.Int64 // nanoseconds
}

// Add records a response that arrived at a time since the origin.
func (w *Window) Add(at, took time.Duration) {
	s := w.slots.At(at, length, slots)
	s.counts[binOf(took)].Add(1)
	for old := s.slowest.Load(); int64(took) > old; old = s.slowest.Load() {
		if s.slowest.CompareAndSwap(old, int64(took)) {
			return
		}
	}
}

// Histogram returns a copy of the latencies.
func (w *Window) Histogram(at time.Duration) (h Histogram) {
	for _, s := range w.slots.All(at, length, slots) {
		h.Slowest = max(h.Slowest, time.Duration(s.slowest.Load()))
		for b := range s.counts {
			count := int(s.counts[b].Load())
			h.counts[b] += count
			h.Samples += count
		}
	}
	return h
}

// Histogram is a histogram of latencies. Each bin ends at 1.3 times the end of the previous
// one.
type Histogram struct {
	counts  [bins]int
	Samples int
	Slowest time.Duration
}

// Quantile returns the latency that a ratio q of the samples did not exceed. It is at most a
// third too high, and never too low. Without samples it is 0. A q below 0 means 0; a q above
// 1, and NaN, mean 1.
func (h *Histogram) Quantile(q float64) time.Duration {
	if h.Samples == 0 {
		return 0
	}
	rank := h.Samples
	if q < 1 {
		rank = int(max(math.Ceil(q*float64(h.Samples)), 1))
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
