package resilienthttp

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/outcome"
)

// Attempt is the record of one attempt of a call. Hooks must not modify it nor keep the pointer.
// Copies may be kept.
type Attempt struct {
	Number     int  // from 1; a hedge has the number of its attempt
	Hedge      bool // the attempt is a hedge
	Concurrent bool // it was sent while another was in flight: a hedge, or because that was slow
	FixedLimit bool // it waited for RateLimit.Limit or MaxInFlight, and not for a quota of the server
	Held       bool // it waited for the circuit
	Resent     bool // net/http has sent it again by itself, because a reused connection broke: see InDoubt

	// NotExecuted means that the response, or HTTP/2, proves that the server executed nothing of the request:
	// see the table of docs/retries.md. Policy.ClassifyBody and Policy.Classify may set it, for an API that
	// says so in its own words. The request may then be repeated, also without a key and elsewhere.
	NotExecuted bool

	work     outcome.Work
	event    outcome.Verdict // of the failure event of its stream; 0: none
	Endpoint string          // its Name in package endpoints; "" means that the call has no list

	of    *attempt     // nil: a program made it
	named *[]string    // see Policies; nil: none
	quota *QuotaStatus // the exhausted quota for which it waited, or that its 429 shows; nil: none

	Request  *http.Request  // as it was sent, with added headers; it must not be modified
	Response *http.Response // nil: none; only its status and headers may be read

	// Err is the error if there is no response. errors.Is finds ErrAttemptTimeout or the
	// context's error, and the error of Base.
	Err error

	Verdict Verdict   // the result of Policy.Classify, Policy.ClassifyBody or the table
	Start   time.Time // when the attempt was sent

	// Latency is the time from Start to the response headers or the error. It includes the wait
	// for the bytes that Policy.ClassifyBody gets, and for the first event of Policy.Stream.
	Latency time.Duration

	// QueueWait is the time that the attempt waited for breaker and rate limit: from the start of
	// the call, or the end of the previous RetryWait, to Start. Of a retry it contains the time in
	// which the failed response is closed, at most 0.1 s.
	QueueWait time.Duration

	// RetryAfter is the wait that a response from 400 on asks for: Retry-After or a similar field,
	// otherwise the reset of an exhausted quota. Zero means none. Policy.ClassifyBody and
	// Policy.Classify may set it to a wait that is elsewhere, such as in the body. The call and
	// the rate limit use what they leave, at most 365 days. If they set more than a second for a
	// response below 500 and return VerdictThrottled, the other calls of the scope, credential and
	// RateLimit.Key wait too, as for an exhausted quota. It never makes a request repeatable.
	RetryAfter time.Duration

	// RetryWait is the wait before the next attempt: the backoff, the wait that the server asks
	// for, and the end of concurrent attempts. Without a next attempt, it is the wait that the
	// server asked for, or the time until the end of concurrent attempts.
	RetryWait time.Duration

	// StopReason is why a failed attempt was not retried, for example ErrMaxAttempts. It is nil
	// if a retry followed, the attempt succeeded, or the failure is permanent.
	StopReason error
}

// Call is the report of one RoundTrip. The hooks CallDone and Rejected get it.
type Call struct {
	Scope    string         // see Transport.Scope
	Request  *http.Request  // the caller's request
	Response *http.Response // the result of RoundTrip with its body unread, or nil
	Err      error          // the *Error of RoundTrip, or nil
	Attempts []Attempt      // in the order of their starts; empty if nothing was sent
	Start    time.Time      // when RoundTrip was called
	Latency  time.Duration  // the duration of RoundTrip: see Timings

	// QueueWait is the time after the last attempt, until breaker or rate limit rejected the next
	// one or the caller canceled. Otherwise it is 0, or the time of a concurrent attempt that was
	// not sent.
	QueueWait time.Duration

	// NotBefore is the earliest time for another call. Zero means unknown.
	NotBefore time.Time

	of *call // nil: a program made it, or the call did not begin
}

// Timings splits the Latency of the call, to a millisecond: queueWait is the time at breaker and
// rate limit, inFlight the time until response headers or errors, and retryWait the waits before
// retries.
func (c *Call) Timings() (queueWait, inFlight, retryWait time.Duration) {
	queueWait = c.QueueWait
	for i := range c.Attempts {
		a := &c.Attempts[i]
		if !a.Concurrent {
			queueWait += a.QueueWait
			inFlight += a.Latency
		}
		if i < len(c.Attempts)-1 {
			retryWait += a.RetryWait
		} else { // a part of the wait before a retry that was not sent
			w := min(a.RetryWait, c.QueueWait)
			queueWait, retryWait = queueWait-w, retryWait+w
		}
	}
	return queueWait, inFlight, retryWait
}

// Trace is a set of hooks. Each may be nil. Hooks run synchronously in the goroutine of the call,
// or of a concurrent attempt, and never under a lock. A hook that blocks delays its call. Hooks
// must be safe for concurrent use. The Transport's hooks run before those of the context.
type Trace struct {
	AttemptStart func(*Attempt) // called just before an attempt is sent
	AttemptDone  func(*Attempt) // called when it has response headers or an error, and a verdict

	// QueueWait is called when an attempt begins to wait for the circuit (Held) or the rate limit, maybe
	// more than once. Its Request is the caller's, its Start is zero, its QueueWait is the time
	// so far, and its RetryWait is the estimated wait.
	QueueWait func(*Attempt)

	// ConnectionLeft is called when the attempt's HTTP/2 connection is silent, so that Connections
	// uses another one for new requests. Its Latency is the time so far.
	ConnectionLeft func(*Attempt)

	RetryWait func(*Attempt) // called before a retry, with the failed attempt and its RetryWait
	Rejected  func(*Call)    // called before CallDone if breaker or rate limit ended the call

	// CallDone is called when RoundTrip is about to return. It is not called for an invalid
	// request, or one that was canceled before the call began.
	CallDone func(*Call)

	// BreakerChange is called when a call of this Transport has changed the state of a circuit.
	// Breaker.OnChange is called for all Transports.
	BreakerChange func(BreakerChange)
}

