package resilienthttp

import (
	"context"
	"errors"
	"net/http"
	"time"
)

// Attempt is one attempt of a call, as hooks and Classify get it, and as an Error, a Call and
// Attempts contain it. Hooks must not modify it nor keep the pointer. Copies may be kept.
type Attempt struct {
	// Number counts from 1. A hedge has the number of its attempt. A second attempt beside a
	// slow one has the next number.
	Number int

	// Hedge is true for a hedge.
	Hedge bool

	// Concurrent is true if the attempt was sent while another was in flight: a hedge, or a
	// second attempt beside a slow one.
	Concurrent bool

	// LocalLimit is true if the attempt waited for RateLimit.Limit, and false if it waited for
	// a quota of the server, or not at all. See QueueWait.
	LocalLimit bool

	notSent bool // it is proved that no byte of it was written

	// Request is the request as it was sent, with all headers that were added. It must not be
	// modified.
	Request *http.Request

	// Response is the response, or nil. Its body belongs to the caller of the Transport, or is
	// closed if another attempt followed: read status and headers only.
	Response *http.Response

	// Err is the error without a response. errors.Is finds ErrAttemptTimeout or the context's
	// error, and the error of Base.
	Err error

	// Verdict is the classification, by Policy.Classify, Policy.ClassifyBody or the table.
	Verdict Verdict

	// Start is when the attempt was sent, after the gates.
	Start time.Time

	// Latency is the time from Start to the response headers or the error, with the time for
	// which Policy.ClassifyBody waits for the body.
	Latency time.Duration

	// QueueWait is the time at the gates before Start, above all for a permit of the rate
	// limit. It begins with the call, or with the end of the wait before the retry.
	QueueWait time.Duration

	// RetryWait is the time until the gates are asked for the next attempt: the backoff, the
	// wait that the server asks for, and the end of concurrent attempts. Without a next
	// attempt, it is the wait that the server asked for and that was not waited, or the time
	// for which concurrent attempts were waited for.
	RetryWait time.Duration

	// StopReason is why a failed attempt was not retried, such as ErrMaxAttempts or
	// ErrBudgetExhausted. It is nil if another attempt followed, or none was needed, or the
	// failure is permanent.
	StopReason error
}

// Call is one RoundTrip, as the hooks CallDone and Rejected get it.
type Call struct {
	// Scope is the name of the scope: see Transport.Scope.
	Scope string

	// Request is the caller's request.
	Request *http.Request

	// Response is the result of RoundTrip, with its body unread, or nil.
	Response *http.Response

	// Err is the *Error of RoundTrip, or nil.
	Err error

	// Attempts are all attempts in the order of their starts. It is empty if a gate rejected
	// the first.
	Attempts []Attempt

	// Start is when RoundTrip was called.
	Start time.Time

	// Latency is the duration of RoundTrip: see Timings.
	Latency time.Duration

	// QueueWait is the time after the last attempt: at a gate that rejected the next one, or
	// until the caller canceled. It is 0 if the call ended with an attempt, unless a
	// concurrent one was prepared and not sent.
	QueueWait time.Duration

	// NotBefore is the earliest time for another call, or zero if that is unknown.
	NotBefore time.Time
}

// Timings splits the Latency of the call, to a millisecond: the time at the gates, the time in
// flight until the response headers or an error, and the waits before retries.
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
		} else { // of the wait before a retry that was not sent
			w := min(a.RetryWait, c.QueueWait)
			queueWait, retryWait = queueWait-w, retryWait+w
		}
	}
	return queueWait, inFlight, retryWait
}

// Trace is a set of hooks, each of which may be nil. They run synchronously in the goroutine of
// the call, never under a lock; AttemptStart of a concurrent attempt, and a BreakerChange that
// it causes, run in the goroutine of that attempt. A hook that blocks delays its call. Hooks
// must be safe for concurrent use. The Transport's hooks run before those of the context.
type Trace struct {
	// AttemptStart is called after the gates, just before an attempt is sent.
	AttemptStart func(*Attempt)

	// AttemptDone is called when an attempt has its response headers or its error, and its
	// verdict.
	AttemptDone func(*Attempt)

	// QueueWait is called when an attempt begins to wait for a permit of the rate limit, maybe
	// more than once. Its Request is the caller's and its Start is zero. Its QueueWait is the
	// time so far, and its RetryWait the estimate of the rest.
	QueueWait func(*Attempt)

	// RetryWait is called before the wait for a retry, with the attempt that failed. Its
	// RetryWait is the wait.
	RetryWait func(*Attempt)

	// Rejected is called when a gate has rejected an attempt and so ended the call, just
	// before CallDone. The Reason and NotBefore of its Err, an *Error, say which gate.
	Rejected func(*Call)

	// CallDone is called when RoundTrip is about to return, for every call with a valid
	// request that was not canceled before it began.
	CallDone func(*Call)

	// BreakerChange is called when a call of this Transport has changed the state of a
	// circuit. Breaker.OnChange is called for all Transports.
	BreakerChange func(BreakerChange)
}

