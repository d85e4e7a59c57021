package storetest

import (
	"context"
	"testing"
	"time"

	"github.com/resilienthttp/resilienthttp/idempotency/driver"
	"github.com/resilienthttp/resilienthttp/internal/sleep"
)

// work is an execution with an open transaction, in which it has written a row.
type work struct {
	claim  driver.Claim
	record driver.Record // of the reservation
	tx     driver.Transaction
	row    string
}

// joinedKit is a kit whose store has transactions.
type joinedKit struct {
	*kit

	store driver.Transactor
}

// testTransactions tests a Transactor. Only the record of the open transaction is
// asked for while there is one: a database may have no room for another writer.
func (k *kit) testTransactions(t *testing.T, store driver.Transactor) {
	if k.Write == nil || k.Count == nil {
		t.Fatal("the store is a Transactor: storetest.Suite needs Write and Count")
	}
	if store.InCallerTx() {
		t.Fatal("the store is within a transaction of the caller's, and cannot commit")
	}
	j := &joinedKit{k, store}
	t.Run("claims", j.claims)
	t.Run("Commit", func(t *testing.T) { j.stores(t, commit, 1) })
	t.Run("Refuse", func(t *testing.T) { j.stores(t, refuse, 0) })
	t.Run("Rollback", j.rollsBack)
	t.Run("nobody else", j.holds)
	t.Run("end twice", j.endTwice)
	t.Run("invalid outcome", j.invalidOutcome)
	t.Run("cancelled", j.cancelled)
	t.Run("limit", j.limit)
	t.Run("Begin and Reserve", j.raceBegin)
	t.Run("an end that was not heard of", j.raceAmbiguous)
}

// ending is one of a transaction's ends.
type ending func(ctx context.Context, tx driver.Transaction, outcome driver.Outcome) error

func commit(ctx context.Context, tx driver.Transaction, outcome driver.Outcome) error {
	return tx.Commit(ctx, outcome)
}

func refuse(ctx context.Context, tx driver.Transaction, outcome driver.Outcome) error {
	return tx.RollbackAndRecord(ctx, outcome)
}

// begin makes a claim that must be granted, and has the work write a row.
func (j *joinedKit) begin(t *testing.T, claim driver.Claim) *work {
	t.Helper()
	w := j.start(t, claim, 0)
	if err := j.Write(patient(t), w.tx.Value(), w.row); err != nil {
		t.Fatalf("Suite.Write: %v", err)
	}
	return w
}

// start makes a claim that must be granted, for work that takes no longer than limit.
func (j *joinedKit) start(t *testing.T, claim driver.Claim, limit time.Duration) *work {
	t.Helper()
	ctx := patient(t)
	reservation, tx, err := j.store.Begin(ctx, claim, limit)
	if err != nil {
		t.Fatalf("Begin: %v", err)
	}
	if reservation.Decision != driver.Acquired || tx == nil {
		t.Fatalf("Begin: %v, transaction %v, want acquired; the record is %s", reservation.Decision, tx, show(reservation.Record))
	}
	w := &work{claim: claim, record: reservation.Record, tx: tx, row: claim.Key}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
		defer cancel()
		_ = tx.Rollback(ctx) // if the test has not come to its end
	})
	if tx.Value() == nil {
		t.Fatal("the transaction's Value is nil")
	}
	return w
}

// rows looks how many of the work's rows are committed.
func (j *joinedKit) rows(t *testing.T, row string, want int) {
	t.Helper()
	got, err := j.Count(patient(t), row)
	if err != nil {
		t.Fatalf("Suite.Count: %v", err)
	}
	if got != want {
		t.Errorf("%d rows of the work are committed, want %d", got, want)
	}
}

// claims makes each kind of claim for joined work on a record in each state.
// Nothing is written before the work ends, except that a dead execution becomes
// Unknown.
func (j *joinedKit) claims(t *testing.T) {
	for _, c := range contenders() {
		if c.same { // which claims joined work once only
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			subjects := j.prepare(t, states())
			for i := range subjects {
				t.Run(subjects[i].name, func(t *testing.T) { j.tryBegin(t, c, &subjects[i]) })
			}
		})
	}
}

