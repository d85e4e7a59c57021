package main

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/resilienthttp/resilienthttp/examples/internal/bank"
	"github.com/resilienthttp/resilienthttp/examples/internal/chaos"
	"github.com/resilienthttp/resilienthttp/idempotency"
	"github.com/resilienthttp/resilienthttp/idempotency/pgstore"
	"github.com/resilienthttp/resilienthttp/idempotency/sqlitestore"
)

// ledger has the charges that were booked. Its table is in the same database as the
// records of package idempotency.
type ledger interface {
	// records returns the store.
	records() idempotency.Store

	// book writes a charge in the transaction of the request.
	book(context.Context, bank.Charge) error

	// all returns all charges, in no order.
	all(context.Context) ([]bank.Charge, error)

	close()
}

func openLedger(ctx context.Context, database, dsn string) (ledger, error) {
	if database == chaos.Postgres {
		return openPostgresLedger(ctx, dsn)
	}
	return openSQLiteLedger(ctx, dsn)
}

// The schema permits two charges with one reference: the service must prevent them.
const schema = `CREATE TABLE IF NOT EXISTS charges (id TEXT PRIMARY KEY, reference TEXT NOT NULL, amount BIGINT NOT NULL)`

const (
	insertCharge = `INSERT INTO charges (id, reference, amount) VALUES ($1, $2, $3)`
	selectAll    = `SELECT id, reference, amount FROM charges`
)

// lockTimeout is less than half of the client's timeout: a client gets a response
// while another process has SQLite's write lock.
const lockTimeout = attemptTimeout * 2 / 5

type sqliteLedger struct{ store *sqlitestore.Store }

func openSQLiteLedger(ctx context.Context, path string) (*sqliteLedger, error) {
	store, err := sqlitestore.Options{BusyTimeout: lockTimeout}.Open(ctx, path)
	if err != nil {
		return nil, err
	}
	if _, err := store.DB().ExecContext(ctx, schema); err != nil {
		_ = store.Close()
		return nil, fmt.Errorf("create the ledger: %w", err)
	}
	return &sqliteLedger{store}, nil
}

func (l *sqliteLedger) records() idempotency.Store { return l.store }
func (l *sqliteLedger) close()                     { _ = l.store.Close() }

func (l *sqliteLedger) book(ctx context.Context, c bank.Charge) error {
	tx, err := idempotency.Tx[*sql.Tx](ctx)
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, insertCharge, c.ID, c.Reference, c.Amount)
	return err
}

func (l *sqliteLedger) all(ctx context.Context) ([]bank.Charge, error) {
	rows, err := l.store.DB().QueryContext(ctx, selectAll)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	var booked []bank.Charge
	for rows.Next() {
		var c bank.Charge
		if err := rows.Scan(&c.ID, &c.Reference, &c.Amount); err != nil {
			return nil, err
		}
		booked = append(booked, c)
	}
	return booked, rows.Err()
}

type postgresLedger struct {
	pool  *pgxpool.Pool
	store *pgstore.Store
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
		return nil, fmt.Errorf("open the ledger: %w", err)
	}
	return &postgresLedger{pool, store}, nil
}

func (l *postgresLedger) records() idempotency.Store { return l.store }
func (l *postgresLedger) close()                     { l.pool.Close() }

func (l *postgresLedger) book(ctx context.Context, c bank.Charge) error {
	tx, err := idempotency.Tx[pgx.Tx](ctx)
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, insertCharge, c.ID, c.Reference, c.Amount)
	return err
}

func (l *postgresLedger) all(ctx context.Context) ([]bank.Charge, error) {
	rows, err := l.pool.Query(ctx, selectAll)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (bank.Charge, error) {
		var c bank.Charge
		err := row.Scan(&c.ID, &c.Reference, &c.Amount)
		return c, err
	})
}
