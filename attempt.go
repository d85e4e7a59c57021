package resilienthttp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/allowance"
	"github.com/resilienthttp/resilienthttp/internal/circuit"
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
	reach     atomic.Uint32 // how far Base came with it, where somebody looks: see watch
	record    Attempt

	request http.Request

	ctx      context.Context // its lifetime; Base sees it through attemptContext
	cancel   context.CancelCauseFunc
	deadline time.Time   // the earlier of the call's and the attempt's own; zero: none
	timer    *time.Timer // of the attempt timeout

	permit circuit.Ticket
	paid   allowance.Ticket // by the budget, for a retry
	turn   turn
	asked  time.Duration // how long the server asks to wait; negative: it did not ask

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
	waited, err := c.rateLimit.enter(a, now)
	if err != nil {
		a.permit.Cancel(now)
		return now, err
	}
	if !waited {
		return now, nil
	}
	// The breaker may have opened while this attempt stood in line, and a probe's
	// lease may have run out: ask it again, with the turn in hand.
	now = time.Now()
	a.permit.Cancel(now)
	if err := c.passBreaker(a, now); err != nil {
		a.turn.giveBack(now)
		return now, err
	}
	return now, nil
}

func (c *call) passBreaker(a *attempt, now time.Time) *Error {
	permit, notBefore, change := c.circuits().Admit(c.scopeKey(), now, a != &c.first)
	a.permit = permit
	c.breakerChanged(change)
	if !notBefore.IsZero() {
		return &Error{Reason: ErrBreakerOpen, NotBefore: notBefore}
	}
	return nil
}

// dress makes the request of the attempt.
func (c *call) dress(a *attempt, now time.Time) *Error {
	timeout := c.perCall().AttemptTimeout
	a.deadline = c.deadline
	own := timeout > 0 && (c.deadline.IsZero() || timeout < c.deadline.Sub(now))
	if own {
		a.deadline = now.Add(timeout)
	}
	header := c.header
	if c.telling {
		told, ok := c.config.deadline.header(header, a.deadline, now)
		if !ok {
			return &Error{Reason: ErrDeadline}
		}
		header = told
	}
	body := c.request.Body
	if a != &c.first && body != nil && body != http.NoBody {
		fresh, err := c.request.GetBody()
		if err == nil && (fresh == nil || fresh == http.NoBody) {
			err = errors.New("GetBody returned no body")
		}
		if err != nil {
			if fresh != nil {
				_ = fresh.Close()
			}
			return &Error{Reason: ErrNotReplayable, Err: fmt.Errorf("GetBody: %w", err)}
		}
		body = fresh
	}

	a.begin()
	if own {
		a.timer = time.AfterFunc(timeout, a.expire)
	}
	a.request = *c.request.WithContext(a.watch())
	if c.hedge != nil {
		// Two copies may be under way at once, and one after the call is over.
		url := *a.request.URL
		a.request.URL, header = &url, cloneHeader(header)
	}
	a.request.Header = header
	a.request.Body = body
	a.request.Cancel = nil    // the context has it
	a.request.RequestURI = "" // a server's request that is passed on, by ReverseProxy say
	a.record.Request, a.record.Start = &a.request, now
	return nil
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

func (a *attempt) expire() { a.end(ErrAttemptTimeout) }

// exchange makes a prepared attempt, with a hedge beside it where that is asked
// for. What comes of it is the call's outcome so far.
func (c *call) exchange(a *attempt) {
	now := a.record.Start
	if a == &c.first {
		c.budget.called(c.scopeKey(), now)
	} else {
		more := c.further()
		a.paid, more.token = more.token, allowance.Ticket{} // what it paid for is being sent
		more.sent = append(more.sent, a)
	}
	if s := c.hedging(); s != nil {
		c.last = c.hedged(a, s)
	} else {
		c.send(a)
		c.last = a
	}
	a.paid.Done(c.last.answered(), time.Now())
}

// send makes the attempt and records what came of it.
func (c *call) send(a *attempt) {
	defer a.abandon() // where Base or a hook panics, or ends its goroutine
	if c.tracing() {
		c.traceAttempt(attemptStart, &a.record)
	}
	a.handed = true
	resp, err := c.base.RoundTrip(&a.request)
	a.settle(resp, err)
}

// abandon gives back what an attempt holds that did not come to its end.
func (a *attempt) abandon() {
	if a.ending == endingOver {
		return
	}
	told := a.ending == endingTold
	a.ending = endingOver
	if !told {
		now := time.Now()
		a.permit.Cancel(now)
		a.turn.giveBack(now)
		if a.timer != nil {
			a.timer.Stop()
		}
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
	a.ending = endingTold
	cut := c.hedge != nil // by the other copy, perhaps
	if a.timer != nil && !a.timer.Stop() {
		// It fires in this very instant, and takes the response's body with it.
		a.expire()
		cut = true
	}
	a.record.Latency = now.Sub(a.record.Start)
	resp, err = a.outcome(resp, err, cut)
	if err != nil {
		a.release()
		a.fate, err = a.translate(err, now)
	}
	a.record.Response, a.record.Err = resp, err

	said := readAnswer(resp, now)
	a.turn.done(now, a, &said)
	c.breakerChanged(a.permit.Done(circuit.Result{Outcome: a.breakerOutcome(), Took: a.record.Latency, Retry: a != &c.first}, now))
	a.classify(&said)
	if resp != nil {
		a.adopt(resp)
	}
	if c.tracing() && !a.record.Hedge {
		c.traceAttempt(attemptDone, &a.record)
	}
	a.ending = endingOver
}
