package pgstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/resilienthttp/resilienthttp/idempotency"
	"github.com/resilienthttp/resilienthttp/internal/pgkit"
)

// Tx is a store in a transaction of the caller. Its operations commit with that
// transaction. [Store.WithTx] and [Store.WithSQLTx] return it. Like the transaction, it
// is not safe for concurrent use.
type Tx struct {
	operations

	tx any
}

var _ idempotency.Transactor = (*Tx)(nil)

// WithTx returns a store within the caller's transaction, for a consumer with its inbox
// and its effects in one database. The caller commits both together.
//
//	tx, err := pool.Begin(ctx)
//	result, err := idempotency.Do(ctx, store.WithTx(tx), …) // the effect, through tx
//	err = tx.Commit(ctx)
//
// The transaction holds a claim until it ends. Other claims of the operation get
// DecisionInProgress, or wait if they are made within a transaction too. After an error
// the transaction must be rolled back; nothing is retried.
func (s *Store) WithTx(tx pgx.Tx) *Tx { return s.in(tx, pgkit.PGX(tx)) }

// WithSQLTx is WithTx for database/sql.
func (s *Store) WithSQLTx(tx *sql.Tx) *Tx { return s.in(tx, pgkit.SQL(tx)) }

func (s *Store) in(tx any, through pgkit.Sender) *Tx {
	return &Tx{operations{is: s.callers, schema: s.schema, predictor: s.predictor, caller: through}, tx}
}

// InCallerTx implements [idempotency.Transactor]. It returns true.
func (w *Tx) InCallerTx() bool { return true }

// Begin implements [idempotency.Transactor]. The transaction is a savepoint in the caller's,
// which is its Value. limit and the lease are not used. If the work ends the caller's
// transaction, the error is a idempotency.ErrUnknown, and there may be no record.
func (w *Tx) Begin(ctx context.Context, claim idempotency.Claim, _ time.Duration,
) (idempotency.Reservation, idempotency.Transaction, error) {
	if err := claim.Validate(); err != nil {
		return idempotency.Reservation{}, nil, err
	}
	var f found
	now := time.Time{}
	err := w.caller.Send(ctx, &pgkit.Statement{Text: w.is.wait, Args: idArgs(&claim.ID), Scan: func(from pgkit.Row) error { return from.Scan(&now) }},
		w.load(&claim.ID, &f))
	if err != nil {
		return idempotency.Reservation{}, nil, pgkit.Ended(ctx, pgkit.SchemaError(err))
	}
	f.now = now
	step, answer := f.judge(&claim, true)
	switch {
	case step == idempotency.StepMarkUnknown:
		var after found
		if err := w.caller.Send(ctx, w.change(step, &claim, f.record, &after)); err != nil {
			return idempotency.Reservation{}, nil, err
		}
		if after.record == nil { // another transaction has locked the row
			return idempotency.Reservation{Decision: idempotency.DecisionInProgress, Record: *f.record}, nil, nil
		}
		answer.Record = *after.record
		return answer, nil, nil
	case answer.Decision != idempotency.DecisionAcquired:
		return answer, nil, nil
	}
	if err := w.caller.Send(ctx, &pgkit.Statement{Text: "SAVEPOINT idempotency"}); err != nil {
		return idempotency.Reservation{}, nil, err
	}
	return answer, &nested{pending{idArgs(&claim.ID), answer.Record, f.record}, w}, nil
}

// nested is transactional work in a transaction of the caller.
type nested struct {
	pending

	tx *Tx // nil after the end
}

// Value implements [idempotency.Transaction].
func (n *nested) Value() any {
	if n.tx == nil {
		return nil
	}
	return n.tx.tx
}

// Commit implements [idempotency.Transaction].
func (n *nested) Commit(ctx context.Context, outcome idempotency.Outcome) error {
	return n.finish(ctx, &outcome, false)
}

// RollbackAndRecord implements [idempotency.Transaction]. The lock is older than the savepoint
// and stays.
func (n *nested) RollbackAndRecord(ctx context.Context, outcome idempotency.Outcome) error {
	return n.finish(ctx, &outcome, true)
}

const (
	releaseSavepoint  = "RELEASE SAVEPOINT idempotency"
	rollBackSavepoint = "ROLLBACK TO SAVEPOINT idempotency"
)

func (n *nested) finish(ctx context.Context, outcome *idempotency.Outcome, undo bool) error {
	w := n.tx
	if w == nil {
		return sql.ErrTxDone
	}
	end, err := n.end(w.is, w.is.insert, outcome)
	if err == nil && undo {
		err = w.savepoint(ctx, rollBackSavepoint)
	}
	if err == nil {
		err = writeError(w.caller.Send(ctx, end...))
	}
	if err == nil {
		err = w.savepoint(ctx, releaseSavepoint)
	}
	if err != nil {
		if e := n.Rollback(ctx); errors.Is(e, idempotency.ErrUnknown) {
			return e
		}
		return err
	}
	n.tx = nil
	return nil
}

// Rollback implements [idempotency.Transaction].
func (n *nested) Rollback(ctx context.Context) error {
	w := n.tx
	if w == nil {
		return nil
	}
	n.tx = nil
	ctx, cancel := endContext(ctx)
	defer cancel()
	if err := w.savepoint(ctx, rollBackSavepoint); err != nil {
		return err
	}
	return w.savepoint(ctx, releaseSavepoint)
}

// savepoint sends a statement about the savepoint. It does not exist if the work has
// ended the caller's transaction.
func (w *Tx) savepoint(ctx context.Context, text string) error {
	const noTransaction, noSavepoint = "25P01", "3B001"
	err := w.caller.Send(ctx, &pgkit.Statement{Text: text})
	if errors.Is(err, pgx.ErrTxClosed) || errors.Is(err, sql.ErrTxDone) || pgkit.HasCode(err, noTransaction, noSavepoint) {
		return fmt.Errorf("%w: pgstore: the work has ended the caller's transaction: %w", idempotency.ErrUnknown, err)
	}
	return err
}
