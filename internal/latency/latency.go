// Package latency remembers how long the answers of a scope took of late, in a
// kilobyte, without a lock.
package latency

import (
	"math"
	"math/bits"
	"sync/atomic"
	"time"
)

// Record holds the latencies of the last 45 to 60 seconds as a histogram. Each
// bucket ends 1.3 times as late as the one before, so a quantile is right to
// within a third, and never too low. The zero value is ready for use. It is safe
// for concurrent use: answers that come while a window is made ready may be lost,
// and none is counted twice.
type Window struct {
	windows [windows]slot
}

const (
	windows = 4
	length  = 15 * time.Second // of each
	buckets = 64

	// The first bucket ends at 2^lowest nanoseconds, some 65 µs: less than that is
	// no network. With so many buckets to an octave, the last ends beyond ten
	// minutes.
	lowest = 16
	fine   = 8.0 / 3
)

type slot struct {
	epoch  atomic.Int64 // 1 + which one it is, since the origin; 0: none yet
	counts [buckets]atomic.Uint32
}

// Add counts an answer that came at a time since the origin, and took so long.
func (r *Window) Add(at, took time.Duration) {
	epoch := int64(max(at, 0)/length) + 1
	w := &r.windows[epoch%windows]
	if old := w.epoch.Load(); old != epoch {
		if old > epoch {
			return // it is a minute late
		}
		if w.epoch.CompareAndSwap(old, epoch) {
			for i := range w.counts {
				w.counts[i].Store(0)
			}
		}
	}
	w.counts[bucketOf(took)].Add(1)
}

// Quantile is that of what there is of late.
func (r *Window) Quantile(at time.Duration, q float64) (took time.Duration, samples int) {
	h := r.Late(at)
	return h.Quantile(q)
}

// Histogram is a copy of what a Record holds at one time.
type Histogram struct {
	counts [buckets]uint64
	n      uint64
}

// Late is what there is of late.
func (r *Window) Late(at time.Duration) (h Histogram) {
	newest := int64(max(at, 0)/length) + 1
	for i := range r.windows {
		w := &r.windows[i]
		if epoch := w.epoch.Load(); epoch == 0 || epoch <= newest-windows {
			continue
		}
		for b := range w.counts {
			count := uint64(w.counts[b].Load())
			h.counts[b] += count
			h.n += count
		}
	}
	return h
}

// Quantile is the latency that the share q of the answers did not exceed, and how many
// answers that is judged by. Without any it is 0. A q below 0 counts as 0, above 1 as
// 1, and NaN as 1.
func (h *Histogram) Quantile(q float64) (took time.Duration, samples int) {
	samples = h.Quantiles(Share{q, &took})
	return took, samples
}

// Share is a share of the answers, and where the latency is to go that it did not exceed.
type Share struct {
	Of   float64
	Took *time.Duration
}

// Quantiles are those of several shares that grow, in one walk.
func (h *Histogram) Quantiles(shares ...Share) (samples int) {
	if h.n == 0 {
		return 0
	}
	b, upTo := 0, h.counts[0]
	for _, share := range shares {
		for rank := h.rank(share.Of); upTo < rank && b < buckets-1; upTo += h.counts[b] {
			b++
		}
		*share.Took = end(b)
	}
	return int(h.n)
}

// rank is which of the answers, by their latency, the share ends with.
func (h *Histogram) rank(q float64) uint64 {
	switch {
	case math.IsNaN(q) || q >= 1:
		return h.n
	case q > 0:
		return max(uint64(math.Ceil(q*float64(h.n))), 1)
	}
	return 1
}

// bucketOf is the bucket of a latency: the first that ends at it or later.
func bucketOf(took time.Duration) int {
	if took <= 1<<lowest {
		return 0
	}
	octave := bits.Len64(uint64(took-1)) - 1
	first := int(float64(octave-lowest) * fine)
	for b := max(first, 0); b < buckets-1; b++ {
		if took <= end(b) {
			return b
		}
	}
	return buckets - 1
}

// end is the longest latency of a bucket.
func end(b int) time.Duration { return ends[b] }

// ends are computed once: they are what all records have in common.
var ends = func() (e [buckets]time.Duration) { //nolint:gochecknoglobals // never written to
	for b := range e {
		e[b] = time.Duration(math.Exp2(lowest + float64(b)/fine))
	}
	return e
}()
