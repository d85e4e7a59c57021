package sqlitestore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/resilienthttp/resilienthttp/idempotency"
	"github.com/resilienthttp/resilienthttp/internal/sqlitekit"
)

// Tx is a store with operations that run in a transaction of the caller. See
// Store.WithTx. Like the transaction, it must not be used concurrently.
type Tx struct {
	operations

	store *Store
	tx    *sql.Tx
	in    statements
	open  []*savepoint // each one is in the one before
}

var _ idempotency.Transactor = (*Tx)(nil)

// WithTx returns a store in a transaction, for a consumer that writes the record of a
// message and its effect at once. The caller commits or rolls back the transaction,
// which may be of DB or of another database handle for the same file. Its connection
// should have synchronous=FULL.
//
// Operations that write take SQLite's write lock, and other writers wait until the
// transaction ends. Begin it as an immediate one ("_txlock=immediate", as DB does) or
// with an operation; otherwise operations may fail with SQLITE_BUSY.
func (s *Store) WithTx(tx *sql.Tx) *Tx {
	w := &Tx{store: s, tx: tx, in: make(statements)}
	for _, text := range texts() { // not prepared: prepared statements would end with the transaction
		w.in[text] = sqlitekit.In(tx, text)
	}
	query := func(ctx context.Context, query func(context.Context, statements) error) error {
		return query(ctx, w.in)
	}
	w.operations = operations{read: query, write: query}
	return w
}

// InCallerTx implements idempotency.Transactor. It returns true.
func (w *Tx) InCallerTx() bool { return true }

// Check implements idempotency.Store.
func (w *Tx) Check(ctx context.Context) error { return w.store.Check(ctx) }

// Reserve implements idempotency.Store. It takes the write lock before it reads.
func (w *Tx) Reserve(ctx context.Context, claim idempotency.Claim) (idempotency.Reservation, error) {
	if err := claim.Validate(); err != nil {
		return idempotency.Reservation{}, err
	}
	f, err := w.reserve(ctx, &claim)
	return f.answer, err
}

func (w *Tx) reserve(ctx context.Context, claim *idempotency.Claim) (finding, error) {
	if _, err := w.tx.ExecContext(ctx, lockSQL); err != nil {
		return finding{}, err
	}
	f, err := w.find(ctx, claim)
	if err != nil || f.step == idempotency.StepLeave {
		return f, err
	}
	record, err := w.in.apply(ctx, f.step, f.judged, claim)
	if err == nil && record == nil {
		err = errChanged // cannot happen under the write lock
	}
	if err != nil {
		return finding{}, err
	}
	f.answer.Record = *record
	return f, nil
}

// Reap implements idempotency.Store.
func (w *Tx) Reap(ctx context.Context, limit int) ([]idempotency.Record, error) {
	if limit <= 0 {
		return nil, ctx.Err()
	}
	return readRecords(ctx, w.in[reap], limit)
}

// Sweep implements idempotency.Store.
func (w *Tx) Sweep(ctx context.Context, limit int) (int, error) {
	if limit <= 0 {
		return 0, ctx.Err()
	}
	return sqlitekit.Affected(w.in[sweep].ExecContext(ctx, limit))
}

// Begin implements idempotency.Transactor by a savepoint. If the work ends without Commit,
// its writes are undone and the caller's transaction continues. Value is the caller's
// transaction. There is no limit. A nested savepoint must end before the outer one.
//
// The record is written at once and completed with the work. If the work commits the
// caller's transaction, the record is in progress, and becomes Unknown when its lease
// is over.
func (w *Tx) Begin(
	ctx context.Context, claim idempotency.Claim, _ time.Duration,
) (idempotency.Reservation, idempotency.Transaction, error) {
	if err := errors.Join(claim.Validate(), ctx.Err()); err != nil {
		return idempotency.Reservation{}, nil, err
	}
	t := &savepoint{tx: w, name: fmt.Sprintf("idempotency_%d", len(w.open)+1)}
	if err := t.exec(ctx, "SAVEPOINT"); err != nil {
		return idempotency.Reservation{}, nil, err
	}
	claim.Takeover = idempotency.MarkUnknown
	f, err := w.reserve(ctx, &claim)
	if err != nil {
		return idempotency.Reservation{}, nil, errors.Join(err, t.undo(ctx))
	}
	if f.step != idempotency.StepInsert && f.step != idempotency.StepTake {
		return notAcquired(f.answer), nil, t.exec(ctx, "RELEASE") // a record that became Unknown stays so
	}
	t.record = f.answer.Record
	w.open = append(w.open, t)
	return f.answer, t, nil
}

