package resilienthttp

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
// Until a response says something, requests are counted and nothing else: no
// lock. From then on each axis that the server names (quota) has what remained
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
// Not every quota has windows. A token bucket tells when it will be full, and
// that moves on with every request; once that is certain (refill), requests go as
// tokens come, without waiting for the rest. And where answers take as long as
// windows, they tell only of the past: then requests keep to the limit in any
// time as long as the window (pace), and of the news only refusals count.
//
// What must not happen is that calls wait for nothing. Requests in flight come
// back or fail, or the reset comes. Those whose answer was lost may have been
// counted or not: after a second one call goes and sees. An axis that answers do
// not mention any more has no say. And when the reset or a Retry-After moves on,
// those in line for whom that is too late are told at once.
type bucket struct {
	once     sync.Once
	limit    *RateLimit
	account  atomic.Pointer[account]
	origin   time.Time    // turns count from it
	inflight atomic.Int64 // changed under the lock while armed
	armed    atomic.Bool  // something is known, or somebody waits
	denied   denials

	// The line's lock guards what follows.
	line
	version uint64 // grows with all that is learned, to tell old news from new
	axes    []quota
	clock   serverClock
	latest  time.Time     // now
	closed  time.Time     // by the server's Retry-After, this bucket alone
	lag     time.Duration // from sending a request to having its answer, on average
	trip    time.Duration // and at least

	shut     bool          // the line waits for a reset
	until    time.Time     // that long
	refusing bool          // because of a Retry-After
	scout    time.Time     // until then one goes ahead
	scouts   time.Time     // who was sent before this is not the one
	scouting bool          // it is under way
	spacing  time.Duration // between two who leave the line
	spread   time.Time     // until then
	next     time.Time     // who leaves next may do so from here on
}

// catchUp is how far behind its plan the spread may be and still make up for it:
// timers are late.
const catchUp = 2 * time.Millisecond

func (b *bucket) init(l *RateLimit, who *account) {
	b.once.Do(func() { b.limit, b.origin, b.gate = l, time.Now(), b })
	if b.account.Load() != who {
		b.account.Store(who)
	}
}

// busy keeps what says something from being forgotten first.
func (b *bucket) busy() bool { return b.armed.Load() }

// steady is a time by the monotonic clock alone: a step of our wall clock must
// not look like one of the server's.
func (b *bucket) steady(now time.Time) time.Time { return b.origin.Add(now.Sub(b.origin)) }

// tick is now, and never before what was now before: who asked for the time first
// may get the lock last.
func (b *bucket) tick(now time.Time) time.Time {
	b.latest = later(b.latest, b.steady(now))
	return b.latest
}

// enter takes a turn, standing in line for it if need be and if the call is
// ready to wait that long.
func (b *bucket) enter(now time.Time, q queueing) (t turn, stood bool, refused *Error) {
	armed := b.armed.Load() || b.account.Load().closed.Load() != nil
	if !armed {
		b.inflight.Add(1)
		if !b.armed.Load() {
			return turn{bucket: b, after: now.Sub(b.origin)}, false, nil
		}
		b.inflight.Add(-1) // in this very moment something was learned
	}
	b.mu.Lock()
	now = b.tick(now)
	b.armed.Store(true)
	if !armed {
		b.pump(now) // somebody may wait for what seemed to be in flight
	}
	if o := b.opening(now); b.len() == 0 && o.free(now) {
		t = b.take(now)
		b.mu.Unlock()
		return t, false, nil
	}
	q.trip = b.trip
	place, refused := b.join(now, q)
	b.mu.Unlock()
	if refused != nil {
		return turn{}, false, refused
	}
	t, refused = b.stand(place)
	return t, true, refused
}

// take counts one request as in flight.
func (b *bucket) take(now time.Time) turn {
	b.inflight.Add(1)
	for i := range b.axes {
		b.axes[i].sent(now)
	}
	b.scouting = b.scouting || now.Before(b.scout)
	return turn{bucket: b, version: b.version, after: now.Sub(b.origin)}
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
	if until := later(b.closed, b.account.Load().closedUntil(now)); until.After(now) {
		o.at, o.shut, o.closed = until, true, true
	}
	inflight := b.inflight.Load()
	for i := range b.axes {
		q := &b.axes[i]
		waiting := b.len() > 0
		if q.roll(now, inflight, waiting) && waiting && !q.late(b.lag) {
			b.shut = true // until now, that is: let them go as after any reset
		}
		q.opening(&o, now, inflight, b.lag)
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
		case b.spacing > 0 && now.Before(b.spread) && now.Before(b.next):
			b.wakeAt(b.next, now)
			return
		default:
			if b.spacing > 0 {
				// A half less, or more.
				b.next = later(b.next, now.Add(-catchUp)).Add(b.spacing/2 + rand.N(b.spacing+1))
			}
			b.grant(b.take(now))
		}
	}
	b.shut, b.spacing = false, 0
	b.wakeAt(time.Time{}, now)
}