// WithTrace returns a context whose calls run the hooks of t, after those of the Transport and
// those that the context already has. A nil t adds nothing.
func WithTrace(ctx context.Context, t *Trace) context.Context {
	if t == nil {
		return ctx
	}
	return withOptions(ctx, func(o *callOptions) { o.traces = append(o.traces, t) })
}

// Attempts returns the attempts of the call that returned the response, or nil for a response
// of no Transport. The last one is the response's own, unless a concurrent one stands behind
// it. The slice is the caller's. Attempts uses the context of Response.Request.
func Attempts(resp *http.Response) []Attempt {
	if c := callOf(resp); c != nil {
		return c.attempts()
	}
	return nil
}

// callOf is the call that returned the response, or nil.
func callOf(resp *http.Response) *call {
	if resp == nil || resp.Request == nil {
		return nil
	}
	c, _ := resp.Request.Context().Value(callKey{}).(*call)
	return c
}

// AttemptFromContext returns the attempt that the context of a request in Base belongs to: its
// number, from 1, and whether it is a hedge. Of Transports inside each other, it is that of
// the innermost. The number is 0 if the context belongs to no attempt.
func AttemptFromContext(ctx context.Context) (number int, hedge bool) {
	if a, ok := ctx.Value(attemptKey{}).(*attempt); ok {
		return a.report.Number, a.report.Hedge
	}
	return 0, false
}

// NotBefore returns the earliest time for another call, from the results of http.Client.Do or
// Transport.RoundTrip: that of the *Error, or the end of the wait that the server asked for
// and that was not waited. Zero means unknown. All rejected calls get the same time, so add
// jitter.
func NotBefore(resp *http.Response, err error) time.Time {
	if failed, ok := errors.AsType[*Error](err); ok {
		return failed.NotBefore
	}
	if c := callOf(resp); c != nil {
		return c.notBefore()
	}
	return time.Time{}
}

// attemptHook selects one of the hooks that get an Attempt.
type attemptHook func(*Trace) func(*Attempt)

func attemptStart(t *Trace) func(*Attempt) { return t.AttemptStart }
func attemptDone(t *Trace) func(*Attempt)  { return t.AttemptDone }
func retryWait(t *Trace) func(*Attempt)    { return t.RetryWait }
func queueWait(t *Trace) func(*Attempt)    { return t.QueueWait }

// eachTrace calls f for the Transport's hooks, and then for those of the context.
func (c *call) eachTrace(f func(*Trace)) {
	if c.trace != nil {
		f(c.trace)
	}
	for _, t := range c.options.traces {
		f(t)
	}
}

func (c *call) traceAttempt(pick attemptHook, a *Attempt) {
	c.eachTrace(func(t *Trace) {
		if hook := pick(t); hook != nil {
			hook(a)
		}
	})
}

func (c *call) traceDone(resp *http.Response) {
	done := Call{
		Scope: c.scope, Request: c.request, Response: resp, Attempts: c.attempts(),
		Start: c.start, Latency: time.Since(c.start), QueueWait: c.queueWait, NotBefore: c.notBefore(),
	}
	if c.failure != nil {
		done.Err = c.failure
	}
	if c.rejected {
		c.eachTrace(func(t *Trace) {
			if t.Rejected != nil {
				t.Rejected(&done)
			}
		})
	}
	c.eachTrace(func(t *Trace) {
		if t.CallDone != nil {
			t.CallDone(&done)
		}
	})
}

// notBefore is the earliest time for another call, as far as this one knows.
func (c *call) notBefore() time.Time {
	if c.failure != nil {
		return c.failure.NotBefore
	}
	if last := c.last; last.report.StopReason != nil && last.askedWait > 0 {
		return last.report.Start.Add(last.report.Latency).Add(last.askedWait)
	}
	return time.Time{}
}
