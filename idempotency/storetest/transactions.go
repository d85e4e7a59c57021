package storetest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/resilienthttp/resilienthttp/idempotency"
)

// work is an execution with an open transaction, in which it has written a row.
type work struct {
	lease idempotency.Lease
	tx    idempotency.Transaction
	row   string
}

// joinedKit is a kit whose store has transactions.
type joinedKit struct {
	*kit

	store idempotency.Transactor
}

// testTransactions tests a Transactor. Only the record of the open transaction is
// written to while there is one: a database may have no room for another writer.
func (k *kit) testTransactions(t *testing.T, store idempotency.Transactor) {
	if k.Write == nil || k.Count == nil {
		t.Fatal("the store is a Transactor: storetest.Suite needs Write and Count")
	}
	j := &joinedKit{k, store}
	for _, joined := range []bool{true, false} {
		name := map[bool]string{true: "joined", false: "detached"}[joined]
		t.Run(name, func(t *testing.T) {
			t.Run("Commit", func(t *testing.T) { j.commits(t, joined) })
			t.Run("Rollback", func(t *testing.T) { j.rollsBack(t, joined) })
			t.Run("nobody takes over", func(t *testing.T) { j.holds(t, joined) })
		})
	}
	t.Run("stale", j.stale)
	t.Run("end twice", j.endTwice)
	t.Run("invalid outcome", j.invalidOutcome)
	t.Run("cancelled", j.cancelled)
	t.Run("limit", j.limit)
	t.Run("Begin and takeover", j.raceBegin)
}

func (j *joinedKit) claim(joined bool) idempotency.Claim {
	claim := j.kit.claim(j.id())
	claim.Joined = joined
	return claim
}

// begin claims an operation, opens its transaction and writes a row.
func (j *joinedKit) begin(t *testing.T, claim idempotency.Claim) *work {
	t.Helper()
	return j.beginLease(t, j.acquire(t, claim), 0)
}

func (j *joinedKit) beginLease(t *testing.T, lease idempotency.Lease, limit time.Duration) *work {
	t.Helper()
	tx, err := j.store.Begin(patient(t), lease, limit)
	if err != nil {
		t.Fatalf("Begin: %v", err)
	}
	return j.write(t, lease, tx)
}

// write has the work write its row.
func (j *joinedKit) write(t *testing.T, lease idempotency.Lease, tx idempotency.Transaction) *work {
	t.Helper()
	ctx := patient(t)
	w := &work{lease: lease, tx: tx, row: lease.Key}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
		defer cancel()
		_ = tx.Rollback(ctx) // if the test has not come to its end
	})
	if tx.Value() == nil {
		t.Fatal("the transaction's Value is nil")
	}
	if err := j.Write(ctx, tx.Value(), w.row); err != nil {
		t.Fatalf("Suite.Write: %v", err)
	}
	return w
}

// rows looks how many of the work's rows are committed.
func (j *joinedKit) rows(t *testing.T, w *work, want int) {
	t.Helper()
	got, err := j.Count(patient(t), w.row)
	if err != nil {
		t.Fatalf("Suite.Count: %v", err)
	}
	if got != want {
		t.Errorf("%d rows of the work are committed, want %d", got, want)
	}
}

// commits has each outcome committed with the work's writes.
func (j *joinedKit) commits(t *testing.T, joined bool) {
	for _, v := range verbs() {
		if v.outcome.Status == 0 {
			continue
		}
		t.Run(v.outcome.Status.String(), func(t *testing.T) {
			w := j.begin(t, j.claim(joined))
			before := j.load(t, w.lease.ID)
			j.rows(t, w, 0)
			if before.Status != idempotency.InProgress || before.Lease() != w.lease {
				t.Errorf("before Commit the record is %s", show(before))
			}
			if err := w.tx.Commit(patient(t), v.outcome); err != nil {
				t.Fatalf("Commit: %v", err)
			}
			j.rows(t, w, 1)
			after := j.load(t, w.lease.ID)
			s := &subject{state: state{status: idempotency.InProgress}, lease: w.lease}
			want, _ := v.wants(s, before, after)
			if d := diff(after, want); d != "" {
				t.Errorf("the record after Commit:\n%s", d)
			}
			between(t, "Expires less Updated", after.Expires.Sub(after.Updated), v.outcome.TTL)
			if v.outcome.Status.Finished() {
				if got := j.reserve(t, j.taker(w.lease.ID)).Decision; got != idempotency.Done {
					t.Errorf("Reserve after Commit: %v, want done", got)
				}
				j.cannotWrite(t, w.lease)
			}
		})
	}
}

