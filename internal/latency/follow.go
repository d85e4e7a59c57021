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

// Median follows the median latency. Each sample moves it by a sixteenth, so that a second of slow
// responses hardly changes it. The zero value has no sample. It is safe for concurrent use. Of
// two samples at the same time, one may be lost.
type Median struct {
	nanos   atomic.Int64 // zero means no sample
	sampled atomic.Int64 // time of the last sample, since the origin
}

// medianEvery is the minimum time between samples: busy processors must not contend for the
// median.
const medianEvery = 100 * time.Millisecond

// Follow adds a sample at a time since the origin. It ignores one that is too early after the
// sample before it.
func (m *Median) Follow(at, took time.Duration) {
	if last := m.sampled.Load(); last != 0 && at-time.Duration(last) < medianEvery {
		return
	}
	m.sampled.Store(max(int64(at), 1))
	switch old := m.nanos.Load(); {
	case old == 0:
		m.nanos.Store(max(int64(took), 1))
	case int64(took) > old:
		m.nanos.Store(old + old/16)
	case int64(took) < old:
		m.nanos.Store(old - old/16)
	}
}

// Get returns the latency, or 0 without a sample.
func (m *Median) Get() time.Duration { return time.Duration(m.nanos.Load()) }
