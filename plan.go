package resilienthttp

import (
	"net/http"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/outcome"
	"github.com/resilienthttp/resilienthttp/internal/retrybudget"
	"github.com/resilienthttp/resilienthttp/internal/route"
	"github.com/resilienthttp/resilienthttp/internal/sleep"
	"github.com/resilienthttp/resilienthttp/internal/waitqueue"
)

// The cost of a retry in tokens, after a failure that has cost the server little.
const (
	unsentCost = 0.1 // it has not got the request
	quickCost  = 0.5 // it failed in less than half of a usual response
)

const turnSpread = 100 * time.Millisecond // calls the turn of which has come are sent within it

// plan is the decision about one retry. Only plans connect two mechanisms: what the budget asks the circuit, what a quota or
// another endpoint spares, and which retries wait for one another. Three questions are asked in this order, and the first no is
// the StopReason of the attempt before:
//
//	may the request be repeated?   mayRepeat: the request, its caller, and the attempts and waits that are left
//	is there time for it?          chooseWait, then mayBeInTime: the server, the circuit and the deadline
//	what pays for it?              pay: the budget, unless the circuit paces it; without a token it may wait for its turn
type plan struct {
	*call

	to      visit // where the retry goes
	now     time.Time
	pace    pace
	wait    time.Duration // before the retry is sent, or waits for what its pace says
	longest time.Duration // paceHeld: how long it may wait for the circuit
	restsTo time.Time     // paceHeld: it is no probe before
	blocked time.Time     // the end of the block that rejections have made of its quota; zero: none
}

// pace is what a retry waits for, and with it what pays for it.
//
//	pace          waits before               then waits for         tokens
//	paceMoved     –                          –                      taken now
//	paceBackoff   the backoff                –                      taken now
//	paceQueued    the backoff                the other timeouts     taken when it is sent; it joins only if they are there now, or may return
//	paceTurn      the backoff                its turn               taken when it is sent; without other calls the first is sent as a test
//	paceHeld      – (or the Retry-After)     the circuit            none: the circuit sends one at a time
type pace uint8

const (
	paceBackoff pace = iota
	paceMoved        // it goes to a server that the call has not tried
	paceQueued       // it follows a timeout
	paceTurn         // the tokens are spent
	paceHeld         // the circuit is open
)

// planRetry decides about a retry of the last attempt. It reserves the next wait of the series, and the tokens of the budget.
func (c *call) planRetry() (p *plan, reason error) {
	last, now := c.last, time.Now()
	p = &plan{call: c, to: last.next(kindRetry, now), now: now}
	c.record = p.to.Record
	c.retryState()
	p.choosePace()
	if reason = p.mayRepeat(); reason == nil {
		p.chooseWait()
		reason = p.mayBeInTime()
	}
	if reason == nil {
		reason = p.pay()
	}
	if reason != nil {
		c.record = last.visit.Record
		return nil, reason
	}
	if last.outcome.Trouble == outcome.Busy {
		c.conflicts.Add(1)
	}
	c.retries.plan = p
	return p, nil
}

// next returns where an attempt goes that follows this one.
func (a *attempt) next(kind attemptKind, now time.Time) visit {
	list := a.call.route
	if list == nil {
		return visit{Record: a.visit.Record, Again: true}
	}
	return list.Next(&a.visit, a.reach(kind), now)
}

// reach returns which endpoints may get an attempt that follows this one.
func (a *attempt) reach(kind attemptKind) route.Kind {
	switch {
	case kind != kindRetry:
		return route.Copy
	case a.outcome.Trouble == outcome.Busy, a.came == http.StatusMisdirectedRequest:
		return route.RetryHere // it is about this endpoint
	}
	return route.Retry
}

func (p *plan) choosePace() {
	if p.moves() {
		p.pace = paceMoved
		return
	}
	if p.record.circuit.Holds(p.now) {
		p.longest = p.mayHold(p.record, p.now)
	}
	if p.longest > 0 {
		p.pace = paceHeld
	}
}

func (p *plan) moves() bool { return p.to.Moves() }

func (p *plan) at() time.Time { return p.now.Add(p.wait) }

