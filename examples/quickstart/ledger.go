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

// ledger is where the bank books charges: what is in it has been paid. Its table
// is in the same file as the records of idempotency, so that a charge and the
// record of its answer are one transaction.
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
		return nil, fmt.Errorf("opening the ledger: %w", err)
	}
	return l, nil
}

// close removes the ledger.
func (l *ledger) close() {
	if l.records != nil {
		_ = l.records.Close()
	}
	_ = os.RemoveAll(l.dir)
}

// execer is a transaction, or the database itself.
type execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// book charges the customer, every time that it is called: in the transaction of
// the request's key, or, where the request has none, at once.
func (l *ledger) book(ctx context.Context, o order) (charge, error) {
	var books execer = l.records.DB()
	if _, keyed := idempotency.FromContext(ctx); keyed {
		tx, err := idempotency.Tx[*sql.Tx](ctx)
		if err != nil {
			return charge{}, err // and never a booking without its record
		}
		books = tx
	}
	booked, err := books.ExecContext(ctx, `INSERT INTO charges (reference, amount, currency) VALUES (?, ?, ?)`,
		o.Reference, o.Amount, o.Currency)
	if err != nil {
		return charge{}, err
	}
	id, err := booked.LastInsertId()
	return newCharge(id, o), err
}

func newCharge(id int64, o order) charge { return charge{ID: fmt.Sprintf("ch_%06d", id), order: o} }

// bookings are the charges of a ledger, by the order's reference.
type bookings map[string][]charge

func (b bookings) total() int {
	n := 0
	for _, charges := range b {
		n += len(charges)
	}
	return n
}

// all reads what has been booked.
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
