package pgkit

import (
	"context"
	"database/sql"
	"errors"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Database is where a schema's tables are.
type Database interface {
	Sender

	// ReadCommitted calls work with a transaction whose statements see what was
	// committed before them, whatever the database's default, and commits if it returns
	// nil. It is called again after an error that Again knows.
	ReadCommitted(ctx context.Context, work func(Sender) error) error
}

// Pool is a Database that is reached through a pool of pgx.
func Pool(pool *pgxpool.Pool) Database { return pgxDatabase{PGX(pool), pool} }

type pgxDatabase struct {
	Sender

	pool *pgxpool.Pool
}

// ReadCommitted implements Database.
func (d pgxDatabase) ReadCommitted(ctx context.Context, work func(Sender) error) error {
	return Transact(ctx, d.pool, "", func(t *Transaction) error {
		if err := work(t); err != nil {
			return err
		}
		return t.Commit(ctx)
	})
}

// DB is a Database that is reached through database/sql, by the driver of pgx.
func DB(db *sql.DB) Database { return sqlDatabase{SQL(db), db} }

type sqlDatabase struct {
	Sender

	db *sql.DB
}

// ReadCommitted implements Database.
func (d sqlDatabase) ReadCommitted(ctx context.Context, work func(Sender) error) error {
	return Retry(ctx, func() error {
		tx, err := d.db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
		if err != nil {
			return err
		}
		if err := work(SQL(tx)); err != nil {
			return errors.Join(err, tx.Rollback())
		}
		return tx.Commit()
	})
}
