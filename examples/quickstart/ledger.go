package main

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"

	"github.com/resilienthttp/resilienthttp/idempotency"
	"github.com/resilienthttp/resilienthttp/idempotency/sqlitestore"
)

// ledger has the charges that were made. Its table is in the same database file as the records of
// idempotency keys, so that a charge and its record are one transaction.
type ledger struct {
	dir     string
	records *sqlitestore.Store
}

const schema = `CREATE TABLE charges (
	id        INTEGER PRIMARY KEY AUTOINCREMENT,
	reference TEXT NOT NULL,
	amount    INTEGER NOT NULL,
	currency  TEXT NOT NULL
)`

func openLedger(ctx context.Context) (*ledger, error) {
	dir, err := os.MkdirTemp("", "quickstart-")
	if err != nil {
		return nil, err
	}
	l := &ledger{dir: dir}
	if l.records, err = sqlitestore.Open(ctx, filepath.Join(dir, "bank.db")); err == nil {
		_, err = l.records.DB().ExecContext(ctx, schema)
	}
	if err != nil {
		l.close()
		return nil, fmt.Errorf("open ledger: %w", err)
	}
	return l, nil
}

// close deletes the ledger.
func (l *ledger) close() {
	if l.records != nil {
		_ = l.records.Close()
	}
	_ = os.RemoveAll(l.dir)
}

// execer is a transaction or the database.
type execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// book charges the customer at each call: in the transaction of the request's key, or directly if
// the request has no key.
func (l *ledger) book(ctx context.Context, o order) (charge, error) {
	var db execer = l.records.DB()
	if _, keyed := idempotency.FromContext(ctx); keyed {
		tx, err := idempotency.Tx[*sql.Tx](ctx)
		if err != nil {
			return charge{}, err // no booking without the record of its key
		}
		db = tx
	}
	booked, err := db.ExecContext(ctx, `INSERT INTO charges (reference, amount, currency) VALUES (?, ?, ?)`,
		o.Reference, o.Amount, o.Currency)
	if err != nil {
		return charge{}, err
	}
	id, err := booked.LastInsertId()
	return newCharge(id, o), err
}

func newCharge(id int64, o order) charge { return charge{ID: fmt.Sprintf("ch_%06d", id), order: o} }

// bookings are the charges of a ledger by the reference of the order.
type bookings map[string][]charge

func (b bookings) total() int {
	n := 0
	for _, charges := range b {
		n += len(charges)
	}
	return n
}

// all returns all bookings.
func (l *ledger) all(ctx context.Context) (bookings, error) {
	rows, err := l.records.DB().QueryContext(ctx, `SELECT id, reference, amount, currency FROM charges ORDER BY id`)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	b := bookings{}
	for rows.Next() {
		var (
			id int64
			o  order
		)
		if err := rows.Scan(&id, &o.Reference, &o.Amount, &o.Currency); err != nil {
			return nil, err
		}
		b[o.Reference] = append(b[o.Reference], newCharge(id, o))
	}
	return b, rows.Err()
}
