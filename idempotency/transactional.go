package idempotency

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/sleep"
)

// transactional is the ownership of transactional work: an open transaction, which
// ends with the record or with nothing.
type transactional struct {
	*execution

	claimed *Claim
	tx      Transaction
}

// value implements ownership.
func (t *transactional) value() (any, error) { return t.tx.Value(), nil }

// complete implements ownership. An unknown outcome is stored without the writes.
func (t *transactional) complete(outcome Outcome, final bool) error {
	end := t.tx.Commit
	if outcome.Status == Unknown || final && !t.commits() {
		end = t.tx.RollbackAndRecord
	}
	err := t.withTimeout(func(ctx context.Context) error { return end(ctx, outcome) })
	switch {
	case err == nil, errors.Is(err, ErrLeaseLost):
		return err
	case errors.Is(err, ErrUnknown):
		return t.handleEarlyCommit(err)
	case t.inCallerTx(), errors.Is(err, ErrTransactionFailed):
		return fmt.Errorf("%w: %w", errRolledBack, err)
	default:
		return t.resolve(err)
	}
}

func (t *transactional) commits() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.commitOnFailure
}

// release implements ownership.
func (t *transactional) release(time.Duration) error {
	err := t.withTimeout(t.tx.Rollback)
	if errors.Is(err, ErrUnknown) {
		return t.handleEarlyCommit(err)
	}
	return err
}

// resolve finds the result of a transaction after its COMMIT got no answer. Begin
// returns DecisionInProgress while it may still be committed.
func (t *transactional) resolve(err error) error {
	found := err
	t.keepTrying(func(ctx context.Context) error {
		reservation, tx, failed := t.transactor.Begin(ctx, *t.claimed, storeTimeout)
		if tx != nil {
			_ = t.withTimeout(tx.Rollback)
		}
		switch {
		case failed != nil:
			return failed
		case reservation.Decision == DecisionInProgress:
			return err
		case reservation.Decision == DecisionAcquired:
			found = fmt.Errorf("%w: %w", errRolledBack, err)
		case reservation.Record.Lease() == t.lease:
			found = nil
		default:
			found = fmt.Errorf("%w: %w", ErrLeaseLost, err)
		}
		return nil
	})
	return found
}

// handleEarlyCommit records that the outcome is unknown, because the work committed
// its writes without the record. It returns err.
func (t *transactional) handleEarlyCommit(err error) error {
	if !t.inCallerTx() { // otherwise the caller's transaction is over
		t.keepTrying(t.recordUnknown)
	}
	return err
}

func (t *transactional) recordUnknown(ctx context.Context) error {
	claim := *t.claimed
	claim.Takeover = MarkUnknown
	reservation, err := t.store.Reserve(ctx, claim)
	if err != nil || reservation.Decision != DecisionAcquired {
		return err
	}
	return t.store.Complete(ctx, reservation.Record.Lease(), Outcome{Status: Unknown})
}

// keepTrying repeats a store operation until it succeeds, for the time of a lease.
func (t *transactional) keepTrying(operation func(context.Context) error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.ctx), max(t.options.Lease, storeTimeout))
	defer cancel()
	for pause := minPause; withTimeout(ctx, operation) != nil && sleep.Jittered(ctx, pause) == nil; {
		pause = min(2*pause, maxPause)
	}
}

// withTimeout gives the store its time also if the context of the work has ended.
func (t *transactional) withTimeout(operation func(context.Context) error) error {
	return withTimeout(context.WithoutCancel(t.ctx), operation)
}
