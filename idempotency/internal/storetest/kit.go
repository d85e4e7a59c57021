package storetest

import (
	"context"
	"crypto/rand"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/idempotency"
	"github.com/resilienthttp/resilienthttp/internal/sleep"
)

const (
	// blink is a lease or a TTL that ends soon. No test expects anything before its end.
	blink = 20 * time.Millisecond

	// patience bounds the wait for what must happen, on a slow machine too.
	patience = time.Minute

	// fingerprint is that of all claims, unless a test says otherwise.
	fingerprint idempotency.Fingerprint = "v1:a"
)

// kit is one test of the suite. Testify's messages have the lines of all callers.
type kit struct {
	Suite
	*testing.T

	store idempotency.Store
	again idempotency.Store // store, if there is only one
	scope string
	stuck *bool // no lease ever ends
}

// test runs a subtest.
func (k *kit) test(name string, f func(k *kit)) {
	k.T.Run(name, func(t *testing.T) {
		sub := *k
		sub.T = t
		f(&sub)
	})
}

// handle returns the store of the i-th process.
func (k *kit) handle(i int) idempotency.Store {
	if i%2 == 1 {
		return k.again
	}
	return k.store
}

// beside is handle for calls that must not wait for transactional work.
func (k *kit) beside(i int) idempotency.Store {
	if k.Queues {
		return k.store
	}
	return k.handle(i)
}

// id returns a new id.
func (k *kit) id() idempotency.ID {
	return idempotency.ID{Scope: k.scope, Operation: "POST /charges", Key: rand.Text()}
}

// claim returns a claim of a new execution. Its lease is longer than any test.
func (*kit) claim(id idempotency.ID) idempotency.Claim {
	return idempotency.Claim{ID: id, Fingerprint: fingerprint, Owner: rand.Text(), Lease: time.Hour, TTL: 2 * time.Hour}
}

// begin makes a claim for a new id, which must be granted.
func (k *kit) begin(lease, ttl time.Duration, takeover idempotency.Takeover) idempotency.Lease {
	claim := k.claim(k.id())
	claim.Lease, claim.TTL, claim.Takeover = lease, ttl, takeover
	return k.acquire(claim)
}

// patient returns a context that ends if something hangs.
func (k *kit) patient() context.Context {
	ctx, cancel := context.WithTimeout(k.Context(), patience)
	k.Cleanup(cancel)
	return ctx
}

// ended returns a context that has ended.
func (k *kit) ended() context.Context {
	ctx, cancel := context.WithCancel(k.Context())
	cancel()
	return ctx
}

// patiently returns a Store with callers that repeat a claim while it is busy: racers are more than its connections, and a slow
// machine opens few.
func patiently(store idempotency.Store) idempotency.Store {
	if transactor, ok := store.(idempotency.Transactor); ok {
		return patientTransactor{transactor}
	}
	return patientStore{store}
}

type patientStore struct{ idempotency.Store }

func (s patientStore) Reserve(ctx context.Context, claim idempotency.Claim) (got idempotency.Reservation, err error) {
	err = WhileBusy(ctx, func() error {
		got, err = s.Store.Reserve(ctx, claim)
		return err
	})
	return got, err
}

type patientTransactor struct{ idempotency.Transactor }

func (s patientTransactor) Reserve(ctx context.Context, claim idempotency.Claim) (idempotency.Reservation, error) {
	return patientStore{s.Transactor}.Reserve(ctx, claim)
}

func (s patientTransactor) Begin(ctx context.Context, claim idempotency.Claim, limit time.Duration) (got idempotency.Reservation, tx idempotency.Transaction, err error) {
	err = WhileBusy(ctx, func() error {
		got, tx, err = s.Transactor.Begin(ctx, claim, limit)
		return err
	})
	return got, tx, err
}

// WhileBusy repeats a claim while the store is busy: a busy machine may take longer than the second that a claim waits.
func WhileBusy(ctx context.Context, claim func() error) error {
	for {
		if err := claim(); !errors.Is(err, idempotency.ErrStoreBusy) || ctx.Err() != nil {
			return err
		}
	}
}

// equalReservation compares all but the record.
func (k *kit) equalReservation(want, got idempotency.Reservation) {
	got.Record = want.Record
	assert.Equal(k, want, got)
}

// equalRecord compares times as instants.
func (k *kit) equalRecord(want, got idempotency.Record, what string) {
	for _, r := range []*idempotency.Record{&want, &got} {
		for _, at := range []*time.Time{&r.LeaseExpires, &r.Started, &r.Updated, &r.Expires} {
			*at = at.Round(0).UTC()
		}
	}
	assert.Equal(k, want, got, what)
}

// about compares durations by the store's clock, with a second for rounding and for several readings of the clock.
func (k *kit) about(want, got time.Duration, what string) {
	assert.InDelta(k, want.Seconds(), got.Seconds(), 1, what)
}

// reserve makes a claim that the store must answer.
func (k *kit) reserve(claim idempotency.Claim) idempotency.Reservation {
	reservation, err := k.store.Reserve(k.patient(), claim)
	require.NoError(k, err)
	return reservation
}

// acquire makes a claim that must be granted.
func (k *kit) acquire(claim idempotency.Claim) idempotency.Lease {
	reservation := k.reserve(claim)
	require.Equal(k, idempotency.DecisionAcquired, reservation.Decision, "record %+v", reservation.Record)
	lease := reservation.Record.Lease()
	require.Equal(k, idempotency.Lease{ID: claim.ID, Owner: claim.Owner, Generation: lease.Generation}, lease)
	return lease
}

func (k *kit) complete(lease idempotency.Lease, outcome idempotency.Outcome) {
	require.NoError(k, k.store.Complete(k.patient(), lease, outcome), "Complete as %s", outcome.Status)
}

func (k *kit) release(lease idempotency.Lease) {
	require.NoError(k, k.store.Release(k.patient(), lease))
}

// load reads a record that must exist.
func (k *kit) load(id idempotency.ID) idempotency.Record {
	record := k.find(id)
	require.Equal(k, id, record.ID)
	return record
}

// find reads a record. It returns the zero record, which has no status, if there is none.
func (k *kit) find(id idempotency.ID) idempotency.Record {
	record, err := k.store.Load(k.patient(), id)
	if errors.Is(err, idempotency.ErrNotFound) {
		return idempotency.Record{}
	}
	require.NoError(k, err)
	require.NotZero(k, record.Status)
	return record
}

// unchanged compares a record with what it was before.
func (k *kit) unchanged(before idempotency.Record, id idempotency.ID) {
	k.equalRecord(before, k.find(id), "the record has changed")
}

// lapse waits, by the store's clock, until a lease of a blink that began before has ended.
func (k *kit) lapse() {
	require.False(k, *k.stuck, "leases do not end: see above")
	lease := k.begin(blink, time.Hour, idempotency.Reexecute)
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		_ = sleep.Context(k.Context(), blink)
		if k.reserve(k.claim(lease.ID)).Decision == idempotency.DecisionAcquired {
			return
		}
	}
	*k.stuck = true
	require.FailNow(k, "a lease of a blink has not ended")
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

// ignored returns the error of a call. The value does not matter.
func ignored[T any](_ T, err error) error { return err }

// breathe is a pause in a loop that ends when other goroutines are done. Without it,
// those that poll for a lock may never get it.
func breathe(ctx context.Context) { _ = sleep.Context(ctx, time.Millisecond) }
