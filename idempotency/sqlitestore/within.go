package sqlitestore

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/resilienthttp/resilienthttp/idempotency"
)

// Within is a Store whose verbs run in a transaction of the caller's, who begins
// it, on this store's DB or another of the same file, and ends it. Store.Within
// makes one. It lives as long as the transaction, and like that it is for one
// goroutine at a time.
type Within struct {
	tx *sql.Tx
	*statements
}

var _ idempotency.Store = (*Within)(nil)

// Within puts the verbs into a transaction: that of a consumer, say, who writes
// the record of a message and its effect at once. What they do is committed, or
// undone, with everything else in it, and lasts as that does: the connection's
// synchronous should be FULL.
//
// Reservations are Held: until the transaction ends nobody else can claim the
// operation, and they need no renewal. Those who try wait for the write lock, as
// all who write. Verbs that write take it: begin the transaction as an immediate
// one ("_txlock=immediate", as DB does), or with a verb, or they may fail with
// SQLITE_BUSY where somebody else has written in between.
func (s *Store) Within(tx *sql.Tx) *Within {
	return &Within{tx: tx, statements: within(tx)}
}

// errOutrun cannot happen under the write lock.
var errOutrun = errors.New("sqlitestore: a record changed within a transaction")

// Reserve implements idempotency.Store. It takes the write lock before it looks.
func (w *Within) Reserve(ctx context.Context, claim idempotency.Claim) (idempotency.Reservation, error) {
	if err := claim.Validate(); err != nil {
		return idempotency.Reservation{}, err
	}
	if _, err := w.tx.ExecContext(ctx, lockSQL); err != nil {
		return idempotency.Reservation{}, err
	}
	judged, clock, err := readRecord(ctx, w.load, claim.ID)
	if err != nil {
		return idempotency.Reservation{}, err
	}
	step, reservation := idempotency.Decide(judged, &claim, clock)
	record := judged
	if step != idempotency.Keep {
		if record, err = applyStep(ctx, w.statements, step, judged, &claim); err != nil {
			return idempotency.Reservation{}, err
		}
	}
	if record == nil {
		return idempotency.Reservation{}, errOutrun
	}
	reservation.Record = *record
	reservation.Held = reservation.Decision == idempotency.Acquired
	return reservation, nil
}

// Renew implements idempotency.Store. There is no need to call it.
func (w *Within) Renew(ctx context.Context, lease idempotency.Lease, d time.Duration) error {
	if err := errors.Join(idempotency.ValidLease(d), lease.ID.Validate()); err != nil {
		return err
	}
	return writeLease(ctx, w.renew, append(leaseArgs(&lease), millis(d)))
}

// Complete implements idempotency.Store.
func (w *Within) Complete(ctx context.Context, lease idempotency.Lease, outcome idempotency.Outcome) error {
	if err := errors.Join(outcome.Validate(), lease.ID.Validate()); err != nil {
		return err
	}
	return writeLease(ctx, w.complete, outcomeArgs(&lease, &outcome))
}

// Release implements idempotency.Store.
func (w *Within) Release(ctx context.Context, lease idempotency.Lease) error {
	if err := lease.ID.Validate(); err != nil {
		return err
	}
	return writeLease(ctx, w.release, leaseArgs(&lease))
}

// Load implements idempotency.Store. It sees what the transaction has written.
func (w *Within) Load(ctx context.Context, id idempotency.ID) (idempotency.Record, error) {
	if err := id.Validate(); err != nil {
		return idempotency.Record{}, err
	}
	r, clock, err := readRecord(ctx, w.load, id)
	switch {
	case err != nil:
		return idempotency.Record{}, err
	case r == nil || r.Expired(clock):
		return idempotency.Record{}, idempotency.ErrNotFound
	default:
		return *r, nil
	}
}

// Sweep implements idempotency.Store.
func (w *Within) Sweep(ctx context.Context, limit int) (int, error) {
	if limit <= 0 {
		return 0, nil
	}
	return affected(w.sweep.ExecContext(ctx, limit))
}
