package pgstore

import (
	"context"
	"database/sql"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// querier is what statements are sent through: a pool or a transaction, of pgx or
// of database/sql.
type querier interface {
	// row asks for one row. Scan's error is a sql.ErrNoRows if there is none.
	row(ctx context.Context, statement string, args ...any) row

	// exec returns how many rows were changed.
	exec(ctx context.Context, statement string, args ...any) (int64, error)
}

type row interface {
	Scan(dest ...any) error
}

// pgxQuerier is a *pgxpool.Pool or a pgx.Tx.
type pgxQuerier struct {
	db interface {
		Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
		QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
	}
}

func (q pgxQuerier) row(ctx context.Context, statement string, args ...any) row {
	return q.db.QueryRow(ctx, statement, args...)
}

func (q pgxQuerier) exec(ctx context.Context, statement string, args ...any) (int64, error) {
	tag, err := q.db.Exec(ctx, statement, args...)
	return tag.RowsAffected(), err
}

// sqlQuerier is a *sql.DB or a *sql.Tx.
type sqlQuerier struct {
	db interface {
		ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
		QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
	}
}

func (q sqlQuerier) row(ctx context.Context, statement string, args ...any) row {
	return q.db.QueryRowContext(ctx, statement, args...)
}

func (q sqlQuerier) exec(ctx context.Context, statement string, args ...any) (int64, error) {
	result, err := q.db.ExecContext(ctx, statement, args...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}
