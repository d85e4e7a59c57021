package resilienthttp

import (
	"errors"
	"math"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/outcome"
	"github.com/resilienthttp/resilienthttp/internal/retrybudget"
	"github.com/resilienthttp/resilienthttp/internal/retryloop"
)

// retryState is the part of a call that is needed only after the first attempt.
type retryState struct {
	later   []*attempt         // the attempts after the first, in the order of their starts
	plan    *plan              // of the last retry; nil: none was planned
	next    *attempt           // the last retry that was prepared
	bodyErr error              // why the next retry has no body
	wait    time.Duration      // the last result of the Backoff
	permit  retrybudget.Permit // the tokens of the next retry
	series  waitSeries
	waiting bool // the call waits before a retry

	notBefore time.Time // of the call that has ended; zero: unknown
}

func (s *retryState) release() { s.permit.Cancel() }

func (c *call) retryState() *retryState {
	if c.retries == nil {
		c.retries = &retryState{}
	}
	return c.retries
}

// retry makes retries after the first attempt failed. It sets c.last or c.failure.
func (c *call) retry() {
	err := retryloop.Run(c.ctx, retryloop.Hooks{ShouldRetry: c.shouldRetry, Prepare: c.prepareRetry, Do: c.exchangeRetry})
	if err == nil {
		return
	}
	failed, _ := errors.AsType[*Error](err)
	switch gone := c.ctx.Err(); {
	case gone != nil:
		c.last.discard()
		c.fail(c.canceled(gone))
	case c.last.report.Response != nil, failed.Reason == ErrBudgetExhausted, failed.Reason == ErrNotReplayable:
		c.stop(failed.Reason) // as if it had been so when the wait began
	default:
		c.fail(failed)
	}
}

// shouldRetry decides whether the last attempt is retried, and at what time.
func (c *call) shouldRetry() (at time.Time, retry bool) {
	last := c.last
	if !last.report.Verdict.retryable() {
		return time.Time{}, false
	}
	if gone := c.ctx.Err(); gone != nil {
		if last.report.Response == nil {
			c.fail(c.canceled(gone))
		}
		return time.Time{}, false
	}
	p, reason := c.planRetry()
	if last.report.StopReason = reason; reason != nil {
		last.report.RetryWait = last.report.RetryAfter
		return time.Time{}, false
	}
	last.report.RetryWait = p.wait
	runHooks(c, retryWait, &last.report)
	c.setRetryWaiting(true)
	last.readAhead() // so that its connection is free, and the response can be the result if no retry is sent
	return p.at(), true
}

// leftForLimit returns how long a call waits for a limit: until its deadline, or without one MaxWait after it began. It is
// negative if calls never wait.
func (c *call) leftForLimit(at time.Time) time.Duration {
	longest := c.rateLimit.engine().MaxWait
	if longest <= 0 {
		return -1
	}
	return c.left(at, longest)
}

