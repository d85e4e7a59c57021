package resilienthttp

import (
	"context"
	"errors"
	"net/http"
	"reflect"
	"sync/atomic"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/neterr"
	"github.com/resilienthttp/resilienthttp/internal/outcome"
	"github.com/resilienthttp/resilienthttp/internal/ratelimitheader"
)

// attempt is one request of a call. It is also its context, and has the body of its response (see attemptContext and
// responseBody), so that an attempt is one allocation.
type attempt struct {
	call  *call
	visit visit

	// How it ended, apart from its report.
	came      outcome.Came
	outcome   outcome.Outcome
	permitted bool // a should-retry header permits to repeat it, at the same server
	begun     bool // its event stream has begun, so the server has the request

	kind    attemptKind
	phase   attemptPhase
	inTime  bool // it had its outcome before there was a winner; guarded by call.mu
	life    atomic.Pointer[lifetime]
	lifeEnd atomic.Uint32 // lifeEnded, lifeEndsCall

	request  http.Request // for Base
	deadline time.Time    // the earlier of the call's and its own; zero: none
	report   Attempt

	sending sending
	permits permits
	timers  attemptTimers
	hedged  *hedgedCall                 // the attempt and its copies; nil: no copy. Guarded by call.mu until stopTimer
	upload  atomic.Pointer[watchedBody] // its request body; nil: it is not watched
	body    responseBody
}

// attemptKind is why an attempt is made.
type attemptKind uint8

const (
	kindFirst  attemptKind = iota
	kindRetry              // the attempt before has failed
	kindSecond             // a copy of an attempt that is very slow. It is one of MaxAttempts. This and what follows are copies
	kindHedge              // a copy of an attempt that is slower than usual
)

// isCopy reports whether another attempt is in flight, so that this one must not wait.
func (a *attempt) isCopy() bool { return a.kind >= kindSecond }

// attemptPhase is the progress of an attempt. Only the attempt's goroutine knows it.
type attemptPhase uint8

const (
	phasePreparing attemptPhase = iota
	phaseAbandoned              // it is over, and Base never had it
	phaseSent                   // it is in flight: Base has the request, and must close its body
	phaseReturned               // the gates have its result
	phaseOver                   // it was sent, and the outcome is complete
)

func (p attemptPhase) sent() bool { return p >= phaseSent }

// prepare passes the gates and makes the request. After an error the attempt holds nothing. Otherwise the caller must send or abandon the attempt.
func (c *call) prepare(a *attempt) *Error {
	now := time.Now() // not the start of the call, because functions of the user may have taken long
	var err *Error
	// Without a list of endpoints in between, a call that waits needs less stack.
	if c.route == nil {
		now, err = c.pass(a, now)
	} else {
		now, err = c.passGates(a, now)
	}
	if err == nil {
		if a.kind == kindRetry {
			// Not before its retry has all permits: until then the response may be the result of the call. The time that this
			// takes is no part of the attempt.
			c.last.discard()
			now = time.Now()
		}
		err = c.makeRequest(a, now)
	}
	if err != nil {
		a.abandon()
	}
	return err
}

// makeRequest makes the request for Base. Its header and its timers say what is left of the time after the gates.
func (c *call) makeRequest(a *attempt, now time.Time) *Error {
	a.report.Start, a.deadline = now, c.deadline
	if !a.isCopy() {
		a.report.QueueWait = now.Sub(c.timeline.accounted)
	}
	// Before the header, which sends the deadline that the timers may have shortened.
	c.planTimers(a, now)
	header, err := c.attemptHeader(a, now)
	if err != nil {
		return err
	}
	// After the header, because without time there is no reason to call GetBody.
	body := c.request.Body
	if c.hasBody {
		if body, err = a.requestBody(); err != nil {
			return err
		}
		if a.kind == kindRetry && c.last.wasCutOff() {
			header = header.Clone()
			header["Expect"] = []string{"100-continue"}
		}
	}
	a.request = *c.request.WithContext((*attemptContext)(a))
	a.request.Header, a.request.Body = header, body
	if server := a.visit.Server; server != nil {
		a.request.URL, a.request.Host = c.route.URL(server.Target, c.request.URL), ""
		a.report.Endpoint = server.Name
	}
	if c.hedge != nil || a.isCopy() {
		// A copy may be in flight at the same time, and even after the call.
		a.request.URL, a.request.Header = new(*a.request.URL), header.Clone()
	}
	a.adaptToBase()
	a.report.Request = &a.request
	a.startTimer()
	return nil
}

// attemptHeader returns the header of the attempt: that of all attempts, with what is its own.
func (c *call) attemptHeader(a *attempt, now time.Time) (http.Header, *Error) {
	header := a.visit.Apply(c.header)
	if !c.deadline.IsZero() && !c.deadlineHeader.Disabled {
		var enough bool
		if header, enough = c.deadlineHeader.header(header, a.deadline, now); !enough {
			return nil, &Error{Reason: ErrDeadline}
		}
	}
	return header, nil
}

