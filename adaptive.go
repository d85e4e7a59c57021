package resilienthttp

import (
	"math"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/latency"
	"github.com/resilienthttp/resilienthttp/internal/retrybudget"
)

// AdaptiveTimeout takes the time that an attempt may take from how long the scope's
// answers took of late: an attempt that is stuck is repeated after a few times as long as
// the slowest of them, and not when a timeout is over that somebody has guessed.
//
// The time is Multiple times the Quantile of the latencies to headers of the last minute,
// right to within a seventh, of at least MinSamples of them; never less than Min or the
// hedge's delay; and for each retry of a call twice that of the attempt before. What
// happens then is what Policy.AttemptTimeout says, which is the ceiling: where it is set, the
// attempt is cut, with ErrAttemptTimeout, and repeated at once, unless Policy.Backoff is
// set; where it is 0, a copy is sent beside it, where such a copy may be sent at all; and
// where it is negative, nothing.
//
// A timeout that is too short makes a failure of a slow answer. So
//
//   - it ends only attempts that are followed by another: not the last one, of a request
//     that may be repeated, with time for a response, a token of the Budget and a circuit
//     that admits it. The last attempt has all of AttemptTimeout;
//   - what it has ended counts as twice as long, so that it cannot shorten itself, and as
//     nothing in the Breaker;
//   - it may end 2 % of the attempts of 15 s (five, where they are fewer). More are not
//     stuck, but slow: then it ends none for 15 s, and is twice as long for a minute;
//   - it leaves alone upgrades (101), requests that accept text/event-stream, and uploads
//     that make progress; and a scope of which it knows too little. Clients with less than
//     some four calls a second never know enough.
//
// As long as it holds to the 2 %, those that were ended do not lengthen it either, so that one
// attempt in a hundred may be stuck.
//
// The zero value has the defaults below. It is read with its Policy, and never written.
// (The timeouts of TCP, RFC 6298, and Finagle's are made of the same stuff; that a client
// which reckons with its own timeouts must not feed on itself is Karn's rule.)
type AdaptiveTimeout struct {
	// Multiple is how many times the Quantile an attempt may take. 0: 2.5. Negative, or
	// NaN: there is no adaptive timeout.
	Multiple float64

	// Quantile is that of the latencies. 0: 0.99. More than 1: 1. Negative, or NaN: there
	// is no adaptive timeout.
	Quantile float64

	// Min is the least that it is. 0: 250ms. Negative: there is none.
	Min time.Duration

	// MinSamples is of how many answers one must know. 0: 200. Negative: 1.
	MinSamples int
}

const (
	defaultMultiple        = 2.5
	defaultTimeoutQuantile = 0.99
	defaultMinTimeout      = 250 * time.Millisecond
	defaultMinSamples      = 200
)

// withDefaults is a copy with the defaults in their places, or nil where there is to be
// none.
func (t *AdaptiveTimeout) withDefaults() *AdaptiveTimeout {
	if t == nil || !(t.Multiple >= 0) || !(t.Quantile >= 0) {
		return nil
	}
	made := *t
	if made.Multiple == 0 {
		made.Multiple = defaultMultiple
	}
	if made.Quantile == 0 {
		made.Quantile = defaultTimeoutQuantile
	}
	made.Multiple, made.Quantile = min(made.Multiple, math.MaxInt32), min(made.Quantile, 1)
	if made.Min == 0 {
		made.Min = defaultMinTimeout
	}
	if made.MinSamples == 0 {
		made.MinSamples = defaultMinSamples
	}
	made.Min, made.MinSamples = max(made.Min, 0), max(made.MinSamples, 1)
	return &made
}

// rules is the timeout as the engine knows it.
func (t *AdaptiveTimeout) rules() *latency.Rules { return (*latency.Rules)(t) }

// adaptive is the scope's record of how long its answers take, for the policies that want
// one.
func (r *scopeRecord) adaptive() *latency.Adaptive {
	if a := r.adapted.Load(); a != nil {
		return a
	}
	r.adapted.CompareAndSwap(nil, new(latency.Adaptive))
	return r.adapted.Load()
}

