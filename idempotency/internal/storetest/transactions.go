package storetest

import (
	"context"
	"testing"
	"time"

	"github.com/resilienthttp/resilienthttp/idempotency/internal/driver"
	"github.com/resilienthttp/resilienthttp/internal/sleep"
)

// work is an execution with an open transaction.
type work struct {
	claim  driver.Claim
	record driver.Record // of the reservation
	tx     driver.Transaction
	row    string
}

// txKit is a kit with a store that is a Transactor.
type txKit struct {
	*kit

	store driver.Transactor
}

// testTransactions tests a Transactor. While a transaction is open, only its record is
// used: the database may have one writer.
func (k *kit) testTransactions(t *testing.T, store driver.Transactor) {
	if k.Write == nil || k.Count == nil {
		t.Fatal("storetest: Suite.Write or Suite.Count is nil, must be set for a Transactor")
	}
	if store.InCallerTx() {
		t.Fatal("storetest: InCallerTx: got true, want false")
	}
	j := &txKit{k, store}
	t.Run("claims", j.claims)
	for name, end := range ends() {
		t.Run(name, func(t *testing.T) { j.stores(t, end) })
	}
	t.Run("excludes others", j.holds)
	t.Run("end twice", j.endTwice)
	t.Run("invalid outcome", j.invalidOutcome)
	t.Run("canceled", j.canceled)
	t.Run("limit", j.limit)
	t.Run("Begin and Reserve", j.raceBegin)
	t.Run("ambiguous end", j.raceAmbiguous)
}

// ending is a way to end a transaction with an outcome.
type ending struct {
	end  func(tx driver.Transaction, ctx context.Context, outcome driver.Outcome) error
	rows int // that are committed
}

func ends() map[string]ending {
	return map[string]ending{
		"Commit":            {driver.Transaction.Commit, 1},
		"RollbackAndRecord": {driver.Transaction.RollbackAndRecord, 0},
	}
}

// begin makes a claim that must be granted, and writes a row.
func (j *txKit) begin(t *testing.T, claim driver.Claim) *work {
	t.Helper()
	w := j.start(t, claim, 0)
	must(t, "Suite.Write", j.Write(patient(t), w.tx.Value(), w.row))
	return w
}

// start makes a claim that must be granted, with a limit for the transaction.
func (j *txKit) start(t *testing.T, claim driver.Claim, limit time.Duration) *work {
	t.Helper()
	ctx := patient(t)
	reservation, tx, err := j.store.Begin(ctx, claim, limit)
	must(t, "Begin", err)
	if reservation.Decision != driver.Acquired || tx == nil {
		t.Fatalf("Begin: got %v, transaction %v, want acquired; record %s", reservation.Decision, tx, show(reservation.Record))
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
		defer cancel()
		_ = tx.Rollback(ctx) // if the test has failed
	})
	if tx.Value() == nil {
		t.Fatal("Value: got nil, want a transaction")
	}
	return &work{claim: claim, record: reservation.Record, tx: tx, row: claim.Key}
}

// rows compares the number of committed rows.
func (j *txKit) rows(t *testing.T, row string, want int) {
	t.Helper()
	got, err := j.Count(patient(t), row)
	must(t, "Suite.Count", err)
	equal(t, "committed rows", got, want)
}

// claims makes each kind of claim on a record in each state. Before the end of the work
// nothing is written, but a dead execution becomes Unknown.
func (j *txKit) claims(t *testing.T) {
	for _, c := range contenders() {
		if !c.same { // an owner begins transactional work once
			j.each(t, c.name, states(), func(t *testing.T, s *subject) { t.Helper(); j.tryBegin(t, c, s) })
		}
	}
}