// mayRepeat asks the request, its caller, and the attempts and the waits of the series that are left. A retry that the circuit
// holds is an attempt too.
func (p *plan) mayRepeat() (reason error) {
	switch {
	case !p.harmless():
		return ErrNotIdempotent
	case p.owner != ownerCall: // before all that is a matter of this layer only
		return ErrSingleAttempt
	case !p.replayable:
		return ErrNotReplayable
	case !p.hasAttemptLeft():
		return p.whyNoAttempt()
	}
	return nil
}

func (p *plan) hasAttemptLeft() bool {
	switch {
	case p.maxAttempts() <= 1, p.usedAllTime():
		return false
	case p.isAsked(): // the server paces the call
		return true
	}
	return p.counted() < p.maxAttempts() && !p.isLastWait()
}

// harmless reports whether a second request cannot do the work a second time, or may.
func (p *plan) harmless() bool {
	if p.mayBeDoneTwice() || p.last.permitted {
		return true
	}
	// A Transport in Base may have sent the request before it rejected a retry.
	return p.last.report.work.NotDone() && rejectedInside(p.last.report.Err) == nil
}

func (p *plan) isLastWait() bool {
	return p.pace == paceBackoff && p.retries.series.endsWith(p.last)
}

// usedAllTime reports whether the attempt took as long as any attempt may without a timeout of the caller's.
func (p *plan) usedAllTime() bool {
	return p.last.came == outcome.AttemptTimeout && p.policy.AttemptTimeout == 0 && p.last.report.Latency >= maxResponseTime
}

// chooseWait chooses the wait before the retry is sent, or joins its queue.
func (p *plan) chooseWait() {
	switch p.pace {
	case paceHeld:
		backoff := p.backoff(p.last, p.now)
		half := p.longest / 2 // drawn, because clients that share a clock have the same deadlines
		p.restsTo = p.now.Add(min(backoff, half-randomUpTo(half/2)))
		p.wait = p.named(p.last.report.RetryAfter, p.now) // the circuit may close earlier
	case paceBackoff:
		if p.policy.Backoff == nil && p.isAsked() {
			p.wait = p.named(p.last.report.RetryAfter, p.now)
			break
		}
		p.wait = p.backoff(p.last, p.now)
	default:
	}
	p.blocked = p.blockedUntil(&p.to, p.now) // differences to zero saturate
}

// mayBeInTime asks the circuit, the server and the deadline.
func (p *plan) mayBeInTime() (reason error) {
	switch {
	case p.isRejected():
		return ErrBreakerOpen
	case p.asksTooLong():
		return ErrRetryAfter
	case p.isTooLate():
		return ErrDeadline
	}
	return nil
}

// isRejected reports whether the circuit will not admit the retry, also not after a wait.
func (p *plan) isRejected() bool {
	circuit := p.record.circuit
	if !p.moves() && circuit.TooLate() {
		return true
	}
	return p.pace != paceHeld && circuit.Rejects(p.at()) != nil && p.mayHold(p.record, p.at()) <= 0
}

func (p *plan) asksTooLong() bool {
	longest := p.policy.MaxRetryAfter
	if longest <= 0 {
		return false
	}
	return !p.moves() && p.last.report.RetryAfter > longest || p.blocked.Sub(p.at()) > longest
}

// isTooLate reports whether no response can come before the deadline.
func (p *plan) isTooLate() bool { return p.spare(later(p.at(), p.blocked)) < 0 }

// pay takes the tokens of the retry, or finds what else paces it.
func (p *plan) pay() (reason error) {
	timedOut := !p.moves() && p.last.timedOut()
	switch {
	case p.pace == paceHeld: // the circuit paces it, or has paced the attempt before the Retry-After
	case timedOut && p.mayQueue():
		if !p.record.bucket.MayAwait(&p.budget.rules, p.now) {
			return ErrBudgetExhausted
		}
		p.pace = paceQueued
	case p.takeRetryTokens(timedOut):
	case p.mayTakeTurn():
		p.pace, p.wait = paceTurn, p.waitBeforeTurn()
	default:
		return ErrBudgetExhausted
	}
	return nil
}

