package sqlitestore

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/resilienthttp/resilienthttp/idempotency"
	"github.com/resilienthttp/resilienthttp/internal/sqlitekit"
)

// connectionTimeout is the maximum time that Begin waits for a connection while it
// is first in the queue. The application may hold all connections and wait for the
// queue itself; therefore Begin then joins the queue again.
const connectionTimeout = 50 * time.Millisecond

// transaction is an open transaction of transactional work. It is first in the
// store's queue of writers until it ends.
type transaction struct {
	store  *Store
	record idempotency.Record // as it will be stored
	tx     *sql.Tx
	conn   *sql.Conn
	limit  *time.Timer // nil: no limit
	over   bool
	end    func() // idempotent

	readOnly bool // the connection cannot write

	// commits permits a commit: see guard.
	commits atomic.Bool
}

// Begin implements idempotency.Transactor. Value is a *sql.Tx of DB, of an immediate
// transaction. A record that is completed is found without a lock.
//
// The transaction has SQLite's write lock, and other writers wait: keep it short. A
// claim for the same operation gets DecisionInProgress at once in this process, and waits
// for the lock in others.
//
// ctx bounds the wait for the lock, not the transaction. After limit the transaction
// is rolled back. The work must not end the transaction: SQLite rolls back a COMMIT
// of the work, by the connection's commit hook, which Begin replaces.
func (s *Store) Begin(
	ctx context.Context, claim idempotency.Claim, limit time.Duration,
) (idempotency.Reservation, idempotency.Transaction, error) {
	var t *transaction
	answer, err := s.claim(ctx, &claim, func(f *finding) (_ *idempotency.Record, err error) {
		if f.step == idempotency.StepMarkUnknown {
			return s.apply(ctx, f, &claim)
		}
		if t, err = s.begin(ctx, f, &claim, limit); err != nil {
			return nil, err
		}
		return &t.record, nil
	})
	if err != nil || t == nil {
		return notAcquired(answer), nil, err
	}
	return answer, t, nil
}

// begin joins the queue first and takes a connection second. In the other order
// waiting writers would hold all connections of a small pool, and the first could
// not read beside its transaction.
func (s *Store) begin(ctx context.Context, f *finding, claim *idempotency.Claim, limit time.Duration) (*transaction, error) {
	if _, active := s.active.LoadOrStore(claim.ID, nil); active {
		return nil, errActive
	}
	w := &sqlitekit.Waiter{}
	t := &transaction{store: s}
	t.end = sync.OnceFunc(func() {
		if t.conn != nil {
			t.unhook()
			_ = t.conn.Close() // returns it to the pool
		}
		s.active.Delete(claim.ID)
		s.kit.Leave(w)
	})
	err := s.kit.Enter(ctx, w, s.kit.LockTimeout())
	if err == nil {
		err = s.probe(ctx)
	}
	if err == nil {
		err = t.connect(ctx)
	}
	if err == nil {
		err = t.open(ctx, f, claim)
	}
	if err != nil {
		t.rollback()
		return nil, err
	}
	if limit > 0 {
		t.limit = time.AfterFunc(limit, t.rollback)
	}
	return t, nil
}

// connect returns errChanged if there is no connection: the claim begins again.
func (t *transaction) connect(ctx context.Context) (err error) {
	kit := t.store.kit
	if err := errors.Join(kit.Usable(ctx), kit.File.Check()); err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, connectionTimeout)
	defer cancel()
	switch t.conn, err = kit.Work.Conn(limited); {
	case err == nil:
		return sqlitekit.OnConn(t.conn, t.guard)
	case limited.Err() != nil && ctx.Err() == nil:
		return errChanged
	default:
		return err
	}
}

// guard lets only Commit commit: not the work, and not each later statement after a
// statement that has rolled the transaction back.
func (t *transaction) guard(c sqlitekit.Conn) (err error) {
	c.RegisterCommitHook(func() int32 {
		if t.commits.Load() {
			return 0
		}
		return 1 // SQLite rolls back.
	})
	t.readOnly, err = c.IsReadOnly("main")
	return err
}

func (t *transaction) unhook() {
	_ = sqlitekit.OnConn(t.conn, func(c sqlitekit.Conn) error {
		c.RegisterCommitHook(nil)
		return nil
	})
}

// open begins the transaction and reads the record again, which cannot change from
// then on.
func (t *transaction) open(ctx context.Context, f *finding, claim *idempotency.Claim) error {
	if err := t.lock(ctx); err != nil {
		return err
	}
	statement, args := absent, idArgs(claim.ID)
	if f.judged != nil {
		statement, args = unchanged, asJudgedArgs(f.judged)
	}
	var clock int64
	n, err := sqlitekit.ReadRows(context.WithoutCancel(ctx), t.statement(statement), args, func(rows *sql.Rows) error {
		return rows.Scan(&clock)
	})
	if err == nil && n == 0 {
		err = errChanged
	}
	rounded := *claim
	rounded.Lease, rounded.TTL = ceil(claim.Lease), ceil(claim.TTL)
	t.record = rounded.Begun(f.judged, timeOf(clock))
	return err
}

func ceil(d time.Duration) time.Duration { return time.Duration(millis(d)) * time.Millisecond }

