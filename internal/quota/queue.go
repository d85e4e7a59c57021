package quota

import (
	"time"

	"github.com/resilienthttp/resilienthttp/internal/waitqueue"
)

// Dispatch implements waitqueue.Gate.
func (b *bucket) Dispatch(now time.Time) {
	var wake time.Time
	for b.Len() > 0 && wake.IsZero() {
		wake = b.step(now)
	}
	if b.Len() == 0 {
		b.heldSince, b.after.end, wake = time.Time{}, time.Time{}, time.Time{} // Sweep may have rejected the last one
	}
	b.WakeAt(wake, b.latest)
}

// step releases the first call that still has time for a response, or returns when that is possible.
func (b *bucket) step(now time.Time) (wake time.Time) {
	now = b.tick(now)
	e := b.InTime(now)
	o := b.opening(now, e.Cost)
	if b.Len() > b.after.calls { // more have come: this never slows them down, because they have an estimate
		b.after.usual = min(b.after.usual, b.pace())
	}
	interval := b.after.interval(now, b.Len())
	switch {
	// Calls are held. If the wait has become longer, those without time for it are rejected.
	case o.at.After(now):
		moved := b.heldSince.IsZero() || o.at.After(b.heldUntil)
		b.hold(now)
		b.heldUntil = o.at
		if moved {
			b.Sweep(now)
		}
		return o.at
	// The wait is over: from now on calls are released one by one.
	case !b.heldSince.IsZero():
		b.release(now)
		return time.Time{}
	case !o.recheck.IsZero():
		return o.recheck
	// The server may have no capacity for all calls that have waited.
	case now.Before(b.after.next):
		return b.after.next
	}
	b.after.next = now.Add(interval)
	f := flight{cost: e.Cost}
	b.use(&f, now)
	b.Grant(e, f)
	return time.Time{}
}

// Take implements waitqueue.Gate.
func (b *bucket) Take(now time.Time, cost int64) (f flight, ok bool) {
	if !b.opening(now, cost).open(now) {
		return f, false
	}
	f.cost = cost
	b.use(&f, now)
	return f, true
}

// Return implements waitqueue.Gate.
func (b *bucket) Return(f flight, _ time.Time) { b.finish(&f, false) }

// Estimate implements waitqueue.Gate. Calls use the quota of one window after the other, and are released evenly.
func (b *bucket) Estimate(now time.Time, ahead waitqueue.Load, cost int64) (at time.Time, blocked bool) {
	now = b.tick(now)
	o := b.opening(now, cost)
	at, since := later(now, o.at), now
	if !b.heldSince.IsZero() {
		since = b.heldSince
	} else {
		interval := b.after.interval(now, b.Len()+1)
		at = later(at, b.after.next.Add(interval*time.Duration(ahead.Calls)))
	}
	for i := range b.dims {
		at = later(at, b.dims[i].estimate(now, since, ahead, cost, b.load, b.RTT, b.pace()))
	}
	return at, o.blocked
}