// savepoint is transactional work in a transaction of the caller.
type savepoint struct {
	tx     *Tx
	record idempotency.Record
	name   string
	over   bool
}

// Value implements idempotency.Transaction. It returns the caller's *sql.Tx.
func (t *savepoint) Value() any { return t.tx.tx }

// Commit implements idempotency.Transaction. The caller commits.
func (t *savepoint) Commit(ctx context.Context, outcome idempotency.Outcome) error {
	return t.finish(ctx, &outcome, func(ctx context.Context) error {
		return t.tx.Complete(ctx, t.record.Lease(), outcome)
	})
}

// RollbackAndRecord implements idempotency.Transaction.
func (t *savepoint) RollbackAndRecord(ctx context.Context, outcome idempotency.Outcome) error {
	return t.finish(ctx, &outcome, func(ctx context.Context) error {
		if err := t.exec(ctx, "ROLLBACK TO"); err != nil {
			return err
		}
		return writeOutcome(ctx, t.tx.in[finish], &t.record, &outcome)
	})
}

// Rollback implements idempotency.Transaction.
func (t *savepoint) Rollback(ctx context.Context) error {
	if t.over {
		return nil
	}
	_ = t.close() // nested savepoints are undone too
	ctx = context.WithoutCancel(ctx)
	if t.undo(ctx) != nil {
		if err := t.ended(ctx); errors.Is(err, idempotency.ErrUnknown) {
			return err
		}
	}
	return nil
}

// finish ends the savepoint by write, or undoes what happened since it began.
func (t *savepoint) finish(ctx context.Context, outcome *idempotency.Outcome, write func(context.Context) error) error {
	if t.over {
		return fmt.Errorf("sqlitestore: the transaction is over: %w", sql.ErrTxDone)
	}
	err := errors.Join(t.close(), outcome.Validate(), ctx.Err())
	ctx = context.WithoutCancel(ctx)
	if err == nil {
		err = write(ctx)
	}
	if err == nil {
		err = t.exec(ctx, "RELEASE")
	}
	if err != nil && t.undo(ctx) != nil {
		return fmt.Errorf("%w: %w", t.ended(ctx), err)
	}
	return err
}

// close removes the savepoint and the nested ones from the open ones.
func (t *savepoint) close() (err error) {
	i := slices.Index(t.tx.open, t)
	for _, each := range t.tx.open[i:] {
		if each != t {
			err = errors.New("sqlitestore: a transaction that was begun in this one has not ended")
		}
		each.over = true
	}
	t.tx.open = t.tx.open[:i]
	return err
}

// undo fails if the savepoint does not exist, because the caller's transaction ended.
func (t *savepoint) undo(ctx context.Context) error {
	if err := t.exec(ctx, "ROLLBACK TO"); err != nil {
		return err
	}
	return t.exec(ctx, "RELEASE")
}

// ended is the error after the work, or a statement of it, has ended the caller's
// transaction. The record that Begin has written shows how.
func (t *savepoint) ended(ctx context.Context) error {
	r, _, err := t.tx.store.record(ctx, t.record.ID)
	switch {
	case err != nil:
		return fmt.Errorf("%w: sqlitestore: the caller's transaction has ended, and its record cannot be read: %w",
			idempotency.ErrUnknown, err)
	case r != nil && r.Lease() == t.record.Lease():
		return fmt.Errorf("%w: sqlitestore: the work has committed the caller's transaction", idempotency.ErrUnknown)
	default:
		return fmt.Errorf("%w: it was the caller's transaction", idempotency.ErrTransactionFailed)
	}
}

func (t *savepoint) exec(ctx context.Context, what string) error {
	_, err := t.tx.tx.ExecContext(ctx, what+" "+t.name)
	return err
}
