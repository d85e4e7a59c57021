package resilienthttp

import (
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/route"
)

const (
	// maxResponseTime is the timeout of an attempt without a deadline and AttemptTimeout.
	maxResponseTime = 15 * time.Minute

	// slowResponse is the time after which a safe request gets a copy, or half of the remaining
	// time.
	slowResponse = 30 * time.Second
)

// attemptTimers are the events of a slow attempt, as times since its start; 0 means never. One
// timer serves them all. call.mu guards the timer and the fields that it changes.
type attemptTimers struct {
	hedge time.Duration // send a hedge
	slow  time.Duration // send a concurrent attempt
	cut   time.Duration // end the attempt

	hedgeDelay time.Duration // the initial value of hedge

	timer   *time.Timer // fires at the first of these; nil: none
	stopped bool        // the attempt has its outcome
	second  bool        // slow sends a second attempt
}

// next returns the time until the next event of an attempt with the given age. idle is the time
// since its request body made progress. Progress delays all events but the hedge.
func (t *attemptTimers) next(age, idle time.Duration) (wait time.Duration, planned bool) {
	for _, event := range [...]struct{ at, after time.Duration }{{t.hedge, age}, {t.slow, idle}, {t.cut, idle}} {
		if remaining := event.at - event.after; event.at > 0 && (!planned || remaining < wait) {
			wait, planned = remaining, true
		}
	}
	return wait, planned
}

func (c *call) planTimers(a *attempt, now time.Time) {
	// The method must be safe: a server may reject the second of two requests with the same key, although it serves the first.
	a.timers.second = c.repeats == repeatsNothing && c.mayBeCopied() && !isStream(c.request.Header)
	// A connection that delivers nothing is left, also if no second attempt follows.
	mayBeSlow := a.timers.second || a.visit.Record.protocol.Load() == protocolHTTP2
	if c.policy.AttemptTimeout > 0 {
		c.planTimeout(a, now)
	} else if c.policy.AttemptTimeout == 0 {
		c.planSlow(a, now, mayBeSlow)
	}
	// Another endpoint answers if this one hangs.
	if a.visit.Probes && a.timers.second {
		a.timers.slow = route.Slow(a.timers.slow, a.visit.Record.circuit.Usual())
	}
	if c.hedge != nil && !a.isCopy() && c.mayBeHedged() {
		if delay, ok := c.hedge.delay(&a.visit.Record.latencies, now.Sub(c.origin)); ok {
			a.timers.hedge, a.timers.hedgeDelay = delay, delay
		}
	}
}

// planTimeout ends the attempt by the caller's timeout, if that is before the deadline.
func (c *call) planTimeout(a *attempt, now time.Time) {
	timeout := c.policy.AttemptTimeout
	if !c.deadline.IsZero() && timeout >= c.deadline.Sub(now) {
		return
	}
	a.timers.cut = timeout
	// Otherwise the upload may extend the timeout, and the header must not promise less.
	if !c.longUpload() {
		a.deadline = now.Add(timeout)
	}
}

// planSlow plans for an attempt without a timeout of the caller's: what is slow is not cut off, but may get a second attempt.
func (c *call) planSlow(a *attempt, now time.Time, mayBeSlow bool) {
	bounded := !c.deadline.IsZero()
	if !bounded {
		a.timers.cut = maxResponseTime
	}
	if mayBeSlow && (bounded || !a.isCopy()) { // without a deadline a copy gets no copy of its own
		a.timers.slow = slowResponse
	}
	if bounded {
		a.timers.slow = min(a.timers.slow, c.deadline.Sub(now)/2)
	}
}

// mayBeHedged reports whether the server may get the request of the call twice.
func (f *facts) mayBeHedged() bool {
	harmless := f.repeats >= repeatsByLeave || f.key.value != ""
	return harmless && f.mayBeCopied()
}

// mayBeCopied reports whether two attempts of the call may be in flight at once, if their method or key permits it.
func (f *facts) mayBeCopied() bool { return f.replayable && f.owner == ownerCall }

const (
	maxSeconds = 2 // the maximum number of second attempts of a call
	muchSlower = 4 // usual latencies from which an attempt gets a second one
)

