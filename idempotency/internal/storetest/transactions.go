package storetest

import (
	"context"
	"crypto/rand"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/idempotency"
	"github.com/resilienthttp/resilienthttp/internal/sleep"
)

// txKit is a kit with a store that is a Transactor.
type txKit struct {
	*kit

	store idempotency.Transactor
}

// work is an execution with an open transaction.
type work struct {
	claim  idempotency.Claim
	record idempotency.Record // of the reservation
	tx     idempotency.Transaction
	row    string
}

// ending is a way to end a transaction with an outcome.
type ending struct {
	end  func(tx idempotency.Transaction, ctx context.Context, outcome idempotency.Outcome) error
	rows int // that are committed
}

func ends() map[string]ending {
	return map[string]ending{
		"Commit":            {idempotency.Transaction.Commit, 1},
		"RollbackAndRecord": {idempotency.Transaction.RollbackAndRecord, 0},
	}
}

// testTransactions tests a Transactor. While a transaction is open, only its record is
// used: the database may have one writer.
func (k *kit) testTransactions(store idempotency.Transactor) {
	require.False(k, k.Write == nil || k.Count == nil, "Suite.Write or Suite.Count is nil, must be set for a Transactor")
	require.False(k, store.InCallerTx())
	test := func(name string, f func(j *txKit)) {
		k.test(name, func(k *kit) { f(&txKit{k, store}) })
	}
	test("claims", (*txKit).claims)
	for name, end := range ends() {
		test(name, func(j *txKit) { j.stores(end) })
		test(name+" with an invalid outcome", func(j *txKit) { j.invalidOutcome(end) })
		test(name+" when canceled", func(j *txKit) { j.canceled(end) })
	}
	test("excludes others", (*txKit).holds)
	test("end twice", (*txKit).endTwice)
	test("Rollback when canceled", func(j *txKit) {
		w := j.begin(j.claim(j.id()))
		_ = w.tx.Rollback(j.ended()) // it may fail
		assert.False(j, j.resolve(w, 0))
	})
	test("limit", (*txKit).limit)
	test("Begin and Reserve", (*txKit).raceBegin)
	test("ambiguous end", (*txKit).raceAmbiguous)
}

// begin makes a claim that must be granted, and writes a row.
func (j *txKit) begin(claim idempotency.Claim) *work {
	w := j.start(claim, 0)
	require.NoError(j, j.Write(j.patient(), w.tx.Value(), w.row))
	return w
}

// start makes a claim that must be granted, with a limit for the transaction.
func (j *txKit) start(claim idempotency.Claim, limit time.Duration) *work {
	ctx := j.patient()
	reservation, tx, err := j.store.Begin(ctx, claim, limit)
	require.NoError(j, err)
	require.Equal(j, idempotency.DecisionAcquired, reservation.Decision, "record %+v", reservation.Record)
	require.NotNil(j, tx)
	j.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
		defer cancel()
		_ = tx.Rollback(ctx) // if the test has failed
	})
	require.NotNil(j, tx.Value())
	return &work{claim: claim, record: reservation.Record, tx: tx, row: claim.Key}
}

// beginNone makes a claim that must be answered without a transaction.
func (j *txKit) beginNone(claim idempotency.Claim, want idempotency.Reservation) idempotency.Record {
	got, tx, err := j.store.Begin(j.patient(), claim, 0)
	require.NoError(j, err)
	require.Nil(j, tx)
	j.equalReservation(want, got)
	after := j.load(claim.ID)
	j.equalRecord(got.Record, after, "of Begin and of Load")
	return after
}

// rows compares the number of committed rows.
func (j *txKit) rows(row string, want int) {
	got, err := j.Count(j.patient(), row)
	require.NoError(j, err)
	assert.Equal(j, want, got, "committed rows")
}

// claims makes each kind of claim on a record in each state. Before the end of the work
// nothing is written, but a dead execution becomes Unknown.
func (j *txKit) claims() {
	for _, c := range contenders() {
		if !c.same { // an owner begins transactional work once
			j.each(c.name, func(k *kit, s *subject) { (&txKit{k, j.store}).tryBegin(c, s) })
		}
	}
}

func (j *txKit) tryBegin(c contender, s *subject) {
	claim := c.claim(j.kit, s.lease)
	switch step, want := s.wants(&claim); {
	case want.Decision == idempotency.DecisionAcquired:
		j.supersedes(claim, s)
	case step == idempotency.StepLeave:
		j.beginNone(claim, want)
		j.unchanged(s.before, claim.ID)
	default:
		j.checkMarkedUnknown(s.before, j.beginNone(claim, want))
		j.cannotWrite(s.lease)
	}
}

// supersedes begins and rolls back, which changes nothing, and then begins and commits.
func (j *txKit) supersedes(claim idempotency.Claim, s *subject) {
	require.NoError(j, j.begin(claim).tx.Rollback(j.patient()))
	j.unchanged(s.before, claim.ID)
	claim.Owner = rand.Text()
	w := j.start(claim, 0)
	j.promised(w, s.lease.Generation+1)
	outcome := idempotency.Outcome{Status: idempotency.Completed, Result: answer()}
	require.NoError(j, w.tx.Commit(j.patient(), outcome))
	j.written(w, outcome)
	j.cannotWrite(s.lease)
	j.cannotWrite(w.record.Lease())
}

