package storetest

import (
	"net/http"
	"testing"
	"time"

	"github.com/resilienthttp/resilienthttp/idempotency/driver"
)

// state is where a record stands before a verb is tried on it.
type state struct {
	name string

	// status is what Load must find; 0: nothing, whether or not there is a row.
	status driver.Status

	// begin brings the record there. For some it takes until a blink is over, and
	// for some finish must do the rest then.
	begin  func(t *testing.T, k *kit, id driver.ID) driver.Lease
	finish func(t *testing.T, k *kit, lease driver.Lease) driver.Lease

	// swept: there is a row, and Sweep deletes it.
	swept bool

	// dead: the lease of an execution in progress is over, and takeover says what
	// becomes of it.
	dead     bool
	takeover driver.Takeover

	// old: the time to live is over, but something else keeps the record.
	old bool
}

// subject is a record that was brought into a state.
type subject struct {
	state

	lease driver.Lease
}

// answer is the result of whatever is completed on the way to a state.
func answer() driver.Result {
	return driver.Result{
		Code: http.StatusCreated, Header: http.Header{"Location": {"/charges/1"}},
		Body: []byte(`{"id":1}`), Reference: "charge 1",
	}
}

// states are all that a record can be in, by every way that leads there.
func states() []state {
	return append(running(), ended()...)
}

// running are the states of an operation that is not over.
func running() []state {
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
			name: "in progress, renewed in time", status: driver.InProgress, begin: reserve(time.Hour, 2*time.Hour, 0),
			finish: func(t *testing.T, k *kit, lease driver.Lease) driver.Lease {
				t.Helper()
				k.renew(t, lease, 3*time.Hour)
				return lease
			},
		},
		{
			name: "in progress, renewed too late but first", status: driver.InProgress, begin: reserve(blink, 2*time.Hour, 0),
			finish: func(t *testing.T, k *kit, lease driver.Lease) driver.Lease {
				t.Helper()
				k.renew(t, lease, time.Hour)
				return lease
			},
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
		{name: "abandoned", status: driver.Unknown, begin: reserve(blink, time.Hour, 0), finish: abandon},
		{name: "abandoned, TTL over", status: driver.Unknown, begin: reserve(blink, blink, 0), finish: abandon, old: true},
	}
	for _, takeover := range takeovers() {
		repeats := takeover == driver.Reexecute || takeover == driver.Resume
		over := state{
			name: "in progress, lease over, " + name(takeover), status: driver.InProgress,
			begin: reserve(blink, time.Hour, takeover), dead: true, takeover: takeover,
		}
		old := state{
			name:  "in progress, lease and TTL over, " + name(takeover),
			begin: reserve(blink, blink, takeover), swept: repeats, takeover: takeover,
		}
		if !repeats { // somebody must be told of it first
			old.status, old.dead, old.old = driver.InProgress, true, true
		}
		all = append(all, over, old)
	}
	return all
}

func takeovers() []driver.Takeover {
	return []driver.Takeover{
		driver.TakeoverDefault, driver.Reexecute, driver.Resume, driver.MarkUnknown,
	}
}

func name(t driver.Takeover) string {
	return [...]string{"TakeoverDefault", "Reexecute", "Resume", "MarkUnknown"}[t]
}

func reserve(lease, ttl time.Duration, takeover driver.Takeover) func(*testing.T, *kit, driver.ID) driver.Lease {
	return func(t *testing.T, k *kit, id driver.ID) driver.Lease {
		t.Helper()
		claim := k.claim(id)
		claim.Lease, claim.TTL, claim.Takeover = lease, ttl, takeover
		return k.acquire(t, claim)
	}
}

// again claims an operation that is free again.
func again(t *testing.T, k *kit, lease driver.Lease) driver.Lease {
	t.Helper()
	return k.acquire(t, k.claim(lease.ID))
}

func abandon(t *testing.T, k *kit, lease driver.Lease) driver.Lease {
	t.Helper()
	return k.abandon(t, lease)
}

