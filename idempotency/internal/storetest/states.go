package storetest

import (
	"net/http"
	"testing"
	"time"

	"github.com/resilienthttp/resilienthttp/idempotency/internal/driver"
)

// state is a state of a record before an operation.
type state struct {
	name string

	// status is what Load finds. Zero means that it finds nothing.
	status driver.Status

	// begin brings the record into the state. For some states finish does the rest, after
	// a blink.
	begin  func(t *testing.T, k *kit, id driver.ID) driver.Lease
	finish func(t *testing.T, k *kit, lease driver.Lease) driver.Lease

	// swept means that Sweep deletes the record.
	swept bool

	// dead means that the lease of an execution in progress has ended. takeover says what
	// happens to it then.
	dead     bool
	takeover driver.Takeover

	// old means that the TTL has ended, and that something else keeps the record.
	old bool
}

// subject is a record in a state.
type subject struct {
	state

	lease  driver.Lease
	before driver.Record // zero if it is absent
}

// answer returns the result of completed operations.
func answer() driver.Result {
	return driver.Result{
		Code: http.StatusCreated, Header: http.Header{"Location": {"/charges/1"}},
		Body: []byte(`{"id":1}`), Reference: "charge 1",
	}
}

// states returns all states of a record, reached in every way.
func states() []state {
	return append(running(), finished()...)
}

// running returns the states of an operation that has not finished.
func running() []state {
	renew := func(d time.Duration) func(*testing.T, *kit, driver.Lease) driver.Lease {
		return func(t *testing.T, k *kit, lease driver.Lease) driver.Lease {
			t.Helper()
			k.renew(t, lease, d)
			return lease
		}
	}
	again := func(t *testing.T, k *kit, lease driver.Lease) driver.Lease {
		t.Helper()
		return k.acquire(t, k.claim(lease.ID))
	}
	markUnknown := func(t *testing.T, k *kit, lease driver.Lease) driver.Lease {
		t.Helper()
		return k.markUnknown(t, lease)
	}
	all := []state{
		{
			name: "absent",
			begin: func(_ *testing.T, _ *kit, id driver.ID) driver.Lease {
				return driver.Lease{ID: id, Owner: driver.NewOwner()}
			},
		},
		{name: "in progress", status: driver.InProgress, begin: reserve(time.Hour, 2*time.Hour, 0)},
		{name: "in progress, TTL over", status: driver.InProgress, begin: reserve(time.Hour, blink, 0), old: true},
		{
			name: "in progress, TTL over, Reexecute", status: driver.InProgress,
			begin: reserve(time.Hour, blink, driver.Reexecute), old: true,
		},
		{
			name: "in progress, renewed in time", status: driver.InProgress,
			begin: reserve(time.Hour, 2*time.Hour, 0), finish: renew(3 * time.Hour),
		},
		{
			name: "in progress, renewed after the lease", status: driver.InProgress,
			begin: reserve(blink, 2*time.Hour, 0), finish: renew(time.Hour),
		},
		{
			name: "in progress, taken over", status: driver.InProgress,
			begin: reserve(blink, time.Hour, driver.Reexecute), finish: again,
		},
		{
			name: "in progress, its key for the second time", status: driver.InProgress,
			begin: reserve(blink, blink, driver.Resume), finish: again,
		},
		{
			name: "in progress, after a release", status: driver.InProgress, begin: reserve(time.Hour, time.Hour, 0),
			finish: func(t *testing.T, k *kit, lease driver.Lease) driver.Lease {
				t.Helper()
				k.release(t, lease)
				return again(t, k, lease)
			},
		},
		{name: "marked unknown", status: driver.Unknown, begin: reserve(blink, time.Hour, 0), finish: markUnknown},
		{name: "marked unknown, TTL over", status: driver.Unknown, begin: reserve(blink, blink, 0), finish: markUnknown, old: true},
	}
	for takeover, name := range []string{"TakeoverDefault", "Reexecute", "Resume", "MarkUnknown"} {
		takeover := driver.Takeover(takeover)
		over := state{
			name: "in progress, lease over, " + name, status: driver.InProgress,
			begin: reserve(blink, time.Hour, takeover), dead: true, takeover: takeover,
		}
		old := state{
			name:  "in progress, lease and TTL over, " + name,
			begin: reserve(blink, blink, takeover), swept: takeover.Repeats(), takeover: takeover,
		}
		if !takeover.Repeats() { // it must become Unknown first
			old.status, old.dead, old.old = driver.InProgress, true, true
		}
		all = append(all, over, old)
	}
	return all
}

