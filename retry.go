package resilienthttp

import (
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/allowance"
	"github.com/resilienthttp/resilienthttp/internal/circuit"
	"github.com/resilienthttp/resilienthttp/internal/netfail"
	"github.com/resilienthttp/resilienthttp/internal/retryafter"
	"github.com/resilienthttp/resilienthttp/internal/retryloop"
)

// retry repeats the failed first attempt and leaves the outcome of the last one in
// c.last, or in c.failure.
func (c *call) retry() {
	err := retryloop.Run(c.ctx, retryloop.Steps{Again: c.tryAgain, Prepare: c.prepareRetry, Try: func() { c.exchange(c.more.next) }})
	if err == nil {
		return
	}
	refused, ok := errors.AsType[*Error](err)
	if !ok {
		gone := c.callerGone()
		if gone == nil {
			gone = err
		}
		refused = c.ended(gone)
	}
	c.fail(refused)
}

// tryAgain decides whether the attempt that has just ended is followed by another,
// and if so clears the way for it.
func (c *call) tryAgain() (at time.Time, again bool) {
	last := c.last
	if !last.record.Verdict.retryable() || c.callerHasLeft(last) {
		return time.Time{}, false
	}
	wait, stop := c.again(last)
	if last.record.Stop = stop; stop != nil {
		last.record.Wait = max(last.asked, 0) // unless copies stand behind it: see rest
		return time.Time{}, false
	}
	last.record.Wait = wait
	if c.tracing() {
		c.traceAttempt(retryWait, &last.record)
	}
	c.resting(true)
	last.discard() // the drain is a part of the wait
	return c.more.due, true
}

// callerHasLeft reports whether the caller cancelled while the attempt was under
// way. What it has of a response is the call's, and otherwise his cancellation.
func (c *call) callerHasLeft(last *attempt) bool {
	gone := c.callerGone()
	if gone != nil && last.record.Response == nil {
		c.fail(c.ended(gone))
	}
	return gone != nil
}

// again asks the questions that a retry depends on, in an order that leaves the
// one with a price, the budget, for the end. stop is the first no.
func (c *call) again(last *attempt) (wait time.Duration, stop error) {
	if !c.repeatable() && !last.untouched {
		return 0, ErrNotIdempotent
	}
	if !c.replayable() {
		return 0, ErrNotReplayable
	}
	if !c.attemptsLeft() || c.cutEnough(last) {
		return 0, ErrMaxAttempts
	}
	if c.single {
		return 0, ErrSingleAttempt
	}
	now := time.Now()
	more := c.further()
	health := c.circuits().Health(c.classKey(), now)
	wait = c.backoff(last, health, now)
	at := now.Add(wait)
	if _, refuses := c.circuits().Refuses(c.classKey(), at, true); refuses {
		return 0, ErrBreakerOpen
	}
	closed := c.rateLimit.closedUntil(c, now) // maybe for longer than the answer asks
	if most := c.perCall().MaxRetryAfter; most > 0 && (last.asked > most || closed.Sub(at) > most) {
		return 0, ErrRetryAfter
	}
	if !c.timeFor(at, health) || !c.timeFor(closed, health) {
		return 0, ErrDeadline
	}
	if !c.nextBody() {
		return 0, ErrNotReplayable
	}
	if more.token == (allowance.Ticket{}) { // else it is paid already
		token, ok := c.budget.admit(c.scopeKey(), now, c.ask(health, last))
		if !ok {
			return 0, ErrBudgetExhausted
		}
		more.token = token
	}
	more.due = at
	return wait, nil
}

// nextBody gets the body that the retry is to send, while what has failed is still in
// hand: where there is none, that is what the call comes to.
func (c *call) nextBody() bool {
	if !c.hasBody() {
		return true
	}
	more := c.more
	if more.body, more.bodiless = c.freshBody(); more.bodiless == nil {
		return true
	}
	now := time.Now()
	c.waited += now.Sub(c.accounted) // GetBody may have taken its time
	c.accounted = now
	return false
}

// timeFor reports whether an attempt that begins then can be answered before the
// deadline, and its body read: to send one that cannot is nothing but load. Nor can one
// be sent whose server cannot be told a deadline.
func (c *call) timeFor(at time.Time, health circuit.Health) bool {
	if c.deadline.IsZero() {
		return true
	}
	told := !c.telling || !at.Add(c.config.deadline.Margin+leastLeft).After(c.deadline)
	return told && at.Add(health.Quick+c.bodyTime()).Before(c.deadline)
}

