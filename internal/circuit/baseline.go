package circuit

import (
	"sync/atomic"
	"time"
)

// baselineLatency follows the median latency of a scope. Each sample moves it by a sixteenth, so
// that a second of slow responses before an outage hardly changes it. The zero value has no
// sample. It is safe for concurrent use. Of two samples at the same time, one may be lost.
type baselineLatency struct {
	median  atomic.Int64 // zero means unknown
	sampled atomic.Int64 // time of the last sample, since the origin
}

// baselineEvery is the minimum time between samples: busy processors must not contend for
// the median.
const baselineEvery = 100 * time.Millisecond

// latency returns 0 without a sample.
func (b *baselineLatency) latency() time.Duration { return time.Duration(b.median.Load()) }

func (b *baselineLatency) sample(at, took time.Duration) {
	if last := b.sampled.Load(); last != 0 && at-time.Duration(last) < baselineEvery {
		return
	}
	b.sampled.Store(max(int64(at), 1))
	switch old := b.median.Load(); {
	case old == 0:
		b.median.Store(max(int64(took), 1))
	case int64(took) > old:
		b.median.Store(old + old/16)
	case int64(took) < old:
		b.median.Store(old - old/16)
	}
}

// slowFailure is the minimum latency of a failure that indicates a long queue. A rejected
// connection takes less, and a shorter queue is no problem.
const slowFailure = 100 * time.Millisecond

// minSlow is the minimum latency of a slow failure.
func minSlow(baseline time.Duration) time.Duration { return max(slowFailure, 2*baseline) }

// isSlowFailure reports whether a failure indicates a long queue. Without a baseline none
// does.
func (b *baselineLatency) isSlowFailure(r Result) bool {
	baseline := b.latency()
	return baseline > 0 && (r.TimeOut || r.Took >= minSlow(baseline))
}

// minTimeout is the minimum latency of an attempt without a response that is a failure when
// the deadline of the call ends it.
func minTimeout(baseline time.Duration) time.Duration {
	if baseline == 0 {
		return time.Second
	}
	return max(slowFailure, 4*baseline)
}
