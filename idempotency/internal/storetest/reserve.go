package storetest

import (
	"context"
	"crypto/rand"
	"slices"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/idempotency"
)

// contender is a kind of claim.
type contender struct {
	name     string
	takeover idempotency.Takeover
	other    bool // another request: another fingerprint
	same     bool // the same execution: the owner of the record
}

func contenders() []contender {
	return []contender{
		{name: "Reexecute", takeover: idempotency.Reexecute},
		{name: "Reexecute, another request", takeover: idempotency.Reexecute, other: true},
		{name: "Reexecute, the same owner", takeover: idempotency.Reexecute, same: true},
		{name: "Resume", takeover: idempotency.Resume},
		{name: "MarkUnknown", takeover: idempotency.MarkUnknown},
		{name: "MarkUnknown, another request", takeover: idempotency.MarkUnknown, other: true},
		{name: "MarkUnknown, the same owner", takeover: idempotency.MarkUnknown, same: true},
		{name: "TakeoverDefault"},
	}
}

func (c contender) claim(k *kit, lease idempotency.Lease) idempotency.Claim {
	claim := k.claim(lease.ID)
	claim.Takeover = c.takeover
	if c.other {
		claim.Fingerprint += "b"
	}
	if c.same && lease.Owner != "" {
		claim.Owner = lease.Owner
	}
	return claim
}

// wants returns the decision of idempotency.Decide. The tests of Decide restate its
// documentation.
func (s *subject) wants(claim *idempotency.Claim) (idempotency.Step, idempotency.Reservation) {
	if s.status == 0 {
		return idempotency.StepTake, idempotency.Reservation{Decision: idempotency.DecisionAcquired}
	}
	now := s.before.Updated
	if s.dead {
		now = s.before.LeaseExpires
	}
	return idempotency.Decide(&s.before, claim, now)
}

// testReserve makes each kind of claim on a record in each state.
func (k *kit) testReserve() {
	for _, c := range contenders() {
		k.each(c.name, func(k *kit, s *subject) { k.tryReserve(c, s) })
	}
}

func (k *kit) tryReserve(c contender, s *subject) {
	before, claim := s.before, c.claim(k, s.lease)
	got := k.reserve(claim)
	step, want := s.wants(&claim)
	k.equalReservation(want, got)
	after := k.load(claim.ID)
	k.equalRecord(got.Record, after, "of Reserve and of Load")
	switch step {
	case idempotency.StepLeave:
		k.unchanged(before, claim.ID)
		return
	case idempotency.StepTake:
		k.checkTaken(&claim, s, after)
	default:
		k.checkMarkedUnknown(before, after)
		k.cannotWrite(idempotency.Lease{ID: claim.ID, Owner: before.Owner, Generation: after.Generation})
		k.cannotWrite(idempotency.Lease{ID: claim.ID, Owner: "", Generation: before.Generation})
	}
	k.cannotWrite(s.lease)
}

// checkTaken checks the record of a claim that was granted.
func (k *kit) checkTaken(claim *idempotency.Claim, s *subject, after idempotency.Record) {
	k.equalRecord(idempotency.Record{
		ID: claim.ID, Fingerprint: claim.Fingerprint, Status: idempotency.StatusInProgress,
		Owner: claim.Owner, Generation: s.lease.Generation + 1, Takeover: claim.Takeover,
		LeaseExpires: after.LeaseExpires, Started: after.Started, Updated: after.Updated, Expires: after.Expires,
	}, after, "that of a new execution")
	assert.False(k, after.Updated.Before(after.Started) || after.Started.Before(s.before.Updated))
	k.about(0, after.Updated.Sub(after.Started), "Updated - Started")
	k.about(claim.Lease, after.LeaseExpires.Sub(after.Started), "LeaseExpires - Started")
	k.about(claim.TTL, after.Expires.Sub(after.Started), "Expires - Started")
}

// checkMarkedUnknown checks a record that has become Unknown after the end of its lease.
func (k *kit) checkMarkedUnknown(before, after idempotency.Record) {
	want := before
	want.Status, want.Owner, want.Generation = idempotency.Unknown, "", before.Generation+1
	want.Updated, want.LeaseExpires = after.Updated, after.LeaseExpires // LeaseExpires has no meaning now
	k.equalRecord(want, after, "has become Unknown")
	assert.True(k, after.Updated.After(before.Updated))
	k.equalReservation(idempotency.Reservation{Decision: idempotency.DecisionUnknown}, k.reserve(k.claim(after.ID)))
}

