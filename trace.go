package resilienthttp

import (
	"context"
	"errors"
	"net/http"
	"time"
)

// Attempt is one attempt of a call, as hooks and Classify see it, and as it is
// found later in an Error, a Call and with Attempts. Hooks must not modify it nor
// keep the pointer; the copies in an Error or a Call may be kept.
type Attempt struct {
	// Number counts from 1. A hedge bears the number of the attempt that it
	// doubles. A copy that is sent beside an attempt which takes very long is an
	// attempt of its own, with the next number.
	Number int

	// Hedge is true for the second copy of a hedged attempt.
	Hedge bool

	// Beside is true for a copy that was sent while another attempt was under way: a
	// hedge, or the copy of an attempt that took very long.
	Concurrent bool

	// OwnLimit is true for one that stood in line for RateLimit.Limit, the program's own
	// ceiling, at last; false where it did for what the server says, or did not wait. See
	// Queued.
	LocalLimit bool

	unsent bool // no byte of it left, provably

	// Request is the request as it was sent, with all headers that were added.
	// It must not be modified.
	Request *http.Request

	// Response is what came back, nil when nothing did. Its body belongs to the
	// caller of the Transport, or is closed already when another attempt
	// followed: read its status and headers only.
	Response *http.Response

	// Err is why nothing came back. errors.Is finds ErrAttemptTimeout, or the
	// context's error, and what Base said.
	Err error

	// Verdict is the classification: by Policy.Classify or ClassifyBody, or by the table.
	Verdict Verdict

	// Start is when the attempt had passed the gates and was sent.
	Start time.Time

	// Latency is the time from Start to the response headers, or to the error; where
	// Policy.ClassifyBody looks at the body, until it has seen it.
	Latency time.Duration

	// Queued is the time before Start that the gates took: the wait for a turn of
	// the rate limit above all. Of a call's first attempt it begins with the call, of
	// a later one with the end of the wait for it.
	QueueWait time.Duration

	// Wait is the time until the next attempt's turn came to pass the gates: the
	// backoff, what the server asked for, and the end of copies under way beside it.
	// When there was no next attempt, it is what the server asked for and was not
	// waited for; or how long the copies were waited for that stand behind it in the
	// record (NotBefore tells what was asked then, too).
	RetryWait time.Duration

	// Stop is why no further attempt followed a failure: ErrMaxAttempts,
	// ErrBudgetExhausted and the others beside them. It is nil on an attempt that
	// was followed by another, needed none, or failed for good.
	StopReason error
}

// Call is one RoundTrip from its beginning to its end, as CallDone sees it.
type Call struct {
	// Scope is what Transport.Scope said.
	Scope string

	// Request is the caller's request.
	Request *http.Request

	// Response is what RoundTrip returns, with its body unread, or nil.
	Response *http.Response

	// Err is the *Error that RoundTrip returns, or nil.
	Err error

	// Attempts are all attempts in the order of their starts; none when a gate
	// refused the first.
	Attempts []Attempt

	// Start is when RoundTrip was called.
	Start time.Time

	// Latency is how long RoundTrip took. To a millisecond, it is the sum of Queued
	// and Latency of the attempts that are not Beside another, of Wait of all but the
	// last, and of Queued below.
	Latency time.Duration

	// Queued is the time after which nothing was sent any more: at a gate that refused
	// the call in the end, or until the caller gave up waiting, with the wait before
	// it. It is 0 for a call that ended with an attempt, unless a copy beside that was
	// made ready in vain.
	QueueWait time.Duration

	// NotBefore is when a further call has a chance, where that is known: the
	// Error's, or when what the server asked to wait has passed.
	NotBefore time.Time
}

// Spent tells where the time of the call went: at the gates, for a turn of the rate limit
// above all; under way, until the response headers or an error; and in waits before
// retries, the ends of copies among them. Together they are Latency, to a millisecond.
func (c *Call) Timings() (queued, sent, waited time.Duration) {
	queued = c.QueueWait
	for i := range c.Attempts {
		a := &c.Attempts[i]
		if !a.Concurrent {
			queued += a.QueueWait
			sent += a.Latency
		}
		if i < len(c.Attempts)-1 {
			waited += a.RetryWait
		} else { // of the wait before a retry that was not sent
			w := min(a.RetryWait, c.QueueWait)
			queued, waited = queued-w, waited+w
		}
	}
	return queued, sent, waited
}

