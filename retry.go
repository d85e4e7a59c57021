package resilienthttp

import (
	"errors"
	"math"
	"net/http"
	"slices"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/neterr"
	"github.com/resilienthttp/resilienthttp/internal/retryafter"
	"github.com/resilienthttp/resilienthttp/internal/retrybudget"
	"github.com/resilienthttp/resilienthttp/internal/retryloop"
)

// retry repeats the failed first attempt and leaves the outcome of the last one in
// c.last, or in c.failure.
func (c *call) retry() {
	err := retryloop.Run(c.ctx, retryloop.Hooks{ShouldRetry: c.tryAgain, Prepare: c.prepareRetry, Do: func() { c.exchange(c.more.next) }})
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
	if last.record.StopReason = stop; stop != nil {
		last.record.RetryWait = max(last.asked, 0) // unless copies stand behind it: see rest
		return time.Time{}, false
	}
	last.record.RetryWait = wait
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
	if !c.attemptsLeft() || last.hung() || c.more != nil && c.more.waits.over {
		return 0, c.attemptsSpent()
	}
	if c.single {
		return 0, ErrSingleAttempt
	}
	now := time.Now()
	more := c.further()
	wait = c.backoff(last, now)
	at := now.Add(wait)
	if c.circuit().Rejects(at, true) != nil {
		return 0, ErrBreakerOpen
	}
	closed := c.rateLimit.closedUntil(c, now) // maybe for longer than the answer asks
	if most := c.perCall().MaxRetryAfter; most > 0 && (last.asked > most || closed.Sub(at) > most) {
		return 0, ErrRetryAfter
	}
	if !c.timeFor(at) || !c.timeFor(closed) {
		return 0, ErrDeadline
	}
	if !c.nextBody() {
		return 0, ErrNotReplayable
	}
	if more.token == (retrybudget.Permit{}) { // else it is paid already
		token, ok := c.budget.admit(c.scopeKey(), now, c.tokens(last))
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

// timeFor reports whether an attempt that begins then can get its response and read the
// body before the deadline, and can still send a deadline to the server.
func (c *call) timeFor(at time.Time) bool { return c.spare(at) >= 0 }

// spare is how much later than at such an attempt could begin; negative: at is too late.
func (c *call) spare(at time.Time) time.Duration {
	if c.deadline.IsZero() {
		return math.MaxInt64
	}
	return c.deadline.Sub(at) - c.reserve(0)
}

// reserve is the time before the deadline that an attempt needs: as long as a quick
// response of the scope takes, at least as long as given, and for the body. A deadline
// header must have something to say, too.
func (c *call) reserve(least time.Duration) time.Duration {
	header := leastLeft
	if c.telling {
		header += c.config.deadline.Margin
	}
	return max(header, max(c.seen.answers.Get(), least)+c.bodyTime())
}

// tokens is what a retry after this attempt asks the budget for.
func (c *call) tokens(failed *attempt) retrybudget.Request {
	return retrybudget.Request{
		Slow:     failed.timedOut() && !failed.endedEarly(),
		Batch:    c.priority == PriorityBatch,
		Rejected: failed.turnedAway(http.StatusTooManyRequests) && failed.asked <= 0,
	}
}

// earlyWaits are the longest waits before retries; the wait after them is all the time
// that is left. See docs/defaults.md.
var earlyWaits = [...]time.Duration{100 * time.Millisecond, 500 * time.Millisecond, 2500 * time.Millisecond, 5 * time.Second} //nolint:gochecknoglobals // never written to

const (
	afterOverload = 2 // the number of the early wait with which the series begins then,
	afterTimeout  = 3 // and that which follows the first timeout of a server that has responded lately

	lately      = 2500 * time.Millisecond // as long as that wait: a client with fewer calls cannot tell a lost packet from a slow server
	nearEnd     = time.Minute             // a deadline that is farther away sets no end to the series,
	seriesTime  = 10 * time.Second        // which then takes this long
	lastAtLeast = time.Second             // and its last wait this

	worthLeft = 1.75 // times an early wait must be left: otherwise it becomes the last
)

// waitSeries is how far a call is in its waits before retries.
type waitSeries struct {
	step     int       // the number of the early wait that was given last
	over     bool      // the last wait was given
	timedOut bool      // and the short one after a timeout
	end      time.Time // of the series, where no deadline is near; zero: it has not begun
}

// backoff is how long to wait before the next attempt. What the server asks for is a
// minimum: up to half of it is added, as far as the deadline leaves room.
func (c *call) backoff(failed *attempt, now time.Time) time.Duration {
	more, asked := c.more, max(failed.asked, 0)
	if own := c.perCall().Backoff; own != nil {
		more.previous = min(max(own(c.number, more.previous), 0), retryafter.Max)
		return more.previous + asked
	}
	if failed.endedEarly() {
		return 0 // it has waited already
	}
	wait := c.nextWait(failed, now)
	more.previous = wait - randomUpTo(wait/4)
	return max(more.previous, asked+randomUpTo(min(asked/2, max(c.spare(now.Add(asked)), 0))))
}

// nextWait is the next wait of the series, before jitter.
func (c *call) nextWait(failed *attempt, now time.Time) time.Duration {
	s := &c.more.waits
	s.step++
	switch {
	case c.scopeFails:
		s.over = true
	case failed.timedOut() && !s.timedOut && c.seen.succeededWithin(lately, now.Sub(c.since)):
		s.timedOut, s.step = true, max(s.step, afterTimeout)
	case failed.timedOut():
		s.over = true
	case failed.overloaded():
		s.step = max(s.step, afterOverload)
	}
	attempts, left := c.perCall().MaxAttempts, c.timeLeft(failed, now)
	if attempts > defaultMaxAttempts {
		s.step = min(s.step, len(earlyWaits))
	}
	s.over = s.over || s.step > len(earlyWaits) || c.number > max(attempts-2, 1)
	if s.over {
		return left
	}
	wait := earlyWaits[s.step-1]
	if worthLeft*float64(wait) > float64(left) {
		s.over = true
		return left
	}
	if s.timedOut {
		s.step = len(earlyWaits)
	}
	return wait
}

// timeLeft is how long the call may wait, so that a usual response is still in time.
func (c *call) timeLeft(failed *attempt, now time.Time) time.Duration {
	s := &c.more.waits
	if s.end.IsZero() && (c.deadline.IsZero() || c.deadline.Sub(now) > nearEnd) {
		s.end = now.Add(seriesTime)
	}
	switch {
	case s.end.IsZero():
		return max(c.deadline.Sub(now)-c.reserve(failed.record.Latency), 0)
	case c.perCall().MaxAttempts > defaultMaxAttempts:
		return seriesTime // each time: these are as many as the caller wants
	}
	return max(s.end.Sub(now), lastAtLeast)
}

// overloaded reports whether the server was too busy for the attempt, or there was none.
func (a *attempt) overloaded() bool {
	return a.neverSent() || a.turnedAway(http.StatusTooManyRequests, http.StatusServiceUnavailable, statusOverloaded)
}

// timedOut reports whether the attempt ended because it took too long.
func (a *attempt) timedOut() bool {
	return a.fate == fateTimeout || a.fate == fateError && neterr.TimedOut(a.record.Err)
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
	c.last.record.RetryWait, c.accounted = c.waited, now // as it was
	c.number++
	next := &attempt{call: c, record: Attempt{Number: c.number}}
	c.more.next = next
	if err := c.prepare(next); err != nil {
		c.more.next = nil
		return err
	}
	return nil
}

// hung reports whether the attempt ended because nothing came within maxResponseTime: the
// caller has waited long enough.
func (a *attempt) hung() bool {
	return a.fate == fateTimeout && a.call.perCall().AttemptTimeout == 0
}
