package latency

import (
	"sync/atomic"
	"time"
)

// Quick is how long quick responses take. A quicker sample moves it a quarter of the way
// down, a slower one up by a 256th, so that slow responses beside quick ones hardly count.
// The zero value has no sample. It is safe for concurrent use; of two samples at the same
// time one may be lost.
type Quick struct {
	nanos atomic.Int64 // 0: no sample
}

// Follow adds a sample. Zero counts as a nanosecond.
func (q *Quick) Follow(took time.Duration) {
	next := max(int64(took), 1)
	switch old := q.nanos.Load(); {
	case old == next:
		return // no write to memory that is shared
	case old == 0:
	case next < old:
		next = old - (old-next+3)/4
	default:
		next = old + min(next-old, max(old/256, 1))
	}
	q.nanos.Store(next)
}

// Get returns 0 without a sample.
func (q *Quick) Get() time.Duration { return time.Duration(q.nanos.Load()) }