// mayHaveSecond reports whether the call has an attempt left for a concurrent one. The lock is held.
func (c *call) mayHaveSecond() bool {
	return c.counted() < c.maxAttempts() && c.seconds < maxSeconds
}

// isStream reports whether a slow response is normal: an upgrade, or a caller that accepts nothing but an event stream. Clients of
// MCP and GraphQL accept JSON too, and wait for an answer as others do.
func isStream(h http.Header) bool {
	return len(h["Upgrade"]) > 0 || len(h["Accept"]) > 0 && !slices.ContainsFunc(h["Accept"], acceptsAnswers)
}

// acceptsAnswers reports whether a value of Accept has a type that is no event stream.
func acceptsAnswers(accepted string) bool {
	for kind := range strings.SplitSeq(accepted, ",") {
		if withoutParameters(kind) != "text/event-stream" {
			return true
		}
	}
	return false
}

// startTimer sets the timer for the first event of the attempt. It may fire before the attempt is sent, so it takes the lock.
func (a *attempt) startTimer() {
	if wait, planned := a.timers.next(0, 0); planned {
		a.call.mu.Lock()
		defer a.call.mu.Unlock()
		a.timers.timer = time.AfterFunc(wait, a.onTimer)
	}
}

// stopTimer stops the timer. No copy begins after it.
func (a *attempt) stopTimer() {
	if a.timers.timer != nil {
		a.call.mu.Lock()
		defer a.call.mu.Unlock()
		a.timers.stopped = true
		a.timers.timer.Stop()
	}
}

// timerEvent is what the timer's goroutine must do.
type timerEvent uint8

const (
	nothing        timerEvent = iota
	sendHedge                 // send a hedge
	sendSecond                // send another attempt
	leftConnection            // report that the attempt's connection is out of use
)

// onTimer runs in a new goroutine.
func (a *attempt) onTimer() {
	switch event := a.due(); event {
	case sendHedge:
		a.hedged.copy(a, kindHedge)
	case sendSecond:
		a.hedged.copy(a, kindSecond)
	case leftConnection:
		defer func() {
			_ = recover() // a hook may panic; the caller cannot recover in this goroutine
			a.hedged.change(func() { a.hedged.preparing-- })
		}()
		runHooks(a.call, connectionLeft, a.soFar())
	case nothing:
	}
}

// due handles the events that are due, and sets the timer for the next.
func (a *attempt) due() (event timerEvent) {
	c, t := a.call, &a.timers
	c.mu.Lock()
	defer c.mu.Unlock()
	if t.stopped || a.hedged != nil && a.hedged.over {
		// RoundTrip may have returned, and the caller may reuse the request.
		return nothing
	}
	age := time.Since(a.report.Start)
	idle := age - a.upload.Load().progressAt()
	switch {
	case t.cut > 0 && idle >= t.cut:
		// First, because an attempt that is over needs no copy.
		a.endWith(ErrAttemptTimeout)
		return nothing
	case t.hedge > 0 && age >= t.hedge:
		// Each is sent once, so its time is deleted.
		t.hedge, event = 0, sendHedge
	case t.slow > 0 && idle >= t.slow:
		// By idle, because an upload that makes progress is not slow.
		t.slow = 0
		event = a.whenSlow(age)
	}
	if wait, planned := t.next(age, idle); planned {
		t.timer.Reset(max(wait, 0))
	}
	if event == nothing {
		return nothing
	}
	if a.hedged == nil {
		a.hedged = &hedgedCall{call: c, original: a, changed: sync.Cond{L: &c.mu}}
	}
	// Under the lock in which the event was due: the call then waits until the copy has read its request.
	a.hedged.preparing++
	return event
}

// whenSlow decides what follows when an attempt of this age is slow. The lock is held.
func (a *attempt) whenSlow(age time.Duration) timerEvent {
	c := a.call
	// Otherwise the whole scope is slow, and a copy makes it slower. That of a probe goes to another endpoint.
	slowAlone := a.visit.Probes || age >= muchSlower*a.visit.Record.circuit.Usual()
	if a.timers.second && c.mayHaveSecond() && slowAlone {
		return sendSecond
	}
	if a.leaveSilent() {
		return leftConnection
	}
	return nothing
}