// adaptToBase sets the fields that say how Base may handle the request.
func (a *attempt) adaptToBase() {
	_, watched := a.request.Body.(*watchedBody)
	if a.request.GetBody != nil && (watched || a.mayRepeatUnseen()) {
		a.request.GetBody = a.repeatBody
	}
	a.request.Cancel = nil
	// net/http's Transport needs only the context. Other RoundTrippers may know only the deprecated field.
	if !a.call.native && a.call.request.Cancel != nil {
		a.request.Cancel = a.lifetime().Done()
	}
	a.request.RequestURI = "" // ReverseProxy leaves it set
}

// exchange sends a prepared attempt, and copies if it is slow. The call's outcome so far is the
// first response that needs no retry, or else the last failure.
func (c *call) exchange(a *attempt) {
	// Each call earns a part of a token once for each server, whatever comes back, so that retries and hedges are a ratio of the calls.
	if !a.visit.Again {
		if bucket := a.visit.Record.bucket; bucket != nil {
			bucket.Deposit(&c.budget.rules, a.report.Start)
		}
		if hedges := a.visit.Record.hedges; hedges != nil {
			hedges.bucket.Deposit(&c.hedge.rules, a.report.Start)
		}
	}
	runHooks(c, attemptStart, &a.report)
	a.send()
	c.last = a
	if a.hedged != nil {
		c.last = a.hedged.outcome()
		// A copy at another endpoint may have won.
		c.record = c.last.visit.Record
	}
	c.noteTime(a)
}

func (a *attempt) send() {
	a.phase = phaseSent
	a.visit.Record.inFlight.Begin(a.report.Start.Sub(a.call.origin))
	a.observe(a.call.base.RoundTrip(&a.request))
}

// observe takes the outcome from Base. First it finds all that is known of it, then it judges that, and then it reports the judgment.
func (a *attempt) observe(resp *http.Response, err error) {
	// Code of Base and of Classify may panic in the first two steps. The gates have no result then, so abandon can still return
	// the permits.
	resp = a.receive(resp, err)
	var info responseInfo
	a.findSigns(&info, resp)
	a.judge(&info)
	a.reportOutcome(&info)
	if resp != nil {
		// After Classify, which sees the body of Base. From here on the body ends the attempt.
		a.adopt(resp)
	}
	// A copy may still lose. Its report is in the call only when the winner is known: see outcome.
	if !a.isCopy() {
		runHooks(a.call, attemptDone, &a.report)
	}
	a.phase = phaseOver
}

// receive notes the response or the error, when it came, and what ended the attempt.
func (a *attempt) receive(resp *http.Response, err error) *http.Response {
	if resp != nil && resp.Body == nil {
		resp.Body = http.NoBody // as many stand-ins for a server leave it
	}
	if err == nil && a.holds(resp) {
		// Until the first event of a stream, a break or silence is a failure of the attempt, so the stream is read before all
		// else.
		resp, err = a.hold(resp)
	}
	a.report.Latency = time.Since(a.report.Start)
	a.stopTimer()
	resp, err = a.oneOf(resp, err)
	// Only now, because net/http may have sent the request again until it returned.
	a.report.Resent = a.sending.resent()
	if err != nil {
		// Work of Base that goes on, such as a dial, has no use any more.
		a.release()
		a.came, err = a.translate(err, a.report.end())
	}
	a.report.Response, a.report.Err = resp, err
	if resp != nil {
		a.came = outcome.Status(a.report.status())
	}
	return resp
}

// findSigns reads what the response says of the outcome: its header and, if it is asked for, the beginning of its body.
func (a *attempt) findSigns(info *responseInfo, resp *http.Response) {
	info.parse(resp, a.report.status(), a.report.end(), a.call.rateLimit.IgnoreHeaders)
	problem := isQuotaProblem(resp)
	if !problem && a.call.policy.ClassifyBody == nil {
		return
	}
	// The body is a part of the outcome, so the time that it takes counts as latency.
	if info.prefix, info.read = a.readPrefix(resp); info.read {
		a.report.Latency = time.Since(a.report.Start)
	}
	if !problem {
		return
	}
	if names := ratelimitheader.Violated(info.prefix); names != nil {
		a.report.named = &names
	}
}

// reportOutcome gives the judgment to all that learn from it. The order matters.
func (a *attempt) reportOutcome(info *responseInfo) {
	now := a.report.end()
	// Before the gates, because a call that a gate lets through asks the record how long responses take.
	a.noteOutcome(now)
	if bucket := a.visit.Record.bucket; bucket != nil && a.outcome.Limit == outcome.Rejected {
		// Before the slot is free, so that a success of the next attempt does not earn a token that the limit has not given.
		bucket.Rejected(now)
	}
	if change := a.donePermits(info, now); change != nil {
		a.call.breakerChanged(change)
	}
	// After the gates, because its hook may block, and others wait for the permits.
	a.noteConnection()
	a.noteFailure(now)
}

