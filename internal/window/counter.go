// Package window counts events over a sliding window of time, without a lock, right to
// within one bucket.
//
// Time is a time.Duration since an origin of the owner's choosing, taken from
// one monotonic clock (now.Sub(origin), with both from time.Now). The length of
// the window is given by the owner with each call and must not change.
package window

import (
	"sync"
	"sync/atomic"
	"time"
)

// Buckets is the number of buckets that a Counter divides its window into.
const Buckets = 16

// MinLength is the shortest window there is: shorter ones are taken for it.
const MinLength = time.Millisecond

// CounterMax is how far each of the two counts goes within one bucket. A count
// that has come so far stays there until the window has moved on: it never
// overflows into its neighbour, nor begins again.
const CounterMax = 1<<countBits - 1

const (
	countBits = 24
	tagShift  = 2 * countBits

	// Tags are compared as signed 16-bit differences, so they must never be
	// 1<<15 laps apart. A Counter that was idle for long (at a window of ten
	// seconds, three days) is cleared without a look at them.
	lapsUntilLock  = 1 << 14
	lapsUntilClear = 3 << 13
)

// Counter counts two kinds of events, a and b (failures and successes, say), in
// the window that ends now. The zero value is ready for use and belongs into a
// larger struct by value; it must not be copied after first use. All methods
// are safe for concurrent use, and every event is counted exactly once.
//
// The window moves by a sixteenth of its length, and is never longer than what
// was asked for: between fifteen and sixteen sixteenths of it.
//
// A time earlier than one that was seen before is taken for that: goroutines
// that read the clock and count a moment later need not agree on the order.
type Counter struct {
	// Each bucket is one word: 16 bits of tag, which tell the lap around the
	// ring that the counts are of, and 24 bits for each of the counts. To move a
	// bucket to the next lap and to count in it are thus both one
	// compare-and-swap, and no count can fall between.
	ring [Buckets]atomic.Uint64
	last atomic.Int64 // the newest epoch (time in bucket widths) ever seen

	wakening sync.Mutex // for the first events after a very long idle time
}

func pack(tag uint16, a, b uint64) uint64 { return uint64(tag)<<tagShift | a<<countBits | b }

func counts(word uint64) (a, b uint64) { return word >> countBits & CounterMax, word & CounterMax }

func tagOf(word uint64) uint16 { return uint16(word >> tagShift) }

// older tells whether tag x is of an earlier lap than y. Tags that meet are less
// than half their range apart, so this holds when they wrap around too.
func older(x, y uint16) bool { return int16(x-y) < 0 }

func wrap(epoch int64) uint16 { return uint16(epoch / Buckets) }

func epoch(now, length time.Duration) int64 {
	// Rounded down, so that the window is never longer than asked for.
	return int64(max(now, 0) / (max(length, MinLength) / Buckets))
}

// Add counts a events of one kind and b of the other at the time now.
func (c *Counter) Add(now, length time.Duration, a, b uint32) {
	e := c.advance(epoch(now, length))
	tag := wrap(e)
	bucket := &c.ring[e%Buckets]
	for {
		old := bucket.Load()
		if tagOf(old) != tag {
			// The bucket has moved on: a whole window went by since the line
			// above, and the events with it.
			return
		}
		x, y := counts(old)
		x, y = min(x+uint64(a), CounterMax), min(y+uint64(b), CounterMax)
		if bucket.CompareAndSwap(old, pack(tag, x, y)) {
			return
		}
	}
}

// Sum returns how many events of each kind are in the window that ends now.
func (c *Counter) Sum(now, length time.Duration) (a, b uint64) {
	last := c.last.Load()
	e := max(epoch(now, length), last)
	// Nothing is newer than last: the buckets beyond it may have tags of any
	// lap, after a long idle time also one that looks like this.
	for i := max(e-Buckets+1, 0); i <= last; i++ {
		if word := c.ring[i%Buckets].Load(); tagOf(word) == wrap(i) {
			x, y := counts(word)
			a, b = a+x, b+y
		}
	}
	return a, b
}

// advance makes the buckets up to epoch e ready to count in, and returns e, or
// a later epoch that was seen before.
//
// Every epoch's bucket is moved to its lap, also those in which nothing
// happens: so no bucket is ever more than a lap behind, and 16 bits of tag are
// enough.
func (c *Counter) advance(e int64) int64 {
	last := c.last.Load()
	if e <= last {
		return last
	}
	if e-last >= lapsUntilLock*Buckets {
		c.wakening.Lock()
		defer c.wakening.Unlock()
		if last = c.last.Load(); e <= last {
			return last
		}
	}
	// Beyond this, tags say nothing. Nobody can be counting in the buckets that
	// are cleared here: those who come after as long an idle time wait for the
	// lock, and the others are too late by a thousand laps.
	blind := e-last >= lapsUntilClear*Buckets
	for i := max(last+1, e-Buckets+1); i <= e; i++ {
		bucket, tag := &c.ring[i%Buckets], wrap(i)
		for {
			old := bucket.Load()
			if !blind && !older(tagOf(old), tag) {
				break // somebody else was faster, and may have counted already
			}
			if bucket.CompareAndSwap(old, pack(tag, 0, 0)) {
				break
			}
		}
	}
	// Only now that the buckets are ready may others skip this.
	for !c.last.CompareAndSwap(last, e) {
		if last = c.last.Load(); e <= last {
			return last
		}
	}
	return e
}
