package resilienthttp

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/neterr"
	"github.com/resilienthttp/resilienthttp/internal/outerclient"
	"github.com/resilienthttp/resilienthttp/internal/priority"
	"github.com/resilienthttp/resilienthttp/internal/route"
)

// call is one RoundTrip: the state that its attempts share. It contains the first attempt,
// so that a call with one attempt is one allocation.
type call struct {
	*config

	request   *http.Request           // the caller's, never modified
	before    *http.Response          // the redirect that led to the call; nil: none. A program may set another one later
	ctx       context.Context         // the caller's, which also ends with Request.Cancel
	cancel    context.CancelCauseFunc // cancels ctx if it was made for Request.Cancel; else nil
	options   *callOptions
	policy    *Policy // the context's, or the Transport's
	scope     string
	quotaKey  string       // of RateLimit.Key
	record    *record      // of the last attempt that is not concurrent
	visit     *route.Visit // of that attempt; nil without endpoints
	endpoints *endpoints   // nil: the request has one server
	header    http.Header  // header of every attempt; the caller's map if nothing is added
	key       string       // idempotency key; "": none

	start    time.Time
	deadline time.Time // zero: none
	number   int       // number of the current attempt, without hedges; guarded by mu while copies run
	priority Priority
	depth    uint8 // number of calls around this one

	conflicts uint8 // retries after a 409 while the server may be at work; guarded by mu
	seconds   uint8 // second attempts that were sent; guarded by mu

	safe          bool // the method is safe
	repeatable    bool // the method is idempotent, or there is a key
	hasBody       bool // each attempt needs a new body
	replayable    bool // there is no body, or GetBody returns a new one
	single        bool // another layer owns the retries
	repeated      bool // an outer layer sends the same request again
	callerKey     bool // the caller chose the key
	sendsDeadline bool // attempts have a deadline header
	scopeFails    bool // the last call of the scope had failed when this one began
	traced        bool // a hook is set
	rejected      bool // breaker or rate limit ended the call
	finished      bool
	ended         bool          // the result and the latency are known
	unknown       bool          // the result of an attempt is unknown; guarded by mu
	redirected    atomic.Bool   // the key was used for the redirect that the response asked for
	misdirected   atomic.Bool   // a response was 421
	avoid         atomic.Uint32 // pools of Connections that an attempt uses, or in which it timed out: a set of bits

	accounted time.Time     // all time before is counted in the report of an attempt, or in waited
	waited    time.Duration // time after the last attempt that its report does not count yet
	queueWait time.Duration // after the last attempt: see Call.QueueWait
	latency   time.Duration // of a call that has ended

	mu      sync.Mutex  // guards the timers and copies of an attempt
	last    *attempt    // the call's outcome so far; nil: nothing was sent
	failure *Error      // the call ended without a response of the last attempt
	retries *retryState // nil: no retry was planned, and there is no copy
	first   attempt

	responseRequest http.Request // Response.Request: the caller's request, with a responseContext
}

