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

	"github.com/resilienthttp/resilienthttp/idempotency/driver"
	"github.com/resilienthttp/resilienthttp/internal/sqlitekit"
)

// connectionPatience is how long Begin, when it is its turn to write, waits for a
// connection of the work's pool. Somebody who has one may be waiting for a turn:
// then it steps back, and lines up again.
const connectionPatience = 50 * time.Millisecond

// transaction is an open transaction of joined work. It has the store's turn to
// write until it ends.
type transaction struct {
	store  *Store
	record driver.Record // as it will be
	tx     *sql.Tx
	conn   *sql.Conn
	limit  *time.Timer // nil: none
	over   bool        // ended by Commit, Refuse or Rollback
	end    func()      // idempotent

	// commits says that it is the store that commits. Before, nothing can: see guard.
	commits atomic.Bool
}

// Begin implements idempotency.Transactor. Value is a *sql.Tx of DB's database, of
// an immediate transaction. Where New was given the database, it comes from that.
//
// What is finished is found without a lock. SQLite has one write lock for all, and
// the transaction has it from here to its end, while other writers wait: begin
// late and end soon. Who claims the same operation meanwhile is told Busy at once in
// this process, and in others waits for the lock, as all who write, and then finds
// the record.
//
// ctx bounds the waiting for the lock; the transaction does not end with it. After
// limit it is rolled back, and Commit fails.
//
// The work must leave the end to Commit, Refuse and Rollback. It cannot commit by
// itself: SQLite is told to roll back instead, by the connection's commit hook, in
// whose place Begin puts its own.
func (s *Store) Begin(
	ctx context.Context, claim driver.Claim, limit time.Duration,
) (driver.Reservation, driver.Transaction, error) {
	var t *transaction
	answer, err := s.claim(ctx, &claim, func(l *look) (_ *driver.Record, err error) {
		if l.step == driver.StepMarkUnknown {
			return s.apply(ctx, l, &claim)
		}
		t, err = s.begin(ctx, l, &claim, limit)
		switch {
		case errors.Is(err, errChanged), errors.Is(err, errNoConnection):
			return nil, nil //nolint:nilnil // once more
		case err != nil:
			return nil, err
		}
		return &t.record, nil
	})
	if err == nil && t != nil {
		return answer, t, nil
	}
	return leased(answer), nil, err
}

// leased is what joined work is told where nothing is to be done. The lease that a
// detached execution holds is none for it, be it of the same owner.
func leased(answer driver.Reservation) driver.Reservation {
	if answer.Decision == driver.Acquired {
		answer.Decision = driver.DecisionInProgress
	}
	return answer
}

var (
	errNoConnection = errors.New("sqlitestore: no connection is free")
	errChanged      = errors.New("sqlitestore: the record has changed before the lock was had")
)

// begin takes the turn first and a connection second. The other way around those
// who wait for their turn would hold all connections of a small pool, and the one
// whose turn it is could not read anything beside its transaction.
func (s *Store) begin(
	ctx context.Context, l *look, claim *driver.Claim, limit time.Duration,
) (*transaction, error) {
	k := &ticket{claims: &claim.ID, joins: true}
	if err := s.queue(ctx, k, s.kit.Patience()); err != nil {
		return nil, err
	}
	conn, err := s.workConnection(ctx)
	if err != nil {
		s.leave(k)
		return nil, err
	}
	t := &transaction{store: s, conn: conn}
	t.end = sync.OnceFunc(func() {
		t.unguard()
		_ = conn.Close() // gives it back to the pool
		s.leave(k)
	})
	if err := t.open(ctx, l, claim); err != nil {
		if t.tx != nil {
			t.undo()
		}
		t.end()
		return nil, err
	}
	if limit > 0 {
		t.limit = time.AfterFunc(limit, t.rollback)
	}
	return t, nil
}

func (s *Store) workConnection(ctx context.Context) (*sql.Conn, error) {
	if err := s.kit.Usable(ctx); err != nil {
		return nil, err
	}
	if err := s.kit.File.Check(); err != nil {
		return nil, err
	}
	limited, cancel := context.WithTimeout(ctx, connectionPatience)
	defer cancel()
	conn, err := s.kit.Work.Conn(limited)
	switch {
	case err == nil:
		return conn, nil
	case limited.Err() != nil && ctx.Err() == nil:
		return nil, errNoConnection
	default:
		return nil, err
	}
}

// open begins in the database, and looks once more at the record, which nobody
// else can change from here on. ctx ends the waiting for the lock, but not the
// transaction.
func (t *transaction) open(ctx context.Context, l *look, claim *driver.Claim) error {
	if err := t.lock(ctx); err != nil {
		return err
	}
	if err := t.guard(); err != nil {
		return err
	}
	same, args := unwritten, idArgs(claim.ID)
	if l.judged != nil {
		same, args = still, asJudgedArgs(l.judged)
	}
	var clock int64
	n, err := sqlitekit.ReadRows(context.WithoutCancel(ctx), t.statement(same), args, func(rows *sql.Rows) error {
		return rows.Scan(&clock)
	})
	if err == nil && n == 0 {
		err = errChanged
	}
	t.record = begun(l.judged, claim, clock)
	return err
}

// begun is the record of an execution that begins now.
func begun(before *driver.Record, claim *driver.Claim, now int64) driver.Record {
	generation := int64(1)
	if before != nil {
		generation = before.Generation + 1
	}
	return driver.Record{
		ID: claim.ID, Fingerprint: claim.Fingerprint, Status: driver.InProgress,
		Owner: claim.Owner, Generation: generation, Takeover: claim.Takeover,
		Started: timeOf(now), Updated: timeOf(now),
		LeaseExpires: timeOf(now + millis(claim.Lease)), Expires: timeOf(now + millis(claim.TTL)),
	}
}

