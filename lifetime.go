package resilienthttp

import (
	"context"
	"sync"
	"time"
)

// lifetime is how long an attempt lasts: the context that Base sees is a view of
// it. It ends with the attempt, or earlier with a cause.
//
// context.WithCancelCause does this too, and is what is used when the call's own
// context can end. Where it cannot, there is nothing to be linked to, and a
// lifetime that is a part of the attempt saves its allocations.
type lifetime struct {
	deadline time.Time // the earlier of the call's and the attempt's own; zero: none
	linked   *link     // to a context that can end; nil: what follows counts

	mu      sync.Mutex
	cause   error         // why it has ended; nil: it has not
	done    chan struct{} // made when somebody asks for it
	derived *endings      // of contexts that Base has derived from it
}

// link is a child of a context that can end.
type link struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
}

// endings are functions that are to be called at the end of a lifetime.
type endings struct {
	f    func()
	next *endings
}

// begin starts the attempt's lifetime as a part of its call's.
func (a *attempt) begin() {
	if parent := a.call.ctx; parent.Done() != nil {
		ctx, cancel := context.WithCancelCause(parent)
		a.life.linked = &link{ctx, cancel}
	}
}

// end ends the attempt's lifetime, if it has not ended yet. A nil cause means
// that it is simply over.
func (a *attempt) end(cause error) {
	if linked := a.life.linked; linked != nil {
		linked.cancel(cause)
		return
	}
	if cause == nil {
		cause = context.Canceled
	}
	for e := a.life.close(cause); e != nil; e = e.next {
		e.f()
	}
}

func (l *lifetime) close(cause error) *endings {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cause != nil {
		return nil
	}
	l.cause = cause
	if l.done != nil {
		close(l.done)
	}
	derived := l.derived
	l.derived = nil
	return derived
}

// ended is why the attempt's lifetime has ended, or nil.
func (a *attempt) ended() error {
	if linked := a.life.linked; linked != nil {
		return context.Cause(linked.ctx)
	}
	a.life.mu.Lock()
	defer a.life.mu.Unlock()
	return a.life.cause
}

// attemptContext is the context that Base sees: it ends with the attempt, has
// its deadline, and tells a Transport inside that retries are taken care of.
type attemptContext attempt

type callKey struct{}

var _ context.Context = (*attemptContext)(nil)

// Deadline implements context.Context.
func (a *attemptContext) Deadline() (time.Time, bool) {
	return a.life.deadline, !a.life.deadline.IsZero()
}

// Done implements context.Context.
func (a *attemptContext) Done() <-chan struct{} {
	l := &a.life
	if l.linked != nil {
		return l.linked.ctx.Done()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.done == nil {
		l.done = make(chan struct{})
		if l.cause != nil {
			close(l.done)
		}
	}
	return l.done
}

// Err implements context.Context.
func (a *attemptContext) Err() error {
	switch cause := (*attempt)(a).ended(); {
	case cause == nil:
		return nil
	case cause == ErrAttemptTimeout:
		return context.DeadlineExceeded
	case a.life.linked != nil:
		return a.life.linked.ctx.Err()
	}
	return context.Canceled
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
	}
	if a.life.linked != nil {
		return a.life.linked.ctx.Value(key)
	}
	return a.call.ctx.Value(key)
}

// AfterFunc calls f when the context ends, unless it is stopped before. Package
// context looks for this method: without it, each context that Base derives would
// need a goroutine to watch this one.
func (a *attemptContext) AfterFunc(f func()) (stop func() bool) {
	l := &a.life
	if l.linked != nil {
		return context.AfterFunc(l.linked.ctx, f)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cause != nil {
		go f()
		return func() bool { return false }
	}
	e := &endings{f, l.derived}
	l.derived = e
	return func() bool { return l.forget(e) }
}

// forget takes an ending out. It reports whether it was still there.
func (l *lifetime) forget(e *endings) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for at := &l.derived; *at != nil; at = &(*at).next {
		if *at == e {
			*at = e.next
			return true
		}
	}
	return false
}
