package quota

import (
	"fmt"
	"net/http"
	"slices"
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
	shown    atomic.Bool  // a refusal has shown that nothing remained
	closing  closings     // by refusals, this bucket alone
	lease    *lease       // where many processes share it; nil: they do not

	mu      sync.Mutex // guards what follows
	lane               // the line of calls that say nothing of their class
	others  [2]*lane   // and of those that do; nil until one waits
	leaving leaving    // of all that do not stand aside
	scouts  scouts
	version uint64 // grows with all that is learned, to tell old news from new
	axes    []axis
	clock   serverClock
	latest  time.Time     // now
	lag     time.Duration // from sending a request to having its answer, on average
	trip    time.Duration // and at least
}

func (b *bucket) init(l *Limiter, who *account, name string, id uint64) {
	b.once.Do(func() {
		b.limiter = l
		b.lane.open(b, 0)
		if l.Shared != nil && l.Limit == 0 {
			b.lease = l.newLease(fmt.Sprintf("quota|%s|%x|%s|%x", who.who.scope, who.who.hash, name, id))
		}
	})
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
	return !b.armed.Load() && !b.closing.busy() && !b.account.Load().closing.busy()
}

// closedUntil is until when refusals have closed the bucket, or its account, to a class
// of calls, and whether to that alone; the zero time if they have not.
func (b *bucket) closedUntil(class int8, now time.Time) (until time.Time, alone bool) {
	until, alone = b.closing.closedUntil(class, now)
	if all, just := b.account.Load().closing.closedUntil(class, now); all.After(until) {
		return all, just
	}
	return until, alone
}

// open makes the lane ready for use.
func (l *lane) open(b *bucket, class int8) { l.gate, l.mu, l.bucket, l.class = l, &b.mu, b, class }

// laneOf is the lane of a class; nil: none of it has ever waited.
func (b *bucket) laneOf(class int8) *lane {
	if class == 0 {
		return &b.lane
	}
	return b.others[otherClass(class)]
}

// waitingLaneOf is the lane of a class of which one waits.
func (b *bucket) waitingLaneOf(class int8) *lane {
	if b.laneOf(class) == nil {
		l := new(lane)
		l.open(b, class)
		b.others[otherClass(class)] = l
	}
	return b.laneOf(class)
}

// lanes are those in which anybody ever waited, the most important first.
func (b *bucket) lanes(yield func(*lane) bool) {
	for _, l := range [...]*lane{b.others[1], &b.lane, b.others[0]} {
		if l != nil && !yield(l) {
			return
		}
	}
}

// waiting is how many are in line and do not stand aside.
func (b *bucket) waiting() (n int64) {
	for l := range b.lanes {
		if !l.aside {
			n += l.len()
		}
	}
	return n
}

// enter takes a turn, standing in line for it if need be and if the request may
// wait that long.
func (b *bucket) enter(now time.Time, class int8, q queueing) (Ticket, *Refusal) {
	free := b.free()
	if free {
		b.inflight.Add(1)
		if !b.armed.Load() {
			return Ticket{bucket: b, class: class, after: now.Sub(b.limiter.origin)}, nil
		}
		b.inflight.Add(-1) // in this very moment something was learned
	}
	b.mu.Lock()
	now = b.tick(now)
	b.armed.Store(true)
	if free {
		b.pump(now) // somebody may wait for what seemed to be in flight
	}
	l := b.laneOf(class)
	if o := b.opening(now, class); b.waiting() == 0 && (l == nil || l.len() == 0) && o.free(now) {
		t := b.take(now, class)
		b.mu.Unlock()
		return t, nil
	}
	q.trip = b.trip
	l = b.waitingLaneOf(class)
	place, refusal := l.join(now, q)
	b.mu.Unlock()
	if refusal != nil {
		return Ticket{}, refusal
	}
	t, refusal := l.stand(place)
	t.Waited = true
	return t, refusal
}

// take counts one request as in flight.
func (b *bucket) take(now time.Time, class int8) Ticket {
	b.inflight.Add(1)
	for i := range b.axes {
		b.axes[i].sent(now)
	}
	b.leaving.scout.sent(now)
	if l := b.laneOf(class); l != nil {
		l.own.scout.sent(now)
	}
	return Ticket{bucket: b, class: class, version: b.version, after: now.Sub(b.limiter.origin)}
}

// opening is when the next request may go.
type opening struct {
	at      time.Time // not before; the zero time is now
	shut    bool      // because of a reset, or of a Retry-After
	closed  bool      // at is that of a Retry-After
	alone   bool      // which means this class only
	flight  bool      // and when one that is in flight has come back
	recheck time.Time // with flight: when to look again at the latest
}

