package storetest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/resilienthttp/resilienthttp/idempotency/driver"
	"github.com/resilienthttp/resilienthttp/internal/sleep"
)

// endTwice ends a transaction that is over.
func (j *joinedKit) endTwice(t *testing.T) {
	completed := driver.Outcome{Status: driver.Completed, Result: answer()}
	final := driver.Outcome{Status: driver.FailedFinal}
	for _, row := range []struct {
		name string
		end  func(tx driver.Transaction) error
		rows int
	}{
		{"Commit", func(tx driver.Transaction) error { return tx.Commit(patient(t), completed) }, 1},
		{"Refuse", func(tx driver.Transaction) error { return tx.RollbackAndRecord(patient(t), completed) }, 0},
		{"Rollback", func(tx driver.Transaction) error { return tx.Rollback(patient(t)) }, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := j.begin(t, j.claim(j.id()))
			if err := row.end(w.tx); err != nil {
				t.Fatalf("%s: %v", row.name, err)
			}
			before := j.find(t, w.claim.ID)
			for range 2 {
				if err := w.tx.Rollback(patient(t)); err != nil {
					t.Errorf("Rollback after %s: %v, want nil", row.name, err)
				}
				if err := w.tx.Commit(patient(t), final); err == nil {
					t.Errorf("Commit after %s succeeds", row.name)
				}
				if err := w.tx.RollbackAndRecord(patient(t), final); err == nil {
					t.Errorf("Refuse after %s succeeds", row.name)
				}
			}
			j.unchanged(t, before, w.claim.ID)
			j.rows(t, w.row, row.rows)
		})
	}
}

// invalidOutcome stores nothing that no store accepts, and ends all the same.
func (j *joinedKit) invalidOutcome(t *testing.T) {
	for name, end := range map[string]ending{"Commit": commit, "Refuse": refuse} {
		for _, outcome := range []driver.Outcome{
			{}, {Status: driver.InProgress}, {Status: driver.FailedRetryable}, {Status: driver.Completed, TTL: -1},
		} {
			t.Run(name+" "+outcome.Status.String(), func(t *testing.T) {
				w := j.begin(t, j.claim(j.id()))
				if err := end(patient(t), w.tx, outcome); !errors.Is(err, driver.ErrInvalid) {
					t.Errorf("%s: %v, want ErrInvalid", name, err)
				}
				j.unchanged(t, driver.Record{}, w.claim.ID)
				j.rows(t, w.row, 0)
				if err := j.begin(t, j.claim(w.claim.ID)).tx.Rollback(patient(t)); err != nil {
					t.Errorf("Rollback: %v", err)
				}
			})
		}
	}
}

// cancelled ends with a context that is over.
func (j *joinedKit) cancelled(t *testing.T) {
	for name, end := range map[string]ending{"Commit": commit, "Refuse": refuse} {
		t.Run(name, func(t *testing.T) {
			w := j.begin(t, j.claim(j.id()))
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if err := end(ctx, w.tx, driver.Outcome{Status: driver.Completed}); err == nil {
				t.Errorf("%s with a cancelled context succeeds", name)
			}
			j.resolve(patient(t), t, w, map[string]int{"Commit": 1}[name])
		})
	}
	t.Run("Rollback", func(t *testing.T) {
		w := j.begin(t, j.claim(j.id()))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_ = w.tx.Rollback(ctx) // whatever it says
		if done := j.resolve(patient(t), t, w, 0); done {
			t.Error("after Rollback there is a record")
		}
	})
}

// limit leaves a transaction open for longer than it may be. The database may have ended
// it, or not; on a busy machine even before the work has written.
func (j *joinedKit) limit(t *testing.T) {
	w := j.start(t, j.claim(j.id()), blink)
	rows := 1
	if j.Write(patient(t), w.tx.Value(), w.row) != nil {
		rows = 0
	}
	_ = sleep.Context(t.Context(), 5*blink)
	err := w.tx.Commit(patient(t), driver.Outcome{Status: driver.Completed})
	done := j.resolve(patient(t), t, w, rows)
	if err == nil && !done {
		t.Error("Commit: nil, but there is no record")
	}
	if done && rows == 0 {
		t.Error("there is a record of work that could not be written")
	}
}

// resolve finds out what has become of a transaction whose end was not heard of, as
// Transaction.Commit says: by Begin, which is busy as long as it may still be
// committed. done: it was, with so many rows.
func (j *joinedKit) resolve(ctx context.Context, t *testing.T, w *work, rows int) (done bool) {
	t.Helper()
	for ctx.Err() == nil {
		reservation, tx, err := j.store.Begin(ctx, j.kit.claim(w.claim.ID), 0)
		switch {
		case err != nil:
			t.Fatalf("Begin: %v", err)
		case reservation.Decision == driver.DecisionInProgress:
			_ = sleep.Context(t.Context(), time.Millisecond)
			continue
		case reservation.Decision == driver.Acquired:
			if err := tx.Rollback(ctx); err != nil {
				t.Errorf("Rollback: %v", err)
			}
			j.rows(t, w.row, 0)
			return false
		case reservation.Record.Lease() != w.record.Lease():
			t.Fatalf("Begin: %v, but the record is %s", reservation.Decision, show(reservation.Record))
		}
		j.rows(t, w.row, rows)
		return true
	}
	t.Fatal("Begin is busy for ever")
	return false
}
