package quota

import (
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/ratelimitheader"
)

// bucket is one of a server's quotas, as far as its responses tell, and the line
// of those who wait for it. How it works:
//
// Until an answer says something, requests are counted and nothing else: no
// lock. From then on each axis that the server names has what remained
// by the newest news. A request may go if on every axis more remains than is in
// flight; else it joins the line, unless it can be foreseen that its turn would
// come too late for it. Who waits is woken by an answer, or by the line's timer.
//
// When the reset comes, the quota is taken for whole. That is a belief: the reset
// was rounded, the clocks disagree, others use the quota too. So one call goes
// ahead as a scout, and the others follow when it is back, a little apart, as
// long as the news allow it. Whatever the truth, it is out after one round trip,
// and a wrong belief costs one refusal; one right after the reset makes the next
// resets be taken for later. Until news of the new window come, it is taken to
// begin with its first request and to be as long as the longest one seen.
//
// Not every quota has windows. A token bucket tells when it will be full, and that
// moves on with every request; once that is certain (refill), requests go as tokens
// come, and do not wait for the last of them. And a server may speak of its quota in
// refusals only: then requests that are served are counted off what remains, and when
// that is used up a scout sees whether it is true.
//
// What must not happen is that calls wait for nothing. Requests in flight come
// back or fail, or the reset comes. Those whose answer was lost may have been
// counted or not: after a second one call goes and sees. An axis that answers do
// not mention any more has no say. And when the reset or a Retry-After moves on,
// those in line for whom that is too late are told at once.
type bucket struct {
	once     sync.Once
	limiter  *Limiter
	account  atomic.Pointer[account]
	inflight atomic.Int64 // changed under the lock while armed
	armed    atomic.Bool  // something is known, or somebody waits
	closing  closing      // by refusals, this bucket alone

	// The line's lock guards what follows.
	line
	version uint64 // grows with all that is learned, to tell old news from new
	axes    []axis
	clock   serverClock
	latest  time.Time     // now
	lag     time.Duration // from sending a request to having its answer, on average
	trip    time.Duration // and at least

	shut     bool          // the line waits for a reset
	until    time.Time     // that long
	refusing bool          // because of a Retry-After
	scout    time.Time     // until then one goes ahead
	scouts   time.Time     // who was sent before this is not the one
	scouting bool          // it is under way
	spacing  time.Duration // between two who leave the line, while there is one
	spread   time.Time     // or as long as it takes to have all of them go by then
	next     time.Time     // who leaves next may do so from here on
}

// catchUp is how far behind its plan the spread may be and still make up for it:
// timers are late.
const catchUp = 2 * time.Millisecond

func (b *bucket) init(l *Limiter, who *account) {
	b.once.Do(func() { b.limiter, b.gate = l, b })
	if b.account.Load() != who {
		b.account.Store(who)
	}
}

// busy keeps what says something from being forgotten first.
func (b *bucket) busy() bool { return b.armed.Load() || b.closing.busy() }

// tick is now, and never before what was now before: who asked for the time first
// may get the lock last.
func (b *bucket) tick(now time.Time) time.Time {
	b.latest = later(b.latest, b.limiter.steady(now))
	return b.latest
}

// free reports whether nothing is known that could hold anybody up.
func (b *bucket) free() bool {
	return !b.armed.Load() && !b.closing.known.Load() && !b.account.Load().closing.known.Load()
}

// closedUntil is until when refusals have closed the bucket, or its account; the
// zero time if they have not.
func (b *bucket) closedUntil(now time.Time) time.Time {
	return later(b.closing.closedUntil(now), b.account.Load().closing.closedUntil(now))
}

// enter takes a turn, standing in line for it if need be and if the request may
// wait that long.
func (b *bucket) enter(now time.Time, q queueing) (Ticket, *Refusal) {
	free := b.free()
	if free {
		b.inflight.Add(1)
		if !b.armed.Load() {
			return Ticket{bucket: b, after: now.Sub(b.limiter.origin)}, nil
		}
		b.inflight.Add(-1) // in this very moment something was learned
	}
	b.mu.Lock()
	now = b.tick(now)
	b.armed.Store(true)
	if free {
		b.pump(now) // somebody may wait for what seemed to be in flight
	}
	if o := b.opening(now); b.len() == 0 && o.free(now) {
		t := b.take(now)
		b.mu.Unlock()
		return t, nil
	}
	q.trip = b.trip
	place, refusal := b.join(now, q)
	b.mu.Unlock()
	if refusal != nil {
		return Ticket{}, refusal
	}
	t, refusal := b.stand(place)
	t.Waited = true
	return t, refusal
}

