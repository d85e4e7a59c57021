package storetest

import (
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/idempotency"
	"github.com/resilienthttp/resilienthttp/internal/sleep"
)

// testTimes compares the times of a record, which are all by the store's clock.
func (k *kit) testTimes() {
	const tick = 5 * time.Millisecond // more than a tick of any clock
	k.test("order", func(k *kit) {
		lease := k.begin(time.Hour, 2*time.Hour, 0)
		reserved := k.load(lease.ID)
		require.False(k, reserved.Started.IsZero())
		_ = sleep.Context(k.Context(), tick)
		renewed(time.Hour)(k, lease)
		longer := k.load(lease.ID)
		assert.True(k, longer.LeaseExpires.After(reserved.LeaseExpires))
		renewed(time.Hour/2)(k, lease) // longer than any test
		shorter := k.load(lease.ID)
		k.about(time.Hour/2, shorter.LeaseExpires.Sub(shorter.Updated), "LeaseExpires - Updated")
		next := k.load(k.begin(time.Hour, time.Hour, 0).ID)
		assert.False(k, next.Started.Before(shorter.Updated))
	})

	for _, d := range []time.Duration{1, time.Microsecond, 24 * time.Hour, 10 * 365 * 24 * time.Hour} {
		k.test("lease and TTL of "+d.String(), func(k *kit) {
			claim := k.claim(k.id())
			claim.Lease, claim.TTL = d, d
			record := k.reserve(claim).Record
			k.about(d, record.LeaseExpires.Sub(record.Started), "LeaseExpires - Started")
			k.about(d, record.Expires.Sub(record.Started), "Expires - Started")
		})
	}

	// The TTL of a result is that of the claim. A reconciler may come long after it, and its result must be there for the
	// next request, which would be executed otherwise: there the TTL begins again.
	for name, unknown := range map[string]bool{"Complete without a TTL": false, "Complete without a TTL by a reconciler": true} {
		k.test(name, func(k *kit) {
			lease := k.begin(blink, time.Hour, 0)
			k.lapse()
			if unknown {
				lease = marked(k, lease)
			}
			before := k.load(lease.ID)
			_ = sleep.Context(k.Context(), tick)
			k.complete(lease, idempotency.Outcome{Status: idempotency.Completed})
			after := k.load(lease.ID)
			assert.Equal(k, unknown, after.Expires.After(before.Expires))
			assert.Equal(k, !unknown, after.Expires.Equal(before.Expires))
			if unknown {
				k.about(time.Hour, after.Expires.Sub(after.Updated), "Expires - Updated")
			}
		})
	}
	k.test("Complete with a shorter TTL", func(k *kit) {
		lease := k.begin(time.Hour, 2*time.Hour, 0)
		completed(idempotency.Completed, time.Hour)(k, lease) // longer than the suite takes: Sweep counts what has expired
		after := k.load(lease.ID)
		k.about(time.Hour, after.Expires.Sub(after.Updated), "Expires - Updated")
	})
}