// Trace is a set of hooks. Each may be nil. They run synchronously, never under
// a lock, in the goroutine of the call; AttemptStart of a hedge or another copy
// beside an attempt, and a BreakerChange that it causes, in the copy's own. A hook that blocks holds up
// its call. Hooks must be safe for concurrent use. The Transport's hooks run
// before those of the context.
type Trace struct {
	// AttemptStart is called when an attempt has passed the gates, just before
	// it is sent.
	AttemptStart func(*Attempt)

	// Queued is called when an attempt begins to wait for its turn at the rate limit;
	// it may do so more than once. Nothing was made of it yet: its Request is the
	// caller's, its Start zero. Its Queued is the time so far, and its Wait how much
	// longer it is likely to take.
	QueueWait func(*Attempt)

	// AttemptDone is called when the attempt has its response headers or its
	// error, and its verdict.
	AttemptDone func(*Attempt)

	// RetryWait is called before the wait for a retry, with the attempt that has
	// failed; its Wait says how long.
	RetryWait func(*Attempt)

	// Refused is called when a gate has refused the first attempt or a further one, and
	// so ended the call, just before CallDone. Its Err, an *Error, says which gate, by
	// its Reason, and until when.
	Rejected func(*Call)

	// CallDone is called when RoundTrip is about to return, for every call that
	// was well-formed and not cancelled before it began.
	CallDone func(*Call)

	// BreakerChange is called when a call of this Transport has made a circuit
	// change its state. Breaker.OnChange sees those of all Transports.
	BreakerChange func(BreakerChange)
}

// WithTrace returns a context whose calls run the hooks of t, after those of the
// Transport and of traces that the context has already. A nil t adds nothing.
func WithTrace(ctx context.Context, t *Trace) context.Context {
	if t == nil {
		return ctx
	}
	return withOptions(ctx, func(o *options) { o.traces = append(o.traces, t) })
}

// Attempts tells how a response came about: all attempts of its call, the last
// one being the response's own unless a hedge, or another copy that lost, stands
// behind it. It returns nil
// for a response that no Transport returned. The slice is the caller's. It goes by
// Response.Request, which is the caller's request in all but that its context leads
// to the call: who puts another request there has no history.
func Attempts(resp *http.Response) []Attempt {
	if c := callBehind(resp); c != nil {
		return c.attempts()
	}
	return nil
}

// callBehind is the call that the response came of; nil if it was none of ours.
func callBehind(resp *http.Response) *call {
	if resp == nil || resp.Request == nil {
		return nil
	}
	c, _ := resp.Request.Context().Value(callKey{}).(*call)
	return c
}

// AttemptFromContext tells a Base, or what it calls, which attempt the context of its request
// belongs to: its number, from 1, and whether it is a hedge. Of Transports inside each
// other, it is the innermost one's. The number is 0 where the context is of no attempt.
func AttemptFromContext(ctx context.Context) (number int, hedge bool) {
	if a, ok := ctx.Value(attemptKey{}).(*attempt); ok {
		return a.record.Number, a.record.Hedge
	}
	return 0, false
}

// NotBefore tells when to ask again, by what http.Client.Do or Transport.RoundTrip
// returned: a refusal's NotBefore, or the end of the wait that the server has asked for
// and that was not waited. It is zero where nobody said, and for responses that no
// Transport returned. All who are refused are told the same time: come back with some
// jitter.
func NotBefore(resp *http.Response, err error) time.Time {
	if failed, ok := errors.AsType[*Error](err); ok {
		return failed.NotBefore
	}
	if c := callBehind(resp); c != nil {
		return c.notBefore()
	}
	return time.Time{}
}

// attemptHook picks one of the hooks that take an Attempt.
type attemptHook func(*Trace) func(*Attempt)

func attemptStart(t *Trace) func(*Attempt) { return t.AttemptStart }
func attemptDone(t *Trace) func(*Attempt)  { return t.AttemptDone }
func retryWait(t *Trace) func(*Attempt)    { return t.RetryWait }
func queued(t *Trace) func(*Attempt)       { return t.QueueWait }

// tracing reports whether anybody listens.
func (c *call) tracing() bool { return c.trace != nil || len(c.options.traces) > 0 }

// eachTrace runs f for the Transport's trace and then for the context's.
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
		Start: c.start, Latency: time.Since(c.start), QueueWait: c.queued, NotBefore: c.notBefore(),
	}
	if c.failure != nil {
		done.Err = c.failure
	}
	if c.refused {
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

// notBefore is when a further call has a chance, as far as this one knows.
func (c *call) notBefore() time.Time {
	if c.failure != nil {
		return c.failure.NotBefore
	}
	if last := c.last; last.record.StopReason != nil && last.asked > 0 {
		return last.record.Start.Add(last.record.Latency).Add(last.asked)
	}
	return time.Time{}
}