// WithTrace returns a context with the hooks of t for its calls. They run after those of the
// Transport and of the context. A nil t adds nothing.
func WithTrace(ctx context.Context, t *Trace) context.Context {
	if t == nil {
		return ctx
	}
	return withOptions(ctx, func(o *callOptions) { o.traces = append(o.traces, t) })
}

// Attempts returns the attempts of the call that returned the response, or nil if no Transport
// returned it. The last one is the response's own, unless a concurrent one follows it. The slice
// is a copy. Attempts uses the context of Response.Request.
func Attempts(resp *http.Response) []Attempt {
	if c := callOf(resp); c != nil {
		return c.attempts()
	}
	return nil
}

func callOf(resp *http.Response) *call {
	if resp == nil || resp.Request == nil {
		return nil
	}
	c, _ := resp.Request.Context().Value(callKey{}).(*call)
	return c
}

// askedFor returns the caller's request for a response. Response.Request may have another URL and method: those that Base has sent.
func askedFor(resp *http.Response) *http.Request {
	if c := callOf(resp); c != nil {
		return &c.responseRequest
	}
	return resp.Request
}

// AttemptNumber returns the number of the attempt for which Base got the context, and
// whether it is a hedge. The innermost of nested Transports counts. The number is 0 for any other
// context.
func AttemptNumber(ctx context.Context) (number int, hedge bool) {
	if a, ok := ctx.Value(attemptKey{}).(*attempt); ok {
		return a.report.Number, a.report.Hedge
	}
	return 0, false
}

// NotBefore returns the earliest time for another call, from the results of http.Client.Do or
// Transport.RoundTrip. After a rejection or another *Error it is that of the error. After a failed response, it is
// the end of the wait that the server asked for, or the time until which an open circuit or a quota sends
// no call, if that is later. It does not matter why the call was not retried. Zero means unknown, as after a
// refused connection while the circuit is closed: then wait as long as you like. Callers get equal times, so add jitter.
func NotBefore(resp *http.Response, err error) time.Time {
	if failed, ok := errors.AsType[*Error](err); ok {
		return failed.NotBefore
	}
	if c := callOf(resp); c != nil {
		return c.notBefore()
	}
	return time.Time{}
}

func attemptStart(t *Trace) func(*Attempt)       { return t.AttemptStart }
func attemptDone(t *Trace) func(*Attempt)        { return t.AttemptDone }
func retryWait(t *Trace) func(*Attempt)          { return t.RetryWait }
func queueWait(t *Trace) func(*Attempt)          { return t.QueueWait }
func connectionLeft(t *Trace) func(*Attempt)     { return t.ConnectionLeft }
func callRejected(t *Trace) func(*Call)          { return t.Rejected }
func callDone(t *Trace) func(*Call)              { return t.CallDone }
func breakerChange(t *Trace) func(BreakerChange) { return t.BreakerChange }

// runHooks calls one hook: the Transport's, and then those of the context.
func runHooks[E any](c *call, pick func(*Trace) func(E), event E) {
	run := func(t *Trace) {
		if hook := pick(t); hook != nil {
			hook(event)
		}
	}
	if c.trace != nil {
		run(c.trace)
	}
	for _, t := range c.options.traces {
		run(t)
	}
}

// end returns when the response headers, what is read of the body for Classify, or the error were there.
func (a *Attempt) end() time.Time { return a.Start.Add(a.Latency) }

// status returns the status that the response is like: its own, or that of the failure event of its stream. 0 means none.
func (a *Attempt) status() int {
	switch {
	case a.event != 0:
		return statusOfEvent[a.event]
	case a.Response != nil:
		return a.Response.StatusCode
	}
	return 0
}

// Policies returns the policies of a quota that the server says were violated: the problem quota-exceeded of a 429 or 503
// (draft-ietf-httpapi-ratelimit-headers). Its body is read as for Policy.ClassifyBody. nil means none.
func (a *Attempt) Policies() []string {
	if a.named == nil {
		return nil
	}
	return *a.named
}

// errorType returns the error.type of an attempt: its status from 400 on, the verdict of a failure below 400, which is of
// the event of a stream or of Classify, or the type of its error. "" means none.
func (a *Attempt) errorType() string {
	switch {
	case a.Response == nil:
		return ErrorType(a.Err)
	case a.Response.StatusCode >= http.StatusBadRequest:
		return strconv.Itoa(a.Response.StatusCode)
	case a.Verdict > VerdictSuccess:
		return a.Verdict.String()
	}
	return ""
}

// soFar returns the report of an attempt that may be in flight.
func (a *attempt) soFar() *Attempt {
	r := &a.report
	return &Attempt{
		of: a, Number: r.Number, Hedge: r.Hedge, Concurrent: r.Concurrent, FixedLimit: r.FixedLimit, Held: r.Held, Endpoint: r.Endpoint,
		Request: r.Request, Start: r.Start, QueueWait: r.QueueWait, Latency: time.Since(r.Start),
	}
}

func (c *call) notBefore() time.Time {
	if c.retries == nil {
		return time.Time{}
	}
	return c.retries.notBefore
}
