package resilienthttp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/circuit"
	"github.com/resilienthttp/resilienthttp/internal/neterr"
	"github.com/resilienthttp/resilienthttp/internal/priority"
	"github.com/resilienthttp/resilienthttp/internal/retrybudget"
	"github.com/resilienthttp/resilienthttp/internal/scope"
)

// call is one RoundTrip: what its attempts have in common. The first attempt
// lives in it, so that a call which needs no second one is one allocation.
type call struct {
	*config
	ctx        context.Context         // the caller's
	hangUp     context.CancelCauseFunc // ends it, where it is a child of the caller's; nil: it is not
	request    *http.Request           // the caller's: read, never written
	header     http.Header             // what every attempt sends; the caller's own map when nothing is added
	scope      string
	seen       *scopeRecord // of the scope
	key        string
	number     int // of the attempts begun, hedges not among them; in a race under its lock
	options    *options
	deadline   time.Time // zero: none
	start      time.Time
	accounted  time.Time     // until when the call's time is: see Attempt.QueueWait
	waited     time.Duration // of that, since the end of last
	queued     time.Duration
	single     bool // another layer owns retries
	telling    bool // attempts bear a deadline header
	finished   bool
	refused    bool        // by a gate, in the end
	followed   atomic.Bool // a redirect that it was answered with: that request has the key
	depth      uint8       // of calls of this Transport around this one
	ownKey     bool        // key is the caller's own
	scopeFails bool        // when it began, the last call of the scope had failed, and nothing has succeeded since
	repeated   bool        // an outer layer sends the request again
	priority   Priority

	last    *attempt // the one whose outcome is the call's so far; nil: none was sent
	failure *Error   // why the call ends without a response
	more    *further // nil as long as one attempt was enough
	first   attempt

	answered http.Request // Response.Request: the caller's, with the way back to the call
}

// further is what only calls with more than one attempt need.
type further struct {
	sent     []*attempt         // after the first, in the order of their starts
	next     *attempt           // prepared by the retry loop, not sent yet
	due      time.Time          // when it is to be sent: the drain of the last response is a part of the wait
	body     io.ReadCloser      // which it is to send, of GetBody; nil: it is being sent, or there is none
	bodiless error              // why GetBody gave none
	previous time.Duration      // what Backoff gave the last time
	token    retrybudget.Permit // for a retry that is not sent yet
	waits    waitSeries
	rests    bool // it waits before a retry
}

// giveBack returns what the Budget and GetBody gave and the call has no more use for.
func (f *further) giveBack() {
	f.token.Cancel() // of a retry that was not sent after all
	if f.body != nil {
		_ = f.body.Close() // there is nobody to tell
	}
}

func (c *call) further() *further {
	if c.more == nil {
		c.more = &further{}
	}
	return c.more
}

// plan finds out everything about a call that does not change between its
// attempts, and refuses what cannot be sent.
func (t *Transport) plan(req *http.Request) (*call, error) {
	config := t.settled()
	if err := checkRequest(req); err != nil {
		return nil, &Error{Err: err}
	}
	if config.err != nil {
		return nil, &Error{Err: config.err}
	}
	req = forgetful(req)
	ctx := req.Context()
	c := &call{config: config, request: req, options: optionsOf(ctx), start: time.Now()}
	c.single, c.priority = c.options.single, c.options.priority
	if c.single { // as is every call inside another
		if outer, ok := ctx.Value(attemptKey{}).(*attempt); ok {
			c.priority = outer.call.priority
			if outer.call.config == config {
				c.depth = outer.call.depth + 1
			}
		}
		if c.depth > deepest {
			return nil, &Error{Err: errInsideItself}
		}
	}
	c.single = c.single || retriedAbove(req.Header)
	c.deadline, c.telling = ctx.Deadline()
	c.telling = c.telling && !config.deadline.Disabled
	c.scope = req.URL.Host
	if config.scope != nil {
		c.scope = config.scope(req)
	}
	c.seen = config.scopes.Get(c.classKey())
	c.scopeFails = c.seen.failing.Load()
	key, send, own, err := config.idempotency.keyFor(req, c.options)
	if err != nil {
		return nil, &Error{Err: err}
	}
	c.key, c.ownKey = key, own
	c.checkRepeated()
	c.header = c.commonHeader(send)
	c.answered = *req.WithContext((*answeredContext)(c))
	c.first.call = c
	c.first.record.Number, c.number = 1, 1
	c.accounted = c.start
	c.ctx, c.hangUp = foldCancel(req)
	if err := c.callerGone(); err != nil {
		c.over()
		return nil, c.ended(err)
	}
	return c, nil
}

