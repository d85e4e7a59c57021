package latency

import (
	"sync/atomic"
	"time"
)

// Usual follows the latencies of a Window over the last hour: their median, their 99th percentile
// and the slowest. Every 15 seconds each value moves towards the one of the last minute: at first by
// half, then by a third, at last by a 64th. So an incident of ten minutes hardly changes them. The
// zero value knows none. It is safe for concurrent use.
type Usual struct {
	last             atomic.Int64 // epoch of the last step
	steps            atomic.Int64
	p50, p99, utmost atomic.Int64 // nanoseconds; zero means unknown
}

const (
	usualSteps   = 64 // the slowest pace
	usualSamples = 5  // the least number of samples of a median
)

// Follow makes the step of this time, unless it is made or the Window has too few samples.
func (u *Usual) Follow(at time.Duration, w *Window) {
	epoch, last := epochOf(at), u.last.Load()
	if epoch <= last || !u.last.CompareAndSwap(last, epoch) {
		return
	}
	recent := w.Histogram(at)
	if recent.samples < usualSamples {
		u.last.CompareAndSwap(epoch, last) // the next sample may be the last one that is missing
		return
	}
	pace := min(u.steps.Add(1), usualSteps)
	approach(&u.p50, recent.Quantile(0.5), pace)
	approach(&u.p99, recent.Quantile(0.99), pace)
	approach(&u.utmost, recent.Slowest(), pace)
}

// approach moves the value towards next, by at most a part of itself.
func approach(value *atomic.Int64, next time.Duration, pace int64) {
	old := value.Load()
	if old == 0 {
		value.Store(max(int64(next), 1))
		return
	}
	step := max(old/pace, 1)
	value.Store(min(max(int64(next), old-step, 1), old+step))
}

// Get returns the median, the 99th percentile and the slowest latency. They are zero if unknown.
func (u *Usual) Get() (p50, p99, slowest time.Duration) {
	return time.Duration(u.p50.Load()), time.Duration(u.p99.Load()), time.Duration(u.utmost.Load())
}

// A latency far above the usual one is at least slowFactor times as high, and SlowMore higher. No
// attempt in flight is old before oldAttempts.
const (
	SlowMore    = 500 * time.Millisecond
	slowFactor  = 4
	oldAttempts = 5 * time.Second
)

// IsSlow reports whether the median of the recent latencies is above the usual p99 and far above the
// usual median, or the mean age of the attempts in flight is more than 5 s and twice the usual
// slowest latency.
func (u *Usual) IsSlow(recent *Histogram, age time.Duration) bool {
	p50, p99, _ := u.Get()
	now := recent.Quantile(0.5)
	return p50 > 0 && recent.samples >= usualSamples && now > p99 && now >= slowFactor*p50 && now >= p50+SlowMore || u.IsOld(age)
}

// IsOld reports whether attempts in flight of a mean age are far older than usual.
func (u *Usual) IsOld(age time.Duration) bool {
	_, _, slowest := u.Get()
	return slowest > 0 && age > oldAttempts && age > 2*slowest
}