func (o *opening) wait(at time.Time) {
	if at.After(o.at) {
		o.at, o.closed, o.alone = at, false, false
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

func (b *bucket) opening(now time.Time, class int8) opening {
	var o opening
	if until, alone := b.closedUntil(class, now); !until.IsZero() {
		o.at, o.shut, o.closed, o.alone = until, true, true, alone
	}
	inflight := b.inflight.Load() - b.scouts.away
	for i := range b.axes {
		q := &b.axes[i]
		if waiting := b.waiting() > 0; q.roll(now, inflight, waiting, b.lag) && waiting {
			b.leaving.shut = true // until now, that is: let them go as after any reset
		}
		q.opening(&o, now, inflight)
	}
	if s := &b.leaving.scout; s.holds(now) {
		o.awaitFlight(s.until)
	}
	if l := b.laneOf(class); l != nil && l.own.scout.holds(now) {
		o.awaitFlight(l.own.scout.until)
	}
	return o
}

// pump lets those go whose turn has come, and sets the timers for the others.
func (b *bucket) pump(now time.Time) {
	now = b.tick(now)
	var waits [len(b.others) + 1]*lane
	for n := 0; ; {
		l := b.foremost(waits[:n])
		if l == nil {
			break
		}
		if l.step(now) {
			waits[n] = l
			n++
		}
	}
	if b.waiting() == 0 {
		b.leaving.rest()
	}
	for l := range b.lanes {
		if l.len() == 0 {
			l.aside = false
			l.own.rest()
			l.wakeAt(time.Time{}, now)
		}
	}
}

// foremost is the lane whose first has waited longest, of those that are not known to
// have to wait.
func (b *bucket) foremost(waits []*lane) (first *lane) {
	for l := range b.lanes {
		if l.len() == 0 || slices.Contains(waits, l) {
			continue
		}
		if first == nil || l.first().since.Before(first.first().since) {
			first = l
		}
	}
	return first
}

// sweep refuses those for whom the lane's turn will come too late, and their like.
func (b *bucket) sweep(now time.Time, of *lane) {
	for l := range b.lanes {
		if l == of || !l.aside && !of.aside {
			l.sweep(now)
		}
	}
}

// back returns a turn that was not used: a scout leaves the way to another.
func (b *bucket) back(t Ticket, _ time.Time) {
	until, own := b.leaving.scout.until, time.Time{}
	l := b.laneOf(t.class)
	if l != nil {
		own = l.own.scout.until
	}
	b.land(t)
	if b.leaving.scout.until = until; l != nil {
		l.own.scout.until = own
	}
}

// land takes one request from those in flight.
func (b *bucket) land(t Ticket) {
	b.inflight.Add(-1)
	b.scoutLanded(t)
	for i := range b.axes {
		if q := &b.axes[i]; q.old > 0 && t.sent().Before(q.since) {
			q.old--
		}
	}
	b.leaving.scout.landed(t.sent())
	if l := b.laneOf(t.class); l != nil {
		l.own.scout.landed(t.sent())
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
	if len(b.axes) == 0 && !b.holds() {
		b.armed.Store(false) // a Retry-After is over, and there is nothing else
	}
}

// holds reports whether anybody waits, or would have to because of a refusal.
func (b *bucket) holds() bool {
	for class := int8(-1); class <= 1; class++ {
		if l := b.laneOf(class); l != nil && l.len() > 0 {
			return true
		}
		if until, _ := b.closedUntil(class, b.latest); !until.IsZero() {
			return true
		}
	}
	return false
}

// judge tells the closing what became of a request: the bucket's own, if its
// server names buckets and does not say that it means all of them.
func (b *bucket) judge(class int8, sent, now time.Time, a *Answer) {
	who := b.account.Load()
	switch {
	case a.refused():
		c := &who.closing
		if a.Quota.Bucket != "" || who.apart.Load() {
			c = &b.closing
		}
		if a.AsksToWait && c.refusedOf(class).refuse(sent, b.limiter.steady(now), a.RetryAfter, b.limiter.MaxClosed, b.inflight.Load(), a.proof()) {
			b.armed.Store(true)
		}
	case a.served():
		b.closing.serve(class, sent)
		who.closing.serve(class, sent)
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
	r.scout = t.scout && !r.refused
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
	if t.bucket == b && a.served() {
		for i := range b.axes {
			if q := &b.axes[i]; q.closes(r.now) {
				q.contradict(a.on(q.name), r, b.lag)
			}
		}
	}
	for _, word := range a.Quota.Axes {
		q := b.axis(word)
		r.newer = t.bucket == b && t.version >= q.version
		r.read(word, clock)
		q.learn(r)
		q.believe(r)
	}
	if r.refused {
		b.refuse(t)
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
