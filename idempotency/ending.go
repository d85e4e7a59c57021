package idempotency

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// How long, and how often, a store that gives no answer is asked again.
const (
	// storePatience bounds a verb where no lease does.
	storePatience = 5 * time.Second

	firstPause  = 10 * time.Millisecond
	longestWait = 250 * time.Millisecond
)

// complete stores the outcome, with what was written through Tx. nil: it is
// durable. ErrLeaseLost: somebody else has the operation. errUndone: nothing has
// happened, and the operation may be executed again. Any other error: nobody
// knows, and the record stays in progress until its lease is over.
func (e *execution) complete(outcome Outcome) error {
	tx := e.finish()
	defer e.close()
	if tx != nil {
		return e.commit(tx, outcome)
	}
	return e.insist(outcome.Status, func(ctx context.Context) error {
		return e.store.Complete(ctx, e.lease, outcome)
	})
}

// release gives the operation back, with nothing done.
func (e *execution) release() error {
	tx := e.finish()
	defer e.close()
	if tx != nil {
		if err := e.rollback(tx); err != nil && e.joined() {
			return err // what it wrote may still be there
		}
	}
	return e.giveBack()
}

// abandon ends an execution that died before it came to an end: it panicked. For
// joined work that is as if it had not been; else the terms decide, as they do
// for a crash.
func (e *execution) abandon() (Status, error) {
	if e.terms.Takeover.resolve(e.joined()) != MarkUnknown {
		return FailedRetryable, e.release()
	}
	tx := e.finish()
	defer e.close()
	if tx != nil {
		_ = e.rollback(tx) // the record says Unknown either way
	}
	return Unknown, e.insist(Unknown, func(ctx context.Context) error {
		return e.store.Complete(ctx, e.lease, Outcome{Status: Unknown})
	})
}

// joined reports whether all effects of the work are in its transaction.
func (e *execution) joined() bool { return e.terms.Joined || e.held }

// finish stops the heartbeat and returns the transaction, if one is open.
func (e *execution) finish() Transaction {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.over = true
	if e.heartbeat != nil {
		e.heartbeat.Stop()
	}
	return e.tx
}

// close ends the contexts. A transaction of database/sql ends with its context,
// so this comes last.
func (e *execution) close() {
	e.cancel(errEnded)
	e.stop()
	e.end()
}

// commit ends the transaction. When the answer is lost, the release decides:
// either it undoes the reservation, and then the commit did not and cannot happen
// any more, or it finds that it has happened.
func (e *execution) commit(tx Transaction, outcome Outcome) error {
	ctx, cancel := e.patience()
	defer cancel()
	err := tx.Commit(ctx, outcome)
	if err == nil || errors.Is(err, ErrLeaseLost) {
		return err
	}
	_ = e.rollback(tx) // it has failed already; this gives the connection back
	switch gave := e.giveBack(); {
	case gave == nil:
		return fmt.Errorf("%w: %w", errUndone, err)
	case errors.Is(gave, ErrLeaseLost) && e.stands(ctx, outcome.Status):
		return nil
	case errors.Is(gave, ErrLeaseLost):
		return gave
	default:
		return err
	}
}

func (e *execution) rollback(tx Transaction) error {
	ctx, cancel := e.patience()
	defer cancel()
	return tx.Rollback(ctx)
}

func (e *execution) giveBack() error {
	return e.insist(FailedRetryable, func(ctx context.Context) error {
		return e.store.Release(ctx, e.lease)
	})
}

// insist repeats a verb that is to bring the record to a status until the store
// has answered, or the lease is over.
func (e *execution) insist(status Status, verb func(context.Context) error) error {
	ctx, cancel := e.patience()
	defer cancel()
	for pause := firstPause; ; pause = min(2*pause, longestWait) {
		err := verb(ctx)
		switch {
		case err == nil, errors.Is(err, ErrInvalid):
			return err
		case errors.Is(err, ErrLeaseLost):
			// It may have been this very execution, a moment ago, by a verb whose
			// answer was lost.
			if pause > firstPause && e.stands(ctx, status) {
				return nil
			}
			return err
		case e.held, !sleep(ctx, pause): // a transaction that failed stays failed
			return err
		}
	}
}

// stands reports whether the record has the status by this execution's doing.
func (e *execution) stands(ctx context.Context, status Status) bool {
	record, err := e.store.Load(ctx, e.lease.ID)
	return err == nil && record.Status == status && record.Lease() == e.lease
}

// patience is as long as the lease, and long enough for a slow commit.
func (e *execution) patience() (context.Context, context.CancelFunc) {
	e.mu.Lock()
	until := e.until
	e.mu.Unlock()
	return context.WithTimeout(e.alive, max(time.Until(until), storePatience))
}

// sleep waits for about d, a random time so that many do not ask at once. false:
// ctx ended.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d/2 + rand.N(d/2+1))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