// abandon makes a record whose lease is over Unknown, and returns what a
// reconciler goes by.
func (k *kit) abandon(t *testing.T, lease driver.Lease) driver.Lease {
	t.Helper()
	reservation := k.reserve(t, k.claim(lease.ID))
	if reservation.Decision != driver.DecisionUnknown || !reservation.LeaseExpired {
		t.Fatalf("Reserve of an operation whose lease is over: %+v, want undecided and Abandoned", reservation)
	}
	record := k.load(t, lease.ID)
	return record.Lease()
}

// ended are the states of an operation whose execution is over, each before and
// after its time to live.
func ended() []state {
	complete := func(status driver.Status, ttl time.Duration) func(*testing.T, *kit, driver.ID) driver.Lease {
		return func(t *testing.T, k *kit, id driver.ID) driver.Lease {
			t.Helper()
			lease := k.acquire(t, k.short(id)) // the lease has no meaning afterwards
			k.complete(t, lease, driver.Outcome{Status: status, Result: answer(), TTL: ttl})
			return lease
		}
	}
	release := func(ttl time.Duration, takeover driver.Takeover) func(*testing.T, *kit, driver.ID) driver.Lease {
		return func(t *testing.T, k *kit, id driver.ID) driver.Lease {
			t.Helper()
			claim := k.claim(id)
			claim.TTL, claim.Takeover = ttl, takeover
			lease := k.acquire(t, claim)
			k.release(t, lease)
			return lease
		}
	}
	settle := func(status driver.Status) func(*testing.T, *kit, driver.Lease) driver.Lease {
		return func(t *testing.T, k *kit, lease driver.Lease) driver.Lease {
			t.Helper()
			if status == driver.FailedRetryable {
				k.release(t, lease)
			} else {
				k.complete(t, lease, driver.Outcome{Status: status, Result: answer(), TTL: time.Hour})
			}
			return lease
		}
	}
	unknown := complete(driver.Unknown, time.Hour)
	return []state{
		{name: "completed", status: driver.Completed, begin: complete(driver.Completed, time.Hour)},
		{name: "completed, TTL over", begin: complete(driver.Completed, blink), swept: true},
		{name: "completed by a reconciler", status: driver.Completed, begin: unknown, finish: settle(driver.Completed)},
		{name: "failed retryable", status: driver.FailedRetryable, begin: release(time.Hour, driver.Reexecute)},
		{
			name: "failed retryable, to be resumed", status: driver.FailedRetryable, takeover: driver.Resume,
			begin: release(time.Hour, driver.Resume),
		},
		{name: "failed retryable, TTL over", begin: release(blink, driver.Reexecute), swept: true},
		{name: "failed retryable by a reconciler", status: driver.FailedRetryable, begin: unknown, finish: settle(driver.FailedRetryable)},
		{name: "failed final", status: driver.FailedFinal, begin: complete(driver.FailedFinal, time.Hour)},
		{name: "failed final, TTL over", begin: complete(driver.FailedFinal, blink), swept: true},
		{name: "failed final by a reconciler", status: driver.FailedFinal, begin: unknown, finish: settle(driver.FailedFinal)},
		{name: "completed unreplayable", status: driver.CompletedUnreplayable, begin: complete(driver.CompletedUnreplayable, time.Hour)},
		{name: "completed unreplayable, TTL over", begin: complete(driver.CompletedUnreplayable, blink), swept: true},
		{name: "unknown", status: driver.Unknown, begin: unknown},
		{name: "unknown, TTL over", status: driver.Unknown, begin: complete(driver.Unknown, blink), old: true},
	}
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
		if s := &subjects[i]; s.finish != nil {
			s.lease = s.finish(t, k, s.lease)
		}
	}
	return subjects
}

// standing looks whether the record is in the state it is meant to be in, and
// returns it.
func (k *kit) standing(t *testing.T, s *subject) driver.Record {
	t.Helper()
	record := k.find(t, s.lease.ID)
	if record.Status != s.status {
		t.Fatalf("the record is %s, want %v", show(record), s.status)
	}
	if record.Status != 0 && record.Lease() != s.lease {
		t.Fatalf("the record has the lease %+v, want %+v", record.Lease(), s.lease)
	}
	return record
}
