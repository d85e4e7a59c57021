package sqlitestore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/resilienthttp/resilienthttp/durable"
	"github.com/resilienthttp/resilienthttp/durable/internal/sqlquery"
	"github.com/resilienthttp/resilienthttp/idempotency"
	"github.com/resilienthttp/resilienthttp/internal/sqlitekit"
)

// database implements sqlquery.Database.
type database struct {
	kit         *sqlitekit.DB
	write, read statements
}

// statements are those that are prepared in a pool. They are closed with it.
type statements map[string]*sql.Stmt

func (s statements) prepare(ctx context.Context, db *sql.DB) error {
	for _, text := range prepared() {
		if s[text] != nil {
			continue // the last one has met a lock
		}
		ready, err := db.PrepareContext(ctx, fill(text)) //nolint:sqlclosecheck // with the pool
		if err != nil {
			return fmt.Errorf("sqlitestore: prepare %s: %w", text, err)
		}
		s[text] = ready
	}
	return nil
}

// Read implements sqlquery.Database.
func (d *database) Read(ctx context.Context, read func(context.Context, sqlquery.Session) error) error {
	return d.kit.Reading(ctx, func(ctx context.Context) error {
		return read(ctx, session(func(text string) sqlitekit.Statement {
			if ready := d.read[text]; ready != nil {
				return ready
			}
			return sqlitekit.In(d.kit.Read, fill(text))
		}))
	})
}

// List implements sqlquery.Database.
func (d *database) List(ctx context.Context, read func(context.Context, sqlquery.Session) error) error {
	return d.Read(ctx, read)
}

// Write implements sqlquery.Database.
func (d *database) Write(ctx context.Context, write func(context.Context, sqlquery.Transaction) error) error {
	return d.transact(ctx, false, func(ctx context.Context, t *transaction) error { return write(ctx, t) })
}

// Key implements sqlquery.Database.
func (*database) Key(id idempotency.ID) []any { return []any{id.Scope, id.Operation, id.Key} }

// transact calls work with a transaction that has the write lock. Callers that hold leases go first.
func (d *database) transact(ctx context.Context, holds bool, work func(ctx context.Context, t *transaction) error) error {
	return d.kit.Transact(ctx, &sqlitekit.Waiter{HoldsLease: holds}, func(ctx context.Context, tx *sql.Tx) error {
		t, err := newTransaction(ctx, tx, d.write)
		if err != nil {
			return err
		}
		return work(ctx, t)
	})
}

// session runs statements, which the function makes ready.
type session func(text string) sqlitekit.Statement

// Query implements sqlquery.Session.
func (s session) Query(ctx context.Context, text string, args []any, scan func(sqlquery.Row) error) error {
	if scan == nil {
		return s.exec(ctx, text, args...)
	}
	_, err := sqlitekit.ReadRows(ctx, s(text), inMicros(args), func(rows *sql.Rows) error { return scan(rows) })
	return err
}

func (s session) exec(ctx context.Context, text string, args ...any) error {
	_, err := s.affected(ctx, text, args...)
	return err
}

// affected is exec, and returns how many rows were changed.
func (s session) affected(ctx context.Context, text string, args ...any) (int, error) {
	return sqlitekit.Affected(s(text).ExecContext(ctx, inMicros(args)...))
}

// errNoRow cannot happen.
var errNoRow = errors.New("sqlitestore: a row was deleted")

// must is exec of a statement that changes one row.
func (s session) must(ctx context.Context, text string, args ...any) error {
	n, err := s.affected(ctx, text, args...)
	if err == nil && n != 1 {
		err = fmt.Errorf("%w: %s", errNoRow, text)
	}
	return err
}

// inMicros replaces times, and no time by NULL.
func inMicros(args []any) []any {
	args = slices.Clone(args)
	for i, arg := range args {
		switch at, ok := arg.(time.Time); {
		case ok && at.IsZero():
			args[i] = nil
		case ok:
			args[i] = at.UnixMicro()
		}
	}
	return args
}

// transaction has the write lock, and the time at which it began.
type transaction struct {
	session

	now time.Time
}

// newTransaction returns a transaction that prepares each statement once. Without prepared statements it uses the texts.
func newTransaction(ctx context.Context, tx *sql.Tx, from statements) (*transaction, error) {
	ready := make(map[string]sqlitekit.Statement)
	t := &transaction{session: func(text string) sqlitekit.Statement {
		if ready[text] == nil {
			if from[text] == nil {
				ready[text] = sqlitekit.In(tx, fill(text))
			} else {
				ready[text] = tx.StmtContext(context.Background(), from[text])
			}
		}
		return ready[text]
	}}
	var micros int64
	err := t.Query(ctx, sqlquery.Clock, nil, func(from sqlquery.Row) error { return from.Scan(&micros) })
	t.now = time.UnixMicro(micros).UTC()
	return t, err
}

// Now implements sqlquery.Transaction.
func (t *transaction) Now(context.Context) (time.Time, error) { return t.now, nil }

// Apply implements sqlquery.Transaction.
func (t *transaction) Apply(ctx context.Context, events []durable.Event) ([]durable.Result, error) {
	results := make([]durable.Result, len(events))
	for i := range events {
		var err error
		if results[i], err = t.apply(ctx, &events[i]); err != nil {
			return nil, err
		}
	}
	return results, nil
}