// oneOf enforces the contract of http.RoundTripper: either a response or an error.
func (a *attempt) oneOf(resp *http.Response, err error) (*http.Response, error) {
	if cause := a.cause(); err == nil && (cause == ErrAttemptTimeout || cause == neterr.ErrSuperseded) {
		// The attempt ended at the same moment, so the body cannot be read.
		err = cause
	}
	if err != nil && resp != nil {
		_ = resp.Body.Close()
		resp = nil
	}
	if err == nil && resp == nil || isNilPointer(err) {
		// A Base may break the contract, but it must not make the call panic.
		err = errBrokenBase
	}
	return resp, err
}

// isNilPointer reports whether a Base has returned a nil pointer of an error type. Its methods would panic.
func isNilPointer(err error) bool {
	v := reflect.ValueOf(err)
	return v.Kind() == reflect.Pointer && v.IsNil()
}

// translate finds out what ended the attempt: its timeout, the call's deadline, the caller,
// another attempt, or the network. The returned error matches the sentinel and Base's error.
func (a *attempt) translate(err error, now time.Time) (outcome.Came, error) {
	c := a.call
	gone := c.ctx.Err()
	switch cause := a.cause(); {
	case errors.Is(cause, neterr.ErrSuperseded):
		// The causes come first, because Base may report the end of a context by any error.
		if a.visit.Overtaken {
			return outcome.Overtaken, neterr.With(neterr.ErrSuperseded, err)
		}
		return outcome.Superseded, neterr.With(neterr.ErrSuperseded, err)
	case cause == ErrAttemptTimeout:
		if errors.Is(err, context.Canceled) {
			// A context that Base derived reports the timeout as a cancellation.
			err = neterr.New(neterr.SafeText(err))
		}
		return outcome.AttemptTimeout, neterr.With(ErrAttemptTimeout, err)
	case cause == errSentAgain:
		return outcome.Broken, errSentAgain
	case errors.Is(gone, context.DeadlineExceeded):
		// The attempt had no end of its own before.
		return outcome.CallDeadline, neterr.With(gone, err)
	case gone != nil:
		return outcome.Canceled, neterr.With(gone, err)
	case a.deadline.IsZero() || now.Before(a.deadline) || !neterr.TimedOut(err):
		// Nothing has ended it, so it is an error of the network or of Base.
		if neterr.SchemeMismatch(err) {
			// http.Client compares with the error of net/http.
			err = neterr.With(http.ErrSchemeMismatch, err)
		}
		// What kind it is, judge finds out: it also asks how far Base came.
		return outcome.Broken, err
	}
	// Base noticed the deadline before the timer fired.
	if a.deadline.Equal(c.deadline) {
		return outcome.CallDeadline, neterr.With(context.DeadlineExceeded, err)
	}
	return outcome.AttemptTimeout, neterr.With(ErrAttemptTimeout, err)
}

func (a *attempt) hasFinalResponse() bool {
	return a.came.Response() && !a.report.Verdict.retryable()
}

// abandon releases what an attempt without an outcome holds.
func (a *attempt) abandon() {
	if a.phase == phaseAbandoned || a.phase == phaseOver {
		return
	}
	sent := a.phase.sent()
	a.cancelPermits(time.Now())
	if sent {
		a.phase = phaseOver
	} else {
		a.phase = phaseAbandoned
		// Of an attempt that was sent, the caller ends the tokens, because their result is that of the call.
		a.permits.tokens.Cancel()
	}
	a.stopTimer()
	if resp := a.report.Response; resp != nil {
		<-inBackground(func() { _ = resp.Body.Close() })
		a.report.Response = nil
	}
	if !sent && a.kind != kindFirst {
		// Base closes a body that it got, and cleanUp that of the caller.
		closeRequestBody(&a.request)
	}
	a.release()
}

// beginQueue notes that the attempt waits: for the circuit if it is held, else for the rate limit.
func (a *attempt) beginQueue(until time.Time, held bool) {
	c := a.call
	a.visit.Record.queued.Add(1)
	if c.traced() { // the report takes memory
		now := time.Now()
		report := a.report
		report.Request, report.Held = c.request, held
		report.QueueWait, report.RetryWait = now.Sub(c.timeline.accounted), max(until.Sub(now), 0)
		runHooks(c, queueWait, &report)
	}
}

// release ends the attempt's context, and so all work of Base for the attempt. It may be called
// more than once, and is safe for concurrent use.
func (a *attempt) release() {
	before := a.lifeEnd.Or(lifeEnded)
	if before&lifeEnded != 0 {
		return
	}
	if life := a.life.Load(); life != nil {
		life.cancel(nil)
	}
	if before&lifeEndsCall != 0 {
		a.call.cancel(nil)
	}
}
