package pgstore

import (
	"context"
	"database/sql"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/resilienthttp/resilienthttp/durable"
	"github.com/resilienthttp/resilienthttp/internal/pgkit"
)

// ownTransaction is a transaction on its own connection. BEGIN and the settings share a round trip with the first
// statements, and COMMIT with the last.
type ownTransaction struct {
	conn  *pgxpool.Conn
	begun bool
}

// transact calls work with a transaction. work ends it with Commit; otherwise it is rolled back. After a deadlock or the like
// work is called again, with a new transaction.
func (d *database) transact(ctx context.Context, work func(*ownTransaction) error) error {
	return pgkit.Retry(ctx, func() error {
		conn, err := d.pool.Acquire(ctx)
		if err != nil {
			return err
		}
		defer conn.Release() // closes a connection that is still in a transaction
		t := &ownTransaction{conn: conn}
		if err := work(t); err != nil {
			t.rollBack(ctx)
			return err
		}
		return nil
	})
}

// Send implements pgkit.Sender.
func (t *ownTransaction) Send(ctx context.Context, statements ...*pgkit.Statement) error {
	if !t.begun {
		t.begun = true
		statements = append([]*pgkit.Statement{{Text: pgkit.Begin}, {Text: settings}}, statements...)
	}
	return pgkit.PGX(t.conn.Conn()).Send(ctx, statements...)
}

// Commit sends the last statements, and commits.
func (t *ownTransaction) Commit(ctx context.Context, statements ...*pgkit.Statement) error {
	return t.Send(ctx, append(statements, &pgkit.Statement{Text: "commit"})...)
}

// rollBack makes the connection usable for the pool again, or closes it after a second.
func (t *ownTransaction) rollBack(ctx context.Context) {
	conn := t.conn.Conn()
	if conn.IsClosed() || conn.PgConn().TxStatus() == 'I' {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if _, err := conn.Exec(ctx, "rollback"); err != nil {
		_ = conn.Close(ctx)
	}
}

// WithTx returns an outbox in a transaction of the caller, in the database of the store. An
// intent takes effect with the commit, and is as durable: synchronous_commit should be on. The
// outbox is valid until the transaction ends. It is for one goroutine at a time.
//
// Enqueue waits for other transactions that have enqueued the same intent. After an error that
// is not one of package durable's, roll back and begin anew, as after every error of
// PostgreSQL. That includes deadlocks between transactions that enqueue the same intents in
// different orders. Above the isolation level read committed, the commit may fail with 40001.
//
// The transaction may have another search_path, for example that of a tenant. After SET LOCAL
// ROLE, that role needs the rights of the package comment.
func (s *Store) WithTx(tx pgx.Tx) durable.Outbox {
	return s.outbox(pgkit.PGX(tx))
}

// WithSQLTx is WithTx for database/sql, with the driver of pgx/v5/stdlib. It takes more round
// trips, because database/sql cannot send two statements at once.
func (s *Store) WithSQLTx(tx *sql.Tx) durable.Outbox {
	return s.outbox(pgkit.SQL(tx))
}

// outbox applies events in a transaction of the caller. The caller commits it.
func (s *Store) outbox(t pgkit.Sender) durable.Outbox {
	return durable.Within(func(ctx context.Context, e durable.Event) (durable.Result, error) {
		if err := e.Validate(); err != nil {
			return durable.Result{}, err // without a round trip
		}
		a := newApplication(s.joined, []durable.Event{e})
		a.notifies = s.mayNotify(ctx)
		results, last, err := a.run(ctx, t)
		if err == nil {
			err = t.Send(ctx, last...)
		}
		if err != nil {
			return durable.Result{}, pgkit.Ended(ctx, err)
		}
		return results[0], results[0].Err
	})
}
