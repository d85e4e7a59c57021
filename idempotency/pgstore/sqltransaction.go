package pgstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/resilienthttp/resilienthttp/idempotency"
)

// sqlTransaction is joined work on a connection of database/sql.
type sqlTransaction struct {
	store  *Store
	lease  idempotency.Lease
	tx     *sql.Tx
	number string             // PostgreSQL's
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
	err = tx.QueryRowContext(ctx, s.is.lock, args...).Scan(&idle, &all, &t.number)
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
	if errors.Is(err, sql.ErrTxDone) {
		t.end()
		return t.ended(ctx)
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
func (t *sqlTransaction) Rollback(ctx context.Context) error {
	if t.cancel == nil {
		return nil
	}
	err := t.tx.Rollback()
	t.end()
	if !errors.Is(err, sql.ErrTxDone) {
		return err
	}
	if err := t.ended(ctx); errors.Is(err, idempotency.ErrUnknown) {
		return err
	}
	return nil // Its context has ended it, or the work has rolled it back.
}

// ended is the error where the transaction has ended before its time: by the work, as
// nobody can keep a *sql.Tx from being committed. PostgreSQL knows how.
func (t *sqlTransaction) ended(ctx context.Context) error {
	if t.number == "" {
		return sql.ErrTxDone // It has never been the work's.
	}
	ctx, cancel := lastWords(ctx)
	defer cancel()
	var how string
	err := t.store.row(ctx, fate, t.number).Scan(&how)
	switch {
	case err != nil:
		return fmt.Errorf("%w: pgstore: the work has ended the transaction by itself, and how cannot be found: %w",
			idempotency.ErrUnknown, err)
	case how == "committed":
		return errEnded
	default:
		return fmt.Errorf("pgstore: the work has rolled the transaction back by itself, by a deferred Rollback perhaps: "+
			"it ends with the operation's outcome: %w", sql.ErrTxDone)
	}
}

func (t *sqlTransaction) end() {
	t.cancel()
	t.cancel = nil
}

// noRows: pgx's error is one of database/sql's too.
func noRows(err error) bool { return errors.Is(err, sql.ErrNoRows) }