// rollsBack undoes the work's writes and goes on from there.
func (j *joinedKit) rollsBack(t *testing.T, joined bool) {
	for _, row := range []struct {
		name string
		then func(t *testing.T, w *work)
	}{
		{"and Release", func(t *testing.T, w *work) {
			j.release(t, w.lease)
			if got := j.acquire(t, j.taker(w.lease.ID)); got.Generation != w.lease.Generation+1 {
				t.Errorf("generation %d, want %d", got.Generation, w.lease.Generation+1)
			}
		}},
		{"and Complete", func(t *testing.T, w *work) {
			j.complete(t, w.lease, idempotency.Outcome{Status: idempotency.FailedFinal, Result: answer()})
			j.rows(t, w, 0)
		}},
		{"and Renew", func(t *testing.T, w *work) { j.renew(t, w.lease, time.Hour) }},
		{"and Begin", func(t *testing.T, w *work) {
			again := j.beginLease(t, w.lease, 0)
			if err := again.tx.Commit(patient(t), idempotency.Outcome{Status: idempotency.Completed, Result: answer()}); err != nil {
				t.Errorf("Commit: %v", err)
			}
			j.rows(t, w, 1)
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := j.begin(t, j.claim(joined))
			before := j.load(t, w.lease.ID)
			if err := w.tx.Rollback(patient(t)); err != nil {
				t.Fatalf("Rollback: %v", err)
			}
			j.rows(t, w, 0)
			j.stillHeld(t, before)
			row.then(t, w)
		})
	}
}

// holds keeps a transaction open for longer than its lease and the record's time
// to live, while others claim the operation, by every policy.
func (j *joinedKit) holds(t *testing.T, joined bool) {
	w := j.beginInTime(t, joined)
	for _, c := range contenders() {
		if c.same || c.other {
			continue // what is said to those does not matter
		}
		t.Run(c.name, func(t *testing.T) {
			other := c.claim(j.kit, &subject{lease: w.lease})
			j.atOnce(t, "Reserve", func(ctx context.Context) error {
				reservation, err := j.store.Reserve(ctx, other)
				if err == nil && reservation.Decision != idempotency.Busy {
					t.Errorf("Reserve: %v, want busy", reservation.Decision)
				}
				return err
			})
		})
	}
	t.Run("many at once", func(t *testing.T) {
		ctx := patient(t)
		together(20, func(i int) {
			reservation, err := j.handle(i).Reserve(ctx, j.taker(w.lease.ID))
			if err != nil || reservation.Decision != idempotency.Busy {
				t.Errorf("Reserve: %v, %v, want busy", reservation.Decision, err)
			}
		})
	})
	t.Run("Sweep", func(t *testing.T) {
		j.atOnce(t, "Sweep", func(ctx context.Context) error {
			_, err := j.store.Sweep(ctx, 1000)
			return err
		})
	})

	outcome := idempotency.Outcome{Status: idempotency.Completed, Result: answer(), TTL: time.Hour}
	if err := w.tx.Commit(patient(t), outcome); err != nil {
		t.Fatalf("Commit: %v", err)
	}
	j.rows(t, w, 1)
	record := j.load(t, w.lease.ID)
	if record.Status != idempotency.Completed || record.Lease() != w.lease {
		t.Errorf("after Commit the record is %s", show(record))
	}
}

// beginInTime opens a transaction under a lease that is over soon after, and waits
// until it is.
func (j *joinedKit) beginInTime(t *testing.T, joined bool) *work {
	t.Helper()
	for d := blink; ; d *= 2 {
		claim := j.claim(joined)
		claim.Lease, claim.TTL = d, d
		lease := j.acquire(t, claim)
		tx, err := j.store.Begin(patient(t), lease, 0)
		switch {
		case errors.Is(err, idempotency.ErrLeaseLost) && d < patience:
			continue // this machine is slow
		case err != nil:
			t.Fatalf("Begin: %v", err)
		}
		w := j.write(t, lease, tx)
		wait(t, 3*d)
		return w
	}
}

// atOnce looks that a call does not wait for the open transaction: of three, one
// takes less than a second.
func (j *joinedKit) atOnce(t *testing.T, what string, call func(context.Context) error) {
	t.Helper()
	var least time.Duration
	for i := range 3 {
		began := time.Now()
		if err := call(patient(t)); err != nil {
			t.Errorf("%s while a transaction holds the record: %v", what, err)
		}
		if took := time.Since(began); i == 0 || took < least {
			least = took
		}
		if least < time.Second {
			return
		}
	}
	t.Errorf("%s waits for the transaction that holds the record: %v at least", what, least)
}

// stale opens no transaction for an execution that does not hold the record, and
// one for an execution that does, though its lease is over.
func (j *joinedKit) stale(t *testing.T) {
	subjects := j.prepare(t, states())
	for i := range subjects {
		s := &subjects[i]
		t.Run(s.name, func(t *testing.T) {
			before := j.standing(t, s)
			for _, wrong := range wrongLeases(s.lease) {
				j.cannotBegin(t, wrong.lease, wrong.name)
			}
			if s.status != idempotency.InProgress {
				j.cannotBegin(t, s.lease, "its holder")
				j.unchanged(t, before, s.lease.ID)
				return
			}
			j.unchanged(t, before, s.lease.ID)
			w := j.beginLease(t, s.lease, 0)
			if err := w.tx.Commit(patient(t), idempotency.Outcome{Status: idempotency.Completed, TTL: time.Hour}); err != nil {
				t.Errorf("Commit by the holder: %v", err)
			}
			j.rows(t, w, 1)
		})
	}
}

