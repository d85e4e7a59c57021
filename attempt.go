package resilienthttp

import (
	"context"
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

// attempt is one copy of the request on its way. It is at once the state of its
// context and of its response's body, seen through attemptContext, responseBody
// and upgradedBody, so that all of it is one allocation.
type attempt struct {
	call      *call
	fate      fate
	ending    ending        // how far its end has come
	handed    bool          // Base has the request, and with it the duty to close its body
	untouched bool          // the server has certainly done no work for it
	beside    bool          // another copy is under way: it waits at no gate
	flying    bool          // Base has it, and it has no outcome yet
	through   bool          // its outcome was there before the race was over; under the race's lock
	announced chan struct{} // closed when the hooks know of it; nil: they need not
	reach     atomic.Uint32 // how far Base came with it, where somebody looks: see watch
	record    Attempt

	request http.Request

	ctx         context.Context // its lifetime; Base sees it through attemptContext
	cancel      context.CancelCauseFunc
	hedgedAfter time.Duration      // when a hedge was to be sent; 0: never
	prepaid     retrybudget.Permit // the budget's, for the retry of one that is ended early
	deadline    time.Time          // the earlier of the call's and the attempt's own; zero: none
	plan        plan               // what is to be done if it takes long
	upload      upload             // which puts that off
	round       *race              // it and its copies
	own         race               // the same, where the call's goroutine makes the attempt

	permit    circuit.Permit
	paid      retrybudget.Permit // the budget's or the hedges', for a retry or a copy
	hedged    *hedgeScope        // of a hedge
	ticket    quota.Permit       // of the rate limit
	permitted bool               // it has one
	asked     time.Duration      // how long the server asks to wait; negative: it did not ask

	body     io.ReadCloser           // the response's
	closed   atomic.Bool             // body is
	released atomic.Bool             // its lifetime has ended
	hangUp   context.CancelCauseFunc // and with it the call's; nil: the call goes on, or needs none
	silence  *time.Timer             // of the read timeout
}

// ending is how far the end of an attempt has come.
type ending uint8

const (
	endingNot  ending = iota
	endingTold        // the gates were told what came of it
	endingOver        // settle, or abandon, is through
)

// prepare takes an attempt through the gates and dresses it for the way:
// breaker, rate limit, timeout, headers, body. What it took is given back when
// it fails; when it succeeds, exchange must follow.
func (c *call) prepare(a *attempt) *Error {
	if a.round == nil {
		a.round, a.own.first = &a.own, a
	}
	now, err := c.enter(a)
	if err != nil {
		return err
	}
	if err := c.dress(a, now); err != nil {
		a.abandon()
		return err
	}
	return nil
}

// enter passes the gates, and returns the time at which it did.
func (c *call) enter(a *attempt) (time.Time, *Error) {
	now := c.start
	if a != &c.first || c.config.scope != nil || c.idempotency.NewKey != nil {
		now = time.Now() // who plans for long does so at his own expense
	}
	if err := c.passBreaker(a, now); err != nil {
		return now, err
	}
	if err := c.rateLimit.enter(a, now); err != nil {
		a.cancelGates(now)
		return now, err
	}
	if !a.ticket.Waited {
		return now, nil
	}
	// The breaker may have opened while this attempt stood in line, and a probe's
	// lease may have run out: ask it again, with the turn in hand.
	now = time.Now()
	a.cancelPermit(now)
	if err := c.passBreaker(a, now); err != nil {
		a.cancelGates(now)
		return now, err
	}
	return now, nil
}

// cancelGates gives back what the gates gave, once.
func (a *attempt) cancelGates(now time.Time) {
	a.cancelPermit(now)
	a.ticket.Cancel(now)
	a.ticket = quota.Permit{}
}

func (a *attempt) cancelPermit(now time.Time) {
	a.permit.Cancel(now)
	a.permit = circuit.Permit{}
}

func (c *call) passBreaker(a *attempt, now time.Time) *Error {
	permit, notBefore, change := c.circuits().Admit(c.classKey(), now, a != &c.first)
	a.permit = permit
	c.breakerChanged(change)
	if !notBefore.IsZero() {
		return &Error{Reason: ErrBreakerOpen, NotBefore: notBefore}
	}
	return nil
}

// dress makes the request of the attempt, and sets its timer.
func (c *call) dress(a *attempt, now time.Time) *Error {
	a.record.Start = now
	if !a.beside { // which does not wait
		a.record.QueueWait = now.Sub(c.accounted)
	}
	c.schedule(a, now)
	header := c.header
	if c.telling {
		told, ok := c.config.deadline.header(header, a.deadline, now)
		if !ok {
			return &Error{Reason: ErrDeadline}
		}
		header = told
	}
	body, err := c.bodyFor(a)
	if err != nil {
		return err
	}
	a.begin()
	a.request = *c.request.WithContext(a.watch())
	if c.hedge != nil || a.beside {
		// Two copies may be under way at once, and one after the call is over.
		url := *a.request.URL
		a.request.URL, header = &url, cloneHeader(header)
	}
	a.request.Header = header
	a.request.Body = body
	a.request.Cancel = nil    // the context has it
	a.request.RequestURI = "" // a server's request that is passed on, by ReverseProxy say
	a.record.Request = &a.request
	a.start()
	return nil
}

// bodyFor is the body that the attempt sends: the caller's the first time, then what
// was asked of GetBody before the retry's wait, and one of its own for a copy. One that
// may be long on its way is watched, where the attempt has a timer.
func (c *call) bodyFor(a *attempt) (io.ReadCloser, *Error) {
	body := c.request.Body
	switch {
	case a == &c.first || !c.hasBody():
	case a.beside:
		fresh, err := c.freshBody()
		if err != nil {
			return nil, &Error{Reason: ErrNotReplayable, Err: err}
		}
		body = fresh
	default:
		body, c.more.body = c.more.body, nil
	}
	if c.longUpload() && (a.plan.cut > 0 || a.plan.again > 0) {
		body = a.upload.counted(body, a.record.Start)
	}
	return body, nil
}

// hasBody reports whether the request has one that each attempt needs anew.
func (c *call) hasBody() bool { return c.request.Body != nil && c.request.Body != http.NoBody }

// freshBody is one of GetBody's.
func (c *call) freshBody() (io.ReadCloser, error) {
	fresh, err := c.request.GetBody()
	if err == nil && (fresh == nil || fresh == http.NoBody) {
		err = neterr.New("it returned no body")
	}
	if err != nil {
		if fresh != nil {
			_ = fresh.Close()
		}
		return nil, err
	}
	return fresh, nil
}

const (
	reachedDial uint32 = 1 // Base has asked for a connection
	reachedConn uint32 = 2 // and has had one
)

// watch is the context that Base gets. Where a failure has to be proven harmless
// before the request may be repeated, it has an eye on whether there ever was a
// connection: of an EOF, a reset or a timeout, the error does not tell whether it
// came in the TLS handshake or after.
func (a *attempt) watch() context.Context {
	ctx := (*attemptContext)(a)
	if c := a.call; c.repeatable() || c.single || !c.native {
		return ctx
	}
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { a.reach.CompareAndSwap(0, reachedDial) },
		GotConn: func(httptrace.GotConnInfo) { a.reach.Store(reachedConn) },
	})
}

