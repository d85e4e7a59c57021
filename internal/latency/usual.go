package latency

import (
	"sync/atomic"
	"time"
)

// Usual follows the latencies of a Window over the last hour: their median, their 99th percentile
// and the slowest. Every 15 seconds each value moves towards the one of the last minute: at first by
// half, then by a third, at last by a 64th. So an incident of ten minutes hardly changes them. Only
// the slowest may rise to four times its value: a few long polls among quick calls are usual. The
// zero value knows none. It is safe for concurrent use.
type Usual struct {
	last             atomic.Int64 // epoch of the last step
	steps            atomic.Int64
	p50, p99, utmost atomic.Int64 // nanoseconds; zero means unknown
}

const (
	usualSteps = 64 // the slowest pace

	// FewestSamples is the least number of samples of a median or a mean.
	FewestSamples = 4
)

// Follow makes the step of this time, unless it is made or the Window has too few samples.
func (u *Usual) Follow(at time.Duration, w *Window) {
	epoch, last := int64(max(at, 0)/(length/slots))+1, u.last.Load()
	if epoch <= last || !u.last.CompareAndSwap(last, epoch) {
		return
	}
	recent := w.Histogram(at)
	if recent.Samples < FewestSamples {
		u.last.CompareAndSwap(epoch, last) // the next sample may be the last one that is missing
		return
	}
	part := 1 / float64(min(u.steps.Add(1), usualSteps))
	approach(&u.p50, min(recent.Quantile(0.5), recent.Slowest), part, part)
	approach(&u.p99, min(recent.Quantile(0.99), recent.Slowest), part, part)
	approach(&u.utmost, recent.Slowest, part, 3)
}

// approach moves the value towards next, by at most these parts of itself.
func approach(value *atomic.Int64, next time.Duration, down, up float64) {
	to := int64(next)
	if old := value.Load(); old != 0 {
		to = min(max(to, old-int64(down*float64(old))), old+int64(up*float64(old)))
	}
	value.Store(max(to, 1))
}

// Get returns the median, the 99th percentile and the slowest latency. They are zero if unknown.
func (u *Usual) Get() (p50, p99, slowest time.Duration) {
	return time.Duration(u.p50.Load()), time.Duration(u.p99.Load()), time.Duration(u.utmost.Load())
}

// A latency far above the usual one is at least slowFactor times as high, and SlowMore higher. No
// attempts in flight are old before oldAttempts, on average over at least FewestSamples.
const (
	SlowMore    = 500 * time.Millisecond
	slowFactor  = 4.0
	fewSamples  = 10 // fewer must be four times as slow
	oldAttempts = 5 * time.Second
)

// IsSlow reports whether the median of the recent latencies is above the usual p99 and far above the
// usual median, or the attempts in flight are old.
func (u *Usual) IsSlow(recent *Histogram, old bool) bool {
	p50, p99, _ := u.Get()
	now, factor := recent.Quantile(0.5), slowFactor
	if recent.Samples < fewSamples {
		factor *= slowFactor
	}
	known := p50 > 0 && recent.Samples >= FewestSamples
	slow := now > p99 && now >= p50+SlowMore && float64(now) >= factor*float64(p50)
	return old || known && slow
}

// IsOld reports whether the mean age of n attempts in flight is more than 5 s and twice the usual
// slowest latency. Fewer than four count as four of which the others have no age: one slow request
// alone is usual.
func (u *Usual) IsOld(age time.Duration, n int) bool {
	_, _, slowest := u.Get()
	age = age * time.Duration(min(n, FewestSamples)) / FewestSamples
	return slowest > 0 && age > oldAttempts && age > 2*slowest
}

// Median follows the median latency. Each sample moves it by a sixteenth, so that a second of slow
// responses hardly changes it. The zero value has no sample. It is safe for concurrent use. Of
// two samples at the same time, one may be lost.
type Median struct {
	nanos   atomic.Int64 // zero means no sample
	sampled atomic.Int64 // time of the last sample, since the origin
}

// SampleEvery is the minimum time between samples: busy processors must not contend for shared memory.
const SampleEvery = 100 * time.Millisecond

// Follow adds a sample at a time since the origin. It ignores one that is too early after the
// sample before it.
func (m *Median) Follow(at, took time.Duration) {
	if last := m.sampled.Load(); last != 0 && at-time.Duration(last) < SampleEvery {
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
