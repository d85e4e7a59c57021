package storetest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/resilienthttp/resilienthttp/idempotency/internal/driver"
	"github.com/resilienthttp/resilienthttp/internal/sleep"
)

const (
	// blink is a lease or a TTL that ends soon. No test expects anything before its end.
	blink = 20 * time.Millisecond

	// patience bounds the wait for what must happen, on a slow machine too.
	patience = time.Minute

	// fingerprint is that of all claims, unless a test says otherwise.
	fingerprint driver.Fingerprint = "v1:a"
)

// kit is one run of the suite.
type kit struct {
	Suite

	store driver.Store
	again driver.Store // store, if there is only one
	scope string
	stuck bool // no lease ever ends
}

// handle returns the store of the i-th process.
func (k *kit) handle(i int) driver.Store {
	if i%2 == 1 {
		return k.again
	}
	return k.store
}

// beside is handle for calls that must not wait for transactional work.
func (k *kit) beside(i int) driver.Store {
	if k.Queues {
		return k.store
	}
	return k.handle(i)
}

// id returns a new id.
func (k *kit) id() driver.ID {
	return driver.ID{Scope: k.scope, Operation: "POST /charges", Key: rand.Text()}
}

// claim returns a claim of a new execution. Its lease is longer than any test.
func (k *kit) claim(id driver.ID) driver.Claim {
	return driver.Claim{ID: id, Fingerprint: fingerprint, Owner: driver.NewOwner(), Lease: time.Hour, TTL: 2 * time.Hour}
}

// short returns a claim with a lease that ends soon. Then the operation is executed again.
func (k *kit) short(id driver.ID) driver.Claim {
	claim := k.mortal(id)
	claim.Takeover = driver.Reexecute
	return claim
}

// mortal returns a claim with a lease that ends soon. Then the record becomes Unknown.
func (k *kit) mortal(id driver.ID) driver.Claim {
	claim := k.claim(id)
	claim.Lease = blink
	return claim
}

