package resilienthttp

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/circuit"
	"github.com/resilienthttp/resilienthttp/internal/neterr"
	"github.com/resilienthttp/resilienthttp/internal/outcome"
	"github.com/resilienthttp/resilienthttp/internal/retrybudget"
	"github.com/resilienthttp/resilienthttp/internal/route"
	"github.com/resilienthttp/resilienthttp/internal/sleep"
)

// call is one RoundTrip: the state that its attempts share. It contains the first attempt,
// so that a call with one attempt is one allocation.
type call struct {
	facts

	// Where the last attempt that is not concurrent goes, or the next retry.
	route  *route.Call[*record] // of package endpoints; nil: the request has one server
	record *record

	finished  bool          // finish is over, so nothing is left to clean up
	ended     bool          // the result and the latency are known. Goroutines of a hook read it, so it is not written again
	seconds   uint8         // second attempts that were sent; guarded by mu
	conflicts atomic.Uint32 // retries after a 409 while the server may be at work

	number   int // of the current attempt, without hedges; guarded by mu while copies run
	paced    int // retries for which a limit has named the wait: they are no attempts of MaxAttempts
	timeline timeline

	noted atomic.Uint32 // a set of callNotes
	avoid atomic.Uint32 // the pools of Connections that an attempt uses, or in which it timed out: a set of bits

	mu      sync.Mutex   // guards the timers and copies of an attempt
	last    *attempt     // the call's outcome so far; nil: nothing was sent
	failure *Error       // the call ended without a response of the last attempt
	retries *retryState  // nil: no retry was planned, and there is no copy
	body    *watchedBody // the newest one; nil: none is watched. Guarded by mu
	first   attempt

	responseRequest http.Request // Response.Request: the caller's request, with a responseContext
}

// callNote is something that has happened in a call, and stays so.
type callNote uint32

const (
	resultUnknown callNote = 1 << iota // the result of an attempt is unknown, and the server may be at work
	keyRedirected                      // the key was used for the redirect that the response asked for
	misdirected                        // a response was 421
)

// note notes something, and reports whether it was noted before.
func (c *call) note(n callNote) (before bool) { return callNote(c.noted.Or(uint32(n)))&n != 0 }

func (c *call) has(n callNote) bool { return callNote(c.noted.Load())&n != 0 }

// begin finds the facts of the call, and the server of its first attempt. It rejects a request that cannot be sent.
func (c *call) begin() *Error {
	c.first.call, c.first.report.of = c, &c.first
	c.first.report.Number, c.number = 1, 1
	list, err := c.find()
	if err != nil {
		return &Error{Err: err}
	}
	c.timeline.accounted = c.start
	c.findServers(list)
	// If the work is in doubt, a redirect must not do it at another server.
	if c.repeats == repeatsWork && InDoubt(c.before, nil) {
		if callOf(c.before) != nil && c.redirectedAway(&c.first.visit) {
			return &Error{Err: errRedirected}
		}
		c.route.Bind(&c.first.visit)
	}
	c.responseRequest = *c.request.WithContext((*responseContext)(c))
	if err := c.ctx.Err(); err != nil {
		return c.canceled(err)
	}
	return nil
}

// canceled returns the error of a call after its context has ended with err.
func (f *facts) canceled(err error) *Error {
	e := &Error{Err: err}
	if errors.Is(err, context.DeadlineExceeded) {
		e.Reason = ErrDeadline
	}
	if cause := context.Cause(f.ctx); !errors.Is(err, cause) {
		e.Err = &neterr.ReasonedError{Reason: err, Cause: cause}
	}
	return e
}

// fail sets the error of a call that ends without a response of the last attempt: a gate rejects
// the next attempt, no time is left, or the caller cancels during a wait.
func (c *call) fail(err *Error) {
	c.stop(err.Reason)
	err.Attempts = c.attempts()
	c.failure = err
}

func (c *call) stop(reason error) {
	c.timeline.queued = time.Since(c.timeline.accounted)
	if c.last != nil {
		c.last.report.StopReason = reason
		c.noteTrailingWait()
	}
}

