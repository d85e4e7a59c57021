package storetest

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/resilienthttp/resilienthttp/idempotency/internal/driver"
)

// contender is a kind of claim.
type contender struct {
	name     string
	takeover driver.Takeover
	other    bool // another request: another fingerprint
	same     bool // the same execution: the owner of the record
}

func contenders() []contender {
	return []contender{
		{name: "Reexecute", takeover: driver.Reexecute},
		{name: "Reexecute, another request", takeover: driver.Reexecute, other: true},
		{name: "Reexecute, the same owner", takeover: driver.Reexecute, same: true},
		{name: "Resume", takeover: driver.Resume},
		{name: "MarkUnknown", takeover: driver.MarkUnknown},
		{name: "MarkUnknown, another request", takeover: driver.MarkUnknown, other: true},
		{name: "MarkUnknown, the same owner", takeover: driver.MarkUnknown, same: true},
		{name: "TakeoverDefault"},
	}
}

func (c contender) claim(k *kit, s *subject) driver.Claim {
	claim := k.claim(s.lease.ID)
	claim.Takeover = c.takeover
	if c.other {
		claim.Fingerprint += "b"
	}
	if c.same && s.lease.Owner != "" {
		claim.Owner = s.lease.Owner
	}
	return claim
}

// wants returns the decision of driver.Decide. The tests of Decide restate its
// documentation.
func (s *subject) wants(claim *driver.Claim) (driver.Step, driver.Reservation) {
	if s.status == 0 {
		return driver.Take, driver.Reservation{Decision: driver.Acquired}
	}
	now := s.before.Updated
	if s.dead {
		now = s.before.LeaseExpires
	}
	return driver.Decide(&s.before, claim, now)
}

// testReserve makes each kind of claim on a record in each state.
func (k *kit) testReserve(t *testing.T) {
	for _, c := range contenders() {
		k.each(t, c.name, states(), func(t *testing.T, s *subject) { t.Helper(); k.tryReserve(t, c, s) })
	}
}

func (k *kit) tryReserve(t *testing.T, c contender, s *subject) {
	t.Helper()
	before, claim := s.before, c.claim(k, s)
	got := k.reserve(t, claim)
	step, want := s.wants(&claim)
	wantReservation(t, "Reserve", got, want)
	after := k.load(t, claim.ID)
	wantRecord(t, "of Reserve is not that of Load", got.Record, after)
	if step == driver.Leave {
		k.unchanged(t, before, claim.ID)
		return
	}
	if step == driver.Take {
		checkTaken(t, &claim, s, after)
	} else {
		checkMarkedUnknown(t, before, after)
	}
	k.cannotWrite(t, s.lease)
	if step == driver.StepMarkUnknown {
		k.cannotWrite(t, driver.Lease{ID: claim.ID, Owner: before.Owner, Generation: after.Generation})
		k.cannotWrite(t, driver.Lease{ID: claim.ID, Owner: "", Generation: before.Generation})
		wantReservation(t, "a later Reserve", k.reserve(t, k.claim(claim.ID)), driver.Reservation{Decision: driver.DecisionUnknown})
	}
}

// checkTaken checks the record of a claim that was granted.
func checkTaken(t *testing.T, claim *driver.Claim, s *subject, after driver.Record) {
	t.Helper()
	wantRecord(t, "is not that of a new execution", after, driver.Record{
		ID: claim.ID, Fingerprint: claim.Fingerprint, Status: driver.InProgress,
		Owner: claim.Owner, Generation: s.lease.Generation + 1, Takeover: claim.Takeover,
		LeaseExpires: after.LeaseExpires, Started: after.Started, Updated: after.Updated, Expires: after.Expires,
	})
	if after.Updated.Before(after.Started) || after.Started.Before(s.before.Updated) {
		t.Errorf("got Started %v and Updated %v, want Started <= Updated, and not before %v", after.Started, after.Updated, s.before.Updated)
	}
	between(t, "Updated - Started", after.Updated.Sub(after.Started), 0)
	between(t, "LeaseExpires - Started", after.LeaseExpires.Sub(after.Started), claim.Lease)
	between(t, "Expires - Started", after.Expires.Sub(after.Started), claim.TTL)
}

// checkMarkedUnknown checks a record that has become Unknown after the end of its lease.
func checkMarkedUnknown(t *testing.T, before, after driver.Record) {
	t.Helper()
	want := before
	want.Status, want.Owner, want.Generation = driver.Unknown, "", before.Generation+1
	want.Updated, want.LeaseExpires = after.Updated, after.LeaseExpires // LeaseExpires has no meaning now
	wantRecord(t, "has not become Unknown", after, want)
	later(t, "Updated", after.Updated, before.Updated)
}