// noteNotBefore finds the earliest time for another call when this one has failed: the end of the wait that the last
// response asks for, or the time until which circuits or quotas reject calls, if that is later.
func (c *call) noteNotBefore() {
	if c.failure == nil && c.last.report.Verdict == VerdictSuccess {
		return
	}
	now := time.Now()
	var at time.Time
	if c.route != nil {
		at = openUntil(now, c.route.Records...)
	} else { // another endpoint may have a quota left
		at = later(openUntil(now, c.record), c.blockedUntil(&c.first.visit, now))
	}
	if c.last != nil && c.last.report.RetryAfter > 0 {
		last := &c.last.report
		at = later(at, last.end().Add(last.RetryAfter))
	}
	if c.failure != nil {
		at = later(at, c.failure.NotBefore)
		c.failure.NotBefore = at
	}
	c.retryState().notBefore = at
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// openUntil returns the earliest time at which a circuit admits another call, or zero if one does now.
func openUntil(now time.Time, records ...*record) (at time.Time) {
	for _, r := range records {
		rejection := r.circuit.Rejects(now)
		switch {
		case rejection == nil:
			return time.Time{}
		case at.IsZero() || rejection.NotBefore.Before(at):
			at = rejection.NotBefore
		}
	}
	return at
}

// takeTokens takes the tokens for a retry. The caller must call Done or Cancel on the permit. An endpoint
// that has had few calls has a small bucket, so the one that failed may pay too.
func (c *call) takeTokens(r retrybudget.Request, now time.Time, to, from *record) (permit retrybudget.Permit, ok bool) {
	if to.bucket == nil {
		return retrybudget.Permit{}, true
	}
	if permit, ok = to.bucket.Admit(r, &c.budget.rules, now); ok {
		return permit, true
	}
	return from.bucket.Admit(r, &c.budget.rules, now)
}

// spare returns how much later than the given time an attempt could start and still get its
// response before the deadline. It is negative if the response would be too late.
func (c *call) spare(at time.Time) time.Duration {
	if c.deadline.IsZero() {
		return math.MaxInt64
	}
	return c.deadline.Sub(at) - c.reserve(0)
}

// left returns how long after the given time the call may still wait: until its deadline, or without one until it has lasted for the
// given time.
func (c *call) left(at time.Time, withoutDeadline time.Duration) time.Duration {
	if c.deadline.IsZero() {
		return c.start.Add(withoutDeadline).Sub(at)
	}
	return c.spare(at)
}

// reserve returns the time before the deadline that a response and its body need. It is the time
// of a usual response of the scope, at least the given time, and enough for a deadline header.
func (c *call) reserve(response time.Duration) time.Duration {
	least := precision + c.deadlineHeader.Margin // zero if no header is sent
	// Without the bound, a stream of minutes would prevent the retries of other calls.
	body := min(c.record.bodies.Get(), c.deadline.Sub(c.start)/4)
	return max(least, max(c.record.circuit.Usual(), response)+body)
}

func (c *call) prepareRetry() error {
	if pace := c.retries.plan.pace; pace == paceQueued || pace == paceTurn {
		if err := c.retries.plan.await(); err != nil {
			return err
		}
	}
	c.setRetryWaiting(false)
	c.last.report.RetryWait = c.timeline.wait(time.Now())
	c.number++
	if c.retries.plan.isAsked() {
		c.paced++
	}
	next := &attempt{call: c, kind: kindRetry, visit: c.retries.plan.to}
	next.report.of, next.report.Number = next, c.number
	c.retries.next = next
	if err := c.prepare(next); err != nil {
		return err
	}
	return nil
}

// exchangeRetry sends the prepared retry, and ends its tokens with the result.
func (c *call) exchangeRetry() {
	failed := c.last
	a := c.retries.next
	a.permits.tokens = c.retries.permit
	c.retries.permit = retrybudget.Permit{}
	c.retries.later = append(c.retries.later, a)
	c.exchange(a)
	if c.last.outcome.Trouble == outcome.Busy {
		// The server is at work on an earlier attempt, so this retry has not failed, and has cost it little.
		a.permits.tokens.Cancel()
		return
	}
	// One success is rewarded once: a second attempt has tokens of its own.
	won := c.last.hasFinalResponse() && c.last.kind != kindSecond
	a.permits.tokens.Done(retrybudget.Result{
		Succeeded: won, Slow: a.report.Latency > failed.report.Latency/2,
		Asks: min(c.last.report.RetryAfter, defaultMaxWait), // the rejection may concern another customer
	})
}

func (a *attempt) timedOut() bool {
	return a.came == outcome.AttemptTimeout || a.came == outcome.NetworkTimeout
}

// isLimited reports whether a limit has rejected the attempt.
func (a *attempt) isLimited() bool { return a.outcome.Limit == outcome.Rejected }

// counted returns the number of attempts that count against MaxAttempts.
func (c *call) counted() int { return c.number - c.paced }

// maxAttempts returns the maximum number of attempts of the call. It is at most two if an outer
// client is known to retry and OwnsRetries is false.
func (c *call) maxAttempts() int {
	if c.outerMayRetry() {
		return min(c.policy.MaxAttempts, 2)
	}
	return c.policy.MaxAttempts
}

func (c *call) whyNoAttempt() error {
	if c.maxAttempts() < c.policy.MaxAttempts {
		return ErrSingleAttempt
	}
	return ErrMaxAttempts
}

// noteFailedCall remembers the request of a failed call, and forgets it when a repetition has a result.
func (c *call) noteFailedCall() {
	if c.last == nil {
		return
	}
	now := time.Since(c.origin)
	if !c.hasFailed() {
		if c.failedCalls.Any(now) {
			c.failedCalls.Remove(c.requestID())
		}
		return
	}
	if c.replayable { // otherwise it would be kept for nothing
		asked := min(c.last.report.RetryAfter, defaultMaxWait)
		c.failedCalls.Keep(c.requestID(), c.request, c.generatedKey(), c.route.BoundTo(&c.last.visit), now, asked)
	}
	if c.failure != nil && (c.failure.byGate() || c.failure.NotSent()) {
		return // the server has not failed last: the caller was asked to call again, and this will be its call
	}
	c.failedCalls.Add(c.requestID(), now)
}

// hasFailed reports whether a loop may repeat the call. A 409 is known, but it may be about an earlier attempt that is in progress.
func (c *call) hasFailed() bool {
	last := &c.last.report
	if last.Verdict.retryable() {
		return true
	}
	return last.Verdict != VerdictSuccess && last.work != outcome.Known
}
