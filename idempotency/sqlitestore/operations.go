package sqlitestore

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/resilienthttp/resilienthttp/idempotency"
	"github.com/resilienthttp/resilienthttp/idempotency/internal/sqlrecord"
)

// operations are the operations that Store and Tx have in common.
type operations struct {
	// read calls query with statements that can read, write with statements that can
	// write.
	read, write func(ctx context.Context, query func(context.Context, statements) error) error
}

// Renew implements idempotency.Store.
func (o *operations) Renew(ctx context.Context, lease idempotency.Lease, d time.Duration) error {
	return o.change(ctx, &lease, renew, leaseArgs(&lease, millis(d)), idempotency.ValidLease(d))
}

// Complete implements idempotency.Store.
func (o *operations) Complete(ctx context.Context, lease idempotency.Lease, outcome idempotency.Outcome) error {
	result, err := resultArgs(&outcome)
	args := append(append(leaseArgs(&lease, int64(outcome.Status)), result...), millis(outcome.TTL))
	return o.change(ctx, &lease, complete, args, errors.Join(err, outcome.Validate()))
}

// Release implements idempotency.Store.
func (o *operations) Release(ctx context.Context, lease idempotency.Lease) error {
	return o.change(ctx, &lease, release, leaseArgs(&lease), nil)
}

// change runs a statement on a record unless an argument is invalid.
func (o *operations) change(ctx context.Context, lease *idempotency.Lease, statement string, args []any, invalid error) error {
	if err := errors.Join(invalid, lease.Validate()); err != nil {
		return err
	}
	return o.write(ctx, func(ctx context.Context, s statements) error { return writeLease(ctx, s[statement], args) })
}

// Load implements idempotency.Store. That of Tx sees what the transaction has written.
func (o *operations) Load(ctx context.Context, id idempotency.ID) (idempotency.Record, error) {
	if err := id.Validate(); err != nil {
		return idempotency.Record{}, err
	}
	r, now, err := o.record(ctx, id)
	switch {
	case err != nil:
		return idempotency.Record{}, err
	case r == nil || r.Expired(now):
		return idempotency.Record{}, idempotency.ErrNotFound
	default:
		return *r, nil
	}
}

// record returns a record, or nil if there is none, and the time.
func (o *operations) record(ctx context.Context, id idempotency.ID) (r *idempotency.Record, now time.Time, err error) {
	err = o.read(ctx, func(ctx context.Context, s statements) error {
		r, now, err = readRecord(ctx, s, id)
		return err
	})
	return r, now, err
}

// Unknown implements idempotency.Store. It may return a record that a reconciler has
// completed since its page was read.
func (o *operations) Unknown(ctx context.Context, scope string) iter.Seq2[idempotency.Record, error] {
	const page = 100
	return sqlrecord.Pages(scope, page, func(after idempotency.ID, limit int) (all []idempotency.Record, err error) {
		err = o.read(ctx, func(ctx context.Context, s statements) error {
			all, err = readRecords(ctx, s[unknown], append(idArgs(after), limit)...)
			return err
		})
		return all, err
	})
}

// finding is a record and the decision about a claim.
type finding struct {
	judged *idempotency.Record // nil: there is none
	step   idempotency.Step
	answer idempotency.Reservation // after the step
}

func (o *operations) find(ctx context.Context, claim *idempotency.Claim) (f finding, err error) {
	judged, now, err := o.record(ctx, claim.ID)
	if err != nil {
		return f, err
	}
	f.judged = judged
	f.step, f.answer = idempotency.Decide(judged, claim, now)
	f.answer.Record = idempotency.Record{ID: claim.ID}
	if judged != nil {
		f.answer.Record = *judged
	}
	return f, nil
}

// notAcquired is the answer to a claim of transactional work without a transaction.
// The lease of a non-transactional execution of the same owner does not permit one.
func notAcquired(answer idempotency.Reservation) idempotency.Reservation {
	if answer.Decision == idempotency.DecisionAcquired {
		answer.Decision = idempotency.DecisionInProgress
	}
	return answer
}
