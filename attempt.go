package resilienthttp

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/circuit"
	"github.com/resilienthttp/resilienthttp/internal/neterr"
	"github.com/resilienthttp/resilienthttp/internal/quota"
	"github.com/resilienthttp/resilienthttp/internal/retrybudget"
)

// attempt is one request of a call. It is also the state of its context and of the body of
// its response (see attemptContext, responseBody and upgradedBody), in one allocation.
type attempt struct {
	call        *call
	end         endReason
	stage       stage
	sent        bool          // Base has the request, and must close its body
	noWork      bool          // the server has done no work for it
	concurrent  bool          // it was sent beside another attempt, and waits at no gate
	inFlight    bool          // Base has it, and it has no outcome yet
	sampled     bool          // how long its body takes is recorded
	inTime      bool          // it had its outcome before the race was over; guarded by call.mu
	endsContext bool          // the call's context ends with it
	reached     atomic.Uint32 // how far Base came with it: see watch
	announced   chan struct{} // of a copy with hooks: closed after AttemptStart; else nil
	report      Attempt
	deadline    time.Time // the earlier of the call's and its own; zero: none

	request http.Request // as Base gets it

	circuit   circuit.Permit
	quota     *quota.Permit      // nil: no quota is known
	paid      retrybudget.Permit // tokens of this attempt, if it is a retry or a copy
	prepaid   retrybudget.Permit // tokens of the next attempt, if AdaptiveTimeout cuts this one
	askedWait time.Duration      // how long the server asks to wait; negative: it does not ask

	timers attemptTimers
	race   *race        // it and its copies; nil: there is no copy. Guarded by call.mu until stopTimer
	upload bodyProgress // of its request body

	body      io.ReadCloser // of the response
	closed    atomic.Bool   // body is closed
	released  atomic.Bool   // its context has ended
	life      atomic.Pointer[lifetime]
	readTimer *time.Timer // of Policy.ReadTimeout
}

// stage is how far an attempt has come.
type stage uint8

const (
	stageOpen     stage = iota
	stageReported       // the gates get its result: their permits must not be canceled any more
	stageOver           // the outcome is complete, and abandon has nothing to do
)

// endReason is how an attempt ended, as far as status and error do not say it.
type endReason uint8

const (
	endResponse   endReason = iota
	endError                // of Base
	endTimeout              // the attempt's own
	endEarly                // AdaptiveTimeout has cut it
	endDeadline             // of the call
	endCanceled             // by the caller
	endSuperseded           // another copy had its response first
)

// prepare asks the gates: first the breaker, then the rate limit. Then it makes the request,
// which fails if no time is left for a deadline header. If it fails, the attempt holds
// nothing. If it succeeds, the caller must send or abandon the attempt.
func (c *call) prepare(a *attempt) *Error {
	now := c.start
	if a != &c.first || c.config.scope != nil || c.idempotency.NewKey != nil {
		now = time.Now() // the caller's functions may have taken long
	}
	permit, err := c.passBreaker(now, a != &c.first)
	if a.circuit = permit; permit.Change != nil {
		c.breakerChanged(permit.Change)
	}
	if err == nil {
		now, err = c.passRateLimit(a, now)
	}
	if err == nil {
		err = c.makeRequest(a, now)
	}
	if err != nil {
		a.abandon()
	}
	return err
}

// makeRequest plans the timers of the attempt, and makes its request.
func (c *call) makeRequest(a *attempt, now time.Time) *Error {
	a.report.Start, a.deadline = now, c.deadline
	if !a.concurrent {
		a.report.QueueWait = now.Sub(c.accounted)
	}
	c.planTimers(a, now)
	header := c.header
	if c.sendsDeadline {
		var ok bool
		if header, ok = c.config.deadline.header(header, a.deadline, now); !ok {
			return &Error{Reason: ErrDeadline}
		}
	}
	body := c.request.Body
	if c.hasBody {
		var err *Error
		if body, err = c.bodyFor(a); err != nil {
			return err
		}
	}
	ctx := context.Context((*attemptContext)(a))
	if !c.repeatable && !c.single && c.native {
		ctx = a.watch(ctx)
	}
	a.request = *c.request.WithContext(ctx)
	if c.hedge != nil || a.concurrent {
		// Two copies may be in flight at once, and one after the call.
		url := *a.request.URL
		a.request.URL, header = &url, cloneHeader(header)
	}
	a.request.Header, a.request.Body = header, body
	a.request.Cancel = nil    // the context has it
	a.request.RequestURI = "" // set in a server's request that ReverseProxy sends on
	a.report.Request = &a.request
	a.startTimer()
	return nil
}

// The stages of an attempt in Base, as far as a trace shows them.
const (
	reachedDial uint32 = 1 // Base has asked for a connection
	reachedConn uint32 = 2 // and has got one
)

