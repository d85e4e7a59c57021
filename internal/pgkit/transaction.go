package pgkit

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Durable is an SQL expression that makes COMMIT wait until the transaction is on disk,
// whatever the database's default. A stricter setting of the session stays.
const Durable = `CASE WHEN current_setting('synchronous_commit') NOT IN ('on', 'remote_apply')
	THEN set_config('synchronous_commit', 'on', true) END`

// Begin begins a transaction with statements that see all earlier commits, whatever the database's default isolation.
const Begin = `begin isolation level read committed`

// Transaction is a transaction on its own connection. BEGIN shares a round trip with the
// first statements, and COMMIT with the last.
type Transaction struct {
	first *Statement // sent after BEGIN
	conn  *pgxpool.Conn
	begun bool
}

// Transact calls work with a transaction. work ends it with Commit; otherwise it is rolled back. setting is a statement
// that is sent at its beginning; "" means none. After a Retryable error work is called again, with a new transaction.
func Transact(ctx context.Context, pool *pgxpool.Pool, setting string, work func(*Transaction) error) error {
	return Retry(ctx, func() error {
		conn, err := pool.Acquire(ctx)
		if err != nil {
			return err
		}
		defer conn.Release() // closes a connection that is still in a transaction
		t := &Transaction{conn: conn}
		if setting != "" {
			t.first = &Statement{Text: setting}
		}
		if err := work(t); err != nil {
			t.rollBack(ctx)
			return err
		}
		return nil
	})
}

// Send implements Sender.
func (t *Transaction) Send(ctx context.Context, statements ...*Statement) error {
	if !t.begun {
		t.begun = true
		opening := []*Statement{{Text: Begin}}
		if t.first != nil {
			opening = append(opening, t.first)
		}
		statements = append(opening, statements...)
	}
	return PGX(t.conn.Conn()).Send(ctx, statements...)
}

// Commit sends the last statements, and commits.
func (t *Transaction) Commit(ctx context.Context, statements ...*Statement) error {
	return t.Send(ctx, append(statements, &Statement{Text: "commit"})...)
}

// rollBack makes the connection usable for the pool again, or closes it after a second.
func (t *Transaction) rollBack(ctx context.Context) {
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
