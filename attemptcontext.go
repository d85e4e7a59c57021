package resilienthttp

import (
	"context"
	"time"
)

// lifetime is the context of an attempt. It is created at its first use, because deriving a
// context is expensive.
type lifetime struct {
	context.Context

	cancel context.CancelCauseFunc
}

func (a *attempt) lifetime() *lifetime {
	if life := a.life.Load(); life != nil {
		return life
	}
	ctx, cancel := context.WithCancelCause(a.call.ctx)
	if !a.life.CompareAndSwap(nil, &lifetime{ctx, cancel}) || a.released() { // another goroutine was first
		cancel(nil)
	}
	return a.life.Load()
}

// The bits of attempt.lifeEnd.
const (
	lifeEnded    = 1 << iota // the context has ended
	lifeEndsCall             // its end cancels the call's context
)

func (a *attempt) released() bool { return a.lifeEnd.Load()&lifeEnded != 0 }

func (a *attempt) endWith(cause error) { a.lifetime().cancel(cause) }

func (a *attempt) cause() error {
	if life := a.life.Load(); life != nil {
		return context.Cause(life)
	}
	return nil
}

// attemptContext is the context for Base. It has the deadline and the end of the attempt, and the
// options with which an inner Transport does not retry. Value and Done lead to a standard
// cancelCtx, so contexts that Base derives need no goroutine.
type attemptContext attempt

type attemptKey struct{}

func (a *attemptContext) Deadline() (time.Time, bool) { return a.deadline, !a.deadline.IsZero() }
func (a *attemptContext) Done() <-chan struct{}       { return (*attempt)(a).lifetime().Done() }

func (a *attemptContext) Err() error {
	if a.life.Load() == nil && !(*attempt)(a).released() && a.call.ctx.Err() == nil {
		return nil
	}
	life := (*attempt)(a).lifetime()
	err := life.Err()
	if context.Cause(life) == ErrAttemptTimeout {
		return context.DeadlineExceeded
	}
	return err
}

func (a *attemptContext) Value(key any) any {
	if key == traceKey {
		return (*attempt)(a).trace()
	}
	switch key.(type) {
	case optionsKey:
		if a.call.saysOwner() {
			return nestedOptionsOwned
		}
		return nestedOptions
	case attemptKey:
		return (*attempt)(a)
	}
	if life := a.life.Load(); life != nil {
		return life.Value(key)
	}
	return a.call.ctx.Value(key)
}
