package idempotency

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/sleep"
)

// leased is the ownership of non-transactional work: a lease, and the heartbeat that
// renews it.
type leased struct {
	*execution

	// alive ends with the execution. Renewals and the end itself use it.
	alive context.Context
	end   context.CancelFunc

	mu        sync.Mutex // guards what follows
	heartbeat *time.Timer
	until     time.Time // the lease holds at least until then, counted from before the last renewal was sent
	stopped   bool      // no more heartbeats: the work has ended, or the lease is lost
}

// hold starts the heartbeat of a lease that was granted, requested at asked.
func (x *executor) hold(parent context.Context, reservation *Reservation, asked time.Time) *execution {
	e := x.newExecution(parent, reservation, asked)
	l := &leased{execution: e, until: asked.Add(x.options.Lease)}
	l.alive, l.end = context.WithCancel(context.WithoutCancel(parent))
	e.ownership = l
	l.mu.Lock() // the first heartbeat waits until the timer is set
	defer l.mu.Unlock()
	l.heartbeat = time.AfterFunc(time.Until(asked.Add(x.options.Lease/3)), l.renew)
	if !time.Now().Before(l.until) { // the process was suspended meanwhile, and another execution may have begun
		e.cancel(ErrLeaseLost)
	}
	return e
}

// value implements ownership.
func (l *leased) value() (any, error) {
	return nil, fmt.Errorf("%w: Options.Transactional is false", ErrNoTransaction)
}

// renew is a heartbeat. It runs in the timer's goroutine.
func (l *leased) renew() {
	l.mu.Lock()
	until, stopped := l.until, l.stopped
	l.mu.Unlock()
	asked, limit := time.Now(), l.timeLimit()
	overLimit := !limit.IsZero() && !asked.Before(limit)
	switch {
	case stopped:
	case !asked.Before(until) && overLimit:
		l.onLeaseLost(ErrTimeLimit)
	case !asked.Before(until):
		l.onLeaseLost(context.DeadlineExceeded)
	case overLimit:
		l.rearm(until, until)
	default:
		l.sendRenewal(asked, until)
	}
}

// sendRenewal renews the lease in the store. If the store does not answer, it is
// asked again until the lease is over.
func (l *leased) sendRenewal(asked, until time.Time) {
	ctx, cancel := context.WithDeadline(l.alive, earlier(until, asked.Add(l.options.Lease/3)))
	defer cancel()
	switch err := l.store.Renew(ctx, l.lease, l.options.Lease); {
	case err == nil:
		l.rearm(asked.Add(l.options.Lease), asked.Add(l.options.Lease/3))
	case errors.Is(err, ErrLeaseLost):
		l.onLeaseLost(err)
	case l.rearm(until, time.Now().Add(l.options.Lease/10)):
		l.traceRenewal(l.lease, err)
	}
}

// rearm sets the next heartbeat, and reports whether one is needed. until is how long
// the lease holds as far as is known.
func (l *leased) rearm(until, next time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.until = until
	if !l.stopped {
		l.heartbeat.Reset(time.Until(earlier(next, l.until)))
	}
	return !l.stopped
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// onLeaseLost cancels the work, because another execution may begin.
func (l *leased) onLeaseLost(cause error) {
	if l.stopHeartbeat() {
		l.cancel(ErrLeaseLost)
		l.traceRenewal(l.lease, fmt.Errorf("%w: %w", ErrLeaseLost, cause))
	}
}

// stopHeartbeat reports whether this call stopped it.
func (l *leased) stopHeartbeat() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	was := !l.stopped
	l.stopped = true
	l.heartbeat.Stop()
	return was
}

// complete implements ownership.
func (l *leased) complete(outcome Outcome, _ bool) error {
	return l.retryUntilLeaseEnds(0, outcome.Status, func(ctx context.Context) error {
		return l.store.Complete(ctx, l.lease, outcome)
	})
}

// release implements ownership.
func (l *leased) release(limit time.Duration) error {
	return l.retryUntilLeaseEnds(limit, FailedRetryable, func(ctx context.Context) error {
		return l.store.Release(ctx, l.lease)
	})
}

// retryUntilLeaseEnds repeats an operation that gives the record a status, until the
// store has answered or the lease is over, or for limit, unless that is 0.
func (l *leased) retryUntilLeaseEnds(limit time.Duration, status Status, operation func(context.Context) error) error {
	l.stopHeartbeat()
	defer l.end()
	ctx, cancel := l.untilLeaseEnds()
	defer cancel()
	if limit > 0 {
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	for pause := minPause; ; pause = min(2*pause, maxPause) {
		err := withTimeout(ctx, operation)
		switch {
		case err == nil, errors.Is(err, ErrInvalid):
			return err
		case errors.Is(err, ErrLeaseLost):
			// An earlier call may have ended the record, and its answer was lost.
			if pause > minPause && l.verifyStatus(status) {
				return nil
			}
			return err
		case sleep.Jittered(ctx, pause) != nil:
			return err
		}
	}
}

// withTimeout calls operation with a timeout, because a connection may hang.
func withTimeout(ctx context.Context, operation func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	return operation(ctx)
}

// verifyStatus reports whether this execution gave the record its status.
func (l *leased) verifyStatus(status Status) bool {
	ctx, cancel := l.untilLeaseEnds()
	defer cancel()
	for pause := minPause; ; pause = min(2*pause, maxPause) {
		var record Record
		err := withTimeout(ctx, func(ctx context.Context) (err error) {
			record, err = l.store.Load(ctx, l.lease.ID)
			return err
		})
		switch {
		case err == nil:
			return record.Status == status && record.Lease() == l.lease
		case errors.Is(err, ErrNotFound), sleep.Jittered(ctx, pause) != nil:
			return false
		}
	}
}

// untilLeaseEnds returns a context for the rest of the lease, or for a slow commit
// if that is longer.
func (l *leased) untilLeaseEnds() (context.Context, context.CancelFunc) {
	l.mu.Lock()
	until := l.until
	l.mu.Unlock()
	return context.WithTimeout(l.alive, max(time.Until(until), storeTimeout))
}
