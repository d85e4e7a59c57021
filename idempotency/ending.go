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
// happened, and the operation may be executed again. ErrUnknown: what was written
// through Tx is undone, what was done besides is not, and the record says Unknown.
// Any other error: nobody knows, and the record stays in progress until its lease
// is over.
func (e *execution) complete(outcome Outcome) error {
	tx := e.finish()
	defer e.close()
	if time.Since(e.began) > e.terms.TTL/10 {
		outcome.TTL = e.terms.TTL
	}
	switch {
	case tx == nil:
		return e.put(outcome)
	case outcome.Status == Unknown:
		_ = e.rollback(tx) // the record says Unknown either way
		return e.put(outcome)
	default:
		return e.commit(tx, outcome)
	}
}

// release gives the operation back, with nothing done.
func (e *execution) release() error {
	defer e.close()
	if err := e.undo(); err != nil {
		return err
	}
	return e.giveBack()
}

// abandon ends an execution that died before it came to an end: it panicked. It
// returns what has become of the record if there is no error.
func (e *execution) abandon() (Status, error) {
	defer e.close()
	switch err := e.undo(); {
	case errors.Is(err, ErrUnknown):
		return Unknown, err
	case err != nil:
		return InProgress, err
	}
	return e.die()
}

// undo ends the work and rolls its transaction back. Its error is ErrUnknown where
// the work has committed by itself, and the record says so; and else one after
// which what joined work wrote may still be there.
func (e *execution) undo() error {
	tx := e.finish()
	if tx == nil {
		return nil
	}
	err := e.rollback(tx)
	switch {
	case errors.Is(err, ErrUnknown):
		return e.byItself(err)
	case e.joined():
		return err
	default:
		return nil
	}
}

// die does to the record what a claim would after a crash, without waiting for
// the end of the lease. Joined work that has been rolled back is as if it had not
// been; for other work the terms decide.
func (e *execution) die() (Status, error) {
	switch e.terms.Takeover.resolve(e.joined()) {
	case Reexecute:
		return FailedRetryable, e.giveBack()
	case Resume:
		return InProgress, e.lapse()
	default:
		return Unknown, e.put(Outcome{Status: Unknown})
	}
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

// commit ends the transaction. When the answer is lost, what is done about it
// decides: either it ends the reservation, and then the commit did not and cannot
// happen any more, or it finds that it has happened.
func (e *execution) commit(tx Transaction, outcome Outcome) error {
	err := e.tryCommit(tx, outcome)
	if err == nil {
		return nil
	}
	_ = e.rollback(tx) // it has failed already; this gives the connection back
	switch {
	case errors.Is(err, ErrLeaseLost):
		return err
	case errors.Is(err, ErrUnknown):
		return e.byItself(err)
	case errors.Is(err, ErrTransactionFailed) && outcome.Status == FailedFinal:
		return e.put(outcome) // the work knows: it refuses because of that
	}
	switch status, ending := e.die(); {
	case ending == nil && status == Unknown:
		return fmt.Errorf("%w: %w", ErrUnknown, err)
	case ending == nil:
		return fmt.Errorf("%w: %w", errUndone, err)
	case errors.Is(ending, ErrLeaseLost) && e.stands(outcome.Status):
		return nil
	case errors.Is(ending, ErrLeaseLost):
		return ending
	default:
		return err
	}
}

// byItself is for work that has committed by itself, as err says, which is
// returned: its effect is there, and its record is not. A store that could see to
// it has made that Unknown in the same commit.
func (e *execution) byItself(err error) error {
	_ = e.put(Outcome{Status: Unknown})
	return err
}

func (e *execution) tryCommit(tx Transaction, outcome Outcome) error {
	ctx, cancel := e.patience()
	defer cancel()
	return tx.Commit(ctx, outcome)
}

// rollback comes to its end also when the execution has ended.
func (e *execution) rollback(tx Transaction) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(e.alive), storePatience)
	defer cancel()
	return tx.Rollback(ctx)
}

func (e *execution) put(outcome Outcome) error {
	return e.insist(outcome.Status, func(ctx context.Context) error {
		return e.store.Complete(ctx, e.lease, outcome)
	})
}

func (e *execution) giveBack() error {
	return e.insist(FailedRetryable, func(ctx context.Context) error {
		return e.store.Release(ctx, e.lease)
	})
}

// lapse lets the lease be over, so that the next claim finds an execution that
// died.
func (e *execution) lapse() error {
	return e.insist(InProgress, func(ctx context.Context) error {
		return e.store.Renew(ctx, e.lease, shortestLease)
	})
}

// insist repeats a verb that is to bring the record to a status until the store
// has answered, or the lease is over.
func (e *execution) insist(status Status, verb func(context.Context) error) error {
	ctx, cancel := e.patience()
	defer cancel()
	for pause := firstPause; ; pause = min(2*pause, longestWait) {
		err := try(ctx, verb)
		switch {
		case err == nil, errors.Is(err, ErrInvalid):
			return err
		case errors.Is(err, ErrLeaseLost):
			// It may have been this very execution, a moment ago, by a verb whose
			// answer was lost.
			if pause > firstPause && e.stands(status) {
				return nil
			}
			return err
		case e.held, !sleep(ctx, pause): // a transaction that failed stays failed
			return err
		}
	}
}

// try asks once. A connection that hangs is not waited for as long as the store.
func try(ctx context.Context, verb func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, storePatience)
	defer cancel()
	return verb(ctx)
}

// stands reports whether the record has the status by this execution's doing.
func (e *execution) stands(status Status) bool {
	ctx, cancel := e.patience()
	defer cancel()
	for pause := firstPause; ; pause = min(2*pause, longestWait) {
		var record Record
		err := try(ctx, func(ctx context.Context) (err error) {
			record, err = e.store.Load(ctx, e.lease.ID)
			return err
		})
		switch {
		case err == nil:
			return record.Status == status && record.Lease() == e.lease
		case errors.Is(err, ErrNotFound), e.held, !sleep(ctx, pause):
			return false
		}
	}
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