// operation is an operation of the holder of a lease.
type operation struct {
	name    string
	from    []driver.Status // in which it succeeds
	do      func(ctx context.Context, store driver.Store, lease driver.Lease) error
	outcome driver.Outcome // of Complete
}

func operations() []operation {
	all := []operation{
		{name: "Renew", from: []driver.Status{driver.InProgress}, do: renew},
		{name: "Release", from: []driver.Status{driver.InProgress, driver.Unknown}, do: release},
	}
	for _, status := range []driver.Status{
		driver.Completed, driver.FailedFinal, driver.CompletedUnreplayable, driver.Unknown,
	} {
		outcome := driver.Outcome{Status: status, Result: answer(), TTL: 6 * time.Hour}
		outcome.Result.Reference = "the last one"
		from := []driver.Status{driver.InProgress, driver.Unknown}
		if status == driver.Unknown {
			from = from[:1]
		}
		all = append(all, operation{
			name: "Complete as " + status.String(), from: from, outcome: outcome,
			do: func(ctx context.Context, store driver.Store, lease driver.Lease) error {
				return store.Complete(ctx, lease, outcome)
			},
		})
	}
	return all
}

// wants returns the record after an operation that succeeds. Its times are those of after.
func (o operation) wants(s *subject, before, after driver.Record) driver.Record {
	want := before
	want.Updated, want.LeaseExpires = after.Updated, after.LeaseExpires
	switch {
	case o.name == "Renew":
	case o.name == "Release" && s.old:
		return driver.Record{} // nothing keeps it
	case o.name == "Release":
		want.Status = driver.FailedRetryable
	default:
		want.Status, want.Expires = o.outcome.Status, after.Expires
		if want.Status == driver.Completed || want.Status == driver.FailedFinal {
			want.Result = o.outcome.Result
		}
	}
	return want
}

// testLease tries each operation on a record in each state: first with leases that are
// not, or no longer, those of the record, then with the right one.
func (k *kit) testLease(t *testing.T) {
	for _, o := range operations() {
		k.each(t, o.name, states(), func(t *testing.T, s *subject) { t.Helper(); k.tryOperation(t, o, s) })
	}
}

func (k *kit) tryOperation(t *testing.T, o operation, s *subject) {
	t.Helper()
	before := s.before
	for name, lease := range wrongLeases(s.lease) {
		wantError(t, "with "+name, o.do(patient(t), k.store, lease), driver.ErrLeaseLost)
		k.unchanged(t, before, s.lease.ID)
	}

	err := o.do(patient(t), k.store, s.lease)
	after := k.find(t, s.lease.ID)
	if !slices.Contains(o.from, s.status) {
		wantError(t, "with the right lease", err, driver.ErrLeaseLost)
		wantRecord(t, "has changed", after, before)
		return
	}
	must(t, "with the right lease", err)
	wantRecord(t, "afterwards", after, o.wants(s, before, after))
	if after.Status == 0 {
		return
	}
	if after.Updated.Before(before.Updated) {
		t.Errorf("Updated: got %v, want not before %v", after.Updated, before.Updated)
	}
	switch o.name {
	case "Renew":
		between(t, "LeaseExpires - Updated", after.LeaseExpires.Sub(after.Updated), renewal)
	case "Release":
	default:
		between(t, "Expires - Updated", after.Expires.Sub(after.Updated), o.outcome.TTL)
	}
}

// wrongLeases returns leases that nearly equal the right one.
func wrongLeases(right driver.Lease) map[string]driver.Lease {
	wrong := make(map[string]driver.Lease)
	for name, change := range map[string]func(*driver.Lease){
		"another owner":         func(l *driver.Lease) { l.Owner = driver.NewOwner() },
		"its owner and a blank": func(l *driver.Lease) { l.Owner += " " },
		"an earlier generation": func(l *driver.Lease) { l.Generation-- },
		"a later generation":    func(l *driver.Lease) { l.Generation++ },
		"the key and a blank":   func(l *driver.Lease) { l.Key += " " },
		"another operation":     func(l *driver.Lease) { l.Operation = "" },
		"the scope and a blank": func(l *driver.Lease) { l.Scope += " " },
	} {
		lease := right
		change(&lease)
		wrong[name] = lease
	}
	return wrong
}

// cannotWrite checks that the holder of a lost lease changes nothing.
func (k *kit) cannotWrite(t *testing.T, lease driver.Lease) {
	t.Helper()
	before := k.find(t, lease.ID)
	for _, o := range operations() {
		wantError(t, o.name+" with a lost lease", o.do(patient(t), k.store, lease), driver.ErrLeaseLost)
	}
	k.unchanged(t, before, lease.ID)
}