func reserve(lease, ttl time.Duration, takeover driver.Takeover) func(*testing.T, *kit, driver.ID) driver.Lease {
	return func(t *testing.T, k *kit, id driver.ID) driver.Lease {
		t.Helper()
		claim := k.claim(id)
		claim.Lease, claim.TTL, claim.Takeover = lease, ttl, takeover
		return k.acquire(t, claim)
	}
}

// markUnknown makes a record Unknown after the end of its lease, and returns the lease of
// a reconciler.
func (k *kit) markUnknown(t *testing.T, lease driver.Lease) driver.Lease {
	t.Helper()
	reservation := k.reserve(t, k.claim(lease.ID))
	wantReservation(t, "Reserve after the lease", reservation, driver.Reservation{Decision: driver.DecisionUnknown, LeaseExpired: true})
	record := k.load(t, lease.ID)
	return record.Lease()
}

// finished returns the states of an operation after its execution, each before and after
// its TTL.
func finished() []state {
	complete := func(status driver.Status, ttl time.Duration) func(*testing.T, *kit, driver.ID) driver.Lease {
		return func(t *testing.T, k *kit, id driver.ID) driver.Lease {
			t.Helper()
			lease := k.acquire(t, k.short(id)) // its end must change nothing
			k.complete(t, lease, driver.Outcome{Status: status, Result: answer(), TTL: ttl})
			return lease
		}
	}
	release := func(ttl time.Duration, takeover driver.Takeover) func(*testing.T, *kit, driver.ID) driver.Lease {
		return func(t *testing.T, k *kit, id driver.ID) driver.Lease {
			t.Helper()
			lease := reserve(time.Hour, ttl, takeover)(t, k, id)
			k.release(t, lease)
			return lease
		}
	}
	unknown := complete(driver.Unknown, time.Hour)
	all := []state{
		{name: "failed retryable", status: driver.FailedRetryable, begin: release(time.Hour, driver.Reexecute)},
		{
			name: "failed retryable, to be resumed", status: driver.FailedRetryable, takeover: driver.Resume,
			begin: release(time.Hour, driver.Resume),
		},
		{name: "failed retryable, TTL over", begin: release(blink, driver.Reexecute), swept: true},
		{
			name: "failed retryable by a reconciler", status: driver.FailedRetryable, begin: unknown,
			finish: func(t *testing.T, k *kit, lease driver.Lease) driver.Lease {
				t.Helper()
				k.release(t, lease)
				return lease
			},
		},
		{name: "unknown", status: driver.Unknown, begin: unknown},
		{name: "unknown, TTL over", status: driver.Unknown, begin: complete(driver.Unknown, blink), old: true},
	}
	for _, status := range []driver.Status{driver.Completed, driver.FailedFinal, driver.CompletedUnreplayable} {
		all = append(all,
			state{name: status.String(), status: status, begin: complete(status, time.Hour)},
			state{name: status.String() + ", TTL over", begin: complete(status, blink), swept: true},
			state{
				name: status.String() + " by a reconciler", status: status, begin: unknown,
				finish: func(t *testing.T, k *kit, lease driver.Lease) driver.Lease {
					t.Helper()
					k.complete(t, lease, driver.Outcome{Status: status, Result: answer(), TTL: time.Hour})
					return lease
				},
			})
	}
	return all
}

// prepare brings a new record into each of the states.
func (k *kit) prepare(t *testing.T, all []state) []subject {
	t.Helper()
	subjects := make([]subject, len(all))
	for i, state := range all {
		subjects[i] = subject{state: state, lease: state.begin(t, k, k.id())}
	}
	k.lapse(t)
	for i := range subjects {
		s := &subjects[i]
		if s.finish != nil {
			s.lease = s.finish(t, k, s.lease)
		}
		s.before = k.find(t, s.lease.ID)
		if s.before.Status != s.status || s.status != 0 && s.before.Lease() != s.lease {
			t.Fatalf("%s: got %s, want %v with lease %+v", s.name, show(s.before), s.status, s.lease)
		}
	}
	return subjects
}

// each runs a test named name that has a subtest for a new record in each of the states.
func (k *kit) each(t *testing.T, name string, all []state, test func(t *testing.T, s *subject)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		subjects := k.prepare(t, all)
		for i := range subjects {
			t.Run(subjects[i].name, func(t *testing.T) { test(t, &subjects[i]) })
		}
	})
}