// exchange makes a prepared attempt, with copies beside it where it takes long. What
// comes of it is the call's outcome so far.
func (c *call) exchange(a *attempt) {
	hedged := c.hedging()
	if a == &c.first {
		c.budget.called(c.scopeKey(), a.record.Start)
		hedged.called(c.hedge, a.record.Start)
	} else {
		more := c.further()
		a.paid, more.token = more.token, retrybudget.Permit{} // what it paid for is being sent
		more.sent = append(more.sent, a)
	}
	defer a.own.abandon() // where Base or a hook panics, or ends its goroutine
	a.send()
	c.last = a.own.decide()
	now := time.Now()
	a.paid.Done(c.last.answered())
	c.account(a, now)
	hedged.observe(c.hedge, a)
}

// account notes until when the call's time is accounted for: to the end of the
// attempt, and of the wait for copies beside it.
func (c *call) account(a *attempt, now time.Time) {
	c.accounted, c.waited = a.record.Start.Add(a.record.Latency), 0
	if !a.own.waited && len(a.own.copies) == 0 {
		return
	}
	a.record.RetryWait, c.accounted = max(now.Sub(c.accounted), 0), now
	if c.last == a {
		c.waited = a.record.RetryWait
	}
}

// rest puts the time since the last attempt's end, after which nothing was sent any
// more, where Call.Latency finds it: Wait of what is last in the record is not a part
// of that.
func (c *call) rest() {
	if n := len(c.sent()); n > 0 && c.last != c.sent()[n-1] { // copies stand behind it
		c.last.record.RetryWait = c.waited
	} else {
		c.queued += c.waited
	}
	c.waited = 0
}

