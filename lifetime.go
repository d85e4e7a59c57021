package resilienthttp

import (
	"context"
	"net/http"
	"time"
)

// begin starts the attempt's lifetime, as a part of its call's. It ends with the
// attempt, or earlier with a cause.
func (a *attempt) begin() { a.ctx, a.cancel = context.WithCancelCause(a.call.ctx) }

// end ends the attempt's lifetime, if it has not ended yet. A nil cause means that
// it is simply over.
func (a *attempt) end(cause error) { a.cancel(cause) }

// ended is why the attempt's lifetime has ended, or nil.
func (a *attempt) ended() error { return context.Cause(a.ctx) }

// attemptContext is the context that Base sees: it ends with the attempt, has its
// deadline, leads to it, and tells a Transport inside that retries are taken care
// of. Package context finds the cancelCtx behind it, by Value and Done, so that a
// context which Base derives takes no goroutine.
type attemptContext attempt

type (
	callKey    struct{}
	attemptKey struct{}
)

var _ context.Context = (*attemptContext)(nil)

// Deadline implements context.Context.
func (a *attemptContext) Deadline() (time.Time, bool) { return a.deadline, !a.deadline.IsZero() }

// Done implements context.Context.
func (a *attemptContext) Done() <-chan struct{} { return a.ctx.Done() }

// Err implements context.Context.
func (a *attemptContext) Err() error {
	err := a.ctx.Err()
	if err != nil && context.Cause(a.ctx) == ErrAttemptTimeout {
		return context.DeadlineExceeded
	}
	return err
}

// Value implements context.Context.
func (a *attemptContext) Value(key any) any {
	switch key.(type) {
	case optionsKey:
		if a.call.ownsRetries || a.call.options.owned {
			return nestedOwned
		}
		return nestedOptions
	case callKey:
		return a.call
	case attemptKey:
		return (*attempt)(a)
	}
	return a.ctx.Value(key)
}

// answeredContext is the context of Response.Request: the caller's, with the way to
// the call.
type answeredContext call

var _ context.Context = (*answeredContext)(nil)

// Deadline implements context.Context.
func (c *answeredContext) Deadline() (time.Time, bool) { return c.request.Context().Deadline() }

// Done implements context.Context.
func (c *answeredContext) Done() <-chan struct{} { return c.request.Context().Done() }

// Err implements context.Context.
func (c *answeredContext) Err() error { return c.request.Context().Err() }

// Value implements context.Context.
func (c *answeredContext) Value(key any) any {
	if key == (callKey{}) {
		return (*call)(c)
	}
	return c.request.Context().Value(key)
}

// forgetful is the request without what an earlier call has left in its context, if
// it is a Response.Request that is sent again: or a program that does so over and
// over would keep all its calls.
func forgetful(req *http.Request) *http.Request {
	if before, ok := req.Context().(*answeredContext); ok {
		return req.WithContext(before.request.Context())
	}
	return req
}

// foldCancel is the caller's context, made to end with the older Request.Cancel as
// well, as net/http does it: from here on there is only the context.
func foldCancel(req *http.Request) (context.Context, context.CancelCauseFunc) {
	if req.Cancel == nil {
		return req.Context(), nil
	}
	ctx, cancel := context.WithCancelCause(req.Context())
	canceled := func() {
		if deadline, ok := ctx.Deadline(); ok && !time.Now().Before(deadline) {
			<-ctx.Done() // http.Client.Timeout ends both in one instant, and the context says why
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

// clientTimeoutGrace is how long http.Client.Timeout may take to notice that it has
// passed, which it does by a timer of its own.
const clientTimeoutGrace = 10 * time.Millisecond

// awaitClientTimeout lets http.Client.Timeout notice that it has passed, when the
// context that it gave the request has told us first: what its caller gets says
// "Client.Timeout exceeded" only if it has.
func (c *call) awaitClientTimeout() {
	if c.request.Cancel == nil || c.request.Context().Err() != context.DeadlineExceeded {
		return
	}
	grace := time.NewTimer(clientTimeoutGrace)
	defer grace.Stop()
	select {
	case <-c.request.Cancel:
	case <-grace.C:
	}
}
