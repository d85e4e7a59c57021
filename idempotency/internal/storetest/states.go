package storetest

import (
	"crypto/rand"
	"net/http"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/idempotency"
)

// state is a state of a record before an operation.
type state struct {
	name string

	// lease, ttl and takeover are those of the claim that begins the record. A lease of zero: there is no record.
	lease, ttl time.Duration
	takeover   idempotency.Takeover

	// first is done at once, and then after a blink. They return the new lease. nil: nothing.
	first, then func(k *kit, lease idempotency.Lease) idempotency.Lease

	// status is what Load finds. Zero means that it finds nothing.
	status idempotency.Status

	// dead means that the lease of an execution in progress has ended.
	dead bool

	// old means that the TTL has ended, and that something else keeps the record.
	old bool
}

// swept reports whether Sweep deletes the record.
func (s *state) swept() bool { return s.lease > 0 && s.status == 0 }

// subject is a record in a state.
type subject struct {
	state

	lease  idempotency.Lease
	before idempotency.Record // zero if it is absent
}

// answer returns the result of completed operations.
func answer() idempotency.Result {
	return idempotency.Result{
		Code: http.StatusCreated, Header: http.Header{"Location": {"/charges/1"}},
		Body: []byte(`{"id":1}`), Reference: "charge 1",
	}
}

func renewed(d time.Duration) func(*kit, idempotency.Lease) idempotency.Lease {
	return func(k *kit, lease idempotency.Lease) idempotency.Lease {
		require.NoError(k, k.store.Renew(k.patient(), lease, d))
		return lease
	}
}

func released(k *kit, lease idempotency.Lease) idempotency.Lease {
	k.release(lease)
	return lease
}

func completed(status idempotency.Status, ttl time.Duration) func(*kit, idempotency.Lease) idempotency.Lease {
	return func(k *kit, lease idempotency.Lease) idempotency.Lease {
		k.complete(lease, idempotency.Outcome{Status: status, Result: answer(), TTL: ttl})
		return lease
	}
}

func taken(k *kit, lease idempotency.Lease) idempotency.Lease { return k.acquire(k.claim(lease.ID)) }

// marked makes a record Unknown after the end of its lease, and returns the lease of a reconciler.
func marked(k *kit, lease idempotency.Lease) idempotency.Lease {
	k.equalReservation(idempotency.Reservation{Decision: idempotency.DecisionUnknown, LeaseExpired: true}, k.reserve(k.claim(lease.ID)))
	record := k.load(lease.ID)
	return record.Lease()
}

// states returns all states of a record, reached in every way.
func states() []state {
	const (
		running  = idempotency.StatusInProgress
		failed   = idempotency.FailedRetryable
		hour     = time.Hour
		again    = idempotency.Reexecute
		resume   = idempotency.Resume
		lasting  = 2 * hour
		reviewed = 3 * hour
	)
	unknown := completed(idempotency.Unknown, hour)
	all := []state{
		{name: "absent"},
		{name: "in progress", lease: hour, ttl: lasting, status: running},
		{name: "in progress, TTL over", lease: hour, ttl: blink, status: running, old: true},
		{name: "in progress, TTL over, Reexecute", lease: hour, ttl: blink, takeover: again, status: running, old: true},
		{name: "in progress, renewed in time", lease: hour, ttl: lasting, then: renewed(reviewed), status: running},
		{name: "in progress, renewed after the lease", lease: blink, ttl: lasting, then: renewed(hour), status: running},
		{name: "in progress, taken over", lease: blink, ttl: hour, takeover: again, then: taken, status: running},
		{name: "in progress, its key for the second time", lease: blink, ttl: blink, takeover: resume, then: taken, status: running},
		{name: "in progress, after a release", lease: hour, ttl: hour, first: released, then: taken, status: running},
		{name: "marked unknown", lease: blink, ttl: hour, then: marked, status: idempotency.Unknown},
		{name: "marked unknown, TTL over", lease: blink, ttl: blink, then: marked, status: idempotency.Unknown, old: true},
		{name: "unknown", lease: blink, ttl: hour, first: unknown, status: idempotency.Unknown},
		{name: "unknown, TTL over", lease: blink, ttl: hour, first: completed(idempotency.Unknown, blink), status: idempotency.Unknown, old: true},
		{name: "failed retryable", lease: hour, ttl: hour, takeover: again, first: released, status: failed},
		{name: "failed retryable, to be resumed", lease: hour, ttl: hour, takeover: resume, first: released, status: failed},
		{name: "failed retryable, TTL over", lease: hour, ttl: blink, takeover: again, first: released},
		{name: "failed retryable by a reconciler", lease: blink, ttl: hour, first: unknown, then: released, status: failed},
	}
	for takeover, name := range []string{"TakeoverDefault", "Reexecute", "Resume", "MarkUnknown"} {
		takeover := idempotency.Takeover(takeover)
		over := state{name: "in progress, lease over, " + name, lease: blink, ttl: hour, takeover: takeover, status: running, dead: true}
		old := state{name: "in progress, lease and TTL over, " + name, lease: blink, ttl: blink, takeover: takeover}
		if !takeover.Repeats() { // it must become Unknown first
			old.status, old.dead, old.old = running, true, true
		}
		all = append(all, over, old)
	}
	for _, status := range []idempotency.Status{idempotency.Completed, idempotency.FailedFinal, idempotency.CompletedUnreplayable} {
		name := status.String() // the end of the lease must change nothing
		all = append(all,
			state{name: name, lease: blink, ttl: hour, takeover: again, first: completed(status, hour), status: status},
			state{name: name + ", TTL over", lease: blink, ttl: hour, takeover: again, first: completed(status, blink)},
			state{name: name + " by a reconciler", lease: blink, ttl: hour, first: unknown, then: completed(status, hour), status: status})
	}
	return all
}

// prepare brings a new record into each of the states.
func (k *kit) prepare(all []state) []subject {
	subjects := make([]subject, len(all))
	for i, s := range all {
		lease := idempotency.Lease{ID: k.id(), Owner: rand.Text()}
		if s.lease > 0 {
			lease = k.begin(s.lease, s.ttl, s.takeover)
		}
		if s.first != nil {
			lease = s.first(k, lease)
		}
		subjects[i] = subject{state: s, lease: lease}
	}
	k.lapse()
	for i := range subjects {
		s := &subjects[i]
		if s.then != nil {
			s.lease = s.then(k, s.lease)
		}
		s.before = k.find(s.lease.ID)
		require.Equal(k, s.status, s.before.Status, s.name)
		if s.status != 0 {
			require.Equal(k, s.lease, s.before.Lease(), s.name)
		}
	}
	return subjects
}

// each runs a test named name that has a subtest for a new record in each of the states.
func (k *kit) each(name string, test func(k *kit, s *subject)) {
	k.test(name, func(k *kit) {
		subjects := k.prepare(states())
		for i := range subjects {
			k.test(subjects[i].name, func(k *kit) { test(k, &subjects[i]) })
		}
	})
}