// ask is with what the budget is asked to repeat the call after an attempt.
//
// Beyond the share of the calls, repeating is for those who are served. While nobody
// is known to be, it is for one call at a time. And where that is because a server
// that did answer has too much to do now, since failures are slow, it is for one
// retry, and for none while further calls fail.
func (c *call) ask(health circuit.Health, after *attempt) allowance.Ask {
	ask := allowance.Ask{Overload: after.overloaded(), Half: c.priority == PriorityBatch}
	if !health.Served && (health.Failing >= troubleTime || after.turnedAway(http.StatusTooManyRequests)) {
		ask.Place = &c.further().place
	}
	if health.Overrun() {
		ask.Whole, ask.Share = true, health.Calls > 1
	}
	return ask
}

const (
	defaultBackoffBase = 100 * time.Millisecond
	defaultBackoffMax  = 10 * time.Second
	herdBackoffMax     = 4 * time.Second // the first wait after a server has turned everybody away,
	herdBackoffPart    = 8               // or this part of the time that is left
	leftWithoutEnd     = 30 * time.Second
	troubleTime        = defaultBackoffBase // of failures alone, after which the minimum is for one call at a time
)

// backoff is how long to wait before the next attempt. What the server asks for
// is a minimum: jitter comes on top, of up to half of it.
//
// A failure that is this call's alone is repeated soon. One that is everybody's,
// because nobody is known to be served or the server says that it has no room,
// will not be over in a moment: the attempts that are left are spread over the
// time that is left, unless the calls make up for the retry.
func (c *call) backoff(last *attempt, health circuit.Health, now time.Time) time.Duration {
	retry, more := c.number, c.more
	if own := c.perCall().Backoff; own != nil {
		more.previous = min(max(own(retry, more.previous), 0), retryafter.Max)
		return more.previous + max(last.asked, 0)
	}
	if last.endedEarly() {
		return 0 // it has waited, for nothing
	}
	most := doubled(defaultBackoffBase, defaultBackoffMax, retry)
	switch {
	case last.asked > 0:
		most = max(most, last.asked/2)
	case c.everybodys(last, health.Served) && !c.budget.covers(c.scopeKey(), now):
		most = max(most, c.share(last, health.Overrun(), now))
	}
	more.previous = randomUpTo(c.widened(most, now))
	return more.previous + max(last.asked, 0)
}

// everybodys reports whether the failure is not this call's alone.
func (c *call) everybodys(last *attempt, served bool) bool {
	return last.overloaded() || !served && c.number > 1
}

// timedOut reports whether the attempt ended because it took too long.
func (a *attempt) timedOut() bool {
	return a.fate == fateTimeout || a.fate == fateError && netfail.TimedOut(a.record.Err)
}

// overloaded reports whether the failure looks like that of a server with more
// work than it can do.
func (a *attempt) overloaded() bool {
	return a.timedOut() && !a.endedEarly() || a.turnedAway(http.StatusTooManyRequests, http.StatusServiceUnavailable, statusOverloaded)
}

// share is the part of the time left that the next attempt may wait: an even one
// of those that are left, and less for the first after the server has turned the
// call away, since that may be over soon, unless it is overrun.
func (c *call) share(last *attempt, overrun bool, now time.Time) time.Duration {
	left := leftWithoutEnd
	if !c.deadline.IsZero() {
		left = max(c.deadline.Sub(now)-last.record.Latency-c.bodyTime(), 0)
	}
	if c.number == 1 && !last.turnedAway(http.StatusTooManyRequests) && !overrun {
		return min(herdBackoffMax, left/herdBackoffPart)
	}
	return left / time.Duration(max(c.perCall().MaxAttempts-c.number, 1))
}

// turnedAway reports whether the attempt was answered with one of the statuses.
func (a *attempt) turnedAway(statuses ...int) bool {
	return a.fate == fateAnswered && slices.Contains(statuses, a.record.Response.StatusCode)
}

// prepareRetry runs after the wait: the gates may have shut meanwhile.
func (c *call) prepareRetry() error {
	now := time.Now()
	c.resting(false)
	c.waited += now.Sub(c.accounted)
	c.last.record.Wait, c.accounted = c.waited, now // as it was
	c.number++
	next := &attempt{call: c, record: Attempt{Number: c.number}}
	c.more.next = next
	if err := c.prepare(next); err != nil {
		c.more.next = nil
		return err
	}
	return nil
}

// cutEnough reports whether answers were waited for in vain so long, and so often, by
// a default of ours, that it is not done again.
func (c *call) cutEnough(last *attempt) bool {
	if last.fate != fateTimeout || c.perCall().AttemptTimeout > 0 {
		return false
	}
	more := c.further()
	more.cuts++
	return more.cuts > 1
}
