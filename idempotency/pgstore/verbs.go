package pgstore

import (
	"context"
	"errors"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/resilienthttp/resilienthttp/idempotency"
)

// verbs are those of idempotency.Store, on a pool or within a transaction.
type verbs struct {
	querier

	is *statements

	// transact runs f in a transaction that is read committed, whatever the
	// database's default. nil within a transaction of the caller's: what fails in it
	// cannot be tried again, and how it commits is none of our business.
	transact func(ctx context.Context, f func(querier) error) error
}

// within a transaction of the caller's.
func (v *verbs) within() bool { return v.transact == nil }

// Reserve implements idempotency.Store.
func (v *verbs) Reserve(ctx context.Context, claim idempotency.Claim) (idempotency.Reservation, error) {
	if err := claim.Validate(); err != nil {
		return idempotency.Reservation{}, err
	}
	r := reserve{claim: &claim}
	err := v.safely(ctx, func(v *verbs) error { return r.try(ctx, v) })
	if err != nil && !errors.Is(err, errBusy) {
		return idempotency.Reservation{}, err
	}
	r.answer.Held = v.within() && r.answer.Decision == idempotency.Acquired
	return r.answer, nil
}

// Renew implements idempotency.Store.
func (v *verbs) Renew(ctx context.Context, lease idempotency.Lease, d time.Duration) error {
	if err := idempotency.ValidLease(d); err != nil {
		return err
	}
	return v.write(ctx, &lease, v.is.renew, leaseArgs(&lease, microseconds(d)), func(s idempotency.Status) bool {
		return s == idempotency.InProgress
	})
}

// Complete implements idempotency.Store.
func (v *verbs) Complete(ctx context.Context, lease idempotency.Lease, outcome idempotency.Outcome) error {
	if err := outcome.Validate(); err != nil {
		return err
	}
	args, err := outcomeArgs(&lease, &outcome)
	if err != nil {
		return err
	}
	return v.write(ctx, &lease, v.is.complete, args, func(s idempotency.Status) bool {
		return s == idempotency.InProgress || outcome.Status != idempotency.Unknown
	})
}

// Release implements idempotency.Store.
func (v *verbs) Release(ctx context.Context, lease idempotency.Lease) error {
	return v.write(ctx, &lease, v.is.release, leaseArgs(&lease), func(idempotency.Status) bool { return true })
}

// Load implements idempotency.Store.
func (v *verbs) Load(ctx context.Context, id idempotency.ID) (idempotency.Record, error) {
	if err := id.Validate(); err != nil {
		return idempotency.Record{}, err
	}
	var record idempotency.Record
	err := v.safely(ctx, func(v *verbs) error {
		var now time.Time
		var err error
		record, err = scanRecord(v.row(ctx, v.is.load, id.Scope, id.Operation, id.Key), &now)
		if noRows(err) || err == nil && record.Expired(now) {
			return idempotency.ErrNotFound
		}
		return err
	})
	if err != nil {
		return idempotency.Record{}, err
	}
	return record, nil
}

// Sweep implements idempotency.Store.
func (v *verbs) Sweep(ctx context.Context, limit int) (int, error) {
	if limit <= 0 {
		return 0, ctx.Err()
	}
	var n int64
	err := v.safely(ctx, func(v *verbs) (err error) {
		n, err = v.exec(ctx, v.is.sweep, limit)
		return err
	})
	return int(n), err
}

// write sends a statement that changes the record which the lease holds, if nobody
// has a lock on it. allowed says whether a record of that status is changed by it.
func (v *verbs) write(ctx context.Context, lease *idempotency.Lease, statement string, args []any,
	allowed func(idempotency.Status) bool,
) error {
	if err := lease.Validate(); err != nil {
		return err
	}
	if !storable(lease.Owner) {
		return idempotency.ErrLeaseLost
	}
	return v.safely(ctx, func(v *verbs) error {
		n, err := v.exec(ctx, statement, args...)
		if err != nil || n > 0 {
			return err
		}
		return v.missed(ctx, lease, allowed)
	})
}

// missed finds out why a statement on a lease has changed nothing: because the
// record is not that execution's, or because its row is locked.
func (v *verbs) missed(ctx context.Context, lease *idempotency.Lease, allowed func(idempotency.Status) bool) error {
	var status int16
	err := v.row(ctx, v.is.owned, leaseArgs(lease)...).Scan(&status)
	switch {
	case noRows(err):
		return idempotency.ErrLeaseLost
	case err != nil:
		return err
	case !allowed(idempotency.Status(status)):
		return idempotency.ErrLeaseLost
	default:
		return errLocked
	}
}

// storable: no owner has another name, and PostgreSQL would refuse to look for it.
func storable(s string) bool { return utf8.ValidString(s) && !strings.ContainsRune(s, 0) }