// begin sets the fields that all attempts share, and rejects a request that cannot be sent.
func (c *call) begin() *Error {
	c.first.call, c.first.report.call, c.first.report.Number, c.number = c, c, 1, 1
	if c.request != nil {
		c.before = c.request.Response
	}
	if err := c.check(); err != nil {
		return &Error{Err: err}
	}
	req, ctx := c.request, c.request.Context()
	list, routed := ctx.(*route.Route)
	if routed {
		ctx = list.Context
		req = req.WithContext(ctx)
		c.request = req
	}
	if sent, ok := ctx.(*responseContext); ok {
		// The program sends a Response.Request. Its context would keep the previous call in memory.
		ctx = sent.request.Context()
		req = req.WithContext(ctx)
		c.request = req
	}
	c.start = time.Now()
	c.options = optionsOf(ctx)
	if err := c.choosePolicy(); err != nil {
		return &Error{Err: err}
	}
	c.traced = c.trace != nil || len(c.options.traces) > 0
	c.single, c.priority = c.options.single, Priority(c.options.priority)
	if c.single { // true for every call inside another Transport
		if err := c.nest(ctx); err != nil {
			return &Error{Err: err}
		}
	}
	c.single = c.single || !c.ownsRetries && len(req.Header) > 0 && outerclient.OwnsRetries(req.Header)
	c.deadline, c.sendsDeadline = ctx.Deadline()
	c.sendsDeadline = c.sendsDeadline && !c.deadlineHeader.Disabled
	if c.scope = req.URL.Host; c.config.scope != nil {
		c.scope = c.config.scope(req)
	}
	if c.rateLimit.Key != nil {
		c.quotaKey = c.rateLimit.Key(req)
	}
	if routed {
		c.findEndpoints(list)
	} else {
		c.record = c.config.record(c.scope, c.priority, c.start)
		c.scopeFails = c.record.fails(c.start.Sub(c.origin))
	}
	send, err := c.chooseKey()
	if err != nil {
		return &Error{Err: err}
	}
	c.safe = safeMethod(req.Method)
	idempotent := c.safe || req.Method == http.MethodPut || req.Method == http.MethodDelete
	c.repeatable = idempotent || c.key != ""
	if routed {
		c.endpoints.Safe, c.endpoints.Free = c.safe, idempotent || c.key != "" && list.Shared
	}
	if InDoubt(c.before, nil) && !idempotent {
		if callOf(c.before) != nil && c.redirectedAway(c.visit) {
			return &Error{Err: errRedirected}
		}
		if routed {
			c.endpoints.Bind(c.visit)
		}
	}
	c.hasBody = req.Body != nil && req.Body != http.NoBody
	c.replayable = !c.hasBody || req.GetBody != nil
	if now := c.start.Sub(c.origin); !c.single && c.failedCalls.Any(now) {
		c.repeated = c.failedCalls.Has(c.requestID(), now)
		c.single = c.repeated
	}
	c.addHeaders(send)
	c.responseRequest = *req.WithContext((*responseContext)(c))
	c.accounted = c.start
	c.ctx = ctx
	if req.Cancel != nil {
		c.ctx, c.cancel = mergeRequestCancel(req)
	}
	if err := c.ctx.Err(); err != nil {
		return c.canceled(err)
	}
	return nil
}

// check rejects a request that no RoundTripper could send, and an invalid configuration.
func (c *call) check() error {
	switch req := c.request; {
	case req == nil:
		return fmt.Errorf("%w: nil Request", neterr.ErrMalformed)
	case req.URL == nil:
		return fmt.Errorf("%w: nil Request.URL", neterr.ErrMalformed)
	case req.Body == nil && req.ContentLength != 0:
		return fmt.Errorf("%w: ContentLength %d with nil Body", neterr.ErrMalformed, req.ContentLength)
	}
	return c.invalid
}

// choosePolicy sets the policy of the call: the context's, or the Transport's.
func (c *call) choosePolicy() error {
	c.policy = c.options.policy
	if c.policy == nil {
		c.policy = c.config.policy.Load()
		return nil
	}
	return errors.Join(c.options.invalid, c.deadlineHeader.checkMargin(c.policy))
}

// nest finds the call of an outer Transport, if there is one.
func (c *call) nest(ctx context.Context) error {
	outer, ok := ctx.Value(attemptKey{}).(*attempt)
	if !ok {
		return nil
	}
	c.priority = outer.call.priority
	// A Transport that fetches a token through itself needs two levels.
	const maxDepth = 8
	if c.depth = outer.call.depth + 1; c.depth > maxDepth {
		return fmt.Errorf("%w: the Transport is its own Base", neterr.ErrMisconfigured)
	}
	return nil
}

// addHeaders sets the header that all attempts share: the caller's map, or a copy with added
// fields.
func (c *call) addHeaders(sendKey bool) {
	c.header = c.request.Header
	owned, prioritized := c.ownsRetries || c.options.owned, c.priority != PriorityDefault && !hasField(c.header, priority.Header)
	if !sendKey && !owned && !prioritized && c.header != nil {
		return
	}
	c.header = cloneHeader(c.header)
	if sendKey {
		c.header[c.idempotency.Header] = []string{c.key}
	}
	if owned {
		c.header[retryOwnerHeader] = []string{retryOwnerCaller}
	}
	if prioritized {
		c.header[priority.Header] = []string{c.priority.String()}
	}
}

// cloneHeader is Header.Clone, but never returns nil.
func cloneHeader(h http.Header) http.Header {
	if h == nil {
		return make(http.Header)
	}
	return h.Clone()
}

// canceled returns the error of a call after its context has ended with err.
func (c *call) canceled(err error) *Error {
	e := &Error{Err: err}
	if errors.Is(err, context.DeadlineExceeded) {
		e.Reason = ErrDeadline
	}
	if cause := context.Cause(c.ctx); cause != nil && !errors.Is(err, cause) {
		e.Err = &neterr.ReasonedError{Reason: err, Cause: cause}
	}
	return e
}

