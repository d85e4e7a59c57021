package pgstore

import (
	"context"
	"time"

	"github.com/resilienthttp/resilienthttp/idempotency"
)

// reserve is one call of Reserve.
type reserve struct {
	*verbs // of the current try

	claim  *idempotency.Claim
	answer idempotency.Reservation

	// judged is the record that a step was decided for and that then could not be
	// taken.
	judged *idempotency.Record
}

// try reads, decides and writes, and sets the answer, also with errBusy. errMoved: the
// record was not any more what had been read.
func (r *reserve) try(ctx context.Context, v *verbs) error {
	r.verbs = v
	r.answer = idempotency.Reservation{}
	record, now, inserted, err := r.look(ctx)
	switch {
	case r.impatient(err):
		// Its record is not committed, and cannot be seen.
		return r.busy(idempotency.Record{ID: r.claim.ID, Status: idempotency.InProgress})
	case noRows(err):
		return errMoved
	case err != nil:
		return err
	case inserted:
		_, r.answer = idempotency.Decide(nil, r.claim, now)
		r.answer.Record = record
		return nil
	}
	step, answer := idempotency.Decide(&record, r.claim, now)
	answer.Record = record
	if step != idempotency.Keep {
		return r.step(ctx, step, answer)
	}
	r.answer = answer
	return nil
}

// look reads the record, or inserts it. Reading comes first, and by itself: who asks
// again is to cost as little as can be.
func (r *reserve) look(ctx context.Context) (record idempotency.Record, now time.Time, inserted bool, err error) {
	c := r.claim
	record, err = scanRecord(r.row(ctx, r.is.load, c.Scope, c.Operation, c.Key), &now)
	if !noRows(err) {
		return record, now, false, err
	}
	statement := r.pick(r.is.claim, r.is.claimAsync, r.is.claimWithin)
	record, err = scanRecord(r.row(ctx, statement, c.Scope, c.Operation, c.Key, string(c.Fingerprint), c.Owner,
		microseconds(c.Lease), microseconds(c.TTL)), &now)
	return record, now, err == nil, err
}

// step does what was decided for the record that was judged, and is in the answer.
func (r *reserve) step(ctx context.Context, step idempotency.Step, answer idempotency.Reservation) error {
	judged := answer.Record
	if r.judged != nil && same(r.judged, &judged) {
		// It has not moved, and yet could not be taken: joined work is at it.
		return r.busy(judged)
	}
	var err error
	answer.Record, err = r.write(ctx, step, &judged)
	switch {
	case r.impatient(err):
		return r.busy(judged)
	case noRows(err):
		r.judged = &judged
		return errMoved
	case err != nil:
		return err
	}
	r.answer = answer
	return nil
}

func (r *reserve) write(ctx context.Context, step idempotency.Step, judged *idempotency.Record) (idempotency.Record, error) {
	args := []any{
		judged.Scope, judged.Operation, judged.Key,
		int16(judged.Status), judged.Owner, judged.Generation, judged.LeaseExpires,
	}
	if step == idempotency.Abandon {
		return scanRecord(r.row(ctx, r.pick(r.is.abandon, r.is.abandon, r.is.abandonWithin), args...))
	}
	args = append(args, string(r.claim.Fingerprint), r.claim.Owner, microseconds(r.claim.Lease), microseconds(r.claim.TTL))
	return scanRecord(r.row(ctx, r.pick(r.is.take, r.is.takeAsync, r.is.takeWithin), args...))
}

// pick chooses between the forms of a statement.
func (r *reserve) pick(durable, async, within string) string {
	switch {
	case r.within():
		return within
	case r.claim.Joined:
		return async
	default:
		return durable
	}
}

// impatient reports whether the claim has waited too long for what somebody else has
// not committed. In a caller's transaction it is the caller who limits the wait, and
// that transaction has failed by it.
func (r *reserve) impatient(err error) bool { return !r.within() && hasCode(err, lockNotAvailable) }

// busy is the answer, and an error so that nothing is committed.
func (r *reserve) busy(record idempotency.Record) error {
	r.answer = idempotency.Reservation{Decision: idempotency.Busy, Record: record}
	return errBusy
}

// same reports whether nobody has changed the record between two looks.
func same(a, b *idempotency.Record) bool {
	return a.Status == b.Status && a.Owner == b.Owner && a.Generation == b.Generation &&
		a.LeaseExpires.Equal(b.LeaseExpires)
}
