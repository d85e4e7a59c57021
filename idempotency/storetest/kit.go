package storetest

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/resilienthttp/resilienthttp/idempotency/driver"
	"github.com/resilienthttp/resilienthttp/internal/sleep"
)

const (
	// blink is a lease, or a time to live, that is meant to be over soon. Nothing
	// is expected to happen before it is.
	blink = 20 * time.Millisecond

	// patience bounds waits for what must come. A slow machine is no fault.
	patience = time.Minute

	// fingerprint is that of all claims, unless a test says otherwise.
	fingerprint driver.Fingerprint = "v1:a"
)

// kit is one run of the suite.
type kit struct {
	Suite

	store driver.Store
	again driver.Store // the same as store if there is only one
	scope string
	stuck bool // leases that are over cannot be taken over
}

// handle is the store, as the i-th of several processes has it.
func (k *kit) handle(i int) driver.Store {
	if i%2 == 1 {
		return k.again
	}
	return k.store
}

// beside is handle for those who must not wait for joined work.
func (k *kit) beside(i int) driver.Store {
	if k.Queues {
		return k.store
	}
	return k.handle(i)
}

// id is one that nobody has used.
func (k *kit) id() driver.ID {
	return driver.ID{Scope: k.scope, Operation: "POST /charges", Key: rand.Text()}
}

// claim is one of a new execution, for a time that no test takes.
func (k *kit) claim(id driver.ID) driver.Claim {
	return driver.Claim{
		ID: id, Fingerprint: fingerprint, Owner: driver.NewOwner(),
		Lease: time.Hour, TTL: 2 * time.Hour,
	}
}

// short is a claim whose lease is over in a blink. When it is, the operation is
// to be executed again.
func (k *kit) short(id driver.ID) driver.Claim {
	claim := k.mortal(id)
	claim.Takeover = driver.Reexecute
	return claim
}

// mortal is a claim whose lease is over in a blink. When it is, the operation is
// to become Unknown.
func (k *kit) mortal(id driver.ID) driver.Claim {
	claim := k.claim(id)
	claim.Lease = blink
	return claim
}