func (j *joinedKit) cannotBegin(t *testing.T, lease idempotency.Lease, who string) {
	t.Helper()
	tx, err := j.store.Begin(patient(t), lease, 0)
	if !errors.Is(err, idempotency.ErrLeaseLost) {
		t.Errorf("Begin by %s: %v, want ErrLeaseLost", who, err)
	}
	if err == nil {
		_ = tx.Rollback(patient(t))
	}
}

// stillHeld looks at a record after a Rollback. The lease may have been renewed.
func (j *joinedKit) stillHeld(t *testing.T, before idempotency.Record) {
	t.Helper()
	after := j.find(t, before.ID)
	before.LeaseExpires, before.Updated = after.LeaseExpires, after.Updated
	if d := diff(after, before); d != "" {
		t.Errorf("the record after Rollback:\n%s", d)
	}
}

// endTwice ends a transaction that is over.
func (j *joinedKit) endTwice(t *testing.T) {
	completed := idempotency.Outcome{Status: idempotency.Completed, Result: answer()}
	final := idempotency.Outcome{Status: idempotency.FailedFinal}
	t.Run("Commit", func(t *testing.T) {
		w := j.begin(t, j.claim(true))
		if err := w.tx.Commit(patient(t), completed); err != nil {
			t.Fatalf("Commit: %v", err)
		}
		before := j.load(t, w.lease.ID)
		if err := w.tx.Rollback(patient(t)); err != nil {
			t.Errorf("Rollback after Commit: %v, want nil", err)
		}
		if err := w.tx.Commit(patient(t), final); err == nil {
			t.Error("a second Commit succeeds")
		}
		if err := w.tx.Rollback(patient(t)); err != nil {
			t.Errorf("Rollback after a second Commit: %v, want nil", err)
		}
		j.unchanged(t, before, w.lease.ID)
		j.rows(t, w, 1)
	})
	t.Run("Rollback", func(t *testing.T) {
		w := j.begin(t, j.claim(true))
		before := j.load(t, w.lease.ID)
		if err := w.tx.Rollback(patient(t)); err != nil {
			t.Fatalf("Rollback: %v", err)
		}
		if err := w.tx.Commit(patient(t), completed); err == nil {
			t.Error("Commit after Rollback succeeds")
		}
		_ = w.tx.Rollback(patient(t))
		j.stillHeld(t, before)
		j.rows(t, w, 0)
	})
}

// invalidOutcome commits nothing that no store accepts.
func (j *joinedKit) invalidOutcome(t *testing.T) {
	for _, outcome := range []idempotency.Outcome{
		{}, {Status: idempotency.InProgress}, {Status: idempotency.FailedRetryable}, {Status: idempotency.Completed, TTL: -1},
	} {
		t.Run(outcome.Status.String(), func(t *testing.T) {
			w := j.begin(t, j.claim(true))
			before := j.load(t, w.lease.ID)
			if err := w.tx.Commit(patient(t), outcome); !errors.Is(err, idempotency.ErrInvalid) {
				t.Errorf("Commit: %v, want ErrInvalid", err)
			}
			if err := w.tx.Rollback(patient(t)); err != nil {
				t.Errorf("Rollback: %v", err)
			}
			j.stillHeld(t, before)
			j.rows(t, w, 0)
		})
	}
}

// cancelled commits with a context that is over. Whatever the error leaves open,
// the record and the work's writes agree.
func (j *joinedKit) cancelled(t *testing.T) {
	w := j.begin(t, j.claim(true))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.tx.Commit(ctx, idempotency.Outcome{Status: idempotency.Completed}); err == nil {
		t.Error("Commit with a cancelled context succeeds")
	}
	_ = w.tx.Rollback(patient(t)) // it may be over
	j.agree(t, w)
}

// limit leaves a transaction open for longer than it may be. The database may
// have ended it, or not.
func (j *joinedKit) limit(t *testing.T) {
	w := j.beginLease(t, j.acquire(t, j.claim(true)), blink)
	wait(t, 5*blink)
	err := w.tx.Commit(patient(t), idempotency.Outcome{Status: idempotency.Completed})
	_ = w.tx.Rollback(patient(t)) // likewise
	if record := j.agree(t, w); err == nil && record.Status != idempotency.Completed {
		t.Errorf("Commit: nil, but the record is %s", show(record))
	}
}

// agree looks that either the record is completed and the work's row is there, or
// neither.
func (j *joinedKit) agree(t *testing.T, w *work) idempotency.Record {
	t.Helper()
	record := j.load(t, w.lease.ID)
	if record.Status == idempotency.Completed {
		j.rows(t, w, 1)
	} else {
		j.rows(t, w, 0)
	}
	return record
}
