package pgstore

import (
	"context"
	"database/sql"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// querier is what statements are sent through: a pool, a connection or a transaction,
// of pgx or of database/sql.
type querier interface {
	// row asks for one row. Scan's error is a sql.ErrNoRows if there is none.
	row(ctx context.Context, statement string, args ...any) row

	// rows asks for any number, and calls scan with each.
	rows(ctx context.Context, scan func(row) error, statement string, args ...any) error

	// exec returns how many rows were changed.
	exec(ctx context.Context, statement string, args ...any) (int64, error)
}

type row interface {
	Scan(dest ...any) error
}

// connection is a querier that can begin a transaction: a pool or a connection.
type connection interface {
	querier

	// readCommitted runs f in a transaction whose statements see what was committed
	// before them, whatever the database's default.
	readCommitted(ctx context.Context, f func(querier) error) error
}

// pgxQuerier is a *pgxpool.Pool, a connection or a pgx.Tx.
type pgxQuerier struct {
	db interface {
		Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
		Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
		QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
	}
}

func (q pgxQuerier) row(ctx context.Context, statement string, args ...any) row {
	return q.db.QueryRow(ctx, statement, args...)
}

func (q pgxQuerier) rows(ctx context.Context, scan func(row) error, statement string, args ...any) error {
	rows, err := q.db.Query(ctx, statement, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

func (q pgxQuerier) exec(ctx context.Context, statement string, args ...any) (int64, error) {
	tag, err := q.db.Exec(ctx, statement, args...)
	return tag.RowsAffected(), err
}

// pgxConnection is a *pgxpool.Pool, a *pgxpool.Conn or a *pgx.Conn.
type pgxConnection struct {
	pgxQuerier

	beginner interface {
		BeginTx(ctx context.Context, options pgx.TxOptions) (pgx.Tx, error)
	}
}

func onPgx(db interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
	BeginTx(ctx context.Context, options pgx.TxOptions) (pgx.Tx, error)
},
) connection {
	return pgxConnection{pgxQuerier{db}, db}
}

func (c pgxConnection) readCommitted(ctx context.Context, f func(querier) error) error {
	return pgx.BeginTxFunc(ctx, c.beginner, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		return f(pgxQuerier{tx})
	})
}

// sqlQuerier is a *sql.DB, a *sql.Conn or a *sql.Tx.
type sqlQuerier struct {
	db interface {
		ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
		QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
		QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
	}
}

func (q sqlQuerier) row(ctx context.Context, statement string, args ...any) row {
	return q.db.QueryRowContext(ctx, statement, args...)
}

func (q sqlQuerier) rows(ctx context.Context, scan func(row) error, statement string, args ...any) error {
	rows, err := q.db.QueryContext(ctx, statement, args...)
	if err != nil {
		return err
	}
	defer rows.Close() //nolint:errcheck // Err says more.
	for rows.Next() {
		if err := scan(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

func (q sqlQuerier) exec(ctx context.Context, statement string, args ...any) (int64, error) {
	result, err := q.db.ExecContext(ctx, statement, args...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// sqlConnection is a *sql.DB or a *sql.Conn.
type sqlConnection struct {
	sqlQuerier

	beginner interface {
		BeginTx(ctx context.Context, options *sql.TxOptions) (*sql.Tx, error)
	}
}

func onSQL(db interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
	BeginTx(ctx context.Context, options *sql.TxOptions) (*sql.Tx, error)
},
) connection {
	return sqlConnection{sqlQuerier{db}, db}
}

func (c sqlConnection) readCommitted(ctx context.Context, f func(querier) error) error {
	tx, err := c.beginner.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return err
	}
	if err := f(sqlQuerier{tx}); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

// noRows: pgx's error is one of database/sql's too.
func noRows(err error) bool { return errors.Is(err, sql.ErrNoRows) }