// finish returns the last response, whatever its status, or one *Error.
func (c *call) finish() (*http.Response, error) {
	if c.retries != nil {
		c.retries.release()
		c.setRetryWaiting(false)
	}
	// Asked first, because the error of a Transport in Base becomes the failure below, and that one is no rejection by a gate of
	// this call.
	rejected := c.failure != nil && c.failure.byGate()
	var resp *http.Response
	if c.failure == nil {
		c.noteTrailingWait()
		if resp = c.last.report.Response; resp == nil {
			c.failure = c.lastError()
		} else if c.route != nil {
			c.route.Answered = c.last.visit.Target
		}
	}
	c.noteNotBefore()
	c.noteFailedCall()
	if c.failure != nil {
		c.failure.call, c.failure.before = c, c.before
		c.failure.keepParts(c)
	}
	// After the failure is complete, because the slowest call of the scope keeps its text.
	c.noteEnd(resp)
	// Before the hooks: for them the call is over.
	c.ended = true
	if c.traced() {
		done := c.done()
		if rejected {
			runHooks(c, callRejected, done)
		}
		runHooks(c, callDone, done)
	}
	c.finished = true
	if resp != nil {
		// Otherwise the context ends with the body of the response.
		if c.last.lifeEnd.Or(lifeEndsCall)&lifeEnded != 0 {
			c.cancel(nil)
		}
		return resp, nil
	}
	c.cancel(nil)
	c.awaitClientTimeout()
	return nil, c.failure
}

// cleanUp closes the caller's body if no attempt did. If begin failed, or if user code panicked
// or ended the goroutine, it also releases the attempts.
func (c *call) cleanUp() {
	if !c.first.phase.sent() {
		closeRequestBody(c.request)
	}
	// A call without a start has neither permits nor a context of its own.
	if c.finished || c.start.IsZero() {
		return
	}
	if c.retries != nil {
		c.retries.release()
		c.setRetryWaiting(false)
		// The retry may hold permits although the call has not noted it as its last attempt.
		if next := c.retries.next; next != nil {
			next.abandon()
			next.permits.tokens.Done(retrybudget.Result{})
			next.cancelCopies()
		}
	}
	c.first.abandon()
	c.first.cancelCopies()
	c.cancel(nil)
	if c.last != nil && c.last.body.base != nil {
		_ = c.last.body.Close()
	}
}

func closeRequestBody(req *http.Request) {
	if req != nil && req.Body != nil {
		_ = req.Body.Close()
	}
}

func (c *call) lastError() *Error {
	last := &c.last.report
	e := &Error{Reason: last.StopReason, Err: last.Err, Attempts: c.attempts()}
	if c.retries != nil && c.retries.bodyErr != nil {
		e.Err = neterr.With(neterr.With(neterr.New("GetBody"), c.retries.bodyErr), e.Err)
	}
	if inner := rejectedInside(last.Err); inner != nil {
		e.Reason, e.NotBefore = inner.Reason, inner.NotBefore
		return e
	}
	switch {
	case last.StopReason == ErrBreakerOpen, last.StopReason == ErrDeadline:
		// They say why no retry followed, which the timeout of the last attempt does not.
	case c.last.came == outcome.CallDeadline:
		e.Reason = ErrDeadline
	case c.last.came == outcome.AttemptTimeout:
		e.Reason = ErrAttemptTimeout
	}
	return e
}

func (c *call) attempts() []Attempt { return c.appendAttempts(nil) }

func (c *call) appendAttempts(records []Attempt) []Attempt {
	if c.last == nil {
		return records
	}
	records = append(records, c.first.report)
	if c.retries != nil {
		for _, a := range c.retries.later {
			records = append(records, a.report)
		}
	}
	return records
}

