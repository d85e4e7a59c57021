package pgkit

import (
	"context"
	"database/sql"

	"github.com/jackc/pgx/v5"
)

// Statement is an SQL statement with its arguments.
type Statement struct {
	Text string
	Args []any

	// Scan is called with each row. nil: the statement returns no rows.
	Scan func(Row) error

	// Affected is the number of rows that were changed or read. Send sets it.
	Affected int64
}

// Row is a row of a result, of pgx or of database/sql.
type Row = pgx.Row

// Sender sends statements.
type Sender interface {
	// Send sends statements, which are executed in their order. It returns the first
	// error; statements after that one are not executed.
	Send(ctx context.Context, statements ...*Statement) error
}

// PGX sends through a *pgxpool.Pool, a connection or a pgx.Tx: all in one round trip.
// Through a pool or a connection the statements are one transaction.
func PGX(db Querier) Sender { return pgxSender{db} }

// Querier is a *pgxpool.Pool, a connection or a pgx.Tx.
type Querier interface {
	// Query is that of pgx.
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)

	// SendBatch is that of pgx.
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
}

type pgxSender struct{ db Querier }

func (s pgxSender) Send(ctx context.Context, statements ...*Statement) error {
	if len(statements) == 1 { // which a batch would make slower
		each := statements[0]
		return each.receive(s.db.Query(ctx, each.Text, each.Args...))
	}
	if len(statements) == 0 {
		return nil
	}
	var batch pgx.Batch
	for _, each := range statements {
		batch.Queue(each.Text, each.Args...)
	}
	results := s.db.SendBatch(ctx, &batch)
	for _, each := range statements {
		if err := each.receive(results.Query()); err != nil {
			_ = results.Close() // The first error is what matters.
			return err
		}
	}
	return results.Close()
}

// receive reads a result. An error of Query is also the error of its rows.
func (s *Statement) receive(rows pgx.Rows, _ error) error {
	defer rows.Close()
	n := int64(0)
	for ; rows.Next(); n++ {
		if s.Scan == nil {
			continue
		}
		if err := s.Scan(rows); err != nil {
			return err
		}
	}
	if s.Affected = n; s.Scan == nil {
		s.Affected = rows.CommandTag().RowsAffected()
	}
	return rows.Err()
}

// SQL sends through a *sql.Tx, a *sql.Conn or a *sql.DB with the driver of pgx, each
// statement in a round trip of its own.
func SQL(db sqlDB) Sender { return sqlSender{db} }

type sqlDB interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

type sqlSender struct{ sqlDB }

func (s sqlSender) Send(ctx context.Context, statements ...*Statement) error {
	for _, each := range statements {
		if err := s.send(ctx, each); err != nil {
			return err
		}
	}
	return nil
}

func (s sqlSender) send(ctx context.Context, each *Statement) error {
	if each.Scan == nil {
		result, err := s.ExecContext(ctx, each.Text, each.Args...)
		if err != nil {
			return err
		}
		each.Affected, err = result.RowsAffected()
		return err
	}
	rows, err := s.QueryContext(ctx, each.Text, each.Args...)
	if err != nil {
		return err
	}
	defer rows.Close() //nolint:errcheck // Err says more.
	for each.Affected = 0; rows.Next(); each.Affected++ {
		if err := each.Scan(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// Durable is an SQL expression that makes COMMIT wait until the transaction is on disk,
// whatever the database's default. A stricter setting of the session stays.
const Durable = `CASE WHEN current_setting('synchronous_commit') NOT IN ('on', 'remote_apply')
	THEN set_config('synchronous_commit', 'on', true) END`

// Begin begins a transaction with statements that see all earlier commits, whatever the database's default isolation.
const Begin = `begin isolation level read committed`
