package pgkit

import (
	"context"
	"database/sql"

	"github.com/jackc/pgx/v5"
)

// Statement is one with its arguments, and where its result goes.
type Statement struct {
	Text string
	Args []any

	// Scan is called with each row. nil: there are none.
	Scan func(Row) error

	// Affected is how many rows were changed or read, once it was sent.
	Affected int64
}

// Row is one of a result.
type Row interface {
	// Scan copies the row's columns to where dest points.
	Scan(dest ...any) error
}

// Sender is what statements are sent through.
type Sender interface {
	// Send sends statements, which are executed in their order. After the first error,
	// which it returns, none is.
	Send(ctx context.Context, statements ...*Statement) error
}

// PGX sends through a *pgxpool.Pool, a connection or a pgx.Tx: all in one round trip.
// Through a pool or a connection that is one transaction.
func PGX(db interface {
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
},
) Sender {
	return pgxSender{db}
}

type pgxSender struct {
	db interface {
		SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
	}
}

// Send implements Sender.
func (s pgxSender) Send(ctx context.Context, statements ...*Statement) error {
	if len(statements) == 0 {
		return nil
	}
	var batch pgx.Batch
	for _, each := range statements {
		batch.Queue(each.Text, each.Args...)
	}
	results := s.db.SendBatch(ctx, &batch)
	for _, each := range statements {
		if err := each.receive(results); err != nil {
			_ = results.Close() // The first error is what matters.
			return err
		}
	}
	return results.Close()
}

func (s *Statement) receive(results pgx.BatchResults) error {
	if s.Scan == nil {
		tag, err := results.Exec()
		s.Affected = tag.RowsAffected()
		return err
	}
	rows, err := results.Query()
	if err != nil {
		return err
	}
	defer rows.Close()
	for s.Affected = 0; rows.Next(); s.Affected++ {
		if err := s.Scan(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// SQL sends through a *sql.Tx, a *sql.Conn or a *sql.DB whose driver is pgx's, one
// statement after the other.
func SQL(db interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
},
) Sender {
	return sqlSender{db}
}

type sqlSender struct {
	db interface {
		ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
		QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	}
}

// Send implements Sender.
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
		result, err := s.db.ExecContext(ctx, each.Text, each.Args...)
		if err != nil {
			return err
		}
		each.Affected, err = result.RowsAffected()
		return err
	}
	rows, err := s.db.QueryContext(ctx, each.Text, each.Args...)
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
