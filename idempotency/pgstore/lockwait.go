package pgstore

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/resilienthttp/resilienthttp/idempotency"
	"github.com/resilienthttp/resilienthttp/internal/pgkit"
)

// maxLockWait is the longest time for which a claim waits for a lock on the table, as a migration
// or VACUUM FULL takes it. A session with a stricter lock_timeout waits that long several times.
const maxLockWait = time.Second

const (
	// limitWait is an expression that sets lock_timeout until the end of the transaction, unless
	// the session is stricter.
	limitWait = `CASE WHEN current_setting('lock_timeout') = '0' THEN set_config('lock_timeout', '1s', true)
	WHEN current_setting('lock_timeout')::interval > '1 s' THEN set_config('lock_timeout', '1s', true) END`

	// noteWait and restoreWait give transactional work the lock_timeout of its session. Outside of a transaction restoreWait
	// does nothing.
	noteWait    = `set_config('pgstore.lock_timeout', current_setting('lock_timeout'), true)`
	restoreWait = `SELECT CASE WHEN current_setting('pgstore.lock_timeout', true) <> ''
	THEN set_config('lock_timeout', current_setting('pgstore.lock_timeout'), true) END`
)

// limited sends statements as one transaction that waits for locks for at most maxLockWait, and is on disk when it has committed.
type limited struct {
	conn    *connection
	through pgkit.Sender
}

// Send implements pgkit.Sender.
func (l limited) Send(ctx context.Context, statements ...*pgkit.Statement) error {
	limit := &pgkit.Statement{Text: "SELECT num_nulls(" + limitWait + ", " + pgkit.Durable + ")"}
	if l.conn.knows(statements) {
		err := l.through.Send(ctx, append([]*pgkit.Statement{limit}, statements...)...)
		if err != nil {
			l.conn.forget(ctx, statements)
		}
		return err
	}
	// New statements are prepared before the first one is executed, and the server waits for the
	// table's lock then.
	through := pgkit.PGX(l.conn)
	err := through.Send(ctx, &pgkit.Statement{Text: pgkit.Begin}, limit)
	for i := 0; i < len(statements) && err == nil; i++ {
		if err = l.conn.prepare(ctx, statements[i]); err == nil {
			err = through.Send(ctx, statements[i])
		}
	}
	if err == nil {
		err = through.Send(ctx, &pgkit.Statement{Text: "commit"})
	}
	if err != nil {
		l.conn.rollBack(ctx)
		l.conn.forget(ctx, statements)
		return err
	}
	l.conn.learn(statements)
	return nil
}

// knownStatements is the key of the texts that a connection need not prepare again.
const knownStatements = "github.com/resilienthttp/resilienthttp/idempotency/pgstore"

func (c *connection) knows(statements []*pgkit.Statement) bool {
	known, _ := c.PgConn().CustomData()[knownStatements].(map[string]bool)
	return !slices.ContainsFunc(statements, func(s *pgkit.Statement) bool { return !known[s.Text] })
}

func (c *connection) mode() pgx.QueryExecMode { return c.Config().DefaultQueryExecMode }

// prepare prepares a statement until it is forgotten. pgx removes those that it prepares by itself
// when the program has many others.
func (c *connection) prepare(ctx context.Context, statement *pgkit.Statement) error {
	if c.mode() != pgx.QueryExecModeCacheStatement {
		return nil
	}
	_, err := c.Prepare(ctx, statement.Text, statement.Text)
	return err
}

// learn notes statements that have been executed, unless pgx asks the server for their types again.
func (c *connection) learn(statements []*pgkit.Statement) {
	if mode := c.mode(); mode == pgx.QueryExecModeCacheDescribe || mode == pgx.QueryExecModeDescribeExec {
		return
	}
	known, ok := c.PgConn().CustomData()[knownStatements].(map[string]bool)
	if !ok {
		known = make(map[string]bool)
		c.PgConn().CustomData()[knownStatements] = known
	}
	for _, each := range statements {
		known[each.Text] = true
	}
}

// forget lets statements be prepared again, because they failed: a migration may have changed their
// types, or DISCARD ALL has removed them.
func (c *connection) forget(ctx context.Context, statements []*pgkit.Statement) {
	delete(c.PgConn().CustomData(), knownStatements)
	if c.IsClosed() || c.mode() != pgx.QueryExecModeCacheStatement {
		return
	}
	ctx, cancel := endContext(ctx)
	defer cancel()
	for _, each := range statements {
		if err := c.Deallocate(ctx, each.Text); err != nil {
			_ = c.Close(ctx) // The first error is what matters.
			return
		}
	}
}

// rollBack ends the transaction of statements that failed, or closes the connection.
func (c *connection) rollBack(ctx context.Context) {
	if c.IsClosed() || c.PgConn().TxStatus() == 'I' {
		return
	}
	ctx, cancel := endContext(ctx)
	defer cancel()
	if _, err := c.Exec(ctx, "rollback"); err != nil {
		_ = c.Close(ctx) // The first error is what matters.
	}
}

// lockError translates the error of a claim that has waited for a lock long enough.
func lockError(began time.Time, err error) error {
	if pgkit.HasCode(err, pgkit.LockNotAvailable) && time.Since(began) >= maxLockWait {
		return fmt.Errorf("%w: pgstore: the table was locked for %v, perhaps by a migration or VACUUM FULL", idempotency.ErrStoreBusy, maxLockWait)
	}
	return err
}