func (j *joinedKit) tryBegin(t *testing.T, c contender, s *subject) {
	before := j.standing(t, s)
	claim := c.claim(j.kit, s)
	want, step := c.wants(s)
	if want.Decision == driver.Acquired {
		j.supersedes(t, claim, s, before, want.Resumed)
		return
	}
	got, tx, err := j.store.Begin(patient(t), claim, 0)
	if err != nil || tx != nil {
		t.Fatalf("Begin: transaction %v, %v, want none, nil", tx, err)
	}
	if got.Decision != want.Decision || got.Resumed != want.Resumed || got.LeaseExpired != want.LeaseExpired {
		t.Errorf("Begin: %v, Resumed %v, Abandoned %v; want %v, %v, %v", got.Decision, got.Resumed, got.LeaseExpired,
			want.Decision, want.Resumed, want.LeaseExpired)
	}
	after := j.load(t, claim.ID)
	if d := diff(got.Record, after); d != "" {
		t.Errorf("the record that Begin answers with is not the one that Load finds:\n%s", d)
	}
	if step == keeps {
		j.unchanged(t, before, claim.ID)
		return
	}
	checkAbandoned(t, before, after)
	j.cannotWrite(t, s.lease)
}

// supersedes begins and rolls back, which leaves all as it was, and begins again and
// commits.
func (j *joinedKit) supersedes(t *testing.T, claim driver.Claim, s *subject, before driver.Record, resumed bool) {
	t.Helper()
	first := j.begin(t, claim)
	if err := first.tx.Rollback(patient(t)); err != nil {
		t.Errorf("Rollback: %v", err)
	}
	j.unchanged(t, before, claim.ID)
	claim.Owner = driver.NewOwner()
	reservation, tx, err := j.store.Begin(patient(t), claim, 0)
	if err != nil || reservation.Decision != driver.Acquired {
		t.Fatalf("Begin after Rollback: %v, %v, want acquired", reservation.Decision, err)
	}
	defer tx.Rollback(context.WithoutCancel(patient(t))) //nolint:errcheck // if the test has not come to its end
	if reservation.Resumed != resumed {
		t.Errorf("Begin: Resumed %v, want %v", reservation.Resumed, resumed)
	}
	w := &work{claim: claim, record: reservation.Record, tx: tx}
	j.promised(t, w, s.lease.Generation+1)
	outcome := driver.Outcome{Status: driver.Completed, Result: answer()}
	if err := tx.Commit(patient(t), outcome); err != nil {
		t.Fatalf("Commit: %v", err)
	}
	j.written(t, w, outcome)
	j.cannotWrite(t, s.lease)
	j.cannotWrite(t, w.record.Lease())
}

// promised looks at the record that Begin has answered with.
func (j *joinedKit) promised(t *testing.T, w *work, generation int64) {
	t.Helper()
	got := w.record
	if got.ID != w.claim.ID || got.Fingerprint != w.claim.Fingerprint || got.Status != driver.InProgress ||
		got.Owner != w.claim.Owner || got.Generation != generation || got.Takeover != w.claim.Takeover {
		t.Errorf("Begin answers with the record %s, for the claim %+v, generation %d", show(got), w.claim, generation)
	}
	between(t, "Expires less Started", got.Expires.Sub(got.Started), w.claim.TTL)
}

// written looks at the record after the end of joined work.
func (j *joinedKit) written(t *testing.T, w *work, outcome driver.Outcome) {
	t.Helper()
	after := j.load(t, w.claim.ID)
	want := w.record
	want.Status, want.Updated = outcome.Status, after.Updated
	want.LeaseExpires = after.LeaseExpires // it has no meaning
	if outcome.Status == driver.Completed || outcome.Status == driver.FailedFinal {
		want.Result = outcome.Result
	}
	if outcome.TTL > 0 {
		want.Expires = after.Expires
		between(t, "Expires less Updated", after.Expires.Sub(after.Updated), outcome.TTL)
	}
	if d := diff(after, want); d != "" {
		t.Errorf("the record at the end:\n%s", d)
	}
	if after.Updated.Before(after.Started) {
		t.Errorf("Updated %v is before Started %v", after.Updated, after.Started)
	}
}

// stores has each outcome stored, with or without the work's row.
func (j *joinedKit) stores(t *testing.T, end ending, rows int) {
	for _, outcome := range []driver.Outcome{
		{Status: driver.Completed, Result: answer()},
		{Status: driver.Completed, Result: answer(), TTL: 5 * time.Hour},
		{Status: driver.FailedFinal, Result: answer()},
		{Status: driver.FailedFinal, Result: answer(), TTL: 5 * time.Hour},
		{Status: driver.CompletedUnreplayable, Result: answer()},
		{Status: driver.Unknown},
	} {
		name := outcome.Status.String()
		if outcome.TTL > 0 {
			name += " with a TTL"
		}
		t.Run(name, func(t *testing.T) {
			w := j.begin(t, j.claim(j.id()))
			j.promised(t, w, 1)
			j.unchanged(t, driver.Record{}, w.claim.ID)
			j.rows(t, w.row, 0)
			if err := end(patient(t), w.tx, outcome); err != nil {
				t.Fatalf("at the end: %v", err)
			}
			j.rows(t, w.row, rows)
			j.written(t, w, outcome)
			want := driver.Done
			if outcome.Status == driver.Unknown {
				want = driver.DecisionUnknown
			}
			if got := j.reserve(t, j.claim(w.claim.ID)); got.Decision != want || got.LeaseExpired {
				t.Errorf("Reserve at the end: %v, Abandoned %v, want %v, false", got.Decision, got.LeaseExpired, want)
			}
			got, tx, err := j.store.Begin(patient(t), j.claim(w.claim.ID), 0)
			if err != nil || tx != nil || got.Decision != want {
				t.Errorf("Begin at the end: %v, transaction %v, %v, want %v, none, nil", got.Decision, tx, err, want)
			}
			if d := diff(got.Record, j.load(t, w.claim.ID)); d != "" {
				t.Errorf("the record that Begin answers with:\n%s", d)
			}
		})
	}
}