func (j *txKit) tryBegin(t *testing.T, c contender, s *subject) {
	t.Helper()
	claim := c.claim(j.kit, s)
	step, want := s.wants(&claim)
	if want.Decision == driver.Acquired {
		j.supersedes(t, claim, s, want)
		return
	}
	got, tx, err := j.store.Begin(patient(t), claim, 0)
	must(t, "Begin", err)
	equal(t, "Begin has a transaction", tx != nil, false)
	wantReservation(t, "Begin", got, want)
	after := j.load(t, claim.ID)
	wantRecord(t, "of Begin is not that of Load", got.Record, after)
	if step == driver.Leave {
		j.unchanged(t, s.before, claim.ID)
		return
	}
	checkMarkedUnknown(t, s.before, after)
	j.cannotWrite(t, s.lease)
}

// supersedes begins and rolls back, which changes nothing, and then begins and commits.
func (j *txKit) supersedes(t *testing.T, claim driver.Claim, s *subject, want driver.Reservation) {
	t.Helper()
	must(t, "Rollback", j.begin(t, claim).tx.Rollback(patient(t)))
	j.unchanged(t, s.before, claim.ID)
	claim.Owner = driver.NewOwner()
	reservation, tx, err := j.store.Begin(patient(t), claim, 0)
	must(t, "Begin after Rollback", err)
	wantReservation(t, "Begin after Rollback", reservation, want)
	if tx == nil {
		t.Fatal("Begin after Rollback: got no transaction")
	}
	defer tx.Rollback(context.WithoutCancel(patient(t))) //nolint:errcheck // if the test has failed
	w := &work{claim: claim, record: reservation.Record, tx: tx}
	j.promised(t, w, s.lease.Generation+1)
	outcome := driver.Outcome{Status: driver.Completed, Result: answer()}
	must(t, "Commit", tx.Commit(patient(t), outcome))
	j.written(t, w, outcome)
	j.cannotWrite(t, s.lease)
	j.cannotWrite(t, w.record.Lease())
}

// promised checks the record that Begin has returned.
func (*txKit) promised(t *testing.T, w *work, generation int64) {
	t.Helper()
	want := w.record // for its times
	want.ID, want.Fingerprint, want.Status = w.claim.ID, w.claim.Fingerprint, driver.InProgress
	want.Owner, want.Generation, want.Takeover, want.Result = w.claim.Owner, generation, w.claim.Takeover, driver.Result{}
	wantRecord(t, "of Begin", w.record, want)
	between(t, "Expires - Started", w.record.Expires.Sub(w.record.Started), w.claim.TTL)
}

// written checks the record after the end of the work.
func (j *txKit) written(t *testing.T, w *work, outcome driver.Outcome) {
	t.Helper()
	after := j.load(t, w.claim.ID)
	want := w.record
	want.Status, want.Updated, want.LeaseExpires = outcome.Status, after.Updated, after.LeaseExpires
	if outcome.Status == driver.Completed || outcome.Status == driver.FailedFinal {
		want.Result = outcome.Result
	}
	if outcome.TTL > 0 {
		want.Expires = after.Expires
		between(t, "Expires - Updated", after.Expires.Sub(after.Updated), outcome.TTL)
	}
	wantRecord(t, "at the end", after, want)
	equal(t, "Updated is before Started", after.Updated.Before(after.Started), false)
}

// stores ends transactions with each outcome.
func (j *txKit) stores(t *testing.T, e ending) {
	for _, outcome := range []driver.Outcome{
		{Status: driver.Completed, Result: answer()},
		{Status: driver.Completed, Result: answer(), TTL: 5 * time.Hour},
		{Status: driver.FailedFinal, Result: answer()},
		{Status: driver.FailedFinal, Result: answer(), TTL: 5 * time.Hour},
		{Status: driver.CompletedUnreplayable, Result: answer()},
		{Status: driver.Unknown},
	} {
		t.Run(outcome.Status.String()+" with a TTL of "+outcome.TTL.String(), func(t *testing.T) {
			w := j.begin(t, j.claim(j.id()))
			j.promised(t, w, 1)
			j.unchanged(t, driver.Record{}, w.claim.ID)
			j.rows(t, w.row, 0)
			must(t, "the end", e.end(w.tx, patient(t), outcome))
			j.rows(t, w.row, e.rows)
			j.written(t, w, outcome)
			want := driver.Reservation{Decision: driver.Done}
			if outcome.Status == driver.Unknown {
				want.Decision = driver.DecisionUnknown
			}
			wantReservation(t, "Reserve after the end", j.reserve(t, j.claim(w.claim.ID)), want)
			got, tx, err := j.store.Begin(patient(t), j.claim(w.claim.ID), 0)
			must(t, "Begin after the end", err)
			equal(t, "Begin after the end has a transaction", tx != nil, false)
			wantReservation(t, "Begin after the end", got, want)
			wantRecord(t, "of Begin is not that of Load", got.Record, j.load(t, w.claim.ID))
		})
	}
}

