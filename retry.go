package resilienthttp

import (
	"errors"
	"time"

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
		last.record.Wait = max(last.asked, 0)
		return time.Time{}, false
	}
	last.record.Wait = wait
	if c.tracing() {
		c.traceAttempt(retryWait, &last.record)
	}
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
	if last.record.Number >= c.perCall().MaxAttempts {
		return 0, ErrMaxAttempts
	}
	if c.single {
		return 0, ErrSingleAttempt
	}
	now := time.Now()
	more := c.further()
	more.previous = min(max(c.backoff(last, now), 0), retryafter.Max)
	wait = more.previous
	if last.asked > 0 {
		wait += last.asked // at least what the server asked; jitter only adds to it
	}
	at := now.Add(wait)
	if _, refuses := c.breaker.wouldRefuse(c.scope, at); refuses {
		return 0, ErrBreakerOpen
	}
	closed := c.rateLimit.closedUntil(c, now) // maybe for longer than the answer asks
	if most := c.perCall().MaxRetryAfter; most > 0 && (last.asked > most || closed.Sub(at) > most) {
		return 0, ErrRetryAfter
	}
	if !c.deadline.IsZero() && !later(at, closed).Before(c.deadline) {
		return 0, ErrDeadline
	}
	var place *budgetPlace
	if last.overloaded() && !last.permit.firstContact() {
		place = &more.place
	}
	token, ok := c.budget.withdraw(c.scope, now, place)
	if !ok {
		return 0, ErrBudgetExhausted
	}
	more.token, more.due = token, at
	return wait, nil
}

// prepareRetry runs after the wait: the gates may have shut meanwhile.
func (c *call) prepareRetry() error {
	next := &attempt{call: c, record: Attempt{Number: c.last.record.Number + 1}}
	c.more.next = next
	if err := c.prepare(next); err != nil {
		c.more.next = nil
		return err
	}
	return nil
}
