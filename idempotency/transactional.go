package idempotency

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/resilienthttp/resilienthttp/idempotency/driver"
	"github.com/resilienthttp/resilienthttp/internal/sleep"
)

// joined is the title of joined work: an open transaction, which ends with the
// record or with nothing.
type transactional struct {
	*execution

	claim *driver.Claim
	store driver.Transactor
	tx    driver.Transaction
}

// join is hold for a transaction that Begin has opened.
func (r *executor) join(parent context.Context, claim *driver.Claim, reservation *driver.Reservation, tx driver.Transaction, asked time.Time) *execution {
	e := r.begin(parent, &reservation.Record, asked)
	e.resumed = reservation.Resumed
	e.ownership = &transactional{execution: e, claim: claim, store: r.transactor, tx: tx}
	return e
}

// value implements title.
func (j *transactional) value() (any, error) { return j.tx.Value(), nil }

// complete implements title. That nobody knows is stored without what was written
// too: the record says so either way.
func (j *transactional) complete(outcome driver.Outcome, refused bool) error {
	end := j.tx.Commit
	if outcome.Status == Unknown || refused && !j.keeps() {
		end = j.tx.RollbackAndRecord
	}
	err := j.withTimeout(func(ctx context.Context) error { return end(ctx, outcome) })
	switch {
	case err == nil, errors.Is(err, ErrLeaseLost):
		return err
	case errors.Is(err, ErrUnknown):
		return j.handleEarlyCommit(err)
	case j.store.InCallerTx(), errors.Is(err, driver.ErrTransactionFailed):
		return fmt.Errorf("%w: %w", errUndone, err)
	default:
		return j.resolve(err)
	}
}

func (j *transactional) keeps() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.kept
}

// release implements title: nothing is left of it.
func (j *transactional) release() error {
	err := j.withTimeout(j.tx.Rollback)
	if errors.Is(err, ErrUnknown) {
		return j.handleEarlyCommit(err)
	}
	return err
}

// resolve finds out what has become of a transaction whose end was not heard of:
// Begin is Busy as long as it may still be committed.
func (j *transactional) resolve(err error) error {
	found := err
	j.keepTrying(func(ctx context.Context) error {
		reservation, tx, failed := j.store.Begin(ctx, *j.claim, storeTimeout)
		if tx != nil {
			_ = j.withTimeout(tx.Rollback)
		}
		switch {
		case failed != nil:
			return failed
		case reservation.Decision == driver.DecisionInProgress:
			return err // it may still come to its end
		case reservation.Decision == driver.Acquired:
			found = fmt.Errorf("%w: %w", errUndone, err)
		case reservation.Record.Lease() == j.lease:
			found = nil
		default:
			found = fmt.Errorf("%w: %w", ErrLeaseLost, err)
		}
		return nil
	})
	return found
}

// byItself is for work that has committed by itself, as err says, which is
// returned: its effect is there, and its record is not. So it is written now that
// nobody knows.
func (j *transactional) handleEarlyCommit(err error) error {
	if j.store.InCallerTx() {
		return err // the transaction is over, and it was the caller's
	}
	j.keepTrying(j.recordUnknown)
	return err
}

// doubt writes that nobody knows, unless there is a record already.
func (j *transactional) recordUnknown(ctx context.Context) error {
	claim := *j.claim
	claim.Takeover = MarkUnknown
	reservation, err := j.store.Reserve(ctx, claim)
	if err != nil || reservation.Decision != driver.Acquired {
		return err
	}
	return j.store.Complete(ctx, reservation.Record.Lease(), driver.Outcome{Status: Unknown})
}

// insist asks the store until there is no error, or for as long as a lease.
func (j *transactional) keepTrying(ask func(context.Context) error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(j.ctx), max(j.terms.Lease, storeTimeout))
	defer cancel()
	for wait := firstPause; try(ctx, ask) != nil && sleep.Jittered(ctx, wait) == nil; {
		wait = min(2*wait, longestWait)
	}
}

// patiently gives the store its time, also when the execution's is over.
func (j *transactional) withTimeout(f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(j.ctx), storeTimeout)
	defer cancel()
	return f(ctx)
}