// watch records whether Base got a connection. Without one, an EOF, a reset or a timeout proves
// that nothing was sent.
func (a *attempt) watch(ctx context.Context) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { a.reached.CompareAndSwap(0, reachedDial) },
		GotConn: func(httptrace.GotConnInfo) { a.reached.Store(reachedConn) },
	})
}

// exchange sends a prepared attempt, and copies beside it if it is slow. The first response
// that needs no retry, or else the last failure, is the call's outcome so far.
func (c *call) exchange(a *attempt) {
	hedges := c.hedges()
	if a == &c.first {
		if c.record.bucket != nil {
			c.record.bucket.Deposit(a.report.Start, &c.budget.rules)
		}
		if hedges != nil {
			hedges.deposit(c.hedge, a.report.Start)
		}
	} else {
		a.paid, c.retries.permit = c.retries.permit, retrybudget.Permit{}
		c.retries.later = append(c.retries.later, a)
	}
	a.send()
	c.last = a
	if a.race != nil {
		c.last = a.race.outcome()
	}
	a.paid.Done(c.last.hasFinalResponse())
	c.recordTime(a)
	if hedges != nil {
		hedges.observe(c.hedge, a)
	}
}

// send gives the attempt to Base, and observes the outcome.
func (a *attempt) send() {
	if a.call.traced {
		a.announce()
	}
	a.sent, a.inFlight = true, true
	a.call.record.inFlight.Add(1)
	a.observe(a.call.base.RoundTrip(&a.request))
}

// announce calls the AttemptStart hooks.
func (a *attempt) announce() {
	if a.announced != nil {
		defer close(a.announced)
	}
	a.call.traceAttempt(attemptStart, &a.report)
}

// observe takes the outcome from Base, reports it to the gates, and classifies it.
func (a *attempt) observe(resp *http.Response, err error) {
	c := a.call
	a.report.Latency = time.Since(a.report.Start)
	now := a.report.Start.Add(a.report.Latency)
	a.stopTimer()
	if cause := a.cause(); cause != nil || err != nil || resp == nil {
		resp, err = a.oneOf(resp, err, cause)
	}
	if err != nil {
		a.release()
		a.end, err = a.translate(err, now)
		a.report.notSent = a.reached.Load() == reachedDial || provesNotSent(err)
	}
	a.report.Response, a.report.Err = resp, err

	// Code of Base may panic here. So it runs before the gates get the result, and abandon can
	// still return the permits.
	info := parseResponse(resp, now, c.rateLimit.IgnoreHeaders)
	if c.policy.ClassifyBody != nil {
		if info.prefix, info.read = a.readPrefix(resp); info.read {
			now = time.Now()
			a.report.Latency = now.Sub(a.report.Start)
		}
	}
	result := circuit.Result{Outcome: a.breakerOutcome(), Took: a.report.Latency, TimeOut: a.timedOut(), Retry: a != &c.first}
	a.recordOutcome(result.Outcome, now)
	if c.policy.AdaptiveTimeout != nil {
		a.learnTimeout(now)
	}
	a.stage = stageReported
	a.reportQuota(&info, now)
	a.leaveFlight() // not earlier: the quota counts the others
	if change := a.circuit.Done(result, now); change != nil {
		c.breakerChanged(change)
	}
	a.classify(&info)
	a.recordFailure(now)
	if resp != nil {
		a.adopt(resp)
	}
	if c.traced && !a.concurrent {
		c.traceAttempt(attemptDone, &a.report)
	}
	a.stage = stageOver
}

// leaveFlight counts the attempt as no longer in flight.
func (a *attempt) leaveFlight() {
	if a.inFlight {
		a.inFlight = false
		a.call.record.inFlight.Add(-1)
	}
}

// oneOf holds Base to its contract: one of response and error.
func (a *attempt) oneOf(resp *http.Response, err, cause error) (*http.Response, error) {
	if err == nil && (cause == ErrAttemptTimeout || cause == neterr.ErrSuperseded) {
		err = cause // it ended at the same moment, and the body can no longer be read
	}
	if err != nil && resp != nil {
		if resp.Body != nil {
			_ = resp.Body.Close()
		}
		resp = nil
	}
	if err == nil && resp == nil {
		err = errBrokenBase
	}
	return resp, err
}

