package storetest

import (
	"testing"
	"time"

	"github.com/resilienthttp/resilienthttp/idempotency/internal/driver"
	"github.com/resilienthttp/resilienthttp/internal/sleep"
)

// testReconciler resolves Unknown records with the lease that Load returns.
func (k *kit) testReconciler(t *testing.T) {
	k.reconcile(t, "Complete", func(t *testing.T, record driver.Record) {
		t.Helper()
		k.complete(t, record.Lease(), driver.Outcome{Status: driver.Completed, Result: answer(), TTL: time.Hour})
		reservation := k.reserve(t, k.claim(record.ID))
		wantReservation(t, "Reserve", reservation, driver.Reservation{Decision: driver.Done})
		wantResult(t, "of Reserve", reservation.Record.Result, answer())
	})
	k.reconcile(t, "Release", func(t *testing.T, record driver.Record) {
		t.Helper()
		k.release(t, record.Lease())
		equal(t, "generation", k.acquire(t, k.claim(record.ID)).Generation, record.Generation+1)
	})
	t.Run("Complete without a TTL", func(t *testing.T) {
		// A reconciler may come long after the TTL. Its result must be there for the next
		// request, which would be executed otherwise. So the TTL begins again.
		claim := k.mortal(k.id())
		lease := k.acquire(t, claim)
		k.lapse(t)
		lease = k.markUnknown(t, lease)
		before := k.load(t, claim.ID)
		_ = sleep.Context(t.Context(), 5*time.Millisecond)
		k.complete(t, lease, driver.Outcome{Status: driver.Completed, Result: answer()})
		after := k.load(t, claim.ID)
		later(t, "Expires", after.Expires, before.Expires)
		between(t, "Expires - Updated", after.Expires.Sub(after.Updated), claim.TTL)
	})
}

func (k *kit) reconcile(t *testing.T, name string, resolve func(t *testing.T, record driver.Record)) {
	t.Helper()
	var unknown []state
	for _, s := range states() {
		if s.status == driver.Unknown {
			unknown = append(unknown, s)
		}
	}
	k.each(t, name, unknown, func(t *testing.T, s *subject) {
		t.Helper()
		resolve(t, s.before)
		k.cannotWrite(t, s.lease)
	})
}

// testTimes compares the times of a record, which are all by the store's clock.
func (k *kit) testTimes(t *testing.T) {
	t.Run("order", func(t *testing.T) {
		id := k.id()
		lease := k.acquire(t, k.claim(id))
		reserved := k.load(t, id)
		if reserved.Started.IsZero() || reserved.Updated.Before(reserved.Started) {
			t.Errorf("got Started %v and Updated %v, want Started <= Updated", reserved.Started, reserved.Updated)
		}
		later(t, "LeaseExpires", reserved.LeaseExpires, reserved.Updated)
		later(t, "Expires", reserved.Expires, reserved.LeaseExpires)

		_ = sleep.Context(t.Context(), 5*time.Millisecond) // more than a tick of any clock
		k.renew(t, lease, time.Hour)
		renewed := k.load(t, id)
		later(t, "LeaseExpires after Renew", renewed.LeaseExpires, reserved.LeaseExpires)
		later(t, "Updated after Renew", renewed.Updated, reserved.Updated)

		k.renew(t, lease, time.Hour/2) // longer than any test
		shortened := k.load(t, id)
		between(t, "LeaseExpires - Updated", shortened.LeaseExpires.Sub(shortened.Updated), time.Hour/2)

		other := k.reserve(t, k.claim(k.id())).Record
		if other.Started.Before(shortened.Updated) {
			t.Errorf("Started of the next record: got %v, want not before %v", other.Started, shortened.Updated)
		}
	})

	const longest = 10 * 365 * 24 * time.Hour
	for _, d := range []time.Duration{1, time.Microsecond, time.Hour, 24 * time.Hour, longest} {
		t.Run("lease and TTL of "+d.String(), func(t *testing.T) {
			claim := k.claim(k.id())
			claim.Lease, claim.TTL = d, d
			record := k.reserve(t, claim).Record
			between(t, "LeaseExpires - Started", record.LeaseExpires.Sub(record.Started), d)
			between(t, "Expires - Started", record.Expires.Sub(record.Started), d)
		})
	}

	complete := func(ttl time.Duration) func(*testing.T, driver.Lease) {
		return func(t *testing.T, lease driver.Lease) {
			t.Helper()
			k.complete(t, lease, driver.Outcome{Status: driver.Completed, TTL: ttl})
		}
	}
	for _, row := range []struct {
		name    string
		end     func(t *testing.T, lease driver.Lease)
		changes bool
	}{
		{"Complete without a TTL", complete(0), false},
		{"Complete with a longer TTL", complete(72 * time.Hour), true},
		{"Complete with a shorter TTL", complete(72 * time.Minute), true},
		{"Release", k.release, false},
		{"Renew", func(t *testing.T, lease driver.Lease) { t.Helper(); k.renew(t, lease, 3*time.Hour) }, false},
	} {
		t.Run("expiry after "+row.name, func(t *testing.T) {
			lease := k.acquire(t, k.claim(k.id()))
			before := k.load(t, lease.ID)
			_ = sleep.Context(t.Context(), 5*time.Millisecond)
			row.end(t, lease)
			after := k.load(t, lease.ID)
			equal(t, "Expires has changed", !after.Expires.Equal(before.Expires), row.changes)
			equal(t, "Started has changed", !after.Started.Equal(before.Started), false)
			later(t, "Updated", after.Updated, before.Updated)
		})
	}
}

func later(t *testing.T, what string, got, than time.Time) {
	t.Helper()
	if !got.After(than) {
		t.Errorf("%s: got %v, want later than %v", what, got, than)
	}
}

// between compares durations by the store's clock, with a second for rounding and for
// several readings of the clock.
func between(t *testing.T, what string, got, want time.Duration) {
	t.Helper()
	if d := got - want; d < -time.Second || d > time.Second {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}
