package latency

import (
	"sync/atomic"
	"time"
)

// Quick follows the latency of quick responses. A quicker sample moves it a quarter of the
// difference down, a slower one up by a 256th, so that slow responses hardly count. The zero
// value has no sample. It is safe for concurrent use. Of two samples at the same time, one may be
// lost.
type Quick struct {
	nanos atomic.Int64 // Zero means no sample
}

// Follow adds a sample. Zero counts as a nanosecond.
func (q *Quick) Follow(took time.Duration) {
	next := max(int64(took), 1)
	switch old := q.nanos.Load(); {
	case old == next:
		return // no store to a cache line that processors share
	case old == 0:
	case next < old:
		next = old - (old-next+3)/4
	default:
		next = old + min(next-old, max(old/256, 1))
	}
	q.nanos.Store(next)
}

// Get returns the latency, or 0 without a sample.
func (q *Quick) Get() time.Duration { return time.Duration(q.nanos.Load()) }