// holds keeps a transaction open for longer than the lease and the TTL of its claim, while
// others claim the operation.
func (j *txKit) holds(t *testing.T) {
	claim := j.claim(j.id())
	claim.Lease, claim.TTL = blink, blink
	w := j.begin(t, claim)
	_ = sleep.Context(t.Context(), 3*blink)
	again, _ := j.beside(1).(driver.Transactor)
	for _, c := range contenders() {
		if c.same || c.other {
			continue // their decisions are not defined
		}
		t.Run(c.name, func(t *testing.T) {
			other := c.claim(j.kit, &subject{lease: w.record.Lease()})
			j.atOnce(t, "Reserve", func(ctx context.Context) error { return reserveBusy(ctx, t, j.store, other) })
			for _, store := range []driver.Transactor{j.store, again} {
				if store != nil {
					j.atOnce(t, "Begin", func(ctx context.Context) error { return beginBusy(ctx, t, store, other) })
				}
			}
		})
	}
	t.Run("many at once", func(t *testing.T) {
		ctx := patient(t)
		together(20, func(i int) {
			var err error
			if i%4 < 2 {
				err = reserveBusy(ctx, t, j.beside(i), j.claim(claim.ID))
			} else {
				err = beginBusy(ctx, t, j.store, j.claim(claim.ID))
			}
			if err != nil {
				t.Errorf("Reserve or Begin: got %v, want no error", err)
			}
		})
	})
	t.Run("Load", func(t *testing.T) { j.unchanged(t, driver.Record{}, claim.ID) })
	t.Run("Sweep", func(t *testing.T) {
		j.atOnce(t, "Sweep", func(ctx context.Context) error {
			_, err := j.store.Sweep(ctx, 1000)
			return err
		})
	})

	outcome := driver.Outcome{Status: driver.Completed, Result: answer(), TTL: time.Hour}
	must(t, "Commit", w.tx.Commit(patient(t), outcome))
	j.rows(t, w.row, 1)
	j.written(t, w, outcome)
}

func reserveBusy(ctx context.Context, t *testing.T, store driver.Store, claim driver.Claim) error {
	t.Helper()
	reservation, err := store.Reserve(ctx, claim)
	equal(t, "Reserve during a transaction", reservation.Decision, driver.DecisionInProgress)
	return err
}

func beginBusy(ctx context.Context, t *testing.T, store driver.Transactor, claim driver.Claim) error {
	t.Helper()
	reservation, tx, err := store.Begin(ctx, claim, 0)
	equal(t, "Begin during a transaction", reservation.Decision, driver.DecisionInProgress)
	if tx != nil {
		t.Error("Begin during a transaction: got a transaction")
		return tx.Rollback(ctx)
	}
	return err
}

// atOnce checks that a call does not wait for the open transaction: the shortest of ten
// calls takes less than a second.
func (*txKit) atOnce(t *testing.T, what string, call func(context.Context) error) {
	t.Helper()
	for range 10 {
		began := time.Now()
		must(t, what+" during a transaction", call(patient(t)))
		if time.Since(began) < time.Second {
			return
		}
	}
	t.Errorf("%s waits for the transaction that holds the record", what)
}
