// Package window keeps what happened in a sliding window of time, without a lock and with an error of at most one bucket.
//
// A time is a time.Duration since an origin that the owner chooses, from one monotonic clock.
package window

import (
	"iter"
	"sync/atomic"
	"time"
)

const (
	// Buckets is the usual number of buckets.
	Buckets = 16

	// MinLength is the least length that an owner should permit: a bucket must have a width.
	MinLength = time.Millisecond

	// Status is the length of the windows of a status.
	Status = 5 * time.Minute
)

// Window has a T for each of the newest buckets in which something happened, for example an atomic number. The owner passes the length
// and the number of buckets with each call, and must not change them. The zero value is ready for use. It must not be
// copied after its first use. It is safe for concurrent use.
//
// The window moves by a bucket at a time, and is never longer than its buckets. A time that is earlier than a previous
// one counts as that one: goroutines that read the clock and count a moment later may differ in their order.
type Window[T any] struct{ newest atomic.Pointer[bucket[T]] }

// bucket is never used for another epoch. So what is noted in it late counts in no other one.
type bucket[T any] struct {
	epoch  int64 // time in bucket widths
	before atomic.Pointer[bucket[T]]
	of     T
}

// epoch rounds the width of a bucket down, so that the window is never too long.
func epoch(now, length time.Duration, buckets int) int64 {
	return int64(max(now, 0) / (length / time.Duration(buckets)))
}

// At returns the T of the bucket of a time. It is a zero T if the window has none, and buckets that have left it are forgotten.
func (w *Window[T]) At(now, length time.Duration, buckets int) *T {
	at, newest := epoch(now, length, buckets), w.newest.Load()
	for newest == nil || newest.epoch < at {
		next := &bucket[T]{epoch: at}
		next.before.Store(newest)
		if w.newest.CompareAndSwap(newest, next) {
			next.forget(at - int64(buckets))
			return &next.of
		}
		newest = w.newest.Load()
	}
	return &newest.of
}

// forget cuts off the buckets up to an epoch.
func (b *bucket[T]) forget(epoch int64) {
	for before := b.before.Load(); before != nil; b, before = before, before.before.Load() {
		if before.epoch <= epoch {
			b.before.Store(nil)
			return
		}
	}
}

// All returns the T of each bucket and its age in buckets, the newest first. Age 0 is the bucket in use, so the newest n cover
// between n-1 and n times their width.
func (w *Window[T]) All(now, length time.Duration, buckets int) iter.Seq2[int, *T] {
	return func(yield func(int, *T) bool) {
		newest := w.newest.Load()
		if newest == nil {
			return
		}
		at := max(epoch(now, length, buckets), newest.epoch)
		for b := newest; b != nil && b.epoch > at-int64(buckets); b = b.before.Load() {
			if !yield(int(at-b.epoch), &b.of) {
				return
			}
		}
	}
}
