package storetest

import (
	"context"
	"errors"
	"testing"

	"github.com/resilienthttp/resilienthttp/idempotency"
)

// raceBegin has executions whose leases are over begin a transaction while others
// take over: one of both.
func (j *joinedKit) raceBegin(t *testing.T) {
	const keys = 8
	works := make([]*work, keys)
	for i := range works {
		claim := j.short(j.id())
		works[i] = &work{lease: j.acquire(t, claim), row: claim.Key}
	}
	j.lapse(t)
	errs := make([]error, keys)
	got := make([]idempotency.Reservation, keys)
	ctx := patient(t)
	together(2*keys, func(i int) {
		w := works[i/2]
		if i%2 == 0 {
			errs[i/2] = j.beginAndCommit(ctx, w)
			return
		}
		var err error
		if got[i/2], err = j.handle(1+i/2).Reserve(ctx, j.taker(w.lease.ID)); err != nil {
			t.Errorf("Reserve: %v", err)
		}
	})
	for i, w := range works {
		record := j.agree(t, w)
		switch {
		case errs[i] == nil:
			if record.Status != idempotency.Completed || got[i].Decision != idempotency.Busy && got[i].Decision != idempotency.Done {
				t.Errorf("the holder committed, but Reserve: %v, and the record is %s", got[i].Decision, show(record))
			}
		case !errors.Is(errs[i], idempotency.ErrLeaseLost):
			t.Errorf("Begin and Commit: %v", errs[i])
		case got[i].Decision != idempotency.Acquired || record.Lease() != got[i].Record.Lease() || record.Status != idempotency.InProgress:
			t.Errorf("Begin: %v, but Reserve: %v, and the record is %s", errs[i], got[i].Decision, show(record))
		}
	}
}

func (j *joinedKit) beginAndCommit(ctx context.Context, w *work) error {
	tx, err := j.store.Begin(ctx, w.lease, 0)
	if err != nil {
		return err
	}
	if err := j.Write(ctx, tx.Value(), w.row); err != nil {
		return errors.Join(err, tx.Rollback(ctx))
	}
	return tx.Commit(ctx, idempotency.Outcome{Status: idempotency.Completed})
}