// fail sets the error of a call that ends without a response of the last attempt: a gate rejects
// the next attempt, no time is left, or the caller cancels during a wait.
func (c *call) fail(err *Error) {
	c.stop(err.Reason)
	err.Attempts = c.attempts()
	c.failure, c.rejected = err, err.byGate()
}

// stop notes why the next attempt is not sent.
func (c *call) stop(reason error) {
	c.queueWait = time.Since(c.accounted)
	if c.last != nil {
		c.last.report.StopReason = reason
		c.noteTrailingWait()
	}
}

// finish returns the last response, whatever its status, or one *Error.
func (c *call) finish() (*http.Response, error) {
	if c.retries != nil {
		c.retries.release()
	}
	var resp *http.Response
	if c.failure == nil {
		c.noteTrailingWait()
		if resp = c.last.report.Response; resp == nil {
			c.failure = c.lastError()
		} else if c.endpoints != nil {
			c.endpoints.Answered = c.last.visit.Target
		}
	}
	c.setRetryWaiting(false)
	c.noteNotBefore()
	c.noteFailedCall()
	if c.failure != nil {
		c.failure.call, c.failure.before = c, c.before
	}
	c.noteEnd(resp)
	c.ended = true
	if c.traced {
		c.traceDone()
	}
	c.finished = true
	if resp != nil {
		if c.cancel != nil { // the context ends with the body of the response
			c.last.endsContext = true
			if c.last.released.Load() {
				c.cancel(nil)
			}
		}
		return resp, nil
	}
	c.endContext()
	c.awaitClientTimeout()
	return nil, c.failure
}

func (c *call) endContext() {
	if c.cancel != nil {
		c.cancel(nil)
	}
}

// cleanUp closes the caller's body if no attempt did. If begin failed, or if user code panicked
// or ended the goroutine, it also releases the attempts.
func (c *call) cleanUp() {
	if !c.first.sent {
		closeRequestBody(c.request)
	}
	if c.finished || c.start.IsZero() {
		return
	}
	if c.retries != nil {
		c.retries.release()
		c.setRetryWaiting(false)
		if next := c.retries.next; next != nil {
			next.abandon()
			next.cancelCopies()
		}
	}
	c.first.abandon()
	c.first.cancelCopies()
	c.endContext()
	if c.last != nil && c.last.body != nil {
		_ = c.last.closeBody()
	}
}

func closeRequestBody(req *http.Request) {
	if req != nil && req.Body != nil {
		_ = req.Body.Close()
	}
}

// lastError returns the *Error of a call that ended with the error of its last attempt.
func (c *call) lastError() *Error {
	last := &c.last.report
	e := &Error{Reason: last.StopReason, Err: last.Err, Attempts: c.attempts()}
	if c.retries != nil && c.retries.bodyErr != nil {
		e.Err = neterr.With(&getBodyError{c.retries.bodyErr}, e.Err)
	}
	if inner := rejectedInside(last.Err); inner != nil {
		e.Reason, e.NotBefore = inner.Reason, inner.NotBefore
		return e
	}
	switch {
	case last.StopReason == ErrBreakerOpen, last.StopReason == ErrDeadline:
	case c.last.end == endDeadline:
		e.Reason = ErrDeadline
	case c.last.end == endTimeout:
		e.Reason = ErrAttemptTimeout
	}
	return e
}

// attempts returns the reports of the attempts so far.
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
		if deadline, ok := ctx.Deadline(); ok && !time.Now().Before(deadline) {
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
func (c *call) awaitClientTimeout() {
	if c.request.Cancel != nil && c.request.Context().Err() == context.DeadlineExceeded {
		waitFor(c.request.Cancel, timerGrace)
	}
}

// waitFor waits until done is closed, at most for d.
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

var _ context.Context = (*responseContext)(nil)

// Deadline implements context.Context.
func (c *responseContext) Deadline() (time.Time, bool) { return c.request.Context().Deadline() }

// Done implements context.Context.
func (c *responseContext) Done() <-chan struct{} { return c.request.Context().Done() }

// Err implements context.Context.
func (c *responseContext) Err() error { return c.request.Context().Err() }

// Value implements context.Context.
func (c *responseContext) Value(key any) any {
	if key == (callKey{}) {
		return (*call)(c)
	}
	return c.request.Context().Value(key)
}