// take counts one request as in flight.
func (b *bucket) take(now time.Time) Ticket {
	b.inflight.Add(1)
	for i := range b.axes {
		b.axes[i].sent(now)
	}
	b.scouting = b.scouting || now.Before(b.scout)
	return Ticket{bucket: b, version: b.version, after: now.Sub(b.limiter.origin)}
}

// opening is when the next request may go.
type opening struct {
	at      time.Time // not before; the zero time is now
	shut    bool      // because of a reset, or of a Retry-After
	closed  bool      // at is that of a Retry-After
	flight  bool      // and when one that is in flight has come back
	recheck time.Time // with flight: when to look again at the latest
}

func (o *opening) wait(at time.Time) {
	if at.After(o.at) {
		o.at, o.closed = at, false
	}
}

func (o *opening) shutUntil(at time.Time) {
	o.shut = true
	o.wait(at)
}

func (o *opening) awaitFlight(recheck time.Time) {
	o.flight = true
	o.recheck = sooner(o.recheck, recheck)
}

func (o *opening) free(now time.Time) bool { return !o.flight && !o.at.After(now) }

func (b *bucket) opening(now time.Time) opening {
	var o opening
	if until := b.closedUntil(now); !until.IsZero() {
		o.at, o.shut, o.closed = until, true, true
	}
	inflight := b.inflight.Load()
	for i := range b.axes {
		q := &b.axes[i]
		if waiting := b.len() > 0; q.roll(now, inflight, waiting, b.lag) && waiting {
			b.shut = true // until now, that is: let them go as after any reset
		}
		q.opening(&o, now, inflight)
	}
	if b.scouting && now.Before(b.scout) {
		o.awaitFlight(b.scout)
	}
	return o
}

// foresee implements gate: those ahead take the quota of one window after the
// other.
func (b *bucket) foresee(now time.Time, ahead int64) (at time.Time, closed bool) {
	now = b.tick(now)
	o := b.opening(now)
	at = later(now, o.at)
	inflight := b.inflight.Load()
	for i := range b.axes {
		at = later(at, b.axes[i].foresee(now, ahead, inflight, b.lag))
	}
	return at, o.closed
}

// pump implements gate.
func (b *bucket) pump(now time.Time) {
	now = b.tick(now)
	for b.len() > 0 {
		o := b.opening(now)
		switch {
		case o.shut && o.at.After(now):
			if later := o.at.Sub(b.until) > resetSlack; later || !b.shut {
				b.shut, b.until = true, o.at
				b.sweep(now)
				continue
			}
			b.refusing = o.closed
			b.wakeAt(o.at, now)
			return
		case b.shut:
			b.reopen(now)
		case o.at.After(now):
			b.wakeAt(o.at, now)
			return
		case o.flight:
			b.wakeAt(o.recheck, now)
			return
		case b.gap(now) > 0 && now.Before(b.next):
			b.wakeAt(b.next, now)
			return
		default:
			if gap := b.gap(now); gap > 0 {
				// An eighth less, or more.
				b.next = later(b.next, now.Add(-catchUp)).Add(gap - gap/8 + rand.N(gap/4+1))
			}
			b.grant(b.take(now))
		}
	}
	b.shut, b.spacing, b.spread = false, 0, time.Time{}
	b.wakeAt(time.Time{}, now)
}

// gap is the time between two who leave the line, on average.
func (b *bucket) gap(now time.Time) time.Duration {
	if b.spread.After(now) {
		return b.spread.Sub(now) / time.Duration(b.len())
	}
	return b.spacing
}

// reopen begins to let the line go: one goes ahead, and the others follow. After a
// reset they are spread over a part of the window, but quickly enough to use it up;
// after a closing over half of the time that it lasted, as those come back who were
// held alone.
func (b *bucket) reopen(now time.Time) {
	spread, step, scout, lead, going := spreadTime, spreadTime, scoutTime, scoutTime, b.len()
	for i := range b.axes {
		if q := &b.axes[i]; !q.silent && !q.costed && q.limit > 0 && q.window > 0 {
			spread, step = min(spread, q.window/2), min(step, q.step())
			scout, lead, going = min(scout, q.scout()), min(lead, q.window/200), min(going, q.limit)
		}
	}
	share := spread / time.Duration(going)
	b.spacing = min(share, step)
	switch length := max(b.closing.length, b.account.Load().closing.length); {
	case b.refusing && length > 0:
		b.spacing, b.spread = 0, now.Add(scout+length/2)
		lead = length / 2 / time.Duration(b.len())
	case b.refusing:
		lead = share // there are others who were refused, and wait for the same moment
	default:
		// Nobody was. And the window may begin with its first request: be quick.
		lead = min(lead, b.spacing)
	}
	b.scout, b.scouts, b.scouting = now.Add(scout), now, false
	b.next = now.Add(rand.N(lead + 1))
	b.shut, b.refusing = false, false
}

