package main

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/resilienthttp/resilienthttp/crashtest/internal/bank"
	"github.com/resilienthttp/resilienthttp/crashtest/internal/chaos"
	"github.com/resilienthttp/resilienthttp/durable"
	pgintents "github.com/resilienthttp/resilienthttp/durable/pgstore"
	sqliteintents "github.com/resilienthttp/resilienthttp/durable/sqlitestore"
	"github.com/resilienthttp/resilienthttp/idempotency"
	pgrecords "github.com/resilienthttp/resilienthttp/idempotency/pgstore"
	sqliterecords "github.com/resilienthttp/resilienthttp/idempotency/sqlitestore"
)

// ledger has the charges of payments, or the orders of durable. Its table is in the same database as
// the store of the app.
type ledger struct {
	records idempotency.Store // payments
	intents durable.Store     // durable

	// take writes an order and calls charge, in one transaction. The order may exist already.
	take func(ctx context.Context, o bank.Order, charge func(durable.Outbox) error) error

	db   *sql.DB
	file io.Closer     // the store in SQLite; nil: PostgreSQL
	pool *pgxpool.Pool // nil: SQLite
}

// The schema permits two charges with one reference: the service must prevent them. The ID of an order
// is its reference.
const (
	schema    = `CREATE TABLE IF NOT EXISTS ledger (id TEXT PRIMARY KEY, reference TEXT NOT NULL, amount BIGINT NOT NULL)`
	insertRow = `INSERT INTO ledger (id, reference, amount) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING`
	selectAll = `SELECT id, reference, amount FROM `
)

// tenants are the schemas of the shop's tenants in PostgreSQL. Each has its own orders, and tables with the names of package
// durable's, which nothing may use.
var tenants = []string{"comp0", "comp1", "comp2", "comp3", "comp4", "comp5", "comp6", "comp7", "comp8", "comp9"}

// createTenants creates the schemas.
func (l *ledger) createTenants(ctx context.Context) error {
	for _, tenant := range tenants {
		if err := pgintents.Migrate(ctx, l.pool, &pgintents.Options{Schema: tenant}); err != nil {
			return err
		}
		if _, err := l.pool.Exec(ctx, strings.Replace(schema, "ledger", tenant+".ledger", 1)); err != nil {
			return err
		}
	}
	return nil
}

// ofTenant selects the tenant of a transaction. clock is the schema of a fault, if there is one.
func ofTenant(o bank.Order) string {
	return `SET LOCAL search_path = ` + tenantOf(o) + `, clock, pg_catalog`
}

// lockTimeout is less than half of the timeout of a client of payments: it gets a response while another
// process has SQLite's write lock.
const lockTimeout = 200 * time.Millisecond

func openLedger(ctx context.Context, app, database, dsn string) (l *ledger, err error) {
	l = new(ledger)
	if database == chaos.Postgres {
		err = l.openPostgres(ctx, app, dsn)
	} else {
		err = l.openSQLite(ctx, app, dsn)
	}
	if err == nil {
		_, err = l.db.ExecContext(ctx, schema)
	}
	if err != nil {
		l.close()
		return nil, fmt.Errorf("open the ledger: %w", err)
	}
	return l, nil
}

func (l *ledger) openSQLite(ctx context.Context, app, path string) error {
	if app == paymentsApp {
		store, err := sqliterecords.Options{BusyTimeout: lockTimeout}.Open(ctx, path)
		if err == nil {
			l.records, l.db, l.file = store, store.DB(), store
		}
		return err
	}
	store, err := sqliteintents.Open(ctx, path)
	if err != nil {
		return err
	}
	l.intents, l.db, l.file = store, store.DB(), store
	l.take = func(ctx context.Context, o bank.Order, charge func(durable.Outbox) error) error {
		tx, err := l.db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }() // no effect after Commit
		if _, err := tx.ExecContext(ctx, insertRow, o.Reference, o.Reference, o.Amount); err != nil {
			return err
		}
		if err := charge(store.WithTx(tx)); err != nil {
			return err
		}
		return tx.Commit()
	}
	return nil
}

func (l *ledger) openPostgres(ctx context.Context, app, dsn string) (err error) {
	if l.pool, err = pgxpool.New(ctx, dsn); err != nil {
		return err
	}
	l.db = stdlib.OpenDBFromPool(l.pool)
	if app == paymentsApp {
		l.records, err = pgrecords.New(ctx, l.pool, nil)
		return err
	}
	store, err := pgintents.New(ctx, l.pool, nil)
	l.intents = store
	l.take = func(ctx context.Context, o bank.Order, charge func(durable.Outbox) error) error {
		return pgx.BeginFunc(ctx, l.pool, func(tx pgx.Tx) error {
			// The shop needs a durable commit, and the default of the database is off.
			if _, err := tx.Exec(ctx, `SET LOCAL synchronous_commit = on`); err != nil {
				return err
			}
			if _, err := tx.Exec(ctx, ofTenant(o)); err != nil {
				return err
			}
			if _, err := tx.Exec(ctx, insertRow, o.Reference, o.Reference, o.Amount); err != nil {
				return err
			}
			return charge(store.WithTx(tx))
		})
	}
	return err
}

// book writes a charge in the transaction of the request.
func (l *ledger) book(ctx context.Context, c bank.Charge) error {
	if l.pool == nil {
		tx, err := idempotency.Tx[*sql.Tx](ctx)
		if err == nil {
			_, err = tx.ExecContext(ctx, insertRow, c.ID, c.Reference, c.Amount)
		}
		return err
	}
	tx, err := idempotency.Tx[pgx.Tx](ctx)
	if err == nil {
		_, err = tx.Exec(ctx, insertRow, c.ID, c.Reference, c.Amount)
	}
	return err
}

// all returns all charges or orders, unsorted.
func (l *ledger) all(ctx context.Context) ([]bank.Charge, error) {
	all := []string{selectAll + "ledger"}
	if l.intents != nil && l.pool != nil {
		for _, tenant := range tenants {
			all = append(all, selectAll+tenant+".ledger")
		}
	}
	rows, err := l.db.QueryContext(ctx, strings.Join(all, " UNION ALL "))
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	var charges []bank.Charge
	for rows.Next() {
		var c bank.Charge
		if err := rows.Scan(&c.ID, &c.Reference, &c.Amount); err != nil {
			return nil, err
		}
		charges = append(charges, c)
	}
	return charges, rows.Err()
}

func (l *ledger) close() {
	if l.file != nil {
		_ = l.file.Close()
	}
	if l.pool != nil {
		_ = l.db.Close()
		l.pool.Close()
	}
}
