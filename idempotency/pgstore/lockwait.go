package pgstore

import (
	"context"
	"fmt"
	"time"

	"github.com/resilienthttp/resilienthttp/idempotency/driver"
	"github.com/resilienthttp/resilienthttp/internal/pgkit"
)

// maxLockWait is the longest time for which a claim waits for a lock on the table, as a migration
// or VACUUM FULL takes it. A session with a stricter lock_timeout waits that long several times.
const maxLockWait = time.Second

const (
	// limitWait is an expression that sets lock_timeout until the end of the transaction, unless
	// the session is stricter.
	limitWait = `CASE WHEN current_setting('lock_timeout')::interval NOT BETWEEN '1 ms' AND '1 s'
	THEN set_config('lock_timeout', '1s', true) END`

	// noteWait and restoreWait give transactional work the lock_timeout of its session.
	noteWait    = `set_config('pgstore.lock_timeout', current_setting('lock_timeout'), true)`
	restoreWait = `SELECT set_config('lock_timeout', current_setting('pgstore.lock_timeout'), true)`
)

// limited sends statements as one transaction that waits for locks for at most maxLockWait.
type limited struct {
	conn    *connection
	through pgkit.Sender
}

// Send implements pgkit.Sender.
func (l limited) Send(ctx context.Context, statements ...*pgkit.Statement) error {
	limit := &pgkit.Statement{Text: "SELECT " + limitWait}
	if l.conn.knows(statements) {
		err := l.through.Send(ctx, append([]*pgkit.Statement{limit}, statements...)...)
		if err != nil {
			delete(l.conn.PgConn().CustomData(), knownStatements) // pgx prepares them again
		}
		return err
	}
	// pgx prepares new statements before the first one is executed, and the server waits for the
	// table's lock then.
	through := pgkit.PGX(l.conn)
	err := through.Send(ctx, &pgkit.Statement{Text: pgkit.Begin}, limit)
	for i := 0; i < len(statements) && err == nil; i++ {
		err = through.Send(ctx, statements[i])
	}
	if err == nil {
		err = through.Send(ctx, &pgkit.Statement{Text: "commit"})
	}
	if err != nil {
		l.conn.rollBack(ctx)
		return err
	}
	l.conn.learn(statements)
	return nil
}

// knownStatements is the key of the texts that a connection has executed in a claim.
const knownStatements = "github.com/resilienthttp/resilienthttp/idempotency/pgstore"

func (c *connection) knows(statements []*pgkit.Statement) bool {
	known, _ := c.PgConn().CustomData()[knownStatements].(map[string]bool)
	for _, each := range statements {
		if !known[each.Text] {
			return false
		}
	}
	return true
}

func (c *connection) learn(statements []*pgkit.Statement) {
	known, ok := c.PgConn().CustomData()[knownStatements].(map[string]bool)
	if !ok {
		known = make(map[string]bool)
		c.PgConn().CustomData()[knownStatements] = known
	}
	for _, each := range statements {
		known[each.Text] = true
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
		return fmt.Errorf("%w: pgstore: the table was locked for %v, perhaps by a migration or VACUUM FULL", driver.ErrStoreBusy, maxLockWait)
	}
	return err
}
