package sqlitekit

import (
	"context"
	"database/sql"
	"errors"
)

// Statement is a statement that is ready to run: a *sql.Stmt, or the text of a statement in a transaction (see In).
type Statement interface {
	// QueryContext runs a statement that returns rows.
	QueryContext(ctx context.Context, args ...any) (*sql.Rows, error)

	// ExecContext runs a statement that returns no rows.
	ExecContext(ctx context.Context, args ...any) (sql.Result, error)
}

// In returns a statement in a transaction. It is not prepared, because a prepared
// statement would end with the transaction.
func In(tx *sql.Tx, text string) Statement { return txStatement{tx, text} }

type txStatement struct {
	tx   *sql.Tx
	text string
}

func (s txStatement) QueryContext(ctx context.Context, args ...any) (*sql.Rows, error) {
	return s.tx.QueryContext(ctx, s.text, args...)
}

func (s txStatement) ExecContext(ctx context.Context, args ...any) (sql.Result, error) {
	return s.tx.ExecContext(ctx, s.text, args...)
}

// ReadRows calls scan for each row of the statement and returns the number of rows.
// It runs the statement to its end. Only then SQLite commits a statement with
// RETURNING, and begins a checkpoint that is due. sql.Row stops after one row.
func ReadRows(ctx context.Context, s Statement, args []any, scan func(*sql.Rows) error) (n int, err error) {
	rows, err := s.QueryContext(ctx, args...)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for ; rows.Next(); n++ {
		if err := scan(rows); err != nil {
			return n, err
		}
	}
	return n, rows.Err()
}

// Affected returns the number of rows that a statement has changed.
func Affected(result sql.Result, err error) (int, error) {
	if err != nil {
		return 0, err
	}
	n, err := result.RowsAffected()
	return int(n), err
}
