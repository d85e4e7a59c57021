package quota

import (
	"math/rand/v2"
	"time"
)

// lane is the line of one class of calls at a bucket. The lanes of all classes are one
// line, first come, first served, but for those of a class that is closed alone: they
// stand aside, and hold up nobody else. The bucket's lock guards it.
type lane struct {
	line
	bucket *bucket
	class  int8
	aside  bool    // its class is closed alone, or it leaves after that,
	own    leaving // in this way
}

var _ gate = (*lane)(nil)

// leaving is how those leave a line who wait for the same thing.
type leaving struct {
	shut     bool          // they wait for a reset
	until    time.Time     // that long
	refusing bool          // because of a Retry-After
	scout    scout         // the first after that
	spacing  time.Duration // between two who leave, while there is one
	spread   time.Time     // or as long as it takes to have all of them go by then
	next     time.Time     // who leaves next may do so from here on
}

// scout is the request that goes ahead when a wait is over, to see.
type scout struct {
	until time.Time // it goes alone until then, at most
	since time.Time // who was sent before this is not the one
	away  bool      // it is under way
}

func (s *scout) sent(now time.Time) { s.away = s.away || now.Before(s.until) }

func (s *scout) landed(sent time.Time) {
	if s.away && !sent.Before(s.since) {
		s.away, s.until = false, time.Time{}
	}
}

func (s *scout) holds(now time.Time) bool { return s.away && now.Before(s.until) }

// catchUp is how far behind its plan the spread may be and still make up for it:
// timers are late.
const catchUp = 2 * time.Millisecond

// gap is the time between two who leave, on average, of so many.
func (p *leaving) gap(now time.Time, waiting int64) time.Duration {
	if p.spread.After(now) {
		return p.spread.Sub(now) / time.Duration(waiting)
	}
	return p.spacing
}

// rest is when nobody waits any more.
func (p *leaving) rest() { p.shut, p.spacing, p.spread = false, 0, time.Time{} }

// pump implements gate.
func (l *lane) pump(now time.Time) { l.bucket.pump(now) }

// back implements gate. A scout that was not sent leaves the way to another.
func (l *lane) back(t Ticket, now time.Time) { l.bucket.back(t, now) }

// foresee implements gate: those ahead take the quota of one window after the
// other.
func (l *lane) foresee(now time.Time, ahead int64) (at time.Time, closed bool) {
	b := l.bucket
	now = b.tick(now)
	o := b.opening(now, l.class)
	at = later(now, o.at)
	if own := l.len(); own > 0 && !l.aside {
		ahead = ahead * b.waiting() / own // and their like of the other lanes
	} else {
		ahead += b.waiting()
	}
	inflight := b.inflight.Load()
	for i := range b.axes {
		at = later(at, b.axes[i].foresee(now, ahead, inflight, b.lag))
	}
	return at, o.closed
}

// plan is how those in the lane leave, and how many leave so.
func (l *lane) plan() (p *leaving, waiting int64) {
	if l.aside {
		return &l.own, l.len()
	}
	return &l.bucket.leaving, l.bucket.waiting()
}

// step lets the first of the lane go if its turn has come, or sets the timer for when
// it may.
func (l *lane) step(now time.Time) (waits bool) {
	b := l.bucket
	o := b.opening(now, l.class)
	if shut := o.shut && o.at.After(now); shut {
		l.aside = o.alone
	}
	p, waiting := l.plan()
	gap := p.gap(now, waiting)
	switch {
	case o.shut && o.at.After(now):
		if later := o.at.Sub(p.until) > resetSlack; later || !p.shut {
			p.shut, p.until = true, o.at
			b.sweep(now, l)
			return false
		}
		p.refusing = o.closed
		return l.waitUntil(o.at, now)
	case p.shut:
		l.reopen(now)
		return false
	case o.at.After(now):
		return l.waitUntil(o.at, now)
	case o.flight:
		return l.waitUntil(o.recheck, now)
	case gap > 0 && now.Before(p.next):
		return l.waitUntil(p.next, now)
	case gap > 0:
		// An eighth less, or more.
		p.next = later(p.next, now.Add(-catchUp)).Add(gap - gap/8 + rand.N(gap/4+1))
	}
	l.grant(b.take(now, l.class))
	return false
}

func (l *lane) waitUntil(at, now time.Time) bool {
	l.wakeAt(at, now)
	return true
}

// reopen begins to let the lane go: one goes ahead, and the others follow. After a
// reset they are spread over a part of the window, but quickly enough to use it up;
// after a closing over half of the time that it lasted, as those come back who were
// held alone.
func (l *lane) reopen(now time.Time) {
	b := l.bucket
	p, waiting := l.plan()
	spread, step, ahead, lead, going, bound := spreadTime, spreadTime, scoutTime, scoutTime, waiting, false
	for i := range b.axes {
		if q := &b.axes[i]; !q.silent && !q.costed && q.limit > 0 && q.window > 0 {
			spread, step = min(spread, q.window/2), min(step, q.step())
			ahead, lead, going, bound = min(ahead, q.scout()), min(lead, q.window/200), min(going, q.limit), true
		}
	}
	share := spread / time.Duration(going)
	p.spacing = min(share, step)
	switch length := max(b.closing.lengthOf(l.class), b.account.Load().closing.lengthOf(l.class)); {
	case p.refusing && length > 0:
		p.spacing, p.spread = 0, now.Add(ahead+length/2)
		lead = length / 2 / time.Duration(waiting)
	case !bound && !p.refusing: // it was no quota after all
		p.spacing, p.spread, lead = 0, now.Add(ahead+spread), 0
	case p.refusing:
		lead = share // there are others who were refused, and wait for the same moment
	default:
		// Nobody was. And the window may begin with its first request: be quick.
		lead = min(lead, p.spacing)
	}
	p.scout = scout{until: now.Add(ahead), since: now}
	p.next = now.Add(rand.N(lead + 1))
	p.shut, p.refusing = false, false
}