// timeout is that of a first attempt at this time; 0 where there is none.
func (p *Policy) timeout(r *scopeRecord, at time.Duration) time.Duration {
	known := r.adapted.Load()
	if p.AdaptiveTimeout == nil || p.AttemptTimeout < 0 || known == nil {
		return 0
	}
	length, ok := known.Timeout(at, p.AdaptiveTimeout.rules())
	if ceiling := p.ceiling(); !ok || length >= ceiling {
		return 0
	}
	return length
}

// ceiling is what an adaptive timeout is below.
func (p *Policy) ceiling() time.Duration {
	if p.AttemptTimeout == 0 {
		return slowAnswer
	}
	return p.AttemptTimeout
}

// adapt plans when an attempt that seems to be stuck is repeated.
func (c *call) adapt(a *attempt, now time.Time) {
	policy := c.perCall()
	if policy.AdaptiveTimeout == nil || a.record.Hedge {
		return
	}
	at, known := now.Sub(c.since), c.seen.adaptive()
	known.Sent(at)
	number := a.record.Number
	if a.beside {
		number++ // it has that of the attempt that it stands beside
	}
	if number >= policy.MaxAttempts || !c.mayBeEnded() {
		return
	}
	length, ok := known.Timeout(at, policy.AdaptiveTimeout.rules())
	if !ok {
		return
	}
	length = doubled(max(length, a.plan.hedge), math.MaxInt64, number)
	if length >= policy.ceiling() || !c.deadline.IsZero() && length >= c.deadline.Sub(now)/2 {
		return
	}
	a.plan.early = length
}

// mayBeEnded reports whether an attempt of the call may be cut before its time, or
// doubled, whichever the policy wants.
func (c *call) mayBeEnded() bool {
	switch timeout := c.perCall().AttemptTimeout; {
	case timeout < 0 || c.single || !c.replayable() || takesItsTime(c.request.Header):
		return false
	case timeout == 0:
		return c.mayBeCopied()
	}
	return c.repeatable()
}

// repeatsEarly reports whether the attempt, which seems to be stuck, is ended or doubled:
// only if another will follow, as far as can be known, and the timeout's fuse holds. Its
// race is locked.
func (a *attempt) repeatsEarly() bool {
	c, now := a.call, time.Now()
	if !c.attemptsLeft() || !c.deadline.IsZero() && c.deadline.Sub(now) <= a.plan.early {
		return false
	}
	if c.circuit().Rejects(now, true) != nil || !c.rateLimit.closedUntil(c, now).IsZero() {
		return false
	}
	if c.perCall().AttemptTimeout > 0 { // a copy pays for itself, or there is none
		var ok bool
		if a.prepaid, ok = c.budget.admit(c.scopeKey(), now, retrybudget.Request{Batch: c.priority == PriorityBatch}); !ok {
			return false
		}
	}
	if !c.seen.adaptive().Admit(now.Sub(c.since)) {
		a.prepaid.Cancel()
		a.prepaid = retrybudget.Permit{}
		return false
	}
	return true
}

// handOn gives the call what was paid for its retry.
func (a *attempt) handOn() {
	if a.prepaid != (retrybudget.Permit{}) {
		a.call.further().token, a.prepaid = a.prepaid, retrybudget.Permit{}
	}
}

// endedEarly reports whether it is the adaptive timeout that has ended the attempt.
func (a *attempt) endedEarly() bool {
	return a.plan.stuck && a.fate == fateTimeout && a.call.perCall().AttemptTimeout > 0
}

// learn tells the adaptive timeout how long the attempt took.
func (a *attempt) learn(now time.Time) {
	c := a.call
	if c.perCall().AdaptiveTimeout == nil || a.record.Hedge {
		return
	}
	at, known := now.Sub(c.since), c.seen.adaptive()
	switch {
	case a.fate == fateAnswered:
		known.Answered(at, a.record.Latency)
	case a.endedEarly(), a.fate == fateLost && a.plan.stuck:
		known.TimedOut(at, a.plan.early)
	case a.fate == fateTimeout:
		known.TimedOut(at, a.record.Latency)
	}
}