// operation is an operation of the holder of a lease.
type operation struct {
	name    string
	from    []idempotency.Status // in which it succeeds
	to      idempotency.Status   // 0: the status stays
	do      func(ctx context.Context, store idempotency.Store, lease idempotency.Lease) error
	outcome idempotency.Outcome // of Complete
}

// renewal is the lease after Renew.
const renewal = 5 * time.Hour

func operations() []operation {
	open := []idempotency.Status{idempotency.StatusInProgress, idempotency.Unknown}
	all := []operation{
		{name: "Renew", from: open[:1], do: func(ctx context.Context, store idempotency.Store, lease idempotency.Lease) error {
			return store.Renew(ctx, lease, renewal)
		}},
		{name: "Release", from: open, to: idempotency.FailedRetryable, do: func(ctx context.Context, store idempotency.Store, lease idempotency.Lease) error {
			return store.Release(ctx, lease)
		}},
	}
	for _, status := range []idempotency.Status{idempotency.Completed, idempotency.FailedFinal, idempotency.CompletedUnreplayable} {
		all = append(all, completeAs(status, open))
	}
	return append(all, completeAs(idempotency.Unknown, open[:1]))
}

// completeAs is Complete as status.
func completeAs(status idempotency.Status, from []idempotency.Status) operation {
	outcome := idempotency.Outcome{Status: status, Result: answer(), TTL: 6 * time.Hour}
	outcome.Result.Reference = "by " + status.String()
	return operation{
		name: "Complete as " + status.String(), from: from, to: status, outcome: outcome,
		do: func(ctx context.Context, store idempotency.Store, lease idempotency.Lease) error {
			return store.Complete(ctx, lease, outcome)
		},
	}
}

// wants returns the record after an operation that succeeds. Its times are those of after.
func (o *operation) wants(s *subject, after idempotency.Record) idempotency.Record {
	want := s.before
	want.Updated, want.LeaseExpires = after.Updated, after.LeaseExpires
	switch o.to {
	case 0:
	case idempotency.FailedRetryable:
		if s.old {
			return idempotency.Record{} // nothing keeps it
		}
		want.Status = o.to
	default:
		stored := o.outcome.Stored()
		want.Status, want.Expires, want.Result = o.to, after.Expires, stored
	}
	return want
}

// testLease tries each operation on a record in each state: first with leases that are
// not, or no longer, those of the record, then with the right one.
func (k *kit) testLease() {
	for _, o := range operations() {
		k.each(o.name, func(k *kit, s *subject) { k.tryOperation(o, s) })
	}
}

func (k *kit) tryOperation(o operation, s *subject) {
	before := s.before
	for name, change := range map[string]func(*idempotency.Lease){
		"another owner":         func(l *idempotency.Lease) { l.Owner = rand.Text() },
		"its owner and a blank": func(l *idempotency.Lease) { l.Owner += " " },
		"an earlier generation": func(l *idempotency.Lease) { l.Generation-- },
		"a later generation":    func(l *idempotency.Lease) { l.Generation++ },
		"the key and a blank":   func(l *idempotency.Lease) { l.Key += " " },
		"another operation":     func(l *idempotency.Lease) { l.Operation = "" },
		"the scope and a blank": func(l *idempotency.Lease) { l.Scope += " " },
	} {
		wrong := s.lease
		change(&wrong)
		require.ErrorIs(k, o.do(k.patient(), k.store, wrong), idempotency.ErrLeaseLost, name)
		k.unchanged(before, s.lease.ID)
	}

	err := o.do(k.patient(), k.store, s.lease)
	after := k.find(s.lease.ID)
	if !slices.Contains(o.from, s.status) {
		require.ErrorIs(k, err, idempotency.ErrLeaseLost)
		k.equalRecord(before, after, "has changed")
		return
	}
	require.NoError(k, err)
	k.equalRecord(o.wants(s, after), after, "after the operation")
	if after.Status == 0 {
		return
	}
	assert.False(k, after.Updated.Before(before.Updated))
	if s.then == nil { // the record was last changed a blink ago
		assert.True(k, after.Updated.After(before.Updated))
	}
	switch o.to {
	case 0:
		k.about(renewal, after.LeaseExpires.Sub(after.Updated), "LeaseExpires - Updated")
	case idempotency.FailedRetryable:
	default:
		k.about(o.outcome.TTL, after.Expires.Sub(after.Updated), "Expires - Updated")
	}
}

// cannotWrite checks that the holder of a lost lease changes nothing.
func (k *kit) cannotWrite(lease idempotency.Lease) {
	before := k.find(lease.ID)
	for _, o := range operations() {
		require.ErrorIs(k, o.do(k.patient(), k.store, lease), idempotency.ErrLeaseLost, o.name)
	}
	k.unchanged(before, lease.ID)
}
