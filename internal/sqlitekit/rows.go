package sqlitekit

import (
	"context"
	"database/sql"
	"errors"
)

// Statement is one that is ready to run: a *sql.Stmt, or the text of one in somebody's
// transaction (see In).
type Statement interface {
	// QueryContext runs one that gives rows.
	QueryContext(ctx context.Context, args ...any) (*sql.Rows, error)

	// ExecContext runs one that gives no rows.
	ExecContext(ctx context.Context, args ...any) (sql.Result, error)
}

// In is a statement in a transaction, which is not prepared: that would last no longer
// than the transaction.
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

// ReadRows has scan read each row that the statement gives, and counts them. It
// runs the statement to its end: only there SQLite commits what a RETURNING has
// told, and begins a checkpoint when one is due. (sql.Row would leave after the
// row.)
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

// Affected is how many rows a statement has changed.
func Affected(result sql.Result, err error) (int, error) {
	if err != nil {
		return 0, err
	}
	n, err := result.RowsAffected()
	return int(n), err
}