// patient is a context that ends when something hangs.
func patient(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// reserve makes a claim that the store must answer.
func (k *kit) reserve(t *testing.T, claim driver.Claim) driver.Reservation {
	t.Helper()
	reservation, err := k.store.Reserve(patient(t), claim)
	if err != nil {
		t.Fatalf("Reserve: %v", err)
	}
	return reservation
}

// acquire makes a claim that must be granted.
func (k *kit) acquire(t *testing.T, claim driver.Claim) driver.Lease {
	t.Helper()
	reservation := k.reserve(t, claim)
	if reservation.Decision != driver.Acquired {
		t.Fatalf("Reserve: %v, want acquired; the record is %s", reservation.Decision, show(reservation.Record))
	}
	lease := reservation.Record.Lease()
	if lease.ID != claim.ID || lease.Owner != claim.Owner {
		t.Fatalf("Reserve: acquired, but by the lease %+v, not by %+v", lease, claim)
	}
	return lease
}

func (k *kit) complete(t *testing.T, lease driver.Lease, outcome driver.Outcome) {
	t.Helper()
	if err := k.store.Complete(patient(t), lease, outcome); err != nil {
		t.Fatalf("Complete as %v: %v", outcome.Status, err)
	}
}

func (k *kit) release(t *testing.T, lease driver.Lease) {
	t.Helper()
	if err := k.store.Release(patient(t), lease); err != nil {
		t.Fatalf("Release: %v", err)
	}
}

func (k *kit) renew(t *testing.T, lease driver.Lease, d time.Duration) {
	t.Helper()
	if err := k.store.Renew(patient(t), lease, d); err != nil {
		t.Fatalf("Renew: %v", err)
	}
}

// load reads a record that must be there.
func (k *kit) load(t *testing.T, id driver.ID) driver.Record {
	t.Helper()
	record, err := k.store.Load(patient(t), id)
	if err != nil {
		t.Fatalf("Load: %v", err)
	}
	if record.ID != id {
		t.Fatalf("Load: another record, of %+v, not of %+v", record.ID, id)
	}
	return record
}

// find reads a record that need not be there. The zero record says that it is
// not: it has no status.
func (k *kit) find(t *testing.T, id driver.ID) driver.Record {
	t.Helper()
	record, err := k.store.Load(patient(t), id)
	switch {
	case errors.Is(err, driver.ErrNotFound):
		return driver.Record{}
	case err != nil:
		t.Fatalf("Load: %v", err)
	case record.Status == 0:
		t.Fatalf("Load: a record without a status: %s", show(record))
	}
	return record
}

// unchanged looks whether a record is still the same, byte for byte.
func (k *kit) unchanged(t *testing.T, before driver.Record, id driver.ID) {
	t.Helper()
	if d := diff(k.find(t, id), before); d != "" {
		t.Errorf("the record has changed:\n%s", d)
	}
}

// lapse waits until a blink that began before the call is over, by the store's
// clock: that of a lease that begins now.
func (k *kit) lapse(t *testing.T) {
	t.Helper()
	if k.stuck {
		t.Fatal("leases are never over: see above")
	}
	id := k.id()
	k.acquire(t, k.short(id))
	for deadline := time.Now().Add(patience); ; {
		_ = sleep.Context(t.Context(), blink)
		if k.reserve(t, k.claim(id)).Decision == driver.Acquired {
			return
		}
		if time.Now().After(deadline) {
			k.stuck = true
			t.Fatalf("a lease of %v can still not be taken over after %v", blink, patience)
		}
	}
}

// together calls f with 0 to n-1, all at the same time, and waits for them.
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

// breathe is for whoever goes on until others are done: those may have to find a lock by
// trying, and would not come to an end where it is never free.
func breathe(ctx context.Context) { _ = sleep.Context(ctx, time.Millisecond) }

// diff is what of two records is not the same, a line for each.
func diff(got, want driver.Record) string {
	var b strings.Builder
	line := func(what string, same bool, got, want any) {
		if !same {
			fmt.Fprintf(&b, "\t%s: %v, want %v\n", what, got, want)
		}
	}
	line("ID", got.ID == want.ID, got.ID, want.ID)
	line("Fingerprint", got.Fingerprint == want.Fingerprint, got.Fingerprint, want.Fingerprint)
	line("Status", got.Status == want.Status, got.Status, want.Status)
	line("Owner", got.Owner == want.Owner, got.Owner, want.Owner)
	line("Generation", got.Generation == want.Generation, got.Generation, want.Generation)
	line("Takeover", got.Takeover == want.Takeover, got.Takeover, want.Takeover)
	line("LeaseExpires", got.LeaseExpires.Equal(want.LeaseExpires), got.LeaseExpires, want.LeaseExpires)
	line("Started", got.Started.Equal(want.Started), got.Started, want.Started)
	line("Updated", got.Updated.Equal(want.Updated), got.Updated, want.Updated)
	line("Expires", got.Expires.Equal(want.Expires), got.Expires, want.Expires)
	b.WriteString(diffResults(got.Result, want.Result))
	return b.String()
}

func diffResults(got, want driver.Result) string {
	var b strings.Builder
	if got.Code != want.Code {
		fmt.Fprintf(&b, "\tCode: %d, want %d\n", got.Code, want.Code)
	}
	same := (got.Header == nil) == (want.Header == nil) && len(got.Header) == len(want.Header)
	for name, values := range want.Header {
		others, ok := got.Header[name]
		same = same && ok && slices.Equal(others, values)
	}
	if !same {
		fmt.Fprintf(&b, "\tHeader: %s, want %s\n", cut(fmt.Sprintf("%#v", got.Header)), cut(fmt.Sprintf("%#v", want.Header)))
	}
	if !bytes.Equal(got.Body, want.Body) || (got.Body == nil) != (want.Body == nil) {
		fmt.Fprintf(&b, "\tBody: %s, want %s\n", showBody(got.Body), showBody(want.Body))
	}
	if got.Reference != want.Reference {
		fmt.Fprintf(&b, "\tReference: %q, want %q\n", got.Reference, want.Reference)
	}
	return b.String()
}

// show is a record on one line.
func show(r driver.Record) string {
	if r.Status == 0 {
		return "absent"
	}
	return fmt.Sprintf("%v, generation %d of %q, fingerprint %q, lease until %v, started %v, updated %v, expires %v, result %d %s",
		r.Status, r.Generation, r.Owner, r.Fingerprint, r.LeaseExpires, r.Started, r.Updated, r.Expires,
		r.Result.Code, cut(fmt.Sprintf("%q %q %q", r.Result.Header, r.Result.Body, r.Result.Reference)))
}

func showBody(body []byte) string {
	if body == nil {
		return "nil"
	}
	return fmt.Sprintf("%d bytes %s", len(body), cut(fmt.Sprintf("%q", body)))
}

func cut(s string) string {
	const most = 400
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}
