package circuit

import (
	"sync/atomic"
	"time"
)

// typicalLatency follows the median of a scope's latencies: each sample moves it
// by a sixteenth, however far away it is, so that a second of slow answers before
// the failures does not. The zero value knows nothing. It is safe for concurrent
// use, and takes so few samples that the many who share it do not get into each
// other's way; two that come at once may count as one.
type baselineLatency struct {
	median  atomic.Int64 // 0: unknown
	sampled atomic.Int64 // when, since the origin
}

const baselineEvery = 100 * time.Millisecond

// latency is 0 if nothing was ever answered.
func (t *baselineLatency) latency() time.Duration { return time.Duration(t.median.Load()) }

func (t *baselineLatency) sample(at, took time.Duration) {
	if last := t.sampled.Load(); last != 0 && at-time.Duration(last) < baselineEvery {
		return
	}
	t.sampled.Store(int64(at))
	switch old := t.median.Load(); {
	case old == 0:
		t.median.Store(max(int64(took), 1))
	case int64(took) > old:
		t.median.Store(old + old/16)
	case int64(took) < old:
		t.median.Store(old - old/16)
	}
}