// translate finds what ended the attempt: its own timeout, the call's deadline, the caller,
// another copy, or the network. The error matches the sentinel and also Base's error.
func (a *attempt) translate(err error, now time.Time) (endReason, error) {
	c := a.call
	gone := c.ctx.Err()
	switch cause := a.cause(); {
	case errors.Is(cause, neterr.ErrSuperseded):
		return endSuperseded, neterr.With(neterr.ErrSuperseded, err)
	case cause == ErrAttemptTimeout:
		if gone == nil && errors.Is(err, context.Canceled) {
			// A context derived from the attempt's calls the timeout a cancellation.
			err = neterr.New(neterr.SafeText(err))
		}
		if a.timers.earlyDone && c.policy.AttemptTimeout > 0 {
			return endEarly, neterr.With(ErrAttemptTimeout, err)
		}
		return endTimeout, neterr.With(ErrAttemptTimeout, err)
	case errors.Is(gone, context.DeadlineExceeded):
		return endDeadline, neterr.With(gone, err)
	case gone != nil:
		return endCanceled, neterr.With(gone, err)
	case a.deadline.IsZero() || now.Before(a.deadline) || !neterr.TimedOut(err):
		if neterr.SchemeMismatch(err) {
			// http.Client knows it only as the bare error of net/http.
			err = neterr.With(http.ErrSchemeMismatch, err)
		}
		return endError, err
	}
	// Base has seen the deadline pass before the timer fired.
	if a.deadline.Equal(c.deadline) {
		return endDeadline, neterr.With(context.DeadlineExceeded, err)
	}
	return endTimeout, neterr.With(ErrAttemptTimeout, err)
}

// hasFinalResponse reports whether the attempt got a response that ends the call.
func (a *attempt) hasFinalResponse() bool {
	return a.end == endResponse && !a.report.Verdict.retryable()
}

// abandon releases what an attempt holds that did not come to its end.
func (a *attempt) abandon() {
	if a.stage == stageOver {
		return
	}
	if a.stage == stageOpen {
		a.returnPermits(time.Now())
	}
	a.stage = stageOver
	a.leaveFlight()
	a.stopTimer()
	a.prepaid.Cancel()
	if !a.sent {
		a.paid.Cancel()
	}
	if resp := a.report.Response; resp != nil {
		if resp.Body != nil {
			<-inBackground(func() { _ = resp.Body.Close() })
		}
		a.report.Response = nil
	}
	if !a.sent && a != &a.call.first {
		closeRequestBody(&a.request)
	}
	a.release()
}

// returnPermits cancels the permits of the gates.
func (a *attempt) returnPermits(now time.Time) {
	a.circuit.Cancel(now)
	a.circuit = circuit.Permit{}
	if a.quota != nil {
		a.quota.Cancel(now)
		a.quota = nil
	}
}

// release ends the attempt's context, and with it all that Base still does for the attempt.
// It may be called more than once, and by several goroutines.
func (a *attempt) release() {
	if a.released.Swap(true) {
		return
	}
	if life := a.life.Load(); life != nil {
		life.cancel(nil)
	}
	if a.endsContext {
		a.call.cancel(nil)
	}
}

// lifetime is the context of an attempt. It is made when something asks for it, because
// deriving a context is expensive.
type lifetime struct {
	context.Context

	cancel context.CancelCauseFunc
}

func (a *attempt) lifetime() *lifetime {
	if life := a.life.Load(); life != nil {
		return life
	}
	ctx, cancel := context.WithCancelCause(a.call.ctx)
	if !a.life.CompareAndSwap(nil, &lifetime{ctx, cancel}) {
		cancel(nil) // another goroutine was first
	} else if a.released.Load() {
		cancel(nil)
	}
	return a.life.Load()
}

// endWith ends the attempt's context with a cause, if it has not ended.
func (a *attempt) endWith(cause error) { a.lifetime().cancel(cause) }

// cause is why the attempt's context has ended; nil: it has not, or nothing has asked for it.
func (a *attempt) cause() error {
	if life := a.life.Load(); life != nil {
		return context.Cause(life)
	}
	return nil
}

// attemptContext is the context that Base gets. It ends with the attempt, has the attempt's
// deadline, leads to the attempt, and tells a Transport inside that retries have an owner.
// Value and Done lead to a standard cancelCtx, so contexts that Base derives need no goroutine.
type attemptContext attempt

type attemptKey struct{}

var _ context.Context = (*attemptContext)(nil)

// Deadline implements context.Context.
func (a *attemptContext) Deadline() (time.Time, bool) { return a.deadline, !a.deadline.IsZero() }

// Done implements context.Context.
func (a *attemptContext) Done() <-chan struct{} { return (*attempt)(a).lifetime().Done() }

// Err implements context.Context.
func (a *attemptContext) Err() error {
	if a.life.Load() == nil && !a.released.Load() && a.call.ctx.Err() == nil {
		return nil
	}
	life := (*attempt)(a).lifetime()
	err := life.Err()
	if err != nil && context.Cause(life) == ErrAttemptTimeout {
		return context.DeadlineExceeded
	}
	return err
}

// Value implements context.Context.
func (a *attemptContext) Value(key any) any {
	switch key.(type) {
	case optionsKey:
		if a.call.ownsRetries || a.call.options.owned {
			return nestedOptionsOwned
		}
		return nestedOptions
	case callKey:
		return a.call
	case attemptKey:
		return (*attempt)(a)
	}
	if life := a.life.Load(); life != nil {
		return life.Value(key)
	}
	return a.call.ctx.Value(key)
}
