package idempotency

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/resilienthttp/resilienthttp/idempotency/driver"
	"github.com/resilienthttp/resilienthttp/internal/sleep"
)

// How long, and how often, a store that gives no answer is asked again.
const (
	// storePatience bounds a verb where no lease does.
	storeTimeout = 5 * time.Second

	firstPause  = 10 * time.Millisecond
	longestWait = 250 * time.Millisecond
)

// leased is the title of detached work: a lease, and the heartbeat that renews it.
type leased struct {
	*execution

	// alive ends with the execution. Renewals and the end itself run in it.
	alive context.Context
	end   context.CancelFunc

	pulse     sync.Mutex // guards what follows
	heartbeat *time.Timer
	until     time.Time // the lease holds at least until then: counted from before the last renewal was sent
	stopped   bool      // no more heartbeats: the work has ended, or the lease is lost
}

// hold starts keeping the lease of a claim that was granted, asked for at asked.
func (r *executor) hold(parent context.Context, reservation *driver.Reservation, asked time.Time) *execution {
	e := r.begin(parent, &reservation.Record, asked)
	e.resumed = reservation.Resumed
	l := &leased{execution: e, until: asked.Add(r.terms.Lease)}
	l.alive, l.end = context.WithCancel(context.WithoutCancel(parent))
	e.ownership = l
	l.pulse.Lock() // the first heartbeat waits until it is known
	defer l.pulse.Unlock()
	l.heartbeat = time.AfterFunc(time.Until(asked.Add(r.terms.Lease/3)), l.renew)
	return e
}

// value implements title.
func (l *leased) value() (any, error) {
	return nil, fmt.Errorf("%w: the terms are not Joined", ErrNoTransaction)
}

// renew is a heartbeat. It runs in the timer's own goroutine.
func (l *leased) renew() {
	l.pulse.Lock()
	until, still := l.until, l.stopped
	l.pulse.Unlock()
	asked, overrun := time.Now(), l.overrun()
	overran := !overrun.IsZero() && !asked.Before(overrun)
	switch {
	case still:
	case !asked.Before(until) && overran:
		l.onLeaseLost(ErrTimeLimit)
	case !asked.Before(until):
		l.onLeaseLost(context.DeadlineExceeded)
	case overran:
		l.rearm(until, until)
	default:
		l.sendRenewal(asked, until)
	}
}

// sendRenewal renews the lease in the store. When the store cannot be asked, or a
// connection hangs, it is asked again until the lease is over.
func (l *leased) sendRenewal(asked, until time.Time) {
	ctx, cancel := context.WithDeadline(l.alive, earlier(until, asked.Add(l.terms.Lease/3)))
	defer cancel()
	switch err := l.store.Renew(ctx, l.lease, l.terms.Lease); {
	case err == nil:
		l.rearm(asked.Add(l.terms.Lease), asked.Add(l.terms.Lease/3))
	case errors.Is(err, ErrLeaseLost):
		l.onLeaseLost(err)
	case l.rearm(until, time.Now().Add(l.terms.Lease/10)):
		l.traceRenewal(l.lease, err)
	}
}

// rearm sets the next heartbeat, unless none is needed any more. The lease holds
// until then, as far as is known.
func (l *leased) rearm(until, next time.Time) bool {
	l.pulse.Lock()
	defer l.pulse.Unlock()
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

// lose ends the work, for it does not hold the operation any more.
func (l *leased) onLeaseLost(why error) {
	if l.stopHeartbeat() {
		l.cancel(ErrLeaseLost)
		l.traceRenewal(l.lease, fmt.Errorf("%w: %w", ErrLeaseLost, why))
	}
}

// rest stops the heartbeat, and reports whether it was this call that did.
func (l *leased) stopHeartbeat() bool {
	l.pulse.Lock()
	defer l.pulse.Unlock()
	beating := !l.stopped
	l.stopped = true
	l.heartbeat.Stop()
	return beating
}

// complete implements title.
func (l *leased) complete(outcome driver.Outcome, _ bool) error {
	return l.retryUntilLeaseEnds(outcome.Status, func(ctx context.Context) error {
		return l.store.Complete(ctx, l.lease, outcome)
	})
}

// release implements title.
func (l *leased) release() error {
	return l.retryUntilLeaseEnds(FailedRetryable, func(ctx context.Context) error {
		return l.store.Release(ctx, l.lease)
	})
}

// insist ends the execution by a verb that is to bring the record to a status. It
// repeats it until the store has answered, or the lease is over.
func (l *leased) retryUntilLeaseEnds(status Status, verb func(context.Context) error) error {
	l.stopHeartbeat()
	defer l.end()
	ctx, cancel := l.patience()
	defer cancel()
	for wait := firstPause; ; wait = min(2*wait, longestWait) {
		err := try(ctx, verb)
		switch {
		case err == nil, errors.Is(err, ErrInvalid):
			return err
		case errors.Is(err, ErrLeaseLost):
			// It may have been this very execution, a moment ago, by a verb whose
			// answer was lost.
			if wait > firstPause && l.verifyStatus(status) {
				return nil
			}
			return err
		case sleep.Jittered(ctx, wait) != nil:
			return err
		}
	}
}

// try asks once. A connection that hangs is not waited for as long as the store.
func try(ctx context.Context, verb func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	return verb(ctx)
}

// stands reports whether the record has the status by this execution's doing.
func (l *leased) verifyStatus(status Status) bool {
	ctx, cancel := l.patience()
	defer cancel()
	for wait := firstPause; ; wait = min(2*wait, longestWait) {
		var record driver.Record
		err := try(ctx, func(ctx context.Context) (err error) {
			record, err = l.store.Load(ctx, l.lease.ID)
			return err
		})
		switch {
		case err == nil:
			return record.Status == status && record.Lease() == l.lease
		case errors.Is(err, driver.ErrNotFound), sleep.Jittered(ctx, wait) != nil:
			return false
		}
	}
}

// patience is as long as the lease, and long enough for a slow commit.
func (l *leased) patience() (context.Context, context.CancelFunc) {
	l.pulse.Lock()
	until := l.until
	l.pulse.Unlock()
	return context.WithTimeout(l.alive, max(time.Until(until), storeTimeout))
}