// mergeRequestCancel derives a context that also ends with the deprecated Request.Cancel.
func mergeRequestCancel(req *http.Request) (context.Context, context.CancelCauseFunc) {
	ctx, cancel := context.WithCancelCause(req.Context())
	canceled := func() {
		if sleep.HasEnded(ctx) {
			// http.Client.Timeout ends both at once, and the context has the cause.
			waitFor(ctx.Done(), timerGrace)
		}
		cancel(nil)
	}
	select {
	case <-req.Cancel:
		canceled()
		return ctx, cancel
	default:
	}
	go func() {
		select {
		case <-req.Cancel:
			canceled()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// timerGrace is the maximum time between two timers that net/http set to the same time.
const timerGrace = 10 * time.Millisecond

// awaitClientTimeout waits for the timer of http.Client.Timeout, if the deadline that it set has
// passed first. net/http reports "Client.Timeout" only after its own timer, also when a body is read.
func (f *facts) awaitClientTimeout() {
	if f.request.Cancel != nil && f.request.Context().Err() == context.DeadlineExceeded {
		waitFor(f.request.Cancel, timerGrace)
	}
}

func waitFor(done <-chan struct{}, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
}

// responseContext is the context of Response.Request: the caller's, with the call as a value.
type responseContext call

type callKey struct{}

func (c *responseContext) Deadline() (time.Time, bool) { return c.request.Context().Deadline() }
func (c *responseContext) Done() <-chan struct{}       { return c.request.Context().Done() }
func (c *responseContext) Err() error                  { return c.request.Context().Err() }

func (c *responseContext) Value(key any) any {
	if key == (callKey{}) {
		return (*call)(c)
	}
	return c.request.Context().Value(key)
}

type timeline struct {
	accounted time.Time     // all time before is in the report of an attempt, or in waited
	waited    time.Duration // after the last attempt, and not in its report yet
	queued    time.Duration // after the last attempt: see Call.QueueWait
	latency   time.Duration // of a call that has ended
}

// wait counts the time until now as a wait after the last attempt, and returns the sum of these waits.
func (t *timeline) wait(now time.Time) time.Duration {
	t.waited += max(now.Sub(t.accounted), 0)
	t.accounted = now
	return t.waited
}

// noteTime notes how much time the attempt's report contains, with the wait for copies.
func (c *call) noteTime(a *attempt) {
	c.timeline.accounted = a.report.end()
	c.timeline.waited = 0
	if a.hedged == nil || !a.hedged.waited && len(a.hedged.copies) == 0 {
		return
	}
	a.report.RetryWait = c.timeline.wait(time.Now())
	if c.last != a {
		// It was the wait after a, and not after the copy that followed.
		c.timeline.waited = 0
	}
}

// noteTrailingWait notes the wait after the last attempt. If copies follow the attempt, it is
// the attempt's RetryWait; otherwise it is the call's QueueWait.
func (c *call) noteTrailingWait() {
	if c.retries != nil && len(c.retries.later) > 0 && c.last != c.retries.later[len(c.retries.later)-1] {
		c.last.report.RetryWait = c.timeline.waited
	} else {
		c.timeline.queued += c.timeline.waited
	}
	c.timeline.waited = 0
}

// visit is where one attempt goes, with the state of the scope.
type visit = route.Visit[*record]

// findServers finds the state of the server, or of each endpoint. Transport.Scope splits the scopes of endpoints.
func (c *call) findServers(list *route.Route) {
	if list == nil {
		c.first.visit.Record = c.config.record(c.scope, c.priority)
	} else {
		c.route = route.NewCall(list, func(t *route.Target) (*record, *circuit.Circuit, *route.Rest) {
			name := t.Scope
			if c.config.scope != nil {
				// Otherwise all tenants of an endpoint would share a circuit.
				name += " " + c.scope
			}
			r := c.config.record(name, c.priority)
			return r, r.circuit, &r.rest
		})
		c.route.Safe = c.repeats == repeatsNothing
		c.route.Free = c.repeats >= repeatsResult || c.key.value != "" && list.Shared
		c.first.visit = c.route.First()
		if c.repeated != nil {
			c.route.Return(&c.first.visit, c.repeated.Server)
		}
	}
	c.record = c.first.visit.Record
}

// passGates passes the gates of the first server that admits the attempt. If the circuits of all endpoints hold it, it
// looks again now and then.
func (c *call) passGates(a *attempt, now time.Time) (at time.Time, err *Error) {
	for at = now; ; {
		begin := at
		c.route.Pass(&a.visit, a.isCopy(), at, func() *route.Rejection {
			if !a.isCopy() {
				c.record = a.visit.Record
			}
			if at, err = c.pass(a, at); err == nil || !err.byGate() {
				return nil
			}
			// Another server may admit it, so it holds nothing of this one.
			a.cancelPermits(at)
			return &route.Rejection{Waits: err.Reason != ErrBreakerOpen, Until: err.NotBefore}
		})
		// A wait that was shorter than the turn has ended for another reason, and the call may wait no longer.
		if err == nil || err.Reason != ErrBreakerOpen || at.Sub(begin) < c.route.MaxHold() {
			return at, err
		}
	}
}
