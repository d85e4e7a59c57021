package storetest

import (
	"testing"
	"time"

	"github.com/resilienthttp/resilienthttp/idempotency/driver"
	"github.com/resilienthttp/resilienthttp/internal/sleep"
)

// testLife follows one record through all that can happen to it. Each execution
// has a generation of its own, and none that is over can write.
func (k *kit) testLife(t *testing.T) {
	id := k.id()
	var past []driver.Lease
	next := func(what string, lease driver.Lease) {
		t.Helper()
		if want := int64(len(past) + 1); lease.Generation != want {
			t.Fatalf("%s: generation %d, want %d", what, lease.Generation, want)
		}
		for _, lost := range past {
			k.cannotWrite(t, lost)
		}
		past = append(past, lease)
	}

	first := k.acquire(t, k.claim(id))
	next("reserved", first)
	k.release(t, first)
	second := k.acquire(t, k.short(id))
	next("reserved after a release", second)
	k.lapse(t)
	third := k.acquire(t, k.claim(id))
	next("taken over", third)
	k.renew(t, third, blink)
	k.lapse(t)
	next("abandoned", k.abandon(t, third))
	k.release(t, past[3])
	fifth := k.acquire(t, k.claim(id))
	next("reserved after a reconciler's release", fifth)
	k.complete(t, fifth, driver.Outcome{Status: driver.Unknown})
	k.complete(t, fifth, driver.Outcome{Status: driver.Completed, Result: answer(), TTL: blink})
	k.lapse(t)
	sixth := k.acquire(t, k.claim(id))
	next("reserved after it had expired", sixth)
	k.complete(t, sixth, driver.Outcome{Status: driver.FailedFinal, Result: answer()})
	k.cannotWrite(t, sixth)

	reservation := k.reserve(t, k.claim(id))
	if reservation.Decision != driver.Done || reservation.Record.Status != driver.FailedFinal {
		t.Errorf("Reserve in the end: %v of %s, want done, failed_final", reservation.Decision, show(reservation.Record))
	}
	if d := diffResults(reservation.Record.Result, answer()); d != "" {
		t.Errorf("the result in the end:\n%s", d)
	}
}

// testReconciler settles records that are Unknown by what Load says of them.
func (k *kit) testReconciler(t *testing.T) {
	var unknown []state
	for _, s := range states() {
		if s.status == driver.Unknown {
			unknown = append(unknown, s)
		}
	}
	t.Run("Complete", func(t *testing.T) {
		subjects := k.prepare(t, unknown)
		for i := range subjects {
			id := subjects[i].lease.ID
			t.Run(subjects[i].name, func(t *testing.T) {
				record := k.standing(t, &subjects[i])
				k.complete(t, record.Lease(), driver.Outcome{Status: driver.Completed, Result: answer(), TTL: time.Hour})
				reservation := k.reserve(t, k.claim(id))
				if reservation.Decision != driver.Done {
					t.Errorf("Reserve: %v, want done", reservation.Decision)
				}
				if d := diffResults(reservation.Record.Result, answer()); d != "" {
					t.Errorf("the result:\n%s", d)
				}
				k.cannotWrite(t, record.Lease())
			})
		}
	})
	t.Run("Complete without a TTL", func(t *testing.T) {
		// A reconciler may come long after the time to live. What it settles must then
		// be there for the client's next try, which would be executed otherwise.
		id := k.id()
		claim := k.mortal(id)
		lease := k.acquire(t, claim)
		k.lapse(t)
		lease = k.abandon(t, lease)
		before := k.load(t, id)
		_ = sleep.Context(t.Context(), 5*time.Millisecond)
		k.complete(t, lease, driver.Outcome{Status: driver.Completed, Result: answer()})
		after := k.load(t, id)
		if !after.Expires.After(before.Expires) {
			t.Errorf("Expires was %v and is %v: the time to live must begin anew", before.Expires, after.Expires)
		}
		between(t, "Expires less Updated", after.Expires.Sub(after.Updated), claim.TTL)
	})
	t.Run("Release", func(t *testing.T) {
		subjects := k.prepare(t, unknown)
		for i := range subjects {
			id := subjects[i].lease.ID
			t.Run(subjects[i].name, func(t *testing.T) {
				record := k.standing(t, &subjects[i])
				k.release(t, record.Lease())
				lease := k.acquire(t, k.claim(id))
				if lease.Generation != record.Generation+1 {
					t.Errorf("generation %d, want %d", lease.Generation, record.Generation+1)
				}
				k.cannotWrite(t, record.Lease())
			})
		}
	})
}

