package storetest

import (
	"errors"
	"testing"
	"time"

	"github.com/resilienthttp/resilienthttp/idempotency/driver"
)

// contender is a kind of claim.
type contender struct {
	name     string
	takeover driver.Takeover
	other    bool // another request: another fingerprint
	same     bool // the same execution: the owner that the record has
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

// step is what a claim does to a record.
type step int

const (
	keeps step = iota
	takes
	abandons
)

// wants is what must come of a claim, as the documentation has it: what dies is
// taken over by its own terms, and not by the claim's. It is written down once more,
// not asked of idempotency.Decide, which is tested too.
func (c contender) wants(s *subject) (driver.Reservation, step) {
	switch {
	case s.status == 0:
		return driver.Reservation{Decision: driver.Acquired}, takes
	case c.other:
		return driver.Reservation{Decision: driver.Mismatch}, keeps
	case s.status.Finished():
		return driver.Reservation{Decision: driver.Done}, keeps
	case s.status == driver.Unknown:
		return driver.Reservation{Decision: driver.DecisionUnknown}, keeps
	case s.status == driver.FailedRetryable:
		return driver.Reservation{Decision: driver.Acquired, Resumed: s.takeover == driver.Resume}, takes
	case !s.dead && c.same:
		return driver.Reservation{Decision: driver.Acquired}, keeps
	case !s.dead:
		return driver.Reservation{Decision: driver.DecisionInProgress}, keeps
	case s.takeover == driver.Reexecute:
		return driver.Reservation{Decision: driver.Acquired}, takes
	case s.takeover == driver.Resume:
		return driver.Reservation{Decision: driver.Acquired, Resumed: true}, takes
	default:
		return driver.Reservation{Decision: driver.DecisionUnknown, LeaseExpired: true}, abandons
	}
}

// testReserve makes each kind of claim on a record in each state.
func (k *kit) testReserve(t *testing.T) {
	for _, c := range contenders() {
		t.Run(c.name, func(t *testing.T) {
			subjects := k.prepare(t, states())
			for i := range subjects {
				t.Run(subjects[i].name, func(t *testing.T) { k.tryReserve(t, c, &subjects[i]) })
			}
		})
	}
}

func (k *kit) tryReserve(t *testing.T, c contender, s *subject) {
	before := k.standing(t, s)
	claim := c.claim(k, s)
	got := k.reserve(t, claim)
	want, step := c.wants(s)
	if got.Decision != want.Decision || got.Resumed != want.Resumed || got.LeaseExpired != want.LeaseExpired {
		t.Errorf("Reserve: %v, Resumed %v, Abandoned %v; want %v, %v, %v", got.Decision, got.Resumed, got.LeaseExpired,
			want.Decision, want.Resumed, want.LeaseExpired)
	}
	after := k.load(t, claim.ID)
	if d := diff(got.Record, after); d != "" {
		t.Errorf("the record that Reserve answers with is not the one that Load finds:\n%s", d)
	}
	switch step {
	case keeps:
		k.unchanged(t, before, claim.ID)
		return
	case takes:
		checkTaken(t, &claim, s, before, after)
	case abandons:
		checkAbandoned(t, before, after)
	}
	k.cannotWrite(t, s.lease)
	if step == abandons {
		k.cannotWrite(t, driver.Lease{ID: claim.ID, Owner: before.Owner, Generation: after.Generation})
		k.cannotWrite(t, driver.Lease{ID: claim.ID, Owner: "", Generation: before.Generation})
		if later := k.reserve(t, k.claim(claim.ID)); later.Decision != driver.DecisionUnknown || later.LeaseExpired {
			t.Errorf("a later Reserve: %v, Abandoned %v; want undecided, false", later.Decision, later.LeaseExpired)
		}
	}
}

// checkTaken looks at a record that a claim has begun, or begun anew.
func checkTaken(t *testing.T, claim *driver.Claim, s *subject, before, after driver.Record) {
	t.Helper()
	want := driver.Record{
		ID: claim.ID, Fingerprint: claim.Fingerprint, Status: driver.InProgress,
		Owner: claim.Owner, Generation: s.lease.Generation + 1, Takeover: claim.Takeover,
		LeaseExpires: after.LeaseExpires, Started: after.Started, Updated: after.Updated, Expires: after.Expires,
	}
	if d := diff(after, want); d != "" {
		t.Errorf("the record is not that of a new execution:\n%s", d)
	}
	if after.Updated.Before(after.Started) {
		t.Errorf("Updated %v, which is before Started, %v", after.Updated, after.Started)
	}
	if after.Started.Before(before.Updated) {
		t.Errorf("Started %v, which is before the last change, %v", after.Started, before.Updated)
	}
	between(t, "Updated less Started", after.Updated.Sub(after.Started), 0)
	between(t, "LeaseExpires less Started", after.LeaseExpires.Sub(after.Started), claim.Lease)
	between(t, "Expires less Started", after.Expires.Sub(after.Started), claim.TTL)
}

// checkAbandoned looks at a record that a claim has made Unknown.
func checkAbandoned(t *testing.T, before, after driver.Record) {
	t.Helper()
	want := before
	want.Status, want.Owner, want.Generation = driver.Unknown, "", before.Generation+1
	want.Updated, want.LeaseExpires = after.Updated, after.LeaseExpires // the latter has no meaning now
	if d := diff(after, want); d != "" {
		t.Errorf("the record is not that of an abandoned execution:\n%s", d)
	}
	if !after.Updated.After(before.Updated) {
		t.Errorf("Updated %v, want later than %v", after.Updated, before.Updated)
	}
}

// between compares durations by the store's clock, leaving it a second for
// rounding, and for looking at it more than once.
func between(t *testing.T, what string, got, want time.Duration) {
	t.Helper()
	if d := got - want; d < -time.Second || d > time.Second {
		t.Errorf("%s is %v, want %v", what, got, want)
	}
}

// verb is something that the holder of a lease does.
type verb struct {
	name    string
	from    func(driver.Status) bool
	do      func(t *testing.T, k *kit, lease driver.Lease) error
	outcome driver.Outcome // of Complete
}

func verbs() []verb {
	inProgress := func(s driver.Status) bool { return s == driver.InProgress }
	open := func(s driver.Status) bool { return s == driver.InProgress || s == driver.Unknown }
	all := []verb{
		{
			name: "Renew", from: inProgress,
			do: func(t *testing.T, k *kit, lease driver.Lease) error {
				t.Helper()
				return k.store.Renew(patient(t), lease, 5*time.Hour)
			},
		},
		{
			name: "Release", from: open,
			do: func(t *testing.T, k *kit, lease driver.Lease) error {
				t.Helper()
				return k.store.Release(patient(t), lease)
			},
		},
	}
	for _, status := range []driver.Status{
		driver.Completed, driver.FailedFinal, driver.CompletedUnreplayable, driver.Unknown,
	} {
		outcome := driver.Outcome{Status: status, Result: answer(), TTL: 6 * time.Hour}
		outcome.Result.Reference = "the last one"
		from := open
		if status == driver.Unknown {
			from = inProgress
		}
		all = append(all, verb{
			name: "Complete as " + status.String(), from: from, outcome: outcome,
			do: func(t *testing.T, k *kit, lease driver.Lease) error {
				t.Helper()
				return k.store.Complete(patient(t), lease, outcome)
			},
		})
	}
	return all
}

// wants is the record after the verb, by its holder; ok: it is done at all. What
// the store says about times is taken from what it has said.
func (v verb) wants(s *subject, before, after driver.Record) (want driver.Record, ok bool) {
	if s.status == 0 || !v.from(s.status) {
		return before, false
	}
	want = before
	want.Updated = after.Updated
	switch {
	case v.name == "Renew":
		want.LeaseExpires = after.LeaseExpires
	case v.name == "Release" && s.old:
		return driver.Record{}, true // nothing keeps it any more
	case v.name == "Release":
		want.Status = driver.FailedRetryable
		want.LeaseExpires = after.LeaseExpires // it has no meaning now
	default:
		want.Status = v.outcome.Status
		want.Expires = after.Expires
		want.LeaseExpires = after.LeaseExpires
		if want.Status == driver.Completed || want.Status == driver.FailedFinal {
			want.Result = v.outcome.Result
		}
	}
	return want, true
}

// testLease tries each verb on a record in each state: first with leases that
// are not, or not any more, the record's, and then with the one that is.
func (k *kit) testLease(t *testing.T) {
	for _, v := range verbs() {
		t.Run(v.name, func(t *testing.T) {
			subjects := k.prepare(t, states())
			for i := range subjects {
				t.Run(subjects[i].name, func(t *testing.T) { k.tryVerb(t, v, &subjects[i]) })
			}
		})
	}
}

func (k *kit) tryVerb(t *testing.T, v verb, s *subject) {
	before := k.standing(t, s)
	for _, wrong := range wrongLeases(s.lease) {
		if err := v.do(t, k, wrong.lease); !errors.Is(err, driver.ErrLeaseLost) {
			t.Errorf("with %s: %v, want ErrLeaseLost", wrong.name, err)
		}
		k.unchanged(t, before, s.lease.ID)
	}

	err := v.do(t, k, s.lease)
	after := k.find(t, s.lease.ID)
	want, ok := v.wants(s, before, after)
	switch {
	case ok && err != nil:
		t.Errorf("by its holder: %v", err)
	case !ok && !errors.Is(err, driver.ErrLeaseLost):
		t.Errorf("by its holder: %v, want ErrLeaseLost", err)
	}
	if d := diff(after, want); d != "" {
		t.Errorf("the record afterwards:\n%s", d)
	}
	if !ok || after.Status == 0 {
		return
	}
	if after.Updated.Before(before.Updated) {
		t.Errorf("Updated went back from %v to %v", before.Updated, after.Updated)
	}
	switch v.name {
	case "Renew":
		between(t, "LeaseExpires less Updated", after.LeaseExpires.Sub(after.Updated), 5*time.Hour)
	case "Release":
	default:
		between(t, "Expires less Updated", after.Expires.Sub(after.Updated), v.outcome.TTL)
	}
}

type wrongLease struct {
	name  string
	lease driver.Lease
}

// wrongLeases are near the right one.
func wrongLeases(right driver.Lease) []wrongLease {
	change := func(name string, f func(*driver.Lease)) wrongLease {
		wrong := wrongLease{name, right}
		f(&wrong.lease)
		return wrong
	}
	return []wrongLease{
		change("another owner", func(l *driver.Lease) { l.Owner = driver.NewOwner() }),
		change("its owner and a blank", func(l *driver.Lease) { l.Owner += " " }),
		change("an earlier generation", func(l *driver.Lease) { l.Generation-- }),
		change("a later generation", func(l *driver.Lease) { l.Generation++ }),
		change("another key", func(l *driver.Lease) { l.Key += " " }),
		change("another operation", func(l *driver.Lease) { l.Operation = "" }),
		change("another scope", func(l *driver.Lease) { l.Scope += " " }),
	}
}

// cannotWrite looks whether a lease is lost: its holder changes nothing.
func (k *kit) cannotWrite(t *testing.T, lease driver.Lease) {
	t.Helper()
	before := k.find(t, lease.ID)
	for _, v := range verbs() {
		if err := v.do(t, k, lease); !errors.Is(err, driver.ErrLeaseLost) {
			t.Errorf("%s by generation %d of %q: %v, want ErrLeaseLost; the record is %s", v.name, lease.Generation, lease.Owner, err, show(before))
		}
	}
	k.unchanged(t, before, lease.ID)
}
