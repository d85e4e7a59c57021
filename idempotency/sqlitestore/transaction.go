package sqlitestore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/resilienthttp/resilienthttp/idempotency"
)

// connectionPatience is how long Begin, when it is its turn to write, waits for a
// connection of the work's pool. Somebody who has one may be waiting for a turn:
// then it steps back, and lines up again.
const connectionPatience = 50 * time.Millisecond

// transaction is an open transaction of the work. It has the store's turn to
// write until it ends.
type transaction struct {
	store *Store
	lease idempotency.Lease
	tx    *sql.Tx
	conn  *sql.Conn
	limit *time.Timer // nil: none
	over  bool        // ended by Commit or Rollback
	end   func()      // idempotent
}

// Begin implements idempotency.Transactor. Value is a *sql.Tx of DB, of an
// immediate transaction.
//
// SQLite has one write lock for all, and the transaction has it from here to its
// end, while other writers wait: begin late and end soon. Who finds the record's
// lease over meanwhile is told Busy, at once in this process and after 100 ms in
// others.
//
// ctx bounds the waiting for the lock; the transaction does not end with it. After
// limit it is rolled back, and Commit fails. The work must leave its end to
// Commit and Rollback.
func (s *Store) Begin(
	ctx context.Context, lease idempotency.Lease, limit time.Duration,
) (idempotency.Transaction, error) {
	if err := lease.ID.Validate(); err != nil {
		return nil, err
	}
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	for {
		t, err := s.begin(ctx, lease, limit)
		if err == errNoConnection {
			continue
		}
		if err != nil {
			return nil, err
		}
		return t, nil
	}
}

var errNoConnection = errors.New("sqlitestore: no connection is free")

// begin takes the turn first and a connection second. The other way around those
// who wait for their turn would hold all connections of a small pool, and the one
// whose turn it is could not read anything beside its transaction.
func (s *Store) begin(ctx context.Context, lease idempotency.Lease, limit time.Duration) (*transaction, error) {
	k := &ticket{work: &lease.ID}
	if err := s.queue(ctx, k, s.patience()); err != nil {
		return nil, err
	}
	conn, err := s.workConnection(ctx)
	if err != nil {
		s.turn.leave(k)
		return nil, err
	}
	t := &transaction{store: s, lease: lease, conn: conn}
	t.end = sync.OnceFunc(func() {
		_ = conn.Close() // gives it back to the pool
		s.turn.leave(k)
	})
	if err := t.open(ctx); err != nil {
		t.end()
		return nil, err
	}
	if limit > 0 {
		t.limit = time.AfterFunc(limit, t.rollback)
	}
	return t, nil
}

func (s *Store) workConnection(ctx context.Context) (*sql.Conn, error) {
	if err := s.file.check(); err != nil {
		return nil, err
	}
	limited, cancel := context.WithTimeout(ctx, connectionPatience)
	defer cancel()
	conn, err := s.db.Conn(limited)
	switch {
	case err == nil:
		return conn, nil
	case limited.Err() != nil && ctx.Err() == nil:
		return nil, errNoConnection
	default:
		return nil, err
	}
}

// open begins in the database. ctx ends the waiting for the lock, but not the
// transaction.
func (t *transaction) open(ctx context.Context) error {
	s := t.store
	if !s.owned {
		if err := checkSynchronous(ctx, t.conn); err != nil {
			return err
		}
	}
	if err := t.setBusyTimeout(0); err != nil {
		return err
	}
	err := s.retry(ctx, s.patience(), func() error { return t.try(context.WithoutCancel(ctx)) })
	err = errors.Join(err, t.setBusyTimeout(s.busyTimeout))
	if err != nil && t.tx != nil {
		_ = t.tx.Rollback()
	}
	return err
}

// try begins without waiting for a lock.
func (t *transaction) try(ctx context.Context) error {
	tx, err := t.conn.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := writeLease(ctx, inTransaction(tx, t.store.hold), leaseArgs(&t.lease)); err != nil {
		_ = tx.Rollback()
		return err
	}
	t.tx = tx
	return nil
}

// setBusyTimeout sets that of the connection, in milliseconds. SQLite's own
// waiting would go on when the context has ended.
func (t *transaction) setBusyTimeout(millis int64) error {
	_, err := t.conn.ExecContext(context.Background(), fmt.Sprintf("PRAGMA busy_timeout(%d)", millis))
	if err != nil { // nobody shall find the connection like this
		_ = t.conn.Raw(func(any) error { return driver.ErrBadConn })
		return fmt.Errorf("sqlitestore: %w", err)
	}
	return nil
}

func inTransaction(tx *sql.Tx, s *sql.Stmt) statement {
	return tx.StmtContext(context.Background(), s)
}

// Value implements idempotency.Transaction. It is a *sql.Tx.
func (t *transaction) Value() any { return t.tx }

// Commit implements idempotency.Transaction. Once it has begun to commit, the end
// of ctx does not matter.
func (t *transaction) Commit(ctx context.Context, outcome idempotency.Outcome) error {
	if t.limit != nil && !t.limit.Stop() {
		return fmt.Errorf("sqlitestore: the transaction was open longer than its limit: %w", sql.ErrTxDone)
	}
	defer t.rollback()
	t.over = true
	if err := outcome.Validate(); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	finish := inTransaction(t.tx, t.store.finish)
	err := writeLease(context.WithoutCancel(ctx), finish, outcomeArgs(&t.lease, &outcome))
	if errors.Is(err, sql.ErrTxDone) {
		return t.ended(ctx)
	}
	if err != nil {
		return err
	}
	return t.tx.Commit()
}

// ended is the error where the work has ended its transaction by itself: what
// holdSQL wrote tells how.
func (t *transaction) ended(ctx context.Context) error {
	r, _, err := t.store.readRecord(ctx, t.lease.ID)
	switch {
	case err != nil:
		return fmt.Errorf("%w: sqlitestore: the work has ended the transaction by itself, and how cannot be found: %w",
			idempotency.ErrUnknown, err)
	case r != nil && r.Status == idempotency.Unknown && r.Lease() == t.lease:
		return fmt.Errorf("%w: sqlitestore: the work has committed the transaction by itself, without its record: "+
			"it ends with the operation's outcome", idempotency.ErrUnknown)
	default:
		return fmt.Errorf("sqlitestore: the work has rolled the transaction back by itself, by a deferred Rollback perhaps: "+
			"it ends with the operation's outcome: %w", sql.ErrTxDone)
	}
}

// Rollback implements idempotency.Transaction.
func (t *transaction) Rollback(ctx context.Context) error {
	inTime := t.limit == nil || t.limit.Stop()
	defer t.end()
	byItself := inTime && !t.over // if it has ended already, the work has done it
	t.over = true
	err := t.tx.Rollback()
	switch {
	case !errors.Is(err, sql.ErrTxDone):
		return err
	case !byItself:
		return nil
	}
	if err := t.ended(ctx); errors.Is(err, idempotency.ErrUnknown) {
		return err
	}
	return nil
}

func (t *transaction) rollback() {
	_ = t.tx.Rollback()
	t.end()
}
