package pgstore

import (
	"context"
	"database/sql"
	"errors"

	"github.com/resilienthttp/resilienthttp/idempotency"
)

// sqlTransaction is joined work on a connection of database/sql.
type sqlTransaction struct {
	store  *Store
	lease  idempotency.Lease
	tx     *sql.Tx
	cancel context.CancelFunc // of tx's context
}

// beginSQL opens a transaction and locks the record. database/sql rolls a
// transaction back when the context ends that it was begun with, and this one must
// outlive Begin's.
func (s *Store) beginSQL(ctx context.Context, lease *idempotency.Lease, args []any) (idempotency.Transaction, error) {
	outliving, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, cancel)
	tx, err := s.db.BeginTx(outliving, &sql.TxOptions{Isolation: s.isolation})
	if err != nil {
		cancel()
		return nil, because(ctx, err)
	}
	t := &sqlTransaction{store: s, lease: *lease, tx: tx, cancel: cancel}
	var idle, all *string
	err = tx.QueryRowContext(ctx, s.is.lock, args...).Scan(&idle, &all)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		_ = t.Rollback(ctx) // The error is what matters.
		return nil, s.locked(ctx, lease, because(ctx, err))
	}
	return t, nil
}

// because is the context's own error, if that was the reason: what was cancelled
// above is not the caller's context.
func because(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return ctx.Err()
	}
	return err
}

// Value implements idempotency.Transaction.
func (t *sqlTransaction) Value() any { return t.tx }

// Commit implements idempotency.Transaction.
func (t *sqlTransaction) Commit(ctx context.Context, outcome idempotency.Outcome) error {
	if t.cancel == nil {
		return sql.ErrTxDone
	}
	args, err := commitArgs(&t.lease, &outcome)
	if err == nil {
		var one int64
		err = t.tx.QueryRowContext(ctx, t.store.is.finish, args...).Scan(&one)
	}
	if err != nil {
		_ = t.Rollback(ctx) // The error is what matters.
		return finished(err)
	}
	// database/sql commits without a context. If it ends, so does the transaction.
	stop := context.AfterFunc(ctx, t.cancel)
	err = t.tx.Commit()
	stop()
	t.end()
	return because(ctx, err)
}

// Rollback implements idempotency.Transaction.
func (t *sqlTransaction) Rollback(context.Context) error {
	if t.cancel == nil {
		return nil
	}
	err := t.tx.Rollback()
	t.end()
	if errors.Is(err, sql.ErrTxDone) {
		return nil // Its context has ended it.
	}
	return err
}

func (t *sqlTransaction) end() {
	t.cancel()
	t.cancel = nil
}

// noRows: pgx's error is one of database/sql's too.
func noRows(err error) bool { return errors.Is(err, sql.ErrNoRows) }
