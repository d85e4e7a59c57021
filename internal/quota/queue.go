package quota

import (
	"math/rand/v2"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/waitqueue"
)

// classQueue is the queue of one class of calls at a bucket. All classes together are
// served first come, first served, except that a blocked class holds up no other. The
// bucket's lock guards it.
type classQueue struct {
	waitqueue.Queue[Permit]

	bucket *bucket
	class  int8

	held    bool      // the calls wait for a reset, or for the end of a block
	until   time.Time // for so long
	blocked bool      // by a block
	apart   bool      // of this class alone
}

// pacer releases queued calls evenly until its end.
type pacer struct {
	next    time.Time     // when the next call is released
	spacing time.Duration // between two calls; 0: what is left until end, by their number
	end     time.Time
}

// gap is the time between two calls, of so many.
func (p *pacer) gap(now time.Time, calls int64) time.Duration {
	switch {
	case !p.end.After(now):
		return 0
	case p.spacing > 0:
		return p.spacing
	}
	return p.end.Sub(now) / time.Duration(calls)
}

// maxCatchUp is how far a release may be behind its plan and still catch up: timers are
// late.
const maxCatchUp = 2 * time.Millisecond

var _ waitqueue.Gate[Permit] = (*classQueue)(nil)

// queue is the queue of the class.
func (b *bucket) queue(class int8) *classQueue {
	q := &b.queues[class+1]
	if *q == nil {
		*q = &classQueue{bucket: b, class: class}
		(*q).Mu, (*q).Gate = &b.mu, *q
	}
	return *q
}

// ahead is how many calls wait that a new call of the queue has to wait for.
func (b *bucket) ahead(of *classQueue) (n int64) {
	for _, q := range b.queues {
		if q != nil && (q == of || !q.apart && !of.apart) {
			n += q.Len()
		}
	}
	return n
}

// dispatch releases the calls that may be sent, and sets the timers for the others.
func (b *bucket) dispatch(now time.Time) {
	now = b.tick(now)
	var waiting [numClasses]bool
	for {
		var first *classQueue
		for i, q := range b.queues {
			if q != nil && q.Len() > 0 && !waiting[i] && (first == nil || q.Oldest().Before(first.Oldest())) {
				first = q
			}
		}
		if first == nil {
			break
		}
		waiting[first.class+1] = first.step(now)
	}
	waits := false
	for _, q := range b.queues {
		if q != nil && q.Len() == 0 {
			q.held, q.apart, q.blocked = false, false, false
			q.WakeAt(time.Time{}, now)
		}
		waits = waits || q != nil && q.Len() > 0
	}
	if !waits {
		b.pacer = pacer{}
	}
}

// step releases the call at the head, or sets the timer for when it may be.
func (q *classQueue) step(now time.Time) (waits bool) {
	b := q.bucket
	o := b.opening(now, q.class)
	gap := b.pacer.gap(now, b.ahead(q))
	var wake time.Time
	switch {
	case o.at.After(now):
		moved := o.at.Sub(q.until) > resetSlack || !q.held
		q.held, q.until, q.blocked, q.apart = true, o.at, o.blocked, o.class
		if moved {
			q.Sweep(now)
			return false
		}
		wake = o.at
	case q.held:
		q.release(now)
		return false
	case o.flight:
		wake = o.recheck
	case gap > 0 && now.Before(b.pacer.next):
		wake = b.pacer.next
	default:
		if gap > 0 { // an eighth more or less
			b.pacer.next = later(b.pacer.next, now.Add(-maxCatchUp)).Add(gap - gap/8 + rand.N(gap/4+1))
		}
		var p Permit
		b.use(&p, now)
		q.Grant(p)
		return false
	}
	q.WakeAt(wake, now)
	return true
}

// release begins to release the calls evenly: after a reset over a part of the window, and
// after a block over half of its length, at most maxSpreadAfterBlock. One goes alone before.
func (q *classQueue) release(now time.Time) {
	b := q.bucket
	calls, length := b.ahead(q), time.Duration(0)
	if q.blocked {
		length = max(b.blocks.length(q.class, now), b.general.Load().blocks.length(q.class, now))
	}
	b.goAlone(now)
	b.pacer = pacer{next: now, end: now.Add(maxSpread)}
	if length > 0 {
		b.pacer.end = now.Add(min(length/2, maxSpreadAfterBlock))
	} else if b.pacer.spacing = b.spacing(calls); b.pacer.spacing > 0 {
		b.pacer.end = now.Add(maxPacing)
	}
	if q.blocked { // other processes wait for the same moment
		b.pacer.next = now.Add(rand.N(b.pacer.gap(now, calls) + 1))
	}
	for _, other := range b.queues {
		if other != nil && other.apart == q.apart {
			other.held, other.blocked = false, false
		}
	}
	q.held, q.blocked = false, false
}

// spacing is the time between two of so many calls after a reset; 0: no quota is known.
func (b *bucket) spacing(calls int64) (spacing time.Duration) {
	for i := range b.dims {
		if d := &b.dims[i]; !d.denied && (!d.silent || d.rejected) && !d.costed && d.limit > 0 && d.window > 0 {
			n := min(calls, d.limit)
			if s := d.spread(n) / time.Duration(n); spacing == 0 || s < spacing {
				spacing = s
			}
		}
	}
	return spacing
}

// Dispatch implements waitqueue.Gate.
func (q *classQueue) Dispatch(now time.Time) { q.bucket.dispatch(now) }

// Return implements waitqueue.Gate.
func (q *classQueue) Return(p Permit, _ time.Time) { q.bucket.undo(&p) }

// Estimate implements waitqueue.Gate. Calls use the quota of one window after the other.
func (q *classQueue) Estimate(now time.Time, ahead int64) (at time.Time, blocked bool) {
	b := q.bucket
	now = b.tick(now)
	o := b.opening(now, q.class)
	at = later(now, o.at)
	if own := q.Len(); own > 0 && !q.apart {
		ahead = ahead * b.ahead(q) / own // and as many of the other classes
	} else if !q.apart {
		ahead += b.ahead(q)
	}
	for i := range b.dims {
		at = later(at, b.dims[i].estimate(now, ahead, b.inflight, b.trip))
	}
	return at, o.blocked
}
