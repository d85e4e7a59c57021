package sqlitestore

import (
	"context"
	"database/sql"
	"errors"
	"iter"
	"time"

	"github.com/resilienthttp/resilienthttp/idempotency/driver"
	"github.com/resilienthttp/resilienthttp/internal/sqlitekit"
)

// Within is a Transactor whose verbs run in a transaction of the caller's, who
// begins it, on this store's DB or another of the same file, and ends it.
// Store.Within makes one. It lives as long as the transaction, and like that it is for one
// goroutine at a time.
type Within struct {
	store *Store
	tx    *sql.Tx
	*statements

	open []*savepoint // the transactions that are open in one another
}

var _ driver.Transactor = (*Within)(nil)

// Within puts the verbs into a transaction: that of a consumer, say, who writes the
// record of a message and its effect at once. What they do is committed, or undone,
// with everything else in it, and lasts as that does: the connection's synchronous
// should be FULL.
//
// Until the transaction ends nobody else can claim its operations. Those who try
// wait for the write lock, as all who write. Verbs that write take it: begin the
// transaction as an immediate one ("_txlock=immediate", as DB does), or with a verb,
// or they may fail with SQLITE_BUSY where somebody else has written in between.
func (s *Store) Within(tx *sql.Tx) *Within {
	return &Within{store: s, tx: tx, statements: within(tx)}
}

// Enclosed implements idempotency.Transactor: true.
func (w *Within) InCallerTx() bool { return true }

// errOutrun cannot happen under the write lock.
var errOutrun = errors.New("sqlitestore: a record changed within a transaction")

// Check implements driver.Store.
func (w *Within) Check(ctx context.Context) error { return w.store.Check(ctx) }

// Reserve implements idempotency.Store. It takes the write lock before it looks.
func (w *Within) Reserve(ctx context.Context, claim driver.Claim) (driver.Reservation, error) {
	if err := claim.Validate(); err != nil {
		return driver.Reservation{}, err
	}
	l, err := w.reserve(ctx, &claim)
	return l.answer, err
}

func (w *Within) reserve(ctx context.Context, claim *driver.Claim) (look, error) {
	if _, err := w.tx.ExecContext(ctx, lockSQL); err != nil {
		return look{}, err
	}
	l, err := lookAt(ctx, w.load, claim)
	if err != nil || l.step == driver.Leave {
		return l, err
	}
	record, err := applyStep(ctx, w.statements, l.step, l.judged, claim)
	if err == nil && record == nil {
		err = errOutrun
	}
	if err != nil {
		return look{}, err
	}
	l.answer.Record = *record
	return l, nil
}

// Renew implements idempotency.Store.
func (w *Within) Renew(ctx context.Context, lease driver.Lease, d time.Duration) error {
	if err := errors.Join(driver.ValidLease(d), lease.ID.Validate()); err != nil {
		return err
	}
	return writeLease(ctx, w.renew, append(leaseArgs(&lease), millis(d)))
}

// Complete implements idempotency.Store.
func (w *Within) Complete(ctx context.Context, lease driver.Lease, outcome driver.Outcome) error {
	if err := errors.Join(outcome.Validate(), lease.ID.Validate()); err != nil {
		return err
	}
	return writeLease(ctx, w.complete, completeArgs(&lease, &outcome))
}

// Release implements idempotency.Store.
func (w *Within) Release(ctx context.Context, lease driver.Lease) error {
	if err := lease.ID.Validate(); err != nil {
		return err
	}
	return writeLease(ctx, w.release, leaseArgs(&lease))
}

// Load implements idempotency.Store. It sees what the transaction has written.
func (w *Within) Load(ctx context.Context, id driver.ID) (driver.Record, error) {
	if err := id.Validate(); err != nil {
		return driver.Record{}, err
	}
	return found(readRecord(ctx, w.load, id))
}

// Abandon implements idempotency.Store.
func (w *Within) Reap(ctx context.Context, limit int) ([]driver.Record, error) {
	if limit <= 0 {
		return nil, ctx.Err()
	}
	return readRecords(ctx, w.abandonDead, []any{limit})
}

// Unknown implements idempotency.Store.
func (w *Within) Unknown(ctx context.Context, scope string) iter.Seq2[driver.Record, error] {
	return pages(scope, func(after driver.ID) ([]driver.Record, error) {
		return readRecords(ctx, w.unknown, append(idArgs(after), unknownPage))
	})
}

// Sweep implements idempotency.Store.
func (w *Within) Sweep(ctx context.Context, limit int) (int, error) {
	if limit <= 0 {
		return 0, ctx.Err()
	}
	return sqlitekit.Affected(w.sweep.ExecContext(ctx, limit))
}
