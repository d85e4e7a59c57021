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

// ledger has the shop's orders, and in the same database the intents to charge them.
type ledger interface {
	// store returns the store of the intents.
	store() durable.Store

	// take writes an order and calls charge, in one transaction. The order may exist already.
	take(ctx context.Context, o bank.Order, charge func(durable.Outbox) error) error

	// orders returns all orders, unsorted.
	orders(ctx context.Context) ([]bank.Order, error)

	close()
}

func openLedger(ctx context.Context, database, dsn string) (ledger, error) {
	if database == chaos.Postgres {
		return openPostgresLedger(ctx, dsn)
	}
	return openSQLiteLedger(ctx, dsn)
}

const (
	schema      = `CREATE TABLE IF NOT EXISTS orders (reference TEXT PRIMARY KEY, amount BIGINT NOT NULL)`
	insertOrder = `INSERT INTO orders (reference, amount) VALUES ($1, $2) ON CONFLICT DO NOTHING`
	selectAll   = `SELECT reference, amount FROM orders`
)

type sqliteLedger struct{ *sqlitestore.Store }

func openSQLiteLedger(ctx context.Context, path string) (*sqliteLedger, error) {
	store, err := sqlitestore.Open(ctx, path)
	if err != nil {
		return nil, err
	}
	if _, err := store.DB().ExecContext(ctx, schema); err != nil {
		_ = store.Close()
		return nil, fmt.Errorf("create table orders: %w", err)
	}
	return &sqliteLedger{store}, nil
}

func (b *sqliteLedger) store() durable.Store { return b.Store }
func (b *sqliteLedger) close()               { _ = b.Close() }

func (b *sqliteLedger) take(ctx context.Context, o bank.Order, charge func(durable.Outbox) error) error {
	tx, err := b.DB().BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // no effect after Commit
	if _, err := tx.ExecContext(ctx, insertOrder, o.Reference, o.Amount); err != nil {
		return err
	}
	if err := charge(b.WithTx(tx)); err != nil {
		return err
	}
	return tx.Commit()
}

func (b *sqliteLedger) orders(ctx context.Context) ([]bank.Order, error) {
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

type postgresLedger struct {
	pool *pgxpool.Pool
	*pgstore.Store
}

func openPostgresLedger(ctx context.Context, dsn string) (*postgresLedger, error) {
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
		return nil, fmt.Errorf("open ledger: %w", err)
	}
	return &postgresLedger{pool, store}, nil
}

func (b *postgresLedger) store() durable.Store { return b.Store }
func (b *postgresLedger) close()               { b.pool.Close() }

func (b *postgresLedger) take(ctx context.Context, o bank.Order, charge func(durable.Outbox) error) error {
	return pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) error {
		// The shop needs a durable commit, and the default of the database is off.
		if _, err := tx.Exec(ctx, `SET LOCAL synchronous_commit = on`); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, insertOrder, o.Reference, o.Amount); err != nil {
			return err
		}
		return charge(b.WithTx(tx))
	})
}

func (b *postgresLedger) orders(ctx context.Context) ([]bank.Order, error) {
	rows, err := b.pool.Query(ctx, selectAll)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[bank.Order])
}
