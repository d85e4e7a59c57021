package storetest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/resilienthttp/resilienthttp/idempotency/internal/driver"
	"github.com/resilienthttp/resilienthttp/internal/sleep"
)

// endTwice ends a transaction that has ended.
func (j *txKit) endTwice(t *testing.T) {
	all := ends()
	all["Rollback"] = ending{end: func(tx driver.Transaction, ctx context.Context, _ driver.Outcome) error { return tx.Rollback(ctx) }}
	for name, e := range all {
		t.Run(name, func(t *testing.T) {
			w := j.begin(t, j.claim(j.id()))
			must(t, name, e.end(w.tx, patient(t), driver.Outcome{Status: driver.Completed, Result: answer()}))
			before := j.find(t, w.claim.ID)
			for range 2 {
				must(t, "Rollback after the end", w.tx.Rollback(patient(t)))
				for again, e := range ends() {
					if e.end(w.tx, patient(t), driver.Outcome{Status: driver.FailedFinal}) == nil {
						t.Errorf("%s after the end: got nil, want an error", again)
					}
				}
			}
			j.unchanged(t, before, w.claim.ID)
			j.rows(t, w.row, e.rows)
		})
	}
}

// invalidOutcome ends transactions with invalid outcomes, which are not stored.
func (j *txKit) invalidOutcome(t *testing.T) {
	for name, e := range ends() {
		for _, outcome := range []driver.Outcome{
			{}, {Status: driver.InProgress}, {Status: driver.FailedRetryable}, {Status: driver.Completed, TTL: -1},
		} {
			t.Run(name+" "+outcome.Status.String(), func(t *testing.T) {
				w := j.begin(t, j.claim(j.id()))
				wantError(t, name, e.end(w.tx, patient(t), outcome), driver.ErrInvalid)
				j.unchanged(t, driver.Record{}, w.claim.ID)
				j.rows(t, w.row, 0)
				must(t, "Rollback of the next", j.begin(t, j.claim(w.claim.ID)).tx.Rollback(patient(t)))
			})
		}
	}
}

// canceled ends transactions with a context that has ended.
func (j *txKit) canceled(t *testing.T) {
	for name, e := range ends() {
		t.Run(name, func(t *testing.T) {
			w := j.begin(t, j.claim(j.id()))
			if e.end(w.tx, ended(t), driver.Outcome{Status: driver.Completed}) == nil {
				t.Errorf("%s with a canceled context: got nil, want an error", name)
			}
			j.resolve(t, w, e.rows)
		})
	}
	t.Run("Rollback", func(t *testing.T) {
		w := j.begin(t, j.claim(j.id()))
		_ = w.tx.Rollback(ended(t)) // it may fail
		equal(t, "recorded after Rollback", j.resolve(t, w, 0), false)
	})
}

// limit leaves a transaction open for longer than its limit. The database may or may not
// have ended it, on a slow machine even before the write.
func (j *txKit) limit(t *testing.T) {
	w := j.start(t, j.claim(j.id()), blink)
	rows := 1
	if j.Write(patient(t), w.tx.Value(), w.row) != nil {
		rows = 0
	}
	_ = sleep.Context(t.Context(), 5*blink)
	err := w.tx.Commit(patient(t), driver.Outcome{Status: driver.Completed})
	recorded := j.resolve(t, w, rows)
	if err == nil {
		equal(t, "recorded after Commit", recorded, true)
	}
	if rows == 0 {
		equal(t, "recorded without its row", recorded, false)
	}
}

// resolve finds the result of a transaction with an unknown end by Begin, as documented at
// Transaction.Commit. It reports whether the outcome was recorded, with that many rows.
func (j *txKit) resolve(t *testing.T, w *work, rows int) (recorded bool) {
	t.Helper()
	for ctx := patient(t); ctx.Err() == nil; _ = sleep.Context(ctx, time.Millisecond) {
		reservation, tx, err := j.store.Begin(ctx, j.claim(w.claim.ID), 0)
		must(t, "Begin", err)
		switch reservation.Decision {
		case driver.DecisionInProgress: // it may still be committed
		case driver.Acquired:
			must(t, "Rollback", tx.Rollback(ctx))
			j.rows(t, w.row, 0)
			return false
		default:
			equal(t, "lease of the record", reservation.Record.Lease(), w.record.Lease())
			j.rows(t, w.row, rows)
			return true
		}
	}
	t.Fatalf("Begin: got in progress for %v, want an end", patience)
	return false
}

// raceAmbiguous ends transactions with contexts that end at any moment. The record and the
// rows must agree.
func (j *txKit) raceAmbiguous(t *testing.T) {
	total := 0
	for i := range 4 * raceKeys {
		w := j.begin(t, j.claim(j.id()))
		e := ends()["Commit"]
		if i%4 == 0 {
			e = ends()["RollbackAndRecord"]
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rand.Int64N(int64(2*time.Millisecond))))
		err := e.end(w.tx, ctx, driver.Outcome{Status: driver.Completed})
		cancel()
		recorded := j.resolve(t, w, e.rows)
		if err == nil {
			equal(t, "recorded after a successful end", recorded, true)
		}
		if recorded {
			total++
		}
	}
	t.Logf("%d of %d were recorded", total, 4*raceKeys)
}

// raceBegin runs transactional and other executions of the same operations: one of them is
// granted, and completes.
func (j *txKit) raceBegin(t *testing.T) {
	const keys = 8
	ids := make([]driver.ID, keys)
	for i := range ids {
		ids[i] = j.id()
	}
	granted := make([]int, keys*racers)
	ctx := patient(t)
	together(len(granted), func(i int) {
		do := j.executeTransactional
		if i/keys%2 == 1 {
			do = j.executeLeased
		}
		decision, err := do(ctx, i/keys, ids[i%keys])
		switch {
		case err != nil:
			t.Errorf("got %v, want no error", err)
		case decision == driver.Acquired:
			granted[i]++
		case decision != driver.DecisionInProgress && decision != driver.Done:
			t.Errorf("got %v, want acquired, in progress or done", decision)
		}
	})
	for key, id := range ids {
		transactional, all := 0, 0
		for i := key; i < len(granted); i += keys {
			all += granted[i]
			if i/keys%2 == 0 {
				transactional += granted[i]
			}
		}
		equal(t, "granted claims", all, 1)
		record := j.load(t, id)
		equal(t, "status", record.Status, driver.Completed)
		equal(t, "generation", record.Generation, 1)
		j.rows(t, id.Key, transactional)
	}
}

func (j *txKit) executeTransactional(ctx context.Context, i int, id driver.ID) (driver.Decision, error) {
	store := j.store
	if again, ok := j.handle(i / 2).(driver.Transactor); ok {
		store = again
	}
	reservation, tx, err := store.Begin(ctx, j.claim(id), 0)
	if err != nil || tx == nil {
		return reservation.Decision, err
	}
	if err := j.Write(ctx, tx.Value(), id.Key); err != nil {
		return 0, fmt.Errorf("Suite.Write: %w, %w", err, tx.Rollback(ctx))
	}
	return reservation.Decision, tx.Commit(ctx, driver.Outcome{Status: driver.Completed})
}

func (j *txKit) executeLeased(ctx context.Context, i int, id driver.ID) (driver.Decision, error) {
	store := j.handle(i / 2)
	reservation, err := store.Reserve(ctx, j.claim(id))
	if err != nil || reservation.Decision != driver.Acquired {
		return reservation.Decision, err
	}
	return reservation.Decision, store.Complete(ctx, reservation.Record.Lease(), driver.Outcome{Status: driver.Completed})
}
