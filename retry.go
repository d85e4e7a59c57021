package resilienthttp

import (
	"context"
	"errors"
	"math"
	"net/http"
	"time"

	"github.com/hashicorp/go-retryablehttp"

	"github.com/resilienthttp/resilienthttp/internal/retryafter"
)

// The retry loop is go-retryablehttp's. It never sees the real exchange: it is
// given a shadow request without a body, whose shadow responses have a status
// and nothing else, and asks the call, which keeps the real ones. That disarms
// the loop's known traps, each pinned by a test:
//
//   - it reads request bodies into memory, and never closes the caller's
//     (TestRetryLoopTraps/body): the shadow has none; ours come from GetBody.
//   - it follows redirects and parses Location (/redirect, /bad location):
//     shadow responses have no header.
//   - it drops Content-Length (/content length) and refuses RequestURI (/request
//     URI): neither is on the shadow.
//   - it closes the idle connections of every host on failure (/idle
//     connections): its HTTPClient's transport has no CloseIdleConnections.
//   - it returns a bare context error from the backoff (/cancel in backoff):
//     retry puts the attempts around it.
//   - it drains responses without a time bound (/endless body): shadows are
//     empty; attempt.discard has bounds.
//   - it logs to stderr (/silence): Logger is nil.
//   - it calls CheckRetry without the request (/request): the hooks are closures
//     over the call.
//   - it replaces the last response by an error (/last response): CheckRetry
//     says no before its RetryMax could.

// retry hands the failed first attempt to the loop and leaves the outcome of the
// last one in c.last, or in c.failure.
func (c *call) retry() {
	ctx, stop := c.waitContext()
	defer stop()
	shadow, err := retryablehttp.NewRequestWithContext(ctx, http.MethodGet, "http://shadow.invalid/", nil)
	if err != nil {
		c.last.record.Stop = ErrSingleAttempt // cannot be: the arguments are constants
		return
	}
	loop := retryablehttp.Client{
		HTTPClient:   &http.Client{Transport: &shadowTransport{call: c}},
		RetryMax:     math.MaxInt32, // checkRetry counts
		CheckRetry:   c.checkRetry,
		Backoff:      func(time.Duration, time.Duration, int, *http.Response) time.Duration { return time.Until(c.more.due) },
		PrepareRetry: c.prepareRetry,
		ErrorHandler: func(_ *http.Response, err error, _ int) (*http.Response, error) { return nil, err },
	}
	resp, err := loop.Do(shadow)
	if err == nil {
		_ = resp.Body.Close() // http.NoBody
		return
	}
	var refused *Error
	if !errors.As(err, &refused) {
		gone := c.callerGone()
		if gone == nil {
			gone = err
		}
		refused = c.ended(gone)
	}
	c.fail(refused)
}

// waitContext is the context for the loop's waits. It ends with Request.Cancel
// too, which http.Client.Timeout still uses for Transports that it does not know.
func (c *call) waitContext() (context.Context, func()) {
	if c.request.Cancel == nil {
		return c.ctx, func() {}
	}
	ctx, cancel := context.WithCancel(c.ctx)
	go func() {
		select {
		case <-c.request.Cancel:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// shadowTransport gives the loop the first outcome back, and makes the further
// attempts.
type shadowTransport struct {
	call  *call
	again bool
}

func (s *shadowTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	if s.again {
		s.call.exchange(s.call.more.next)
	}
	s.again = true
	status := http.StatusBadGateway // of an attempt without a response
	if resp := s.call.last.record.Response; resp != nil {
		status = resp.StatusCode
	}
	return &http.Response{StatusCode: status, Header: http.Header{}, Body: http.NoBody, Request: req}, nil
}

// checkRetry decides whether the attempt that has just ended is followed by
// another, and if so clears the way for it.
func (c *call) checkRetry(context.Context, *http.Response, error) (bool, error) {
	last := c.last
	if !last.record.Verdict.retryable() || c.callerHasLeft(last) {
		return false, nil
	}
	wait, stop := c.again(last)
	if last.record.Stop = stop; stop != nil {
		last.record.Wait = max(last.asked, 0)
		return false, nil //nolint:nilerr // the loop is only to end; stop is not its error
	}
	last.record.Wait = wait
	if c.tracing() {
		c.traceAttempt(retryWait, &last.record)
	}
	last.discard()
	return true, nil
}

// callerHasLeft reports whether the caller cancelled while the attempt was under
// way. What it has of a response is the call's, and otherwise his cancellation.
func (c *call) callerHasLeft(last *attempt) bool {
	gone := c.callerGone()
	if gone != nil && last.record.Response == nil {
		c.fail(c.ended(gone))
	}
	return gone != nil
}

// again asks the questions that a retry depends on, in an order that leaves the
// one with a price, the budget, for the end. stop is the first no.
func (c *call) again(last *attempt) (wait time.Duration, stop error) {
	if !c.repeatable() && !last.untouched {
		return 0, ErrNotIdempotent
	}
	if !c.replayable() {
		return 0, ErrNotReplayable
	}
	if last.record.Number >= c.perCall().MaxAttempts {
		return 0, ErrMaxAttempts
	}
	if c.single {
		return 0, ErrSingleAttempt
	}
	now := time.Now()
	more := c.further()
	more.previous = min(max(c.backoff(last, now), 0), retryafter.Max)
	wait = more.previous
	if last.asked > 0 {
		wait += last.asked // at least what the server asked; jitter only adds to it
	}
	at := now.Add(wait)
	if _, refuses := c.breaker.wouldRefuse(c.scope, at); refuses {
		return 0, ErrBreakerOpen
	}
	closed := c.rateLimit.closedUntil(c, now) // maybe for longer than the answer asks
	if most := c.perCall().MaxRetryAfter; most > 0 && (last.asked > most || closed.Sub(at) > most) {
		return 0, ErrRetryAfter
	}
	if !c.deadline.IsZero() && !later(at, closed).Before(c.deadline) {
		return 0, ErrDeadline
	}
	var place *budgetPlace
	if last.overloaded() && !last.permit.firstContact() {
		place = &more.place
	}
	token, ok := c.budget.withdraw(c.scope, now, place)
	if !ok {
		return 0, ErrBudgetExhausted
	}
	more.token, more.due = token, at
	return wait, nil
}

// prepareRetry runs after the wait: the gates may have shut meanwhile.
func (c *call) prepareRetry(*http.Request) error {
	next := &attempt{call: c, record: Attempt{Number: c.last.record.Number + 1}}
	c.more.next = next
	if err := c.prepare(next); err != nil {
		c.more.next = nil
		return err
	}
	return nil
}