// testTimes looks at a record's times, which are all by one clock, the store's.
func (k *kit) testTimes(t *testing.T) {
	t.Run("order", func(t *testing.T) {
		id := k.id()
		lease := k.acquire(t, k.claim(id))
		reserved := k.load(t, id)
		if reserved.Started.IsZero() || reserved.Updated.Before(reserved.Started) ||
			!reserved.LeaseExpires.After(reserved.Updated) || !reserved.Expires.After(reserved.LeaseExpires) {
			t.Errorf("Started <= Updated < LeaseExpires < Expires does not hold: %s", show(reserved))
		}

		_ = sleep.Context(t.Context(), 5*time.Millisecond) // more than a clock's tick
		k.renew(t, lease, time.Hour)
		renewed := k.load(t, id)
		if !renewed.LeaseExpires.After(reserved.LeaseExpires) || !renewed.Updated.After(reserved.Updated) {
			t.Errorf("after Renew: LeaseExpires %v and Updated %v, want later than %v and %v",
				renewed.LeaseExpires, renewed.Updated, reserved.LeaseExpires, reserved.Updated)
		}

		k.renew(t, lease, time.Hour/2) // longer than any test takes
		shortened := k.load(t, id)
		between(t, "LeaseExpires less Updated", shortened.LeaseExpires.Sub(shortened.Updated), time.Hour/2)

		later := k.acquire(t, k.claim(k.id()))
		if other := k.load(t, later.ID); other.Started.Before(shortened.Updated) {
			t.Errorf("the store's clock went back from %v to %v", shortened.Updated, other.Started)
		}
	})

	longest := 10 * 365 * 24 * time.Hour
	// None of these is over in the middle of the tests that follow.
	for _, d := range []time.Duration{1, time.Microsecond, time.Hour, 24 * time.Hour, longest} {
		t.Run("lease and TTL of "+d.String(), func(t *testing.T) {
			claim := k.claim(k.id())
			claim.Lease, claim.TTL = d, d
			record := k.reserve(t, claim).Record
			between(t, "LeaseExpires less Started", record.LeaseExpires.Sub(record.Started), d)
			between(t, "Expires less Started", record.Expires.Sub(record.Started), d)
		})
	}

	t.Run("expiry", func(t *testing.T) {
		for _, row := range []struct {
			name    string
			end     func(t *testing.T, lease driver.Lease)
			changes bool
		}{
			{"Complete without a TTL", func(t *testing.T, lease driver.Lease) {
				k.complete(t, lease, driver.Outcome{Status: driver.Completed})
			}, false},
			{"Complete with a longer TTL", func(t *testing.T, lease driver.Lease) {
				k.complete(t, lease, driver.Outcome{Status: driver.Completed, TTL: 72 * time.Hour})
			}, true},
			{"Complete with a shorter TTL", func(t *testing.T, lease driver.Lease) {
				k.complete(t, lease, driver.Outcome{Status: driver.Completed, TTL: 72 * time.Minute})
			}, true},
			{"Release", k.release, false},
			{"Renew", func(t *testing.T, lease driver.Lease) { k.renew(t, lease, 3*time.Hour) }, false},
		} {
			t.Run(row.name, func(t *testing.T) {
				id := k.id()
				lease := k.acquire(t, k.claim(id))
				before := k.load(t, id)
				_ = sleep.Context(t.Context(), 5*time.Millisecond)
				row.end(t, lease)
				after := k.load(t, id)
				if after.Expires.Equal(before.Expires) == row.changes {
					t.Errorf("Expires was %v and is %v", before.Expires, after.Expires)
				}
				if !after.Updated.After(before.Updated) {
					t.Errorf("Updated was %v and is %v, want later", before.Updated, after.Updated)
				}
				if !after.Started.Equal(before.Started) {
					t.Errorf("Started was %v and is %v", before.Started, after.Started)
				}
			})
		}
	})
}
