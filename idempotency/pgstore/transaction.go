package pgstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/resilienthttp/resilienthttp/idempotency"
)

// transaction is joined work on a connection of pgx.
type transaction struct {
	store *Store
	lease idempotency.Lease
	conn  *pgxpool.Conn // nil when it has been given back
	work  *work
}

// beginPgx opens a transaction and locks the record, in one round trip.
func (s *Store) beginPgx(ctx context.Context, lease *idempotency.Lease, args []any) (idempotency.Transaction, error) {
	level, err := pgxIsolation(s.isolation)
	if err != nil {
		return nil, err
	}
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	var batch pgx.Batch
	batch.BeginTx(pgx.TxOptions{IsoLevel: level})
	batch.Queue(s.is.lock, args...)
	results := conn.Conn().SendBatch(ctx, &batch)
	_, err = results.Exec()
	if err == nil {
		err = results.QueryRow().Scan(nil, nil, nil)
	}
	if e := results.Close(); err == nil {
		err = e
	}
	t := &transaction{store: s, lease: *lease, conn: conn, work: &work{Tx: results.Tx()}}
	if err != nil {
		_ = t.Rollback(ctx)                   // The error is what matters, and t.conn is nil now:
		return nil, s.locked(ctx, lease, err) // a pool of one has its connection for this.
	}
	return t, nil
}

// Value implements idempotency.Transaction.
func (t *transaction) Value() any { return pgx.Tx(t.work) }

// Commit implements idempotency.Transaction. The record's end and the COMMIT go in
// one round trip; if the first fails the second is not executed.
func (t *transaction) Commit(ctx context.Context, outcome idempotency.Outcome) error {
	if t.conn == nil {
		return pgx.ErrTxClosed
	}
	args, err := commitArgs(&t.lease, &outcome)
	if err != nil {
		return errors.Join(err, t.Rollback(ctx))
	}
	if err := t.usable(); err != nil {
		_ = t.Rollback(ctx) // The error is what matters.
		return err
	}
	var batch pgx.Batch
	batch.Queue(t.store.is.finish, args...)
	batch.Queue("commit")
	results := t.conn.Conn().SendBatch(ctx, &batch)
	var one int64
	err = results.QueryRow().Scan(&one)
	if err == nil {
		err = committed(results)
	}
	if e := results.Close(); err == nil {
		err = e
	}
	if err != nil {
		_ = t.Rollback(ctx) // Whatever is left of it. Of what the commit did, err says as much as is known.
		return finished(err)
	}
	t.end()
	return nil
}

// Why joined work cannot be committed.
var (
	// errEnded: the work has sent COMMIT or ROLLBACK as a statement.
	errEnded = fmt.Errorf("%w: pgstore: the work has ended the transaction by itself, without its record: "+
		"it ends with the operation's outcome", idempotency.ErrUnknown)

	// errFailed: PostgreSQL's own words are that "commands are ignored".
	errFailed = fmt.Errorf("%w: pgstore: what may fail, and is not to end in a refusal, belongs into a savepoint "+
		"(the transaction's Begin)", idempotency.ErrTransactionFailed)
)

// usable is what the connection knows of the transaction.
func (t *transaction) usable() error {
	switch t.conn.Conn().PgConn().TxStatus() {
	case 'I':
		return errEnded
	case 'E':
		return errFailed
	default:
		return nil
	}
}

// committed reads the answer to COMMIT, which is ROLLBACK, and no error, where the
// transaction had failed before.
func committed(results pgx.BatchResults) error {
	tag, err := results.Exec()
	if err == nil && tag.String() != "COMMIT" {
		return pgx.ErrTxCommitRollback
	}
	return err
}

// finished turns the way in which finish fails into what it means.
func finished(err error) error {
	switch {
	case hasCode(err, divisionByZero):
		return idempotency.ErrLeaseLost
	case hasCode(err, inFailedTransaction):
		return errFailed
	default:
		return err
	}
}

func commitArgs(lease *idempotency.Lease, outcome *idempotency.Outcome) ([]any, error) {
	if err := outcome.Validate(); err != nil {
		return nil, err
	}
	return outcomeArgs(lease, outcome)
}

// Rollback implements idempotency.Transaction. It is done even if the context has
// ended, as it has where a client went away: the connection is worth more than the
// moment that this takes.
func (t *transaction) Rollback(ctx context.Context) error {
	if t.conn == nil {
		return nil
	}
	ctx, cancel := lastWords(ctx)
	defer cancel()
	ended := !t.conn.Conn().IsClosed() && t.usable() == errEnded
	err := t.work.Tx.Rollback(ctx)
	if errors.Is(err, pgx.ErrTxClosed) {
		err = nil // It never began.
	}
	t.end()
	if ended {
		return errEnded
	}
	return err
}

// end gives the connection back, which the pool keeps if it is of any use, and
// takes it from the work.
func (t *transaction) end() {
	t.work.close()
	t.conn.Release()
	t.conn = nil
}

// lastWords is the context for ending a transaction: one that has ended gets a
// moment more.
func lastWords(ctx context.Context) (context.Context, context.CancelFunc) {
	if ctx.Err() == nil {
		return ctx, func() {}
	}
	return context.WithTimeout(context.WithoutCancel(ctx), time.Second)
}
