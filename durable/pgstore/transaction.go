package pgstore

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

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
