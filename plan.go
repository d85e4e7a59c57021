package resilienthttp

import (
	"net/http"
	"strings"
	"time"
)

const (
	// maxResponseTime ends an attempt that has neither a deadline nor an AttemptTimeout,
	// so that a call to a server that hangs ends at all.
	maxResponseTime = 15 * time.Minute

	// slowAnswer is when an answer is so late that another copy of the request is
	// sent, or when half of what is left of the call's deadline has passed.
	slowAnswer = 30 * time.Second
)

// plan is what is to be done if an attempt takes long: times since its start; 0 is
// never.
type plan struct {
	hedge time.Duration // send a hedge beside it
	again time.Duration // send the next attempt beside it
	cut   time.Duration // end it
	early time.Duration // end it, or send the next attempt beside it, since it seems to be stuck
	timer *time.Timer   // of the next of these; nil: there is none
	quiet bool          // its outcome is there: nothing is to be done any more
	stuck bool          // what is planned for early is done
}

// next is how long it is until the first of what is planned, for an attempt of that
// age, whose body moved so long ago; 0 if nothing is. It may be over already.
func (p *plan) next(age, idle time.Duration) (wait time.Duration, planned bool) {
	early := p.early
	if p.stuck {
		early = 0
	}
	for _, at := range [...]struct{ planned, after time.Duration }{{p.hedge, age}, {p.again, idle}, {p.cut, idle}, {early, idle}} {
		if left := at.planned - at.after; at.planned > 0 && (!planned || left < wait) {
			wait, planned = left, true
		}
	}
	return wait, planned
}

// schedule is the attempt's plan. Where the policy sets a timeout, that is a cut; and
// where it does not, a slow answer is not a failure (DESIGN §4.25).
func (c *call) schedule(a *attempt, now time.Time) {
	a.deadline = c.deadline
	left, bounded := c.deadline.Sub(now), !c.deadline.IsZero()
	switch timeout := c.perCall().AttemptTimeout; {
	case timeout > 0:
		if bounded && timeout >= left {
			break
		}
		a.plan.cut = timeout
		if !c.longUpload() { // or it may take longer
			a.deadline = now.Add(timeout)
		}
	case timeout == 0:
		if !bounded {
			a.plan.cut = maxResponseTime
		}
		if c.mayBeCopied() {
			a.plan.again = slowAfter(a.beside, left, bounded)
		}
	}
	if s := c.hedging(); s != nil && !a.beside {
		if delay, ok := c.hedge.delay(s, now); ok {
			a.plan.hedge, a.hedgedAfter = delay, delay
		}
	}
	c.adapt(a, now)
}

// slowAfter is when an attempt is so slow that another one is sent beside it: 0 for
// never. One copy is enough, save where the deadline comes nearer.
func slowAfter(beside bool, left time.Duration, bounded bool) time.Duration {
	switch {
	case !bounded && beside:
		return 0
	case !bounded:
		return slowAnswer
	case beside:
		return left / 2
	}
	return min(slowAnswer, left/2)
}

// mayBeCopied reports whether a second copy does no harm while the first is under way:
// the request is safe, or bears the caller's own key, and its answer does not take its
// time anyway. A server that is sent a key unasked may not honour it.
func (c *call) mayBeCopied() bool {
	return (c.ownKey || safeMethod(c.request.Method)) && c.replayable() && !c.single && !takesItsTime(c.request.Header)
}

// takesItsTime reports whether the answer is one that takes its time: an upgrade, or events.
func takesItsTime(h http.Header) bool {
	if len(h["Upgrade"]) > 0 {
		return true
	}
	for _, accepted := range h["Accept"] {
		if strings.Contains(strings.ToLower(accepted), "text/event-stream") {
			return true
		}
	}
	return false
}

func (c *call) attemptsLeft() bool { return c.number < c.maxAttempts() }

// nextNumber gives a copy the number of the next attempt, if there is one left. The
// race is locked.
func (c *call) nextNumber(copied *attempt) bool {
	if !c.attemptsLeft() {
		return false
	}
	c.number++
	copied.record.Number = c.number
	return true
}

// start sets the attempt's timer to what comes first in its plan.
func (a *attempt) start() {
	wait, planned := a.plan.next(0, 0)
	if !planned {
		return
	}
	a.round.mu.Lock()
	defer a.round.mu.Unlock()
	a.plan.timer = time.AfterFunc(wait, a.wake)
}

// wake does what is due, in a goroutine of its own.
func (a *attempt) wake() {
	if hedge, begin := a.due(); begin {
		a.round.copy(a, hedge)
	}
}

// due finds out what is due, and sets the timer for what comes next. A body that
// makes progress on its way puts off all but the hedge. begin says that a copy is to
// be made, as a hedge or as the next attempt.
func (a *attempt) due() (hedge, begin bool) {
	r := a.round
	r.mu.Lock()
	defer r.mu.Unlock()
	p := &a.plan
	if p.quiet {
		return false, false
	}
	age := time.Since(a.record.Start)
	idle := age - a.upload.progress()
	switch {
	case p.cut > 0 && idle >= p.cut:
		a.end(ErrAttemptTimeout)
		return false, false
	case p.early > 0 && idle >= p.early && !p.stuck:
		if p.stuck = a.repeatsEarly(); !p.stuck {
			p.early = 0
			break
		}
		if a.call.perCall().AttemptTimeout > 0 {
			a.end(ErrAttemptTimeout)
			return false, false
		}
		begin = true
	case p.hedge > 0 && age >= p.hedge:
		p.hedge, hedge, begin = 0, true, true
	case p.again > 0 && idle >= p.again:
		p.again, begin = 0, a.call.attemptsLeft()
	}
	if wait, planned := p.next(age, idle); planned {
		p.timer.Reset(max(wait, 0))
	}
	if begin = begin && !r.over; begin {
		r.preparing++
	}
	return hedge, begin
}

// hush says that the attempt's outcome is there, and that it is not to be disturbed
// any more.
func (a *attempt) hush() {
	if a.plan.timer == nil {
		return
	}
	a.round.mu.Lock()
	defer a.round.mu.Unlock()
	a.plan.quiet = true
	a.plan.timer.Stop()
}