// commonHeader is what all attempts send: the caller's header, and a copy only
// where something joins it.
func (c *call) commonHeader(sendKey bool) http.Header {
	owned, prioritized := c.ownsRetries || c.options.owned, c.priority.sends(c.request.Header)
	if !sendKey && !owned && !prioritized && c.request.Header != nil {
		return c.request.Header
	}
	h := cloneHeader(c.request.Header)
	if sendKey {
		h[c.idempotency.Header] = []string{c.key}
	}
	if owned {
		h[retryOwnerHeader] = []string{retryOwnerCaller}
	}
	if prioritized {
		h[priority.Header] = []string{c.priority.String()}
	}
	return h
}

// cloneHeader never returns nil, and leaves room for what is about to be added.
func cloneHeader(h http.Header) http.Header {
	if h == nil {
		return make(http.Header)
	}
	return h.Clone()
}

// checkRequest refuses what no RoundTripper could send.
func checkRequest(req *http.Request) error {
	switch {
	case req == nil:
		return fmt.Errorf("%w: nil Request", neterr.ErrMalformed)
	case req.URL == nil:
		return fmt.Errorf("%w: nil Request.URL", neterr.ErrMalformed)
	case req.Body == nil && req.ContentLength != 0:
		return fmt.Errorf("%w: ContentLength %d with nil Body", neterr.ErrMalformed, req.ContentLength)
	}
	return nil
}

func closeRequestBody(req *http.Request) {
	if req != nil && req.Body != nil {
		_ = req.Body.Close() // there is nobody to tell
	}
}

// errInsideItself is a Transport that sends to itself, because it is a part of
// the http.DefaultTransport that is its Base, say.
var errInsideItself = fmt.Errorf("%w: the Transport is its own Base", neterr.ErrMisconfigured)

// deepest is how many calls of one Transport may be inside each other. One that
// fetches a token by way of itself needs two; to exhaust the stack takes more.
const deepest = 8

// scopeKey is the scope as the engines know it, whose budget calls of all priorities
// share.
func (c *call) scopeKey() scope.Key { return scope.Key{Name: c.scope} }

// classKey is what calls of one priority share in it.
func (c *call) classKey() scope.Key { return scope.Key{Name: c.scope, Class: int8(c.priority)} }

// circuit is the circuit of the call's scope and priority.
func (c *call) circuit() *circuit.Circuit {
	return c.breaker.withDefaults(c.start).Circuit(c.classKey())
}

// replayable reports whether the request's body can be had again.
func (c *call) replayable() bool {
	return !c.hasBody() || c.request.GetBody != nil
}

// repeatable reports whether a second copy of the request does no harm, whatever
// became of the first.
func (c *call) repeatable() bool { return c.key != "" || idempotentMethod(c.request.Method) }

// perCall is the policy in force.
func (c *call) perCall() *Policy {
	if c.options.policy != nil {
		return c.options.policy
	}
	return &c.policy
}

// callerGone is the context's error once the caller has cancelled or the call's
// deadline has passed.
func (c *call) callerGone() error { return c.ctx.Err() }

