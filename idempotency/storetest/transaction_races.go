package storetest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/resilienthttp/resilienthttp/idempotency/driver"
)

// raceBegin has joined and detached executions claim the same operations: one of
// each is granted and comes to its end, and the others are told so.
func (j *joinedKit) raceBegin(t *testing.T) {
	const keys = 8
	ids := make([]driver.ID, keys)
	for i := range ids {
		ids[i] = j.id()
	}
	granted := make([]int, keys*racers)
	ctx := patient(t)
	together(len(granted), func(i int) {
		do := j.executeJoined
		if i/keys%2 == 1 {
			do = j.executeDetached
		}
		decision, err := do(ctx, i/keys, ids[i%keys])
		switch {
		case err != nil:
			t.Error(err)
		case decision == driver.Acquired:
			granted[i]++
		case decision != driver.DecisionInProgress && decision != driver.Done:
			t.Errorf("%v, want acquired, busy or done", decision)
		}
	})
	for key, id := range ids {
		joined, all := 0, 0
		for i := key; i < len(granted); i += keys {
			all += granted[i]
			if i/keys%2 == 0 {
				joined += granted[i]
			}
		}
		if all != 1 {
			t.Errorf("%d claims were granted, want 1", all)
		}
		if record := j.load(t, id); record.Status != driver.Completed || record.Generation != 1 {
			t.Errorf("in the end the record is %s", show(record))
		}
		j.rows(t, id.Key, joined)
	}
}

func (j *joinedKit) executeJoined(ctx context.Context, i int, id driver.ID) (driver.Decision, error) {
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

func (j *joinedKit) executeDetached(ctx context.Context, i int, id driver.ID) (driver.Decision, error) {
	store := j.handle(i / 2)
	reservation, err := store.Reserve(ctx, j.claim(id))
	if err != nil || reservation.Decision != driver.Acquired {
		return reservation.Decision, err
	}
	return reservation.Decision, store.Complete(ctx, reservation.Record.Lease(), driver.Outcome{Status: driver.Completed})
}

// raceAmbiguous ends transactions with contexts that end at any moment. Whatever is
// said of the end, the record and the work's rows agree, and Begin tells.
func (j *joinedKit) raceAmbiguous(t *testing.T) {
	done := 0
	for i := range 4 * raceKeys {
		w := j.begin(t, j.claim(j.id()))
		end, rows := commit, 1
		if i%4 == 0 {
			end, rows = refuse, 0
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rand.Int64N(int64(2*time.Millisecond))))
		err := end(ctx, w.tx, driver.Outcome{Status: driver.Completed})
		cancel()
		committed := j.resolve(patient(t), t, w, rows)
		if err == nil && !committed {
			t.Error("the end: nil, but there is no record")
		}
		if committed {
			done++
		}
	}
	t.Logf("%d of %d were done", done, 4*raceKeys)
}