// promised checks the record that Begin has returned.
func (j *txKit) promised(w *work, generation int64) {
	want := w.record // for its times
	want.ID, want.Fingerprint, want.Status = w.claim.ID, w.claim.Fingerprint, idempotency.StatusInProgress
	want.Owner, want.Generation, want.Takeover, want.Result = w.claim.Owner, generation, w.claim.Takeover, idempotency.Result{}
	j.equalRecord(want, w.record, "of Begin")
	j.about(w.claim.TTL, w.record.Expires.Sub(w.record.Started), "Expires - Started")
}

// written checks the record after the end of the work.
func (j *txKit) written(w *work, outcome idempotency.Outcome) {
	after := j.load(w.claim.ID)
	want := w.record
	want.Status, want.Updated, want.LeaseExpires, want.Result = outcome.Status, after.Updated, after.LeaseExpires, outcome.Stored()
	if outcome.TTL > 0 {
		want.Expires = after.Expires
		j.about(outcome.TTL, after.Expires.Sub(after.Updated), "Expires - Updated")
	}
	j.equalRecord(want, after, "at the end")
	assert.False(j, after.Updated.Before(after.Started))
}

// stores ends transactions with each outcome.
func (j *txKit) stores(e ending) {
	for _, outcome := range []idempotency.Outcome{
		{Status: idempotency.Completed, Result: answer()},
		{Status: idempotency.Completed, Result: answer(), TTL: 5 * time.Hour},
		{Status: idempotency.FailedFinal, Result: answer(), TTL: 5 * time.Hour},
		{Status: idempotency.CompletedUnreplayable, Result: answer()},
		{Status: idempotency.Unknown},
	} {
		j.test(outcome.Status.String()+" with a TTL of "+outcome.TTL.String(), func(k *kit) {
			j := &txKit{k, j.store}
			w := j.begin(j.claim(j.id()))
			j.promised(w, 1)
			j.unchanged(idempotency.Record{}, w.claim.ID)
			j.rows(w.row, 0)
			require.NoError(j, e.end(w.tx, j.patient(), outcome))
			j.rows(w.row, e.rows)
			j.written(w, outcome)
			want := idempotency.Reservation{Decision: idempotency.DecisionDone}
			if outcome.Status == idempotency.Unknown {
				want.Decision = idempotency.DecisionUnknown
			}
			j.equalReservation(want, j.reserve(j.claim(w.claim.ID)))
			j.beginNone(j.claim(w.claim.ID), want)
		})
	}
}

// holds keeps a transaction open for longer than the lease and the TTL of its claim, while
// others claim the operation.
func (j *txKit) holds() {
	claim := j.claim(j.id())
	claim.Lease, claim.TTL = blink, blink
	w := j.begin(claim)
	_ = sleep.Context(j.Context(), 3*blink)
	for _, c := range contenders() {
		if c.same || c.other {
			continue // their decisions are not defined
		}
		other := c.claim(j.kit, w.record.Lease())
		j.atOnce(func(ctx context.Context) error { return j.reserveBusy(ctx, j.store, other) })
		for i := range 2 {
			j.atOnce(func(ctx context.Context) error { return j.beginBusy(ctx, j.beside(i), other) })
		}
	}
	ctx := j.patient()
	together(20, func(i int) {
		busy := j.reserveBusy
		if i%4 >= 2 {
			busy = j.beginBusy
		}
		assert.NoError(j, busy(ctx, j.beside(i), j.claim(claim.ID)))
	})
	j.unchanged(idempotency.Record{}, claim.ID)
	j.atOnce(func(ctx context.Context) error { return ignored(j.store.Sweep(ctx, 1000)) })

	outcome := idempotency.Outcome{Status: idempotency.Completed, Result: answer(), TTL: time.Hour}
	require.NoError(j, w.tx.Commit(j.patient(), outcome))
	j.rows(w.row, 1)
	j.written(w, outcome)
}

func (j *txKit) reserveBusy(ctx context.Context, store idempotency.Store, claim idempotency.Claim) error {
	reservation, err := store.Reserve(ctx, claim)
	assert.Equal(j, idempotency.DecisionInProgress, reservation.Decision, "Reserve during a transaction")
	return err
}

func (j *txKit) beginBusy(ctx context.Context, store idempotency.Store, claim idempotency.Claim) error {
	transactor, ok := store.(idempotency.Transactor)
	if !ok {
		return j.reserveBusy(ctx, store, claim)
	}
	reservation, tx, err := transactor.Begin(ctx, claim, 0)
	assert.Equal(j, idempotency.DecisionInProgress, reservation.Decision, "Begin during a transaction")
	assert.Nil(j, tx)
	return err
}

// atOnce checks that a call does not wait for the open transaction: the shortest of ten
// calls takes less than a second.
func (j *txKit) atOnce(call func(context.Context) error) {
	for range 10 {
		began := time.Now()
		require.NoError(j, call(j.patient()))
		if time.Since(began) < time.Second {
			return
		}
	}
	assert.Fail(j, "a call waits for the transaction that holds the record")
}
