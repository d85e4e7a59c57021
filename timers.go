package resilienthttp

import (
	"net/http"
	"strings"
	"time"
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
}

// next returns the time until the next event of an attempt with the given age. idle is the time
// since its request body made progress. Progress delays all events but the hedge.
func (t *attemptTimers) next(age, idle time.Duration) (wait time.Duration, planned bool) {
	for _, event := range [...]struct{ at, after time.Duration }{{t.hedge, age}, {t.slow, idle}, {t.cut, idle}} {
		if left := event.at - event.after; event.at > 0 && (!planned || left < wait) {
			wait, planned = left, true
		}
	}
	return wait, planned
}

// planTimers sets the attempt's timers.
func (c *call) planTimers(a *attempt, now time.Time) {
	left, bounded := c.deadline.Sub(now), !c.deadline.IsZero()
	switch timeout := c.policy.AttemptTimeout; {
	case timeout > 0 && (!bounded || timeout < left):
		a.timers.cut = timeout
		if !c.longUpload() { // the upload may extend the timeout
			a.deadline = now.Add(timeout)
		}
	case timeout == 0:
		if !bounded {
			a.timers.cut = maxResponseTime
		}
		if c.maySendSecond() || a.record().protocol.Load() == protocolHTTP2 && !isStream(c.request.Header) {
			a.timers.slow = slowAfter(a.concurrent, left, bounded)
		}
	}
	if a.visit != nil && c.maySendSecond() { // another endpoint answers if this one hangs
		a.timers.slow = a.visit.Slow(a.timers.slow, a.record().responses.Get())
	}
	if c.hedges() != nil && !a.concurrent {
		if delay, ok := c.hedge.delay(&a.record().latencies, now.Sub(c.origin)); ok {
			a.timers.hedge, a.timers.hedgeDelay = delay, delay
		}
	}
}

// slowAfter returns the age at which a slow attempt gets a copy; 0 means never. A copy gets no
// copy of its own, unless there is a deadline.
func slowAfter(concurrent bool, left time.Duration, bounded bool) time.Duration {
	switch {
	case bounded && concurrent:
		return left / 2
	case bounded:
		return min(slowResponse, left/2)
	case concurrent:
		return 0
	}
	return slowResponse
}

// hedges returns the scope's record, or nil if the call must not be hedged.
func (c *call) hedges() *hedgeScope {
	if c.record.hedges == nil || c.owner != ownerCall || c.key.value == "" && !c.safe && !c.harmless || !c.replayable {
		return nil
	}
	return c.record.hedges
}

// maySendSecond reports whether a slow attempt of the call gets a second one. The method must be
// safe: a server may reject the second of two requests with the same key, although it serves the
// first.
func (c *call) maySendSecond() bool {
	return c.safe && c.replayable && c.owner == ownerCall && !isStream(c.request.Header)
}

// maxSeconds is the maximum number of second attempts of a call.
const maxSeconds = 2

// isStream reports whether a slow response is normal: an upgrade, or an event stream.
func isStream(h http.Header) bool {
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

// onTimer runs in a new goroutine.
func (a *attempt) onTimer() {
	hedge, copies, left := a.due()
	if left {
		a.reportLeft()
	}
	if copies {
		a.hedged.copy(a, hedge)
	}
}

// reportLeft reports that the attempt's timer took its connection out of use.
func (a *attempt) reportLeft() {
	defer func() {
		_ = recover() // a hook may panic; the caller cannot recover in this goroutine
		a.hedged.change(func() { a.hedged.preparing-- })
	}()
	runHooks(a.call, connectionLeft, a.soFar())
}

// due handles the events that are due, and sets the timer for the next. copies is true if the
// caller must send a copy: a hedge, or another attempt. left is true if the caller must report that
// the attempt's connection is out of use.
func (a *attempt) due() (hedge, copies, left bool) {
	c, t := a.call, &a.timers
	c.mu.Lock()
	defer c.mu.Unlock()
	if t.stopped || a.hedged != nil && a.hedged.over {
		return false, false, false // RoundTrip may have returned, and the caller may reuse the request
	}
	age := time.Since(a.report.Start)
	idle := age - a.upload.last()
	switch {
	case t.cut > 0 && idle >= t.cut:
		a.endWith(ErrAttemptTimeout)
		return false, false, false
	case t.hedge > 0 && age >= t.hedge:
		t.hedge, hedge, copies = 0, true, true
	case t.slow > 0 && idle >= t.slow:
		t.slow, copies = 0, c.maySendSecond() && c.number < c.maxAttempts() && c.seconds < maxSeconds
		left = !copies && a.leaveSilent() && c.traced()
	}
	if wait, planned := t.next(age, idle); planned {
		t.timer.Reset(max(wait, 0))
	}
	if !copies && !left {
		return hedge, false, false
	}
	if a.hedged == nil {
		a.hedged = &hedgedCall{call: c, first: a}
	}
	a.hedged.preparing++
	return hedge, copies, left
}
