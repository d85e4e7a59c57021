package pgstore

import (
	"context"
	"time"

	"github.com/resilienthttp/resilienthttp/idempotency/driver"
)

// reserve is one call of Reserve.
type reserve struct {
	*verbs // of the current try

	claim  *driver.Claim
	answer driver.Reservation
}

// try reads, decides and writes, and sets the answer. errMoved and errLocked: the
// record was not any more what had been read, or cannot be had now.
func (r *reserve) try(ctx context.Context, v *verbs) error {
	r.verbs = v
	r.answer = driver.Reservation{}
	if r.inside() {
		// Whoever is at it in a transaction is waited for, and others are kept off until
		// the end of this one.
		if _, err := r.wait(ctx, &r.claim.ID); err != nil {
			return err
		}
	}
	record, now, inserted, err := r.look(ctx)
	switch {
	case noRows(err):
		return r.missed(ctx, driver.Record{ID: r.claim.ID, Status: driver.InProgress})
	case err != nil:
		return err
	case inserted:
		_, r.answer = driver.Decide(nil, r.claim, now)
		r.answer.Record = record
		return nil
	}
	step, answer := driver.Decide(&record, r.claim, now)
	answer.Record = record
	if step != driver.Leave {
		if answer.Record, err = r.step(ctx, step, &record); noRows(err) {
			return r.missed(ctx, record)
		}
	}
	if err == nil {
		r.answer = answer
	}
	return err
}

// look reads the record or inserts it, what is more likely to be needed first. No row:
// somebody else is at it.
func (r *reserve) look(ctx context.Context) (record driver.Record, now time.Time, inserted bool, err error) {
	load := func() error {
		record, err = scanRecord(r.row(ctx, r.is.load, idArgs(&r.claim.ID)...), &now)
		return err
	}
	insert := func() error {
		c := r.claim
		record, err = scanRecord(r.row(ctx, r.is.claim, c.Scope, c.Operation, c.Key, string(c.Fingerprint), c.Owner,
			microseconds(c.Lease), microseconds(c.TTL), int16(c.Takeover)), &now)
		inserted = err == nil
		return err
	}
	first, second := insert, load
	if r.repeats.likely() {
		first, second = load, insert
	}
	if first() != nil && noRows(err) {
		_ = second() // which is err
	}
	if err == nil {
		r.repeats.count(!inserted && record.Status.Finished())
	}
	return record, now, inserted, err
}

// step does what was decided for the record that was judged.
func (r *reserve) step(ctx context.Context, step driver.Step, judged *driver.Record) (driver.Record, error) {
	if step == driver.StepMarkUnknown {
		return scanRecord(r.row(ctx, r.is.abandon, judgedArgs(judged)...))
	}
	c := r.claim
	return scanRecord(r.row(ctx, r.is.take, judgedArgs(judged, string(c.Fingerprint), c.Owner,
		microseconds(c.Lease), microseconds(c.TTL), int16(c.Takeover))...))
}

// missed finds out why nothing was written. Where a transaction is at the record, the
// answer is Busy; until another try finds out more, it is so too where a row is locked.
func (r *reserve) missed(ctx context.Context, record driver.Record) error {
	r.answer = driver.Reservation{Decision: driver.DecisionInProgress, Record: record}
	var idle bool
	if err := r.row(ctx, r.is.idle, idArgs(&r.claim.ID)...).Scan(&idle); err != nil {
		return err
	}
	if idle {
		return errMoved
	}
	return nil
}

// wait has a transaction of the caller's wait for others at the record, and others
// for it. It returns the time then.
func (v *verbs) wait(ctx context.Context, id *driver.ID) (now time.Time, err error) {
	err = v.row(ctx, v.is.wait, idArgs(id)...).Scan(&now)
	return now, err
}
