package quota

import (
	"math/rand/v2"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/waitqueue"
)

// pacer releases queued calls evenly until its end.
type pacer struct {
	next    time.Time     // when the next call is released
	spacing time.Duration // time between two calls; 0: the time until end, divided by their number
	end     time.Time
}

// interval returns the time between two of that many calls.
func (p *pacer) interval(now time.Time, calls int64) time.Duration {
	switch {
	case !p.end.After(now):
		return 0
	case p.spacing > 0:
		return p.spacing
	}
	return p.end.Sub(now) / time.Duration(calls)
}

var _ waitqueue.Gate[Permit] = (*bucket)(nil)

// Dispatch implements waitqueue.Gate.
func (b *bucket) Dispatch(now time.Time) {
	now = b.tick(now)
	var wake time.Time
	for b.Len() > 0 && wake.IsZero() {
		wake = b.step(now)
	}
	if b.Len() == 0 {
		b.heldSince, b.pacer = time.Time{}, pacer{}
	}
	b.WakeAt(wake, now)
}

// step releases the call at the head, or returns when that is possible.
func (b *bucket) step(now time.Time) (wake time.Time) {
	o := b.opening(now)
	interval := b.pacer.interval(now, b.Len())
	switch {
	case o.at.After(now):
		moved := b.heldSince.IsZero() || o.at.Sub(b.heldUntil) > resetSlack
		b.hold(now)
		b.heldUntil = o.at
		if moved {
			b.Sweep(now)
		}
		return o.at
	case !b.heldSince.IsZero():
		b.release(now)
		return time.Time{}
	case !o.recheck.IsZero():
		return o.recheck
	case interval > 0 && now.Before(b.pacer.next):
		return b.pacer.next
	case interval > 0: // an eighth more or less
		b.pacer.next = now.Add(interval - interval/8 + rand.N(interval/4+1))
	}
	var p Permit
	b.use(&p, now)
	b.Grant(p)
	return time.Time{}
}

// hold records that calls wait for a reset or for the end of a block.
func (b *bucket) hold(now time.Time) {
	if b.Len() > 0 && b.heldSince.IsZero() {
		b.heldSince = now
	}
}

// release begins to release the calls evenly: at the rate of a quota, or over half of the time
// that they have waited. The first is sent alone.
func (b *bucket) release(now time.Time) {
	b.goAlone(now)
	b.pacer = pacer{next: now, end: now.Add(min(now.Sub(b.heldSince)/2, maxRelease))}
	b.heldSince = time.Time{}
	if b.pacer.spacing = b.spacing(b.Len()); b.pacer.spacing > 0 {
		b.pacer.end = now.Add(maxPacing)
	} else { // other processes may wait for the same moment
		b.pacer.next = now.Add(rand.N(b.pacer.interval(now, b.Len()) + 1))
	}
}

// spacing returns the time between two of that many calls after a reset; 0 if no quota is known.
func (b *bucket) spacing(calls int64) (spacing time.Duration) {
	for i := range b.dims {
		if d := &b.dims[i]; !d.denied && (!d.notShown || d.rejected) && !d.costed && d.limit > 0 && d.window > 0 {
			n := min(calls, d.limit)
			if s := d.spread(n) / time.Duration(n); spacing == 0 || s < spacing {
				spacing = s
			}
		}
	}
	return spacing
}

// Take implements waitqueue.Gate.
func (b *bucket) Take(now time.Time) (p Permit, ok bool) {
	if o := b.opening(b.tick(now)); !o.free(now) {
		return p, false
	}
	b.use(&p, b.latest)
	return p, true
}

// Return implements waitqueue.Gate.
func (b *bucket) Return(p Permit, _ time.Time) { b.finish(&p, false) }

// Estimate implements waitqueue.Gate. Calls use the quota of one window after the other.
func (b *bucket) Estimate(now time.Time, ahead int64) (at time.Time, blocked bool) {
	now = b.tick(now)
	o := b.opening(now)
	at = later(now, o.at)
	for i := range b.dims {
		at = later(at, b.dims[i].estimate(now, ahead, b.inflight, b.rtt))
	}
	return at, o.blocked
}
