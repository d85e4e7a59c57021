// Package window counts events in a sliding window of time, without a lock and with an error of at most one bucket.
//
// A time is a time.Duration since an origin that the owner chooses, from one monotonic clock. The
// owner passes the length of the window with each call and must not change it.
package window

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	// Buckets is the number of buckets of a window.
	Buckets = 16

	// MinLength is the minimum length of a window. A shorter length means this one.
	MinLength = time.Millisecond

	// Status is the length of the windows of a status.
	Status = 5 * time.Minute

	// CounterMax is the maximum of each count within one bucket. A larger count stays at this value.
	CounterMax = 1<<countBits - 1

	countBits = 24
	tagShift  = 2 * countBits

	// Tags are compared as signed 16-bit differences, so they must be less than 1<<15 wraps apart. After a longer idle
	// time (three days for a window of ten seconds), the buckets are cleared without a comparison.
	wrapsUntilLock  = 1 << 14
	wrapsUntilClear = 3 << 13
)

// Counter counts events of two kinds, a and b (for example failures and successes), in the window
// that ends now. The zero value is ready for use. It must not be copied after its first use. It
// is safe for concurrent use, and counts each event exactly once.
//
// The window moves in steps of a sixteenth, and is never longer than its length. A time that is earlier than a previous
// one counts as that one: goroutines that read the clock and count a moment later may differ in their order.
type Counter struct {
	// Each bucket is one word: 16 bits of tag, the number of the wrap around the ring, and 24 bits for each count. So
	// one compare-and-swap moves a bucket to the next wrap or counts in it, and no count is lost.
	ring [Buckets]atomic.Uint64
	last atomic.Int64 // newest epoch (time in bucket widths)

	awakening sync.Mutex // for the first events after a very long idle time
}

// epoch returns the number of a bucket. It rounds the width down, so that the window is never too long.
func epoch(now, length time.Duration) int64 {
	return int64(max(now, 0) / (max(length, MinLength) / Buckets))
}

// Add counts a events of one kind and b of the other.
func (c *Counter) Add(now, length time.Duration, a, b uint32) {
	e, last := epoch(now, length), c.last.Load()
	if e > last {
		last = c.advance(e)
	}
	tag, bucket := uint64(uint16(last/Buckets)), &c.ring[last%Buckets]
	for {
		old := bucket.Load()
		if old>>tagShift != tag {
			return // a whole window has passed since advance
		}
		x := min((old>>countBits&CounterMax)+uint64(a), CounterMax)
		y := min((old&CounterMax)+uint64(b), CounterMax)
		if bucket.CompareAndSwap(old, tag<<tagShift|x<<countBits|y) {
			return
		}
	}
}

// Count returns the number of events of each kind in the Buckets from one to before another. Bucket 0 is the newest. It is
// in use, so the newest n buckets cover between n-1 and n times their width.
func (c *Counter) Count(now, length time.Duration, from, to int) (a, b uint64) {
	// Buckets after last may have any tag, after a long idle time also that of this wrap.
	last := c.last.Load()
	newest := max(epoch(now, length), last)
	for i := max(newest-int64(to)+1, 0); i <= min(newest-int64(from), last); i++ {
		if word := c.ring[i%Buckets].Load(); word>>tagShift == uint64(uint16(i/Buckets)) {
			a, b = a+(word>>countBits&CounterMax), b+(word&CounterMax)
		}
	}
	return a, b
}

// advance prepares the buckets up to epoch e. It returns e, or a later epoch that another goroutine has reached. It
// moves also buckets without events, so that none is more than one wrap behind and 16 bits of tag are enough.
func (c *Counter) advance(e int64) int64 {
	last := c.last.Load()
	if e-last >= wrapsUntilLock*Buckets {
		c.awakening.Lock()
		defer c.awakening.Unlock()
		last = c.last.Load()
	}
	// After a long idle time other goroutines wait for the lock, so none counts in a bucket that
	// is cleared without a comparison.
	blind := e-last >= wrapsUntilClear*Buckets
	for i := max(last+1, e-Buckets+1); i <= e; i++ {
		bucket, tag := &c.ring[i%Buckets], uint64(uint16(i/Buckets))
		// Tags overflow: a tag is older if it is less than half of their range behind.
		for old := bucket.Load(); blind || int16(old>>tagShift-tag) < 0; old = bucket.Load() {
			if bucket.CompareAndSwap(old, tag<<tagShift) {
				break
			}
		}
	}
	// Other goroutines may skip this only after the buckets are ready.
	for e > last && !c.last.CompareAndSwap(last, e) {
		last = c.last.Load()
	}
	return max(e, last)
}