// reopen begins to let the line go after a reset: one goes ahead, and the others
// follow spread over a part of the window, but quickly enough to use it up.
func (b *bucket) reopen(now time.Time) {
	spread, step, scout, lead, going := spreadTime, spreadTime, scoutTime, scoutTime, b.len()
	for i := range b.axes {
		if q := &b.axes[i]; !q.silent && !q.costed && q.limit > 0 && q.window > 0 {
			spread, step = min(spread, q.window/2), min(step, q.step())
			scout, lead, going = min(scout, q.scout()), min(lead, q.window/200), min(going, q.limit)
		}
	}
	share := spread / time.Duration(going)
	b.spacing, b.spread = min(share, step), now.Add(scout+spread)
	b.scout, b.scouts, b.scouting = now.Add(scout), now, false
	if b.refusing {
		// There are others who were refused, and wait for the same moment.
		lead = share
	} else {
		// Nobody was. And the window may begin with its first request: be quick.
		lead = min(lead, b.spacing)
	}
	b.next = now.Add(rand.N(lead + 1))
	b.shut, b.refusing = false, false
}

// back implements gate. A scout that was not sent leaves the way to another.
func (b *bucket) back(t turn, _ time.Time) {
	scout := b.scout
	b.landed(t)
	b.scout = scout
}

// landed takes one request from those in flight.
func (b *bucket) landed(t turn) {
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

// landedUnseen is landed without the lock. It reports false if that cannot be.
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
	now = b.latest
	if b.len() == 0 && len(b.axes) == 0 && !b.closed.After(now) && b.account.Load().closedUntil(now).IsZero() {
		b.armed.Store(false) // a Retry-After is over, and there is nothing else
	}
}

// close shuts the bucket, or its account, until the given time.
func (b *bucket) close(until time.Time, alone bool) {
	if !alone {
		b.account.Load().close(until)
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.armed.Store(true)
	b.closed = later(b.closed, until)
}

// lose counts a request of which nobody knows whether the server has counted it.
func (b *bucket) lose(t turn, now time.Time) {
	b.version++
	for i := range b.axes {
		b.axes[i].lose(t.sent(), b.tick(now), b.version)
	}
}

// learn joins what a response says of its quotas to what is known.
func (b *bucket) learn(t turn, now time.Time, resp *http.Response, said *answer) {
	b.version++
	r := reading{sent: b.steady(t.sent()), now: b.tick(now), longest: b.limit.settings.maxClosed, version: b.version}
	r.refused = resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode == http.StatusForbidden && said.exhausted
	if !r.refused { // that is quicker than work
		b.measure(r.now.Sub(r.sent))
	}
	if said.limited {
		b.armed.Store(true)
	}
	var clock *serverClock
	for _, axis := range said.quota.Axes {
		if clock == nil && !axis.Instant.IsZero() {
			if date, err := http.ParseTime(headerValue(resp.Header, "Date")); err == nil {
				clock = &b.clock
				clock.observe(date, r.sent, r.now)
			}
		}
		q := b.axis(axis)
		r.newer = t.bucket == b && t.version >= q.version
		r.read(axis, clock)
		q.learn(r, b.lag)
	}
	if t.bucket != b || resp.StatusCode >= http.StatusInternalServerError {
		return
	}
	for i := range b.axes {
		if q := &b.axes[i]; q.mentioned != b.version {
			q.missing(r, b.lag)
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
func (b *bucket) axis(axis ratelimitheader.Axis) *quota {
	stalest := 0
	for i := range b.axes {
		if b.axes[i].name == axis.Name {
			return &b.axes[i]
		}
		if b.axes[i].mentioned < b.axes[stalest].mentioned {
			stalest = i
		}
	}
	if len(b.axes) < mostAxes {
		b.axes = append(b.axes, quota{})
		stalest = len(b.axes) - 1
	}
	b.axes[stalest] = quota{name: axis.Name, costed: axis.Costed}
	return &b.axes[stalest]
}
