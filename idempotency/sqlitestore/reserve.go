package sqlitestore

import (
	"context"
	"errors"

	"github.com/resilienthttp/resilienthttp/idempotency"
)

// Reserve implements idempotency.Store. It reads first, without any lock, and
// writes only what the reading calls for.
//
// A claim that finds the lease over, while a transaction of that execution is
// open, is Busy: see Begin.
func (s *Store) Reserve(ctx context.Context, claim idempotency.Claim) (idempotency.Reservation, error) {
	if err := claim.Validate(); err != nil {
		return idempotency.Reservation{}, err
	}
	var held *idempotency.Record // what was found to be held by an open transaction
	for {                        // each time around somebody else has changed the record
		judged, clock, err := s.readRecord(ctx, claim.ID)
		if err != nil {
			return idempotency.Reservation{}, err
		}
		step, reservation := idempotency.Decide(judged, &claim, clock)
		if step != idempotency.Keep && held != nil && judged != nil && unchanged(held, judged) {
			step, reservation = idempotency.Keep, idempotency.Reservation{Decision: idempotency.Busy}
		}
		if step == idempotency.Keep {
			reservation.Record = *judged
			return reservation, nil
		}
		record, err := s.apply(ctx, step, judged, &claim)
		switch {
		case errors.Is(err, errWorking):
			held = judged
		case err != nil:
			return idempotency.Reservation{}, err
		case record != nil:
			reservation.Record = *record
			return reservation, nil
		}
	}
}

// unchanged: the same execution, as far as it was.
func unchanged(a, b *idempotency.Record) bool {
	return a.Status == b.Status && a.Lease() == b.Lease() && a.LeaseExpires.Equal(b.LeaseExpires)
}

// apply does the step. nil: the record is not the one that was judged any more.
// errWorking: it may be that a transaction of the record is open.
func (s *Store) apply(
	ctx context.Context, step idempotency.Step, judged *idempotency.Record, claim *idempotency.Claim,
) (record *idempotency.Record, err error) {
	k, patience := &ticket{}, s.patience()
	if judged != nil && judged.Status == idempotency.InProgress {
		k.over, patience = &claim.ID, min(patience, takeoverPatience)
	}
	err = s.alone(ctx, k, patience, func(ctx context.Context) error {
		record, err = applyStep(ctx, s.writer(step, claim), step, judged, claim)
		return err
	})
	return record, err
}

// writer is the connection for a step. That of joined work begins without a flush
// to disk (synchronous=NORMAL). It needs none: the write-ahead log is one file,
// which is written in order and read, after a crash, up to the first frame that is
// not whole. The work's commit comes after the reservation in it and flushes it,
// so that wherever there is the work there is the reservation; and a reservation
// that the machine forgets, when its power fails, had no work, which was written
// nowhere else. A crash of the process alone forgets nothing.
//
// A record that is given up as Unknown is flushed in any case: somebody is told
// of it.
func (s *Store) writer(step idempotency.Step, claim *idempotency.Claim) *statements {
	if claim.Joined && step != idempotency.Abandon {
		return s.relaxed.statements
	}
	return s.full.statements
}
