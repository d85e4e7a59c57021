package storetest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/idempotency"
	"github.com/resilienthttp/resilienthttp/internal/sleep"
)

// endTwice ends a transaction that has ended.
func (j *txKit) endTwice() {
	all := ends()
	all["Rollback"] = ending{end: func(tx idempotency.Transaction, ctx context.Context, _ idempotency.Outcome) error {
		return tx.Rollback(ctx)
	}}
	for name, e := range all {
		w := j.begin(j.claim(j.id()))
		require.NoError(j, e.end(w.tx, j.patient(), idempotency.Outcome{Status: idempotency.Completed, Result: answer()}), name)
		before := j.find(w.claim.ID)
		for range 2 {
			require.NoError(j, w.tx.Rollback(j.patient()), "Rollback after %s", name)
			for again, e := range ends() {
				require.Error(j, e.end(w.tx, j.patient(), idempotency.Outcome{Status: idempotency.FailedFinal}), "%s after %s", again, name)
			}
		}
		j.unchanged(before, w.claim.ID)
		j.rows(w.row, e.rows)
	}
}

// invalidOutcome ends transactions with invalid outcomes, which are not stored.
func (j *txKit) invalidOutcome(e ending) {
	for _, outcome := range []idempotency.Outcome{{Status: idempotency.FailedRetryable}, {Status: idempotency.Completed, TTL: -1}} {
		w := j.begin(j.claim(j.id()))
		require.ErrorIs(j, e.end(w.tx, j.patient(), outcome), idempotency.ErrInvalid)
		j.unchanged(idempotency.Record{}, w.claim.ID)
		j.rows(w.row, 0)
		require.NoError(j, j.begin(j.claim(w.claim.ID)).tx.Rollback(j.patient()), "of the next")
	}
}

// canceled ends a transaction with a context that has ended.
func (j *txKit) canceled(e ending) {
	w := j.begin(j.claim(j.id()))
	require.Error(j, e.end(w.tx, j.ended(), idempotency.Outcome{Status: idempotency.Completed}))
	j.resolve(w, e.rows)
}

// limit leaves a transaction open for longer than its limit. The database may or may not
// have ended it, on a slow machine even before the write.
func (j *txKit) limit() {
	w := j.start(j.claim(j.id()), blink)
	rows := 1
	if j.Write(j.patient(), w.tx.Value(), w.row) != nil {
		rows = 0
	}
	_ = sleep.Context(j.Context(), 5*blink)
	err := w.tx.Commit(j.patient(), idempotency.Outcome{Status: idempotency.Completed})
	recorded := j.resolve(w, rows)
	assert.False(j, err == nil && !recorded, "Commit has lost the record")
	assert.False(j, recorded && rows == 0, "recorded without its row")
}

// resolve finds the result of a transaction with an unknown end by Begin, as documented at
// Transaction.Commit. It reports whether the outcome was recorded, with that many rows.
func (j *txKit) resolve(w *work, rows int) (recorded bool) {
	for ctx := j.patient(); ctx.Err() == nil; breathe(ctx) {
		reservation, tx, err := j.store.Begin(ctx, j.claim(w.claim.ID), 0)
		require.NoError(j, err)
		switch reservation.Decision {
		case idempotency.DecisionInProgress: // it may still be committed
		case idempotency.DecisionAcquired:
			require.NoError(j, tx.Rollback(ctx))
			j.rows(w.row, 0)
			return false
		default:
			assert.Equal(j, w.record.Lease(), reservation.Record.Lease())
			j.rows(w.row, rows)
			return true
		}
	}
	require.FailNow(j, "Begin: in progress without an end")
	return false
}

// raceAmbiguous ends transactions with contexts that end at any moment. The record and the
// rows must agree.
func (j *txKit) raceAmbiguous() {
	total := 0
	for i := range 4 * raceKeys {
		w := j.begin(j.claim(j.id()))
		e := ends()["Commit"]
		if i%4 == 0 {
			e = ends()["RollbackAndRecord"]
		}
		ctx, cancel := context.WithTimeout(j.Context(), time.Duration(rand.Int64N(int64(2*time.Millisecond))))
		err := e.end(w.tx, ctx, idempotency.Outcome{Status: idempotency.Completed})
		cancel()
		recorded := j.resolve(w, e.rows)
		assert.False(j, err == nil && !recorded, "a successful end has lost the record")
		if recorded {
			total++
		}
	}
	j.Logf("%d of %d were recorded", total, 4*raceKeys)
}

// raceBegin runs transactional and other executions of the same operations: one of them is
// granted, and completes.
func (j *txKit) raceBegin() {
	const keys = 8
	ids := make([]idempotency.ID, keys)
	for i := range ids {
		ids[i] = j.id()
	}
	granted := make([]int, keys*racers)
	ctx := j.patient()
	together(len(granted), func(i int) {
		do := j.executeTransactional
		if i/keys%2 == 1 {
			do = j.executeLeased
		}
		decision, err := do(ctx, i/keys, ids[i%keys])
		assert.NoError(j, err)
		if decision == idempotency.DecisionAcquired {
			granted[i]++
		} else {
			assert.Contains(j, []idempotency.Decision{idempotency.DecisionInProgress, idempotency.DecisionDone}, decision)
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
		assert.Equal(j, 1, all, "granted claims")
		record := j.load(id)
		assert.Equal(j, idempotency.Completed, record.Status)
		assert.EqualValues(j, 1, record.Generation)
		j.rows(id.Key, transactional)
	}
}

func (j *txKit) executeTransactional(ctx context.Context, i int, id idempotency.ID) (idempotency.Decision, error) {
	store := j.store
	if again, ok := j.handle(i / 2).(idempotency.Transactor); ok {
		store = again
	}
	reservation, tx, err := store.Begin(ctx, j.claim(id), 0)
	if err != nil || tx == nil {
		return reservation.Decision, err
	}
	if err := j.Write(ctx, tx.Value(), id.Key); err != nil {
		return 0, fmt.Errorf("Suite.Write: %w, %w", err, tx.Rollback(ctx))
	}
	return reservation.Decision, tx.Commit(ctx, idempotency.Outcome{Status: idempotency.Completed})
}

func (j *txKit) executeLeased(ctx context.Context, i int, id idempotency.ID) (idempotency.Decision, error) {
	store := j.handle(i / 2)
	reservation, err := store.Reserve(ctx, j.claim(id))
	if err != nil || reservation.Decision != idempotency.DecisionAcquired {
		return reservation.Decision, err
	}
	return reservation.Decision, store.Complete(ctx, reservation.Record.Lease(), idempotency.Outcome{Status: idempotency.Completed})
}