// patient returns a context that ends if something hangs.
func patient(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// patiently returns a Store with callers that repeat a claim while it is busy: racers are more than its connections, and a slow
// machine opens few.
func patiently(store driver.Store) driver.Store {
	if transactor, ok := store.(driver.Transactor); ok {
		return patientTransactor{transactor}
	}
	return patientStore{store}
}

type patientStore struct{ driver.Store }

func (s patientStore) Reserve(ctx context.Context, claim driver.Claim) (got driver.Reservation, err error) {
	err = whileBusy(ctx, func() error {
		got, err = s.Store.Reserve(ctx, claim)
		return err
	})
	return got, err
}

type patientTransactor struct{ driver.Transactor }

func (s patientTransactor) Reserve(ctx context.Context, claim driver.Claim) (driver.Reservation, error) {
	return patientStore{s.Transactor}.Reserve(ctx, claim)
}

func (s patientTransactor) Begin(ctx context.Context, claim driver.Claim, limit time.Duration) (got driver.Reservation, tx driver.Transaction, err error) {
	err = whileBusy(ctx, func() error {
		got, tx, err = s.Transactor.Begin(ctx, claim, limit)
		return err
	})
	return got, tx, err
}

// whileBusy repeats a claim while the store is busy.
func whileBusy(ctx context.Context, claim func() error) error {
	for {
		if err := claim(); !errors.Is(err, driver.ErrStoreBusy) || ctx.Err() != nil {
			return err
		}
	}
}

// ended returns a context that has ended.
func ended(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

// must ends the test on an error.
func must(t *testing.T, what string, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: got %v, want no error", what, err)
	}
}

func equal[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

func wantError(t *testing.T, what string, got, want error) {
	t.Helper()
	if !errors.Is(got, want) {
		t.Errorf("%s: got error %v, want %v", what, got, want)
	}
}

// wantReservation compares all but the record.
func wantReservation(t *testing.T, what string, got, want driver.Reservation) {
	t.Helper()
	equal(t, what+": Decision", got.Decision, want.Decision)
	equal(t, what+": Resumed", got.Resumed, want.Resumed)
	equal(t, what+": LeaseExpired", got.LeaseExpired, want.LeaseExpired)
}

func wantRecord(t *testing.T, what string, got, want driver.Record) {
	t.Helper()
	if d := diff(got, want); d != "" {
		t.Errorf("record %s:\n%s", what, d)
	}
}

func wantResult(t *testing.T, what string, got, want driver.Result) {
	t.Helper()
	if d := different(got, want); d != "" {
		t.Errorf("result %s:\n%s", what, d)
	}
}

// reserve makes a claim that the store must answer.
func (k *kit) reserve(t *testing.T, claim driver.Claim) driver.Reservation {
	t.Helper()
	reservation, err := k.store.Reserve(patient(t), claim)
	must(t, "Reserve", err)
	return reservation
}

// acquire makes a claim that must be granted.
func (k *kit) acquire(t *testing.T, claim driver.Claim) driver.Lease {
	t.Helper()
	reservation := k.reserve(t, claim)
	if reservation.Decision != driver.Acquired {
		t.Fatalf("Reserve: got %v, want acquired; record %s", reservation.Decision, show(reservation.Record))
	}
	lease := reservation.Record.Lease()
	if lease.ID != claim.ID || lease.Owner != claim.Owner {
		t.Fatalf("Reserve: got lease %+v, want that of claim %+v", lease, claim)
	}
	return lease
}

func (k *kit) complete(t *testing.T, lease driver.Lease, outcome driver.Outcome) {
	t.Helper()
	must(t, "Complete as "+outcome.Status.String(), k.store.Complete(patient(t), lease, outcome))
}

func (k *kit) release(t *testing.T, lease driver.Lease) {
	t.Helper()
	must(t, "Release", k.store.Release(patient(t), lease))
}

func (k *kit) renew(t *testing.T, lease driver.Lease, d time.Duration) {
	t.Helper()
	must(t, "Renew", k.store.Renew(patient(t), lease, d))
}

// load reads a record that must exist.
func (k *kit) load(t *testing.T, id driver.ID) driver.Record {
	t.Helper()
	record, err := k.store.Load(patient(t), id)
	must(t, "Load", err)
	if record.ID != id {
		t.Fatalf("Load: got the record of %+v, want that of %+v", record.ID, id)
	}
	return record
}

// find reads a record. It returns the zero record, which has no status, if there is none.
func (k *kit) find(t *testing.T, id driver.ID) driver.Record {
	t.Helper()
	record, err := k.store.Load(patient(t), id)
	if errors.Is(err, driver.ErrNotFound) {
		return driver.Record{}
	}
	must(t, "Load", err)
	if record.Status == 0 {
		t.Fatalf("Load: got a record without a status: %s", show(record))
	}
	return record
}

// unchanged compares a record with what it was before.
func (k *kit) unchanged(t *testing.T, before driver.Record, id driver.ID) {
	t.Helper()
	wantRecord(t, "has changed", k.find(t, id), before)
}

// lapse waits, by the store's clock, until a lease of a blink that began before has ended.
func (k *kit) lapse(t *testing.T) {
	t.Helper()
	if k.stuck {
		t.Fatal("leases do not end: see above")
	}
	id := k.id()
	k.acquire(t, k.short(id))
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		_ = sleep.Context(t.Context(), blink)
		if k.reserve(t, k.claim(id)).Decision == driver.Acquired {
			return
		}
	}
	k.stuck = true
	t.Fatalf("a lease of %v has not ended after %v", blink, patience)
}

// together calls f with 0 to n-1 at the same time, and waits for all calls.
func together(n int, f func(i int)) {
	start := make(chan struct{})
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			<-start
			f(i)
		})
	}
	close(start)
	all.Wait()
}

// breathe is a pause in a loop that ends when other goroutines are done. Without it,
// those that poll for a lock may never get it.
func breathe(ctx context.Context) { _ = sleep.Context(ctx, time.Millisecond) }

// diff returns both records if they differ. Times are compared as instants.
func diff(got, want driver.Record) string {
	for _, r := range []*driver.Record{&got, &want} {
		for _, at := range []*time.Time{&r.LeaseExpires, &r.Started, &r.Updated, &r.Expires} {
			*at = at.Round(0).UTC()
		}
	}
	return different(got, want)
}

func different(got, want any) string {
	if reflect.DeepEqual(got, want) {
		return ""
	}
	return fmt.Sprintf("\tgot  %s\n\twant %s\n", cut(fmt.Sprintf("%#v", got)), cut(fmt.Sprintf("%#v", want)))
}

// show returns a record on one line.
func show(r driver.Record) string {
	if r.Status == 0 {
		return "absent"
	}
	return cut(fmt.Sprintf("%+v", r))
}

func cut(s string) string { return s[:min(len(s), 1500)] }