// ended is the error of a call that the caller's cancellation or deadline ends.
func (c *call) ended(err error) *Error {
	e := &Error{Err: err}
	if errors.Is(err, context.DeadlineExceeded) {
		e.Reason = ErrDeadline
	}
	if cause := context.Cause(c.ctx); cause != nil && !errors.Is(err, cause) {
		e.Err = &neterr.ReasonedError{Reason: err, Cause: cause}
	}
	return e
}

// fail ends the call with an error that is not an attempt's: a gate's refusal,
// or the caller's cancellation while a retry was waited for.
func (c *call) fail(err *Error) {
	if c.last != nil {
		c.last.record.StopReason = err.Reason
	}
	c.queued = time.Since(c.accounted)
	if c.last != nil {
		c.rest()
	}
	err.Attempts = c.attempts()
	c.failure, c.refused = err, err.byGate()
}

// finish is the call's end: the last response as it came, or one *Error.
func (c *call) finish() (*http.Response, error) {
	if c.more != nil {
		c.more.giveBack()
	}
	var resp *http.Response
	if c.failure == nil {
		c.rest()
		if resp = c.last.record.Response; resp == nil {
			c.failure = c.lastError()
		}
	}
	c.resting(false)
	if c.last != nil && c.last.record.Verdict.retryable() && c.last.failed() && !c.seen.failing.Load() {
		c.seen.failing.Store(true)
	}
	c.noteFailure()
	c.seeEnd(resp)
	if c.trace != nil || len(c.options.traces) > 0 {
		c.traceDone(resp)
	}
	c.finished = true
	if resp != nil {
		c.handOver()
		return resp, nil
	}
	c.over()
	c.awaitClientTimeout()
	return nil, c.failure
}

// handOver leaves the call's context to the response's body: it ends with that.
func (c *call) handOver() {
	if c.hangUp == nil {
		return
	}
	if c.last.hangUp = c.hangUp; c.last.released.Load() {
		c.over()
	}
}

// over ends the call's context.
func (c *call) over() {
	if c.hangUp != nil {
		c.hangUp(nil)
	}
}

// unwind lets go of what a call holds that a panic has cut short, or the end of
// its goroutine: of a hook, of Backoff, of GetBody.
func (c *call) unwind() {
	if c.finished {
		return
	}
	if c.more != nil {
		c.more.giveBack()
		if c.more.next != nil {
			c.more.next.abandon()
		}
	}
	c.resting(false)
	c.first.abandon() // if it was not sent
	if c.last != nil && c.last.body != nil {
		_ = c.last.closeBody()
	}
	c.over()
}

// lastError is the *Error of a call whose last attempt ended in an error.
func (c *call) lastError() *Error {
	last := &c.last.record
	e := &Error{Reason: last.StopReason, Err: last.Err, Attempts: c.attempts()}
	if c.more != nil && c.more.bodiless != nil {
		e.Err = neterr.With(&bodilessError{c.more.bodiless}, e.Err)
	}
	if inner := refused(last.Err); inner != nil {
		e.Reason, e.NotBefore = inner.Reason, inner.NotBefore
		return e
	}
	switch {
	case last.StopReason == ErrBreakerOpen:
		if rejection := c.circuit().Rejects(time.Now(), true); rejection != nil {
			e.NotBefore = rejection.NotBefore
		}
	case last.StopReason == ErrDeadline:
	case c.last.fate == fateDeadline:
		e.Reason = ErrDeadline
	case c.last.fate == fateTimeout:
		e.Reason = ErrAttemptTimeout
	}
	return e
}

// attempts are the records of the attempts so far.
func (c *call) attempts() []Attempt {
	if c.last == nil {
		return nil
	}
	if c.more == nil {
		return []Attempt{c.first.record}
	}
	records := make([]Attempt, 0, 1+len(c.more.sent))
	records = append(records, c.first.record)
	for _, a := range c.more.sent {
		records = append(records, a.record)
	}
	return records
}

// sent are the attempts after the first.
func (c *call) sent() []*attempt {
	if c.more == nil {
		return nil
	}
	return c.more.sent
}
