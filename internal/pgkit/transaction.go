package pgkit

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Durable is an expression that has a transaction flushed to disk before its COMMIT
// returns, whatever the database's default. A session that asks for more, or is told so
// by the database, keeps that.
const Durable = `CASE WHEN current_setting('synchronous_commit') NOT IN ('on', 'remote_apply')
	THEN set_config('synchronous_commit', 'on', true) END`

// Begin begins a transaction whose statements see what was committed before them,
// whatever the database's default.
const Begin = `begin isolation level read committed`

// Transaction is one on a connection of its own. BEGIN goes in one round trip with the
// first statements, and COMMIT with the last.
type Transaction struct {
	first *Statement // sent after BEGIN
	conn  *pgxpool.Conn
	begun bool
}

// Transact calls work with a transaction, which ends it with Commit; else it is rolled
// back. setting is a statement sent at its beginning, "" none. work is called again
// after an error that Again knows.
func Transact(ctx context.Context, pool *pgxpool.Pool, setting string, work func(*Transaction) error) error {
	return Retry(ctx, func() error {
		conn, err := pool.Acquire(ctx)
		if err != nil {
			return err
		}
		defer conn.Release() // which closes it if it is in a transaction still
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

// rollBack keeps the connection for the pool, if that does not take long.
func (t *Transaction) rollBack(ctx context.Context) {
	conn := t.conn.Conn()
	if conn.IsClosed() || conn.PgConn().TxStatus() == 'I' {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if _, err := conn.Exec(ctx, "rollback"); err != nil {
		_ = conn.Close(ctx) // It is of no use any more.
	}
}

// Ended is err, or the context's own error if that has ended.
func Ended(ctx context.Context, err error) error {
	if err == nil || ctx.Err() == nil || errors.Is(err, ctx.Err()) {
		return err
	}
	return errors.Join(ctx.Err(), err)
}