// lock begins the transaction with the write lock.
func (t *transaction) lock(ctx context.Context) error {
	s := t.store
	if !s.kit.Owned {
		if err := sqlitekit.CheckSynchronous(ctx, t.conn); err != nil {
			return err
		}
	}
	if err := t.setBusyTimeout(0); err != nil {
		return err
	}
	err := s.kit.Retry(ctx, s.kit.Patience(), func() error { return t.try(context.WithoutCancel(ctx)) })
	return errors.Join(err, t.setBusyTimeout(s.kit.BusyTimeout))
}

// try begins without waiting for a lock. Whether the connection begins its
// transactions as immediate ones is New's caller's affair; a first statement that
// writes makes one of any.
func (t *transaction) try(ctx context.Context) error {
	tx, err := t.conn.BeginTx(ctx, nil)
	if err == nil && !t.store.kit.Owned {
		if _, err = tx.ExecContext(ctx, lockSQL); err != nil {
			_ = tx.Rollback()
		}
	}
	if err == nil {
		t.tx = tx
	}
	return err
}

// setBusyTimeout sets that of the connection, in milliseconds. SQLite's own
// waiting would go on when the context has ended.
func (t *transaction) setBusyTimeout(millis int64) error {
	_, err := t.conn.ExecContext(context.Background(), fmt.Sprintf("PRAGMA busy_timeout(%d)", millis))
	if err != nil {
		t.discard() // nobody shall find the connection like this
		return fmt.Errorf("sqlitestore: %w", err)
	}
	return nil
}

// guard sees to it that nothing is committed on the connection but by Commit: not by
// the work's own Commit, and not, after a statement that took the transaction with
// it, by each of those that follow.
func (t *transaction) guard() error {
	return t.setCommitHook(func() int32 {
		if t.commits.Load() {
			return 0
		}
		return 1 // SQLite rolls back
	})
}

func (t *transaction) unguard() { _ = t.setCommitHook(nil) }

func (t *transaction) setCommitHook(hook sqlite.CommitHookFn) error {
	return t.conn.Raw(func(c any) error {
		hooks, ok := sqlitekit.DriverConn(c).(sqlite.HookRegisterer)
		if !ok {
			return fmt.Errorf("sqlitestore: the connection is a %T, without hooks", c)
		}
		hooks.RegisterCommitHook(hook)
		return nil
	})
}

func (t *transaction) statement(which int) sqlitekit.Statement {
	return t.tx.StmtContext(context.Background(), t.store.joined[which])
}

// Value implements idempotency.Transaction. It is a *sql.Tx.
func (t *transaction) Value() any { return t.tx }

// Commit implements idempotency.Transaction. Once it has begun to commit, the end
// of ctx does not matter.
func (t *transaction) Commit(ctx context.Context, outcome driver.Outcome) error {
	return t.finish(ctx, &outcome, func(ctx context.Context) error {
		err := writeLease(ctx, t.statement(finish), finishArgs(&t.record, &outcome))
		if err != nil {
			return whyOver(err)
		}
		t.commits.Store(true)
		return t.tx.Commit()
	})
}

// Refuse implements idempotency.Transaction. The outcome has a transaction of its
// own. Should somebody of another process come between, it is ErrLeaseLost.
func (t *transaction) RollbackAndRecord(ctx context.Context, outcome driver.Outcome) error {
	return t.finish(ctx, &outcome, func(context.Context) error {
		t.undo()
		s := t.store
		return s.kit.Retry(ctx, s.kit.Patience(), func() error {
			return writeLease(context.WithoutCancel(ctx), s.write.finish, finishArgs(&t.record, &outcome))
		})
	})
}

// finish ends the transaction by write, or rolls it back.
func (t *transaction) finish(ctx context.Context, outcome *driver.Outcome, write func(context.Context) error) error {
	if t.over || t.limit != nil && !t.limit.Stop() {
		return fmt.Errorf("sqlitestore: the transaction is over, perhaps by its limit: %w", sql.ErrTxDone)
	}
	t.over = true
	defer t.rollback() // after Commit it only gives the turn away
	if err := outcome.Validate(); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return write(context.WithoutCancel(ctx))
}

// whyOver is err, of the statement that was to write the record, in words that
// say what the work has done to its transaction. Nothing was written.
func whyOver(err error) error {
	var e *sqlite.Error
	switch {
	case errors.Is(err, sql.ErrTxDone):
		return fmt.Errorf("sqlitestore: the work has ended the transaction by itself, by a deferred Rollback perhaps, "+
			"and nothing was written: it ends with the operation's outcome: %w", err)
	case errors.As(err, &e) && e.Code() == sqlite3.SQLITE_CONSTRAINT_COMMITHOOK:
		return fmt.Errorf("%w: %w", driver.ErrTransactionFailed, err)
	default:
		return err
	}
}

// Rollback implements idempotency.Transaction.
func (t *transaction) Rollback(context.Context) error {
	if t.over || t.limit != nil && !t.limit.Stop() {
		return nil
	}
	t.over = true
	t.rollback()
	return nil
}

func (t *transaction) rollback() {
	t.undo()
	t.end()
}

// undo cannot fail: SQLite undoes what is open on a connection that is closed.
func (t *transaction) undo() {
	if err := t.tx.Rollback(); err != nil && !errors.Is(err, sql.ErrTxDone) {
		t.discard()
	}
}

// discard closes the connection.
func (t *transaction) discard() {
	t.unguard()
	_ = t.conn.Raw(func(any) error { return sqldriver.ErrBadConn })
}