// send makes the attempt and records what came of it.
func (a *attempt) send() {
	defer a.abandon() // where Base or a hook panics, or ends its goroutine
	a.announce()
	a.handed = true
	a.fly()
	resp, err := a.call.base.RoundTrip(&a.request)
	a.settle(resp, err)
}

// announce tells the hooks that the attempt is on its way.
func (a *attempt) announce() {
	if a.announced != nil {
		defer close(a.announced)
	}
	if a.call.tracing() {
		a.call.traceAttempt(attemptStart, &a.record)
	}
}

// abandon gives back what an attempt holds that did not come to its end.
func (a *attempt) abandon() {
	if a.ending == endingOver {
		return
	}
	told := a.ending == endingTold
	a.ending = endingOver
	a.land()
	if !told {
		a.cancelGates(time.Now())
		a.hush()
	}
	if resp := a.record.Response; resp != nil {
		if resp.Body != nil {
			_ = resp.Body.Close()
		}
		a.record.Response = nil
	}
	if !a.handed && a != &a.call.first {
		closeRequestBody(&a.request)
	}
	a.release()
}

// release ends the attempt's context and with it everything that Base still
// does for it. It may be called more than once, by the reader of a body and its
// closer at the same time.
func (a *attempt) release() {
	if a.released.Swap(true) {
		return
	}
	if a.cancel != nil {
		a.end(nil)
	}
	if a.hangUp != nil {
		a.hangUp(nil)
	}
}

// settle takes the outcome from Base: it tells the gates, and classifies.
func (a *attempt) settle(resp *http.Response, err error) {
	c, now := a.call, time.Now()
	a.land()
	a.hush()
	a.handOn()
	a.record.Latency = now.Sub(a.record.Start)
	resp, err = a.outcome(resp, err)
	if err != nil {
		a.release()
		a.fate, err = a.translate(err, now)
	}
	a.record.Response, a.record.Err = resp, err
	a.record.unsent = a.neverSent()

	// All that is asked of Base's error and body comes before the gates are told: they
	// may panic, and then abandon gives back what the gates gave.
	said := readAnswer(resp, now, c.rateLimit.IgnoreHeaders)
	if said.beginning, said.looked = a.peek(resp); said.looked {
		now = time.Now()
		a.record.Latency = now.Sub(a.record.Start)
	}
	heard := a.heard(&said)
	result := circuit.Result{Outcome: a.breakerOutcome(), Took: a.record.Latency, TimeOut: a.timedOut(), Retry: a != &c.first}
	a.seeEnd(result.Outcome, now)
	a.ending = endingTold
	c.rateLimit.observe(a, &heard, now)
	c.breakerChanged(a.permit.Done(result, now))
	a.classify(&said)
	if resp != nil {
		a.adopt(resp)
	}
	if c.tracing() && !a.beside {
		c.traceAttempt(attemptDone, &a.record)
	}
	a.ending = endingOver
}
