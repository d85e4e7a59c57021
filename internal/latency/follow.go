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

// InFlight counts the attempts in flight, and knows their mean age. The zero value has none. It is
// safe for concurrent use. One atomic number has both: the count in its lower bits, and above them
// the sum of the starts in milliseconds. The sum overflows, but the sum of the ages does not.
type InFlight struct{ state atomic.Uint64 }

const countBits = 20 // at most a million attempts

// Begin adds an attempt that starts at a time since the origin.
func (f *InFlight) Begin(at time.Duration) { f.state.Add(uint64(at.Milliseconds())<<countBits | 1) }

// End removes an attempt that Begin has added at the same time since the origin.
func (f *InFlight) End(start time.Duration) {
	f.state.Add(-(uint64(start.Milliseconds())<<countBits | 1))
}

// Count returns the number of attempts.
func (f *InFlight) Count() int { return int(f.state.Load() & (1<<countBits - 1)) }

// Age returns the mean age of the attempts at a time since the origin; zero if there is none.
func (f *InFlight) Age(at time.Duration) time.Duration {
	state := f.state.Load()
	n := state & (1<<countBits - 1)
	if n == 0 {
		return 0
	}
	ages := int64(n*uint64(at.Milliseconds())<<countBits-state&^(1<<countBits-1)) >> countBits
	return max(time.Duration(ages/int64(n))*time.Millisecond, 0)
}