// lock begins the transaction and takes the write lock.
func (t *transaction) lock(ctx context.Context) error {
	kit := t.store.kit
	if !kit.Owned { // each connection has its own setting
		if err := sqlitekit.CheckSynchronous(ctx, t.conn); err != nil {
			return fmt.Errorf("sqlitestore: %w", err)
		}
	}
	if err := t.setBusyTimeout(0); err != nil {
		return err
	}
	err := kit.Retry(ctx, kit.LockTimeout(), func() error { return t.tryLock(context.WithoutCancel(ctx)) })
	return errors.Join(err, t.setBusyTimeout(kit.BusyTimeout))
}

// tryLock does not wait. A first statement that writes takes the lock if the
// transactions of New's database are deferred, and fails if the database cannot be
// written. SQLite begins an immediate transaction there without an error.
func (t *transaction) tryLock(ctx context.Context) error {
	tx, err := t.conn.BeginTx(ctx, nil)
	if err == nil && (!t.store.kit.Owned || t.readOnly) {
		if _, err = tx.ExecContext(ctx, lockSQL); err != nil {
			_ = tx.Rollback()
		}
	}
	if err == nil {
		t.tx = tx
	}
	return err
}

// setBusyTimeout sets the connection's busy timeout in milliseconds. SQLite's own
// wait would continue after the end of the context.
func (t *transaction) setBusyTimeout(millis int64) error {
	_, err := t.conn.ExecContext(context.Background(), fmt.Sprintf("PRAGMA busy_timeout(%d)", millis))
	if err != nil {
		t.discard() // The pool must not get it with another timeout.
		return fmt.Errorf("sqlitestore: set the busy timeout: %w", err)
	}
	return nil
}

// statement returns a prepared statement of the pool in the transaction.
func (t *transaction) statement(text string) sqlitekit.Statement {
	prepared := t.store.forWork[text].(*sql.Stmt) //nolint:errcheck // prepare stores nothing else
	return t.tx.StmtContext(context.Background(), prepared)
}

// Value implements idempotency.Transaction. It returns a *sql.Tx.
func (t *transaction) Value() any { return t.tx }

// Commit implements idempotency.Transaction. The end of ctx does not interrupt a commit
// that has begun.
func (t *transaction) Commit(ctx context.Context, outcome idempotency.Outcome) error {
	return t.finish(ctx, &outcome, func(ctx context.Context) error {
		err := writeOutcome(ctx, t.statement(finish), &t.record, &outcome)
		if err != nil {
			return explain(err)
		}
		t.commits.Store(true)
		return explain(t.store.written(t.tx.Commit()))
	})
}

// RollbackAndRecord implements idempotency.Transaction. The outcome has a transaction of
// its own. ErrLeaseLost means that another process has written the record before it.
func (t *transaction) RollbackAndRecord(ctx context.Context, outcome idempotency.Outcome) error {
	return t.finish(ctx, &outcome, func(lasting context.Context) error {
		t.undo()
		kit := t.store.kit
		return kit.Retry(ctx, kit.LockTimeout(), func() error {
			return writeOutcome(lasting, t.store.forWriting[finish], &t.record, &outcome)
		})
	})
}

// finish ends the transaction by write, or rolls it back.
func (t *transaction) finish(ctx context.Context, outcome *idempotency.Outcome, write func(context.Context) error) error {
	if !t.close() {
		return fmt.Errorf("sqlitestore: the transaction is over, or its limit has passed: %w", sql.ErrTxDone)
	}
	defer t.rollback() // after Commit it only ends the turn in the queue
	if err := errors.Join(outcome.Validate(), ctx.Err()); err != nil {
		return err
	}
	return write(context.WithoutCancel(ctx))
}

// close reports whether the transaction was open.
func (t *transaction) close() bool {
	if t.over || t.limit != nil && !t.limit.Stop() {
		return false
	}
	t.over = true
	return true
}

// explain says what the work has done to the transaction if its record cannot be written, or if COMMIT finds that a
// deferred constraint is violated. Nothing was written, and a repetition fails in the same way.
func explain(err error) error {
	const primary = 0xff // the bits of an extended code that are its primary one
	var e *sqlite.Error
	switch {
	case errors.Is(err, sql.ErrTxDone):
		return fmt.Errorf("%w: sqlitestore: the work has ended the transaction (by a deferred Rollback?): %w", idempotency.ErrUncommittable, err)
	case errors.As(err, &e) && e.Code()&primary == sqlite3.SQLITE_CONSTRAINT:
		return fmt.Errorf("%w: sqlitestore: %w", idempotency.ErrUncommittable, err)
	default:
		return err
	}
}

// Rollback implements idempotency.Transaction.
func (t *transaction) Rollback(context.Context) error {
	if t.close() {
		t.rollback()
	}
	return nil
}

func (t *transaction) rollback() {
	if t.tx != nil {
		t.undo()
	}
	t.end()
}

// undo cannot fail: SQLite rolls back when it closes a connection.
func (t *transaction) undo() {
	if err := t.tx.Rollback(); err != nil && !errors.Is(err, sql.ErrTxDone) {
		t.discard()
	}
}

// discard closes the connection.
func (t *transaction) discard() {
	t.unhook()
	_ = t.conn.Raw(func(any) error { return sqldriver.ErrBadConn })
}
