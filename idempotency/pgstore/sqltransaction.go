package pgstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/resilienthttp/resilienthttp/idempotency/driver"
)

// sqlTransaction is joined work on a connection of database/sql.
type sqlTransaction struct {
	joined

	store  *Store
	tx     *sql.Tx
	number *string            // PostgreSQL's
	cancel context.CancelFunc // of tx's context
}

// openSQL opens a transaction, locks the name and looks. database/sql rolls a
// transaction back when the context ends that it was begun with, and this one must
// outlive Begin's.
func (s *Store) openSQL(ctx context.Context, id *driver.ID, lock statement) (opened, *look, error) {
	outliving, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, cancel)
	tx, err := s.db.BeginTx(outliving, &sql.TxOptions{Isolation: s.isolation})
	if err != nil {
		cancel()
		return nil, nil, because(ctx, err)
	}
	t := &sqlTransaction{store: s, tx: tx, cancel: cancel}
	found, err := t.look(ctx, id, lock)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		_ = t.Rollback(ctx) // The error is what matters.
		return nil, nil, because(ctx, err)
	}
	return t, found, nil
}

func (t *sqlTransaction) look(ctx context.Context, id *driver.ID, lock statement) (*look, error) {
	var found look
	var locals int
	err := t.tx.QueryRowContext(ctx, lock.text, lock.args...).Scan(&found.locked, &found.now, &found.began, &locals, &t.number)
	if err != nil {
		return nil, err
	}
	var now sql.NullTime
	record, err := scanRecord(t.tx.QueryRowContext(ctx, t.store.is.load, idArgs(id)...), &now)
	switch {
	case err == nil:
		found.record = &record
	case !noRows(err):
		return nil, err
	}
	return &found, nil
}

// because is the context's own error, if that was the reason: what was cancelled
// above is not the caller's context.
func because(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return ctx.Err()
	}
	return err
}

func (t *sqlTransaction) join(ctx context.Context, j joined) error {
	t.joined = j
	if t.number != nil {
		return nil
	}
	return t.tx.QueryRowContext(ctx, t.store.is.number).Scan(&t.number)
}

// Value implements idempotency.Transaction.
func (t *sqlTransaction) Value() any { return t.tx }

// Commit implements idempotency.Transaction.
func (t *sqlTransaction) Commit(ctx context.Context, outcome driver.Outcome) error {
	if t.cancel == nil {
		return sql.ErrTxDone
	}
	end, err := t.endHere(t.store.is, &outcome)
	n := int64(1)
	if err == nil {
		n, err = sendAll(ctx, sqlQuerier{t.tx}, end)
	}
	if errors.Is(err, sql.ErrTxDone) {
		t.over()
		return t.ended(ctx)
	}
	if err != nil {
		_ = t.Rollback(ctx) // The error is what matters.
		return written(err)
	}
	if n == 0 {
		_ = t.tx.Rollback() // It is another.
		t.over()
		return errEnded
	}
	// database/sql commits without a context. If it ends, so does the transaction.
	stop := context.AfterFunc(ctx, t.cancel)
	err = t.tx.Commit()
	stop()
	t.over()
	return undone(because(ctx, err))
}

// sendAll executes statements, and returns how many rows the last one has changed.
func sendAll(ctx context.Context, q querier, all []statement) (n int64, err error) {
	for _, s := range all {
		if n, err = q.exec(ctx, s.text, s.args...); err != nil {
			return n, err
		}
	}
	return n, nil
}

// Refuse implements idempotency.Transaction.
func (t *sqlTransaction) RollbackAndRecord(ctx context.Context, outcome driver.Outcome) error {
	if t.cancel == nil {
		return sql.ErrTxDone
	}
	end, err := t.end(t.store.is, t.store.is.insertAlone, &outcome)
	if e := t.Rollback(ctx); err == nil {
		err = e
	}
	if err != nil {
		return err
	}
	return t.store.transact(ctx, func(q querier) error {
		n, err := sendAll(ctx, q, end)
		if err == nil && n == 0 {
			return driver.ErrLeaseLost
		}
		return undone(err)
	})
}

// Rollback implements idempotency.Transaction.
func (t *sqlTransaction) Rollback(ctx context.Context) error {
	if t.cancel == nil {
		return nil
	}
	moved := t.moved(ctx)
	err := t.tx.Rollback()
	t.over()
	switch {
	case moved:
		return errEnded
	case !errors.Is(err, sql.ErrTxDone):
		return err
	}
	if err := t.ended(ctx); errors.Is(err, driver.ErrUnknown) {
		return err
	}
	return nil // Its context has ended it, or the work has rolled it back.
}

// moved reports whether the work, to which the transaction was given, has ended it by
// a statement of its own: what it wrote since stands. Of one that has failed since
// PostgreSQL does not tell.
func (t *sqlTransaction) moved(ctx context.Context) bool {
	if t.claim == nil {
		return false
	}
	here := true
	err := t.tx.QueryRowContext(ctx, t.store.is.here, t.began).Scan(&here)
	return err == nil && !here
}

// ended is the error where the transaction has ended before its time: by the work, as
// nobody can keep a *sql.Tx from being committed. PostgreSQL knows how.
func (t *sqlTransaction) ended(ctx context.Context) error {
	if t.number == nil {
		return sql.ErrTxDone // It has never been the work's.
	}
	ctx, cancel := lastWords(ctx)
	defer cancel()
	var how string
	err := t.store.row(ctx, fate, *t.number).Scan(&how)
	switch {
	case err != nil:
		return fmt.Errorf("%w: pgstore: the work has ended the transaction by itself, and how cannot be found: %w",
			driver.ErrUnknown, err)
	case how == "committed":
		return errEnded
	default:
		return fmt.Errorf("pgstore: the work has rolled the transaction back by itself, by a deferred Rollback perhaps: "+
			"it ends with the operation's outcome: %w", sql.ErrTxDone)
	}
}

func (t *sqlTransaction) over() {
	t.cancel()
	t.cancel = nil
}
