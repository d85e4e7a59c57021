package quota

import (
	"container/list"
	"context"
	"sync"
	"time"
)

// line is a queue of requests at a gate, first come, first served. Its lock is the
// gate's. It has no goroutine of its own: those who wait sleep, and
// whoever changes something at the gate lets go those whose turn has come; if
// nobody does, the timer.
type line struct {
	mu      *sync.Mutex
	gate    gate
	waiters list.List // of *waiter
	timer   *time.Timer
	alarm   time.Time // when the timer goes off; zero: it does not
}

// gate is what a line stands at. Its methods are called under the line's lock.
type gate interface {
	// pump lets those at the head of the line go whose turn has come, and sets
	// the timer for the next.
	pump(now time.Time)
	// foresee is when a call with so many ahead of it would have its turn. closed
	// is true when it waits because a server said Retry-After.
	foresee(now time.Time, ahead int64) (turn time.Time, closed bool)
	// back returns a turn that was not used.
	back(t Ticket, now time.Time)
}

// waiter is a request in line. What it is told is written before ready is closed.
type waiter struct {
	queueing
	since   time.Time
	turn    time.Time // when it is to be expected
	ready   chan struct{}
	over    bool // ready is closed; under the lock
	ticket  Ticket
	refused *Refusal
}

// waits reports whether it was not told anything yet.
func (w *waiter) waits() bool {
	select {
	case <-w.ready:
		return false
	default:
		return true
	}
}

func (l *line) len() int64 { return int64(l.waiters.Len()) }

// first is who has waited longest. There is one.
func (l *line) first() *waiter { return waiterAt(l.waiters.Front()) }

// join puts a call in the line, unless its turn would come too late for it.
func (l *line) join(now time.Time, q queueing) (*list.Element, *Refusal) {
	turn, closed := l.gate.foresee(now, l.len())
	wait := max(turn.Sub(now), 0)
	careful := q
	if l.len() > 0 {
		careful.trip += wait / 32 // foresight has its limits, and who is told now can do something else
	}
	if refused := careful.accepts(now, turn, closed); refused != nil {
		return nil, refused
	}
	if q.maxWait <= 0 {
		return nil, &Refusal{TooLong, turn}
	}
	if wait > 0 {
		q.grace = scoutTime + spreadTime // when the wait is over, not all go at once
	}
	place := l.waiters.PushBack(&waiter{queueing: q, since: now, turn: later(turn, now), ready: make(chan struct{})})
	l.gate.pump(now)
	return place, nil
}

// stand waits for the turn. It is called without the lock.
func (l *line) stand(place *list.Element) (Ticket, *Refusal) {
	w := waiterAt(place)
	patience := time.NewTimer(w.maxWait + w.grace)
	defer patience.Stop()
	if w.who != nil && w.waits() {
		defer w.who.WaitEnds()
		l.tell(place)
	}
	select {
	case <-w.ready:
		return w.ticket, w.refused
	case <-patience.C:
		return l.leave(place, TooLong)
	case <-w.ctx.Done():
		return l.leave(place, Gone)
	}
}

// tell tells that the wait begins. Where that panics, or ends the goroutine, nobody
// waits.
func (l *line) tell(place *list.Element) {
	told := false
	defer func() {
		if !told {
			_, _ = l.leave(place, Gone)
		}
	}()
	w := waiterAt(place)
	_, own := l.gate.(*static)
	w.who.WaitBegins(w.turn, own)
	told = true
}

// leave is the end of a wait for which the turn has not come, or has come in the same
// instant.
func (l *line) leave(place *list.Element, reason Reason) (Ticket, *Refusal) {
	w, left := waiterAt(place), Refusal{Reason: reason}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	switch {
	case !w.over:
		l.waiters.Remove(place)
		if left.Reason == TooLong {
			left.NotBefore, _ = l.gate.foresee(now, l.len())
		}
	case w.refused != nil || left.Reason == TooLong: // in the same instant
		return w.ticket, w.refused
	default:
		l.gate.back(w.ticket, now)
	}
	l.gate.pump(now)
	return Ticket{}, &left
}

func waiterAt(place *list.Element) *waiter {
	return place.Value.(*waiter) //nolint:errcheck // there is nothing else in a line
}

// grant gives the turn to the call at the head.
func (l *line) grant(t Ticket) { l.dismiss(l.waiters.Front(), t, nil) }

// dismiss takes a call out of the line, with its turn or the reason why not.
func (l *line) dismiss(place *list.Element, t Ticket, refused *Refusal) {
	w := waiterAt(place)
	l.waiters.Remove(place)
	w.ticket, w.refused, w.over = t, refused, true
	close(w.ready)
}

// sweep refuses those whose turn, as it looks now, will come too late for them:
// they are told now, and do not stand in vain.
func (l *line) sweep(now time.Time) {
	ahead := int64(0)
	var next *list.Element
	for place := l.waiters.Front(); place != nil; place = next {
		next = place.Next()
		w := waiterAt(place)
		turn, closed := l.gate.foresee(now, ahead)
		if refused := w.accepts(w.since, turn, closed); refused != nil {
			l.dismiss(place, w.ticket, refused)
		} else {
			ahead++
		}
	}
}

// wakeAt sets the timer that pumps; the zero time stops it.
func (l *line) wakeAt(at, now time.Time) {
	if at.Equal(l.alarm) {
		return // the usual case, and timers have their price
	}
	l.alarm = at
	switch {
	case at.IsZero():
		l.timer.Stop()
	case l.timer == nil:
		l.timer = time.AfterFunc(at.Sub(now), l.wake)
	default:
		l.timer.Reset(at.Sub(now))
	}
}

func (l *line) wake() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.alarm = time.Time{} // so that it is set again, should it have come too early
	l.gate.pump(time.Now())
}

// queueing is how long a request may stand in line.
type queueing struct {
	ctx       context.Context
	deadline  time.Time     // zero: none
	maxWait   time.Duration // not positive: not at all
	maxClosed time.Duration // while refusals have closed the scope; not positive: no matter
	trip      time.Duration // what the request takes after its turn, at least
	grace     time.Duration // for one in line, which was promised its turn
	who       Waiter        // nil: nobody cares
	method    string        // with the path, it tells whose quota it is
	path      string
}

// accepts reports whether a turn at the given time is soon enough for a request
// that waits since then; if not, the refusal says so.
func (q queueing) accepts(since, turn time.Time, closed bool) *Refusal {
	wait := turn.Sub(since)
	if wait <= 0 {
		return nil
	}
	if !q.deadline.IsZero() && !turn.Add(q.trip).Before(q.deadline) {
		return &Refusal{PastDeadline, turn}
	}
	if wait -= q.grace; wait > q.maxWait || closed && q.maxClosed > 0 && wait > q.maxClosed {
		return &Refusal{TooLong, turn}
	}
	return nil
}
