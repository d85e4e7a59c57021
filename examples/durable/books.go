package main

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/resilienthttp/resilienthttp/durable"
	"github.com/resilienthttp/resilienthttp/durable/pgstore"
	"github.com/resilienthttp/resilienthttp/durable/sqlitestore"
	"github.com/resilienthttp/resilienthttp/examples/internal/bank"
	"github.com/resilienthttp/resilienthttp/examples/internal/chaos"
)

// books are the shop's: its orders, and in the same database what must not be lost.
type books interface {
	// store keeps the charges.
	store() durable.Store

	// take writes an order and calls charge, all in one transaction. It may have been
	// taken before.
	take(ctx context.Context, o bank.Order, charge func(durable.Outbox) error) error

	// orders are all that were taken, in no order.
	orders(ctx context.Context) ([]bank.Order, error)

	close()
}

func openBooks(ctx context.Context, database, dsn string) (books, error) {
	if database == chaos.Postgres {
		return openPostgresBooks(ctx, dsn)
	}
	return openSQLiteBooks(ctx, dsn)
}

const (
	schema      = `CREATE TABLE IF NOT EXISTS orders (reference TEXT PRIMARY KEY, amount BIGINT NOT NULL)`
	insertOrder = `INSERT INTO orders (reference, amount) VALUES ($1, $2) ON CONFLICT DO NOTHING`
	selectAll   = `SELECT reference, amount FROM orders`
)

type sqliteBooks struct{ *sqlitestore.Store }

func openSQLiteBooks(ctx context.Context, path string) (*sqliteBooks, error) {
	store, err := sqlitestore.Open(ctx, path)
	if err != nil {
		return nil, err
	}
	if _, err := store.DB().ExecContext(ctx, schema); err != nil {
		_ = store.Close()
		return nil, fmt.Errorf("creating the orders: %w", err)
	}
	return &sqliteBooks{store}, nil
}

func (b *sqliteBooks) store() durable.Store { return b.Store }
func (b *sqliteBooks) close()               { _ = b.Close() }

func (b *sqliteBooks) take(ctx context.Context, o bank.Order, charge func(durable.Outbox) error) error {
	tx, err := b.DB().BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // after a commit there is nothing left to undo
	if _, err := tx.ExecContext(ctx, insertOrder, o.Reference, o.Amount); err != nil {
		return err
	}
	if err := charge(b.WithTx(tx)); err != nil {
		return err
	}
	return tx.Commit()
}

func (b *sqliteBooks) orders(ctx context.Context) ([]bank.Order, error) {
	rows, err := b.DB().QueryContext(ctx, selectAll)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	var all []bank.Order
	for rows.Next() {
		var o bank.Order
		if err := rows.Scan(&o.Reference, &o.Amount); err != nil {
			return nil, err
		}
		all = append(all, o)
	}
	return all, rows.Err()
}

type postgresBooks struct {
	pool *pgxpool.Pool
	*pgstore.Store
}

func openPostgresBooks(ctx context.Context, dsn string) (*postgresBooks, error) {
	pool, err := pgxpool.New(ctx, dsn)
	if err != nil {
		return nil, err
	}
	store, err := pgstore.New(ctx, pool, nil)
	if err == nil {
		_, err = pool.Exec(ctx, schema)
	}
	if err != nil {
		pool.Close()
		return nil, fmt.Errorf("opening the books: %w", err)
	}
	return &postgresBooks{pool, store}, nil
}

func (b *postgresBooks) store() durable.Store { return b.Store }
func (b *postgresBooks) close()               { b.pool.Close() }

func (b *postgresBooks) take(ctx context.Context, o bank.Order, charge func(durable.Outbox) error) error {
	return pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) error {
		// A transaction of the shop's own lasts as the shop wants, whatever the default is.
		if _, err := tx.Exec(ctx, `SET LOCAL synchronous_commit = on`); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, insertOrder, o.Reference, o.Amount); err != nil {
			return err
		}
		return charge(b.WithTx(tx))
	})
}

func (b *postgresBooks) orders(ctx context.Context) ([]bank.Order, error) {
	rows, err := b.pool.Query(ctx, selectAll)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[bank.Order])
}
