package pgstore

import (
	"cmp"
	"context"
	"errors"
	"sync/atomic"

	"github.com/resilienthttp/resilienthttp/idempotency"
	"github.com/resilienthttp/resilienthttp/internal/pgkit"
)

// Reserve implements [idempotency.Store]. It waits for a connection of the pool for at most a
// second, or a tenth of the time until the deadline if that is less, and for a lock on the
// table for about a second, to write and to read; then the error is a idempotency.ErrStoreBusy.
func (o *operations) Reserve(ctx context.Context, claim idempotency.Claim) (idempotency.Reservation, error) {
	if err := claim.Validate(); err != nil {
		return idempotency.Reservation{}, err
	}
	var answer idempotency.Reservation
	err := o.run(ctx, o.conns.forClaim, func(through pgkit.Sender) error {
		r := reserve{operations: o, through: through, claim: &claim}
		err := r.try(ctx)
		answer = r.answer
		return err
	})
	if err != nil && !errors.Is(err, errMoved) {
		return idempotency.Reservation{}, err
	}
	return answer, nil
}

// reserve is one try of Reserve.
type reserve struct {
	*operations

	through pgkit.Sender
	claim   *idempotency.Claim
	answer  idempotency.Reservation
}

// try reads, decides and writes, and sets the answer. errMoved: the record changed after
// it was read, or another transaction has locked it.
func (r *reserve) try(ctx context.Context) error {
	if r.within() {
		// Other callers' transactions on this record are waited for, and wait for this one.
		if err := r.through.Send(ctx, &pgkit.Statement{Text: r.is.wait, Args: idArgs(&r.claim.ID)}); err != nil {
			return err
		}
	}
	before, inserted, err := r.readAndInsert(ctx)
	r.predictor.record(before.record == nil || !before.record.Status.Finished())
	step, answer := idempotency.Decide(before.record, r.claim, before.now)
	switch {
	case before.record != nil && step == idempotency.StepLeave:
		answer.Record = *before.record // whatever the insertion said
		r.answer = answer
		return nil
	case err != nil:
		return err
	case before.record == nil && inserted == nil:
		return r.missed(ctx, idempotency.Record{ID: r.claim.ID, Status: idempotency.StatusInProgress})
	case before.record == nil:
		r.answer = idempotency.Reservation{Decision: idempotency.DecisionAcquired, Record: *inserted}
		return nil
	}
	var after found
	if err := r.through.Send(ctx, r.change(step, r.claim, before.record, &after)); err != nil {
		return err
	}
	if after.record == nil {
		return r.missed(ctx, *before.record)
	}
	answer.Record = *after.record
	r.answer = answer
	return nil
}

// readAndInsert reads the record, and inserts it if there is none. If the key is probably new, it inserts first. A completed key
// is found even if the insertion fails, as on a read-only server.
func (r *reserve) readAndInsert(ctx context.Context) (before found, inserted *idempotency.Record, err error) {
	c := r.claim
	insert := &pgkit.Statement{Text: r.is.claim, Args: idArgs(&c.ID, string(c.Fingerprint), c.Owner,
		microseconds(c.Lease), microseconds(c.TTL), int16(c.Takeover)), Scan: func(from pgkit.Row) error {
		inserted = &idempotency.Record{
			ID: c.ID, Fingerprint: c.Fingerprint, Status: idempotency.StatusInProgress, Owner: c.Owner, Generation: 1, Takeover: c.Takeover,
		}
		err := from.Scan(&inserted.Started, &inserted.LeaseExpires, &inserted.Expires)
		inserted.Started, inserted.LeaseExpires, inserted.Expires = inserted.Started.UTC(), inserted.LeaseExpires.UTC(), inserted.Expires.UTC()
		inserted.Updated = inserted.Started
		return err
	}}
	first := r.predictor.newKey() && !r.within()
	if first {
		if err = r.through.Send(ctx, insert); inserted != nil {
			return before, inserted, err
		}
	}
	failed := err
	if err = r.through.Send(ctx, r.load(&c.ID, &before)); err == nil && before.record == nil && !first {
		err = r.through.Send(ctx, insert)
	}
	return before, inserted, cmp.Or(failed, err)
}

// change does a step of Decide to the record that was judged.
func (o *operations) change(step idempotency.Step, c *idempotency.Claim, judged *idempotency.Record, after *found) *pgkit.Statement {
	scan := func(from pgkit.Row) error { return after.scan(from) }
	if step == idempotency.StepMarkUnknown {
		return &pgkit.Statement{Text: o.is.markUnknown, Args: judgedArgs(judged), Scan: scan}
	}
	return &pgkit.Statement{Text: o.is.take, Args: judgedArgs(judged, string(c.Fingerprint), c.Owner,
		microseconds(c.Lease), microseconds(c.TTL), int16(c.Takeover)), Scan: scan}
}

// missed finds out why nothing was written. If a transaction works on the record, the
// answer is DecisionInProgress. It is also the answer if the row stays locked.
func (r *reserve) missed(ctx context.Context, record idempotency.Record) error {
	r.answer = idempotency.Reservation{Decision: idempotency.DecisionInProgress, Record: record}
	var idle bool
	err := r.through.Send(ctx, &pgkit.Statement{
		Text: r.is.idle, Args: idArgs(&r.claim.ID), Scan: func(from pgkit.Row) error { return from.Scan(&idle) },
	})
	if err == nil && idle {
		return errMoved
	}
	return err
}

// replayPredictor predicts from the claims before whether the next claim is for a new
// key, like a processor's branch predictor. A completed key costs one read if the
// prediction is right, and a new key saves a round trip. The prediction changes after
// two errors. The zero value predicts a completed key.
type replayPredictor struct{ counter atomic.Int32 }

func (r *replayPredictor) newKey() bool { return r.counter.Load() >= 2 }

// record counts the result of a claim. Two concurrent calls may count as one.
func (r *replayPredictor) record(newKey bool) {
	switch c := r.counter.Load(); {
	case newKey && c < 3:
		r.counter.Store(c + 1)
	case !newKey && c > 0:
		r.counter.Store(c - 1)
	}
}