// back implements gate. A scout that was not sent leaves the way to another.
func (b *bucket) back(t Ticket, _ time.Time) {
	scout := b.scout
	b.land(t)
	b.scout = scout
}

// land takes one request from those in flight.
func (b *bucket) land(t Ticket) {
	b.inflight.Add(-1)
	for i := range b.axes {
		if q := &b.axes[i]; q.old > 0 && t.sent().Before(q.since) {
			q.old--
		}
	}
	if b.scouting && !t.sent().Before(b.scouts) {
		b.scouting, b.scout = false, time.Time{}
	}
}

// landedUnseen is land without the lock. It reports false if that cannot be.
func (b *bucket) landedUnseen(now time.Time) bool {
	if b.armed.Load() {
		return false
	}
	b.inflight.Add(-1)
	if b.armed.Load() { // in this very moment: somebody may wait for it
		b.mu.Lock()
		defer b.mu.Unlock()
		b.pump(now)
	}
	return true
}

// settle goes by what has been learned.
func (b *bucket) settle(now time.Time) {
	b.pump(now)
	if b.len() == 0 && len(b.axes) == 0 && b.closedUntil(b.latest).IsZero() {
		b.armed.Store(false) // a Retry-After is over, and there is nothing else
	}
}

// judge tells the closing what became of a request: the bucket's own, if its
// server names buckets and does not say that it means all of them.
func (b *bucket) judge(sent, now time.Time, a *Answer) {
	who := b.account.Load()
	switch {
	case a.refused():
		c := &who.closing
		if a.Quota.Bucket != "" {
			c = &b.closing
		}
		if a.AsksToWait && c.refuse(sent, b.limiter.steady(now), a.RetryAfter, b.limiter.MaxClosed, b.inflight.Load(), a.proof()) {
			b.armed.Store(true)
		}
	case a.served():
		b.closing.serve(sent)
		who.closing.serve(sent)
	}
}

// lose counts a request of which nobody knows whether the server has counted it.
func (b *bucket) lose(t *Ticket, now time.Time) {
	b.version++
	for i := range b.axes {
		b.axes[i].lose(t.sent(), b.tick(now), b.version)
	}
}

// learn joins what an answer says of its quotas to what is known.
func (b *bucket) learn(t *Ticket, now time.Time, a *Answer) {
	b.version++
	r := reading{sent: t.sent(), now: b.tick(now), longest: b.limiter.MaxClosed, version: b.version, refused: a.refused(), mute: len(a.Quota.Axes) == 0}
	if !r.refused { // that is quicker than work
		b.measure(r.now.Sub(r.sent))
	}
	if len(a.Quota.Axes) > 0 {
		b.armed.Store(true)
	}
	var clock *serverClock
	if !a.Quota.Date.IsZero() && b.clock.observe(a.Quota.Date, r.sent, r.now) {
		clock = &b.clock
	}
	for _, word := range a.Quota.Axes {
		q := b.axis(word)
		r.newer = t.bucket == b && t.version >= q.version
		r.read(word, clock)
		q.learn(r)
	}
	if t.bucket != b || a.Status >= http.StatusInternalServerError {
		return
	}
	for i := range b.axes {
		if q := &b.axes[i]; q.mentioned != b.version {
			q.missing(r)
		}
	}
}

// measure learns how late answers come.
func (b *bucket) measure(took time.Duration) {
	if b.lag == 0 {
		b.lag, b.trip = took, took
	}
	b.lag += (took - b.lag) / 8
	b.trip = min(took, b.trip+(took-b.trip)/64)
}

// mostAxes bounds what a hostile server can make a bucket remember.
const mostAxes = 2 * ratelimitheader.MaxAxes

// axis is what is known of that axis. The one not heard of for longest makes room
// for a new one.
func (b *bucket) axis(word ratelimitheader.Axis) *axis {
	stalest := 0
	for i := range b.axes {
		if b.axes[i].name == word.Name {
			return &b.axes[i]
		}
		if b.axes[i].mentioned < b.axes[stalest].mentioned {
			stalest = i
		}
	}
	if len(b.axes) < mostAxes {
		b.axes = append(b.axes, axis{})
		stalest = len(b.axes) - 1
	}
	b.axes[stalest] = axis{name: word.Name, costed: word.Costed}
	return &b.axes[stalest]
}