// mayQueue reports whether a retry may wait for tokens. A batch call must not take the turn of another one,
// and a list of several endpoints has other servers.
func (p *plan) mayQueue() bool {
	return p.record.bucket != nil && p.route.Alone() && p.priority != PriorityBatch &&
		!p.budget.Static && !p.breaker.Static && p.breaker.MaxWait >= 0
}

// await waits until a retry after a timeout has its tokens, or one without tokens its turn.
func (p *plan) await() *Error {
	now, bucket := time.Now(), p.record.bucket
	limits := waitqueue.Limits{Ctx: p.ctx, Since: p.start}
	var ok bool
	if p.pace == paceQueued {
		limits.MaxWait = min(maxHoldSlow, p.spare(now))
		p.retries.permit, ok = bucket.Await(&p.budget.rules, now, limits)
	} else {
		limits.MaxWait, limits.Class = p.leftForTurn(now), p.turnClass()
		p.retries.permit, ok = bucket.AwaitTurn(p.cost(), &p.budget.rules, now, limits)
		if ok { // turns come together, and in the instant of a new call
			_ = sleep.Context(p.ctx, randomUpTo(turnSpread))
		}
	}
	if ended := p.ctx.Err(); ended != nil {
		return p.canceled(ended)
	}
	if !ok {
		return &Error{Reason: ErrBudgetExhausted}
	}
	return nil
}

// cost returns the tokens of the retry, by what the last attempt has cost the server.
func (p *plan) cost() float64 {
	last := p.last
	usual := last.visit.Record.circuit.Usual()
	switch {
	case last.report.work == outcome.NotSent:
		return unsentCost
	case last.isLimited() && last.report.RetryAfter <= 0, usual > 0 && 2*last.report.Latency >= usual:
		return 1
	}
	return quickCost
}

func (p *plan) takeRetryTokens(slow bool) (ok bool) {
	p.retries.permit, ok = p.takeTokens(retrybudget.Request{
		Slow: slow, Batch: p.priority == PriorityBatch, Limited: p.last.isLimited(), Cost: p.cost(),
	}, p.now, p.record, p.last.visit.Record)
	return ok
}

// mayTakeTurn reports whether the retry may wait for a token. If no limit has rejected the attempt, its route must not have failed
// for long: callers of a route that always fails would wait for nothing.
func (p *plan) mayTakeTurn() bool {
	switch {
	case !p.mayQueue(), p.leftForTurn(p.now.Add(p.waitBeforeTurn())) < 0:
		return false
	case p.last.isLimited():
		return true
	}
	return !p.record.failingRoutes.onlyFailed(p.routeHash, p.now.Sub(p.origin)-failsForLong)
}

// waitBeforeTurn returns the backoff before the turn. The last wait leaves no time for a turn, and a turn is a wait too, so there is
// none then. That of the server is not shortened.
func (p *plan) waitBeforeTurn() time.Duration {
	if p.leftForTurn(p.at()) < 0 && p.last.report.RetryAfter == 0 {
		return 0
	}
	return p.wait
}

func (p *plan) turnClass() uint8 {
	switch {
	case !p.last.isLimited():
		return retrybudget.Failed
	case p.last.report.RetryAfter > 0:
		return retrybudget.Asked
	}
	return retrybudget.Rejected
}

// leftForTurn returns how long the call may wait for its turn, after which it waits for a part of turnSpread.
func (p *plan) leftForTurn(at time.Time) time.Duration {
	at = at.Add(turnSpread)
	if p.last.isLimited() {
		return p.leftForLimit(at)
	}
	return p.left(at, seriesTime)
}

const leastAsked = 500 * time.Millisecond // a wait for which a retry is no attempt of MaxAttempts

// isAsked reports whether a limit has rejected the attempt and named a wait that is not short. Then the server paces the call, so
// the retry is no attempt of MaxAttempts, unless that is one: then there is no retry.
func (p *plan) isAsked() bool {
	return p.last.isLimited() && p.last.report.RetryAfter >= leastAsked && p.leftForLimit(p.now.Add(p.last.report.RetryAfter)) >= 0
}