// rollsBack undoes the work's writes, and leaves the operation to whoever comes next.
func (j *joinedKit) rollsBack(t *testing.T) {
	for _, row := range []struct {
		name string
		next func(t *testing.T, claim driver.Claim)
	}{
		{"and Begin", func(t *testing.T, claim driver.Claim) {
			w := j.begin(t, claim)
			j.promised(t, w, 1)
			if err := w.tx.Commit(patient(t), driver.Outcome{Status: driver.Completed}); err != nil {
				t.Errorf("Commit: %v", err)
			}
			j.rows(t, w.row, 1)
		}},
		{"and Reserve", func(t *testing.T, claim driver.Claim) {
			if lease := j.acquire(t, claim); lease.Generation != 1 {
				t.Errorf("generation %d, want 1", lease.Generation)
			}
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := j.begin(t, j.claim(j.id()))
			if err := w.tx.Rollback(patient(t)); err != nil {
				t.Fatalf("Rollback: %v", err)
			}
			j.rows(t, w.row, 0)
			j.unchanged(t, driver.Record{}, w.claim.ID)
			j.cannotWrite(t, w.record.Lease())
			row.next(t, j.claim(w.claim.ID))
		})
	}
}

// holds keeps a transaction open for longer than its claim's lease and time to live,
// while others claim the operation.
func (j *joinedKit) holds(t *testing.T) {
	claim := j.claim(j.id())
	claim.Lease, claim.TTL = blink, blink
	w := j.begin(t, claim)
	_ = sleep.Context(t.Context(), 3*blink)
	again, _ := j.beside(1).(driver.Transactor)
	for _, c := range contenders() {
		if c.same || c.other {
			continue // what is said to those does not matter
		}
		t.Run(c.name, func(t *testing.T) {
			other := c.claim(j.kit, &subject{lease: w.record.Lease()})
			j.atOnce(t, "Reserve", func(ctx context.Context) error {
				reservation, err := j.store.Reserve(ctx, other)
				busy(t, "Reserve", &reservation, err)
				return err
			})
			for _, store := range []driver.Transactor{j.store, again} {
				if store != nil {
					j.atOnce(t, "Begin", func(ctx context.Context) error { return j.busyBegin(ctx, t, store, other) })
				}
			}
		})
	}
	t.Run("many at once", func(t *testing.T) {
		ctx := patient(t)
		together(20, func(i int) {
			if i%4 < 2 {
				reservation, err := j.beside(i).Reserve(ctx, j.claim(claim.ID))
				busy(t, "Reserve", &reservation, err)
			} else if err := j.busyBegin(ctx, t, j.store, j.claim(claim.ID)); err != nil {
				t.Errorf("Begin: %v", err)
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
	if err := w.tx.Commit(patient(t), outcome); err != nil {
		t.Fatalf("Commit: %v", err)
	}
	j.rows(t, w.row, 1)
	j.written(t, w, outcome)
}

func busy(t *testing.T, what string, got *driver.Reservation, err error) {
	t.Helper()
	if err != nil || got.Decision != driver.DecisionInProgress {
		t.Errorf("%s while joined work is going on: %v, %v, want busy", what, got.Decision, err)
	}
}

func (j *joinedKit) busyBegin(ctx context.Context, t *testing.T, store driver.Transactor, claim driver.Claim) error {
	t.Helper()
	reservation, tx, err := store.Begin(ctx, claim, 0)
	busy(t, "Begin", &reservation, err)
	if tx != nil {
		t.Error("Begin: busy, and a transaction")
		return tx.Rollback(ctx)
	}
	return err
}

// atOnce looks that a call does not wait for the open transaction: of ten, one takes
// less than a second, or as long as it likes to say that it fails.
func (j *joinedKit) atOnce(t *testing.T, what string, call func(context.Context) error) {
	t.Helper()
	var least time.Duration
	for i := range 10 {
		began := time.Now()
		if err := call(patient(t)); err != nil {
			t.Errorf("%s while a transaction holds the record: %v", what, err)
			return
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
