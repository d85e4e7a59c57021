package pgstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/resilienthttp/resilienthttp/idempotency/driver"
	"github.com/resilienthttp/resilienthttp/internal/pgkit"
)

// Within is a store whose verbs are part of a transaction of the caller's. [Store.Within] and
// [Store.WithinSQL] make it. Like the transaction, it is not safe for concurrent
// use.
type Within struct {
	verbs

	tx any
}

var _ driver.Transactor = (*Within)(nil)

// Within gives the verbs inside a transaction, for a consumer that keeps its inbox
// and its effects in one database: they are committed together, by the caller.
//
//	tx, err := pool.Begin(ctx)
//	…
//	inbox := store.Within(tx)
//	result, err := idempotency.Do(ctx, inbox, …) // the effect, through tx
//	…
//	err = tx.Commit(ctx)
//
// What Begin gives is a savepoint in it: its Commit writes the record, and commits
// nothing. Where the work ends the transaction by itself the error is an ErrUnknown,
// and there may be no record.
//
// A claim that is Acquired is held by the transaction itself. As long as that is
// open, others get Busy from the store, and wait if they claim Within a transaction
// too: there the end of ours tells what they get, and an error, such as that of a
// lock_timeout which the caller has set, ends their transaction as every error does.
// Nothing is tried again for the same reason: after an error, roll back and begin
// anew.
func (s *Store) Within(tx pgx.Tx) *Within { return s.in(tx, pgxQuerier{tx}) }

// WithinSQL is Within for database/sql.
func (s *Store) WithinSQL(tx *sql.Tx) *Within { return s.in(tx, sqlQuerier{tx}) }

func (s *Store) in(tx any, q querier) *Within {
	return &Within{verbs: verbs{querier: q, is: s.callers, repeats: s.repeats, check: s.check}, tx: tx}
}

// Enclosed implements [idempotency.Transactor]: it is the caller who commits.
func (w *Within) InCallerTx() bool { return true }

// Begin implements [idempotency.Transactor]. The transaction is a savepoint in the
// caller's; its Value is the caller's own, and nothing is set in it: neither limit
// nor lease.
func (w *Within) Begin(ctx context.Context, claim driver.Claim, _ time.Duration,
) (driver.Reservation, driver.Transaction, error) {
	if err := claim.Validate(); err != nil {
		return driver.Reservation{}, nil, err
	}
	found, err := w.look(ctx, &claim.ID)
	if err != nil {
		return driver.Reservation{}, nil, err
	}
	step, answer := found.judge(&claim)
	if step == driver.StepMarkUnknown {
		r := reserve{verbs: &w.verbs, claim: &claim}
		answer.Record, err = r.step(ctx, step, found.record)
		if noRows(err) { // somebody is at the row, who need not be asked what he does
			answer, err = driver.Reservation{Decision: driver.DecisionInProgress, Record: *found.record}, nil
		}
	}
	if err != nil || answer.Decision != driver.Acquired {
		return answer, nil, err
	}
	if _, err := w.exec(ctx, setSavepoint); err != nil {
		return driver.Reservation{}, nil, err
	}
	return answer, &nested{joined: joined{claim: &claim, record: answer.Record, judged: found.record}, within: w}, nil
}

// look waits for others who are at the record, keeps them off, and reads.
func (w *Within) look(ctx context.Context, id *driver.ID) (*look, error) {
	now, err := w.wait(ctx, id)
	if err != nil {
		return nil, err
	}
	found := &look{locked: true, now: now}
	var later time.Time
	record, err := scanRecord(w.row(ctx, w.is.load, idArgs(id)...), &later)
	switch {
	case err == nil:
		found.record = &record
	case !noRows(err):
		return nil, err
	}
	return found, nil
}

const (
	setSavepoint      = "SAVEPOINT idempotency"
	releaseSavepoint  = "RELEASE SAVEPOINT idempotency"
	rollBackSavepoint = "ROLLBACK TO SAVEPOINT idempotency"
)

// nested is joined work in a transaction of the caller's.
type nested struct {
	joined

	within *Within // nil when it is over
}

// Value implements idempotency.Transaction.
func (n *nested) Value() any {
	if n.within == nil {
		return nil
	}
	return n.within.tx
}

// Commit implements idempotency.Transaction.
func (n *nested) Commit(ctx context.Context, outcome driver.Outcome) error {
	return n.finish(ctx, &outcome, false)
}

// Refuse implements idempotency.Transaction. The lock was taken before the savepoint
// and outlives it: nobody comes between.
func (n *nested) RollbackAndRecord(ctx context.Context, outcome driver.Outcome) error {
	return n.finish(ctx, &outcome, true)
}

func (n *nested) finish(ctx context.Context, outcome *driver.Outcome, undo bool) error {
	w := n.within
	if w == nil {
		return sql.ErrTxDone
	}
	end, err := n.end(w.is, w.is.insert, outcome)
	if err == nil && undo {
		err = w.savepoint(ctx, rollBackSavepoint)
	}
	if err == nil {
		_, err = sendAll(ctx, w.querier, end)
		err = written(err)
	}
	if err == nil {
		err = w.savepoint(ctx, releaseSavepoint)
	}
	if err != nil {
		if e := n.Rollback(ctx); errors.Is(e, driver.ErrUnknown) {
			return e
		}
		return err
	}
	n.within = nil
	return nil
}

// Rollback implements idempotency.Transaction.
func (n *nested) Rollback(ctx context.Context) error {
	w := n.within
	if w == nil {
		return nil
	}
	n.within = nil
	ctx, cancel := lastWords(ctx)
	defer cancel()
	if err := w.savepoint(ctx, rollBackSavepoint); err != nil {
		return err
	}
	return w.savepoint(ctx, releaseSavepoint)
}

// savepoint sends a statement about ours. Where there is none the work has ended the
// caller's transaction, in whatever way.
func (w *Within) savepoint(ctx context.Context, statement string) error {
	_, err := w.exec(ctx, statement)
	if errors.Is(err, pgx.ErrTxClosed) || errors.Is(err, sql.ErrTxDone) || pgkit.HasCode(err, noTransaction, noSavepoint) {
		return fmt.Errorf("%w: pgstore: the work has ended the caller's transaction: %w", driver.ErrUnknown, err)
	}
	return err
}
