package storetest

import (
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/idempotency"
)

// testSweep deletes expired records, and marks dead executions, and no others.
func (k *kit) testSweep() {
	k.drain()
	k.reapAll()
	k.test("what", (*kit).sweepWhat)
	for _, row := range []struct {
		name     string
		ttl      time.Duration
		takeover idempotency.Takeover
		sweep    func(k *kit, store idempotency.Store, limit int) (int, error)
		rest     func(k *kit) int
	}{
		{"Sweep", blink, idempotency.Reexecute, func(k *kit, store idempotency.Store, limit int) (int, error) {
			return store.Sweep(k.patient(), limit)
		}, (*kit).drain},
		{"Reap", time.Hour, idempotency.MarkUnknown, func(k *kit, store idempotency.Store, limit int) (int, error) {
			all, err := store.Reap(k.patient(), limit)
			return len(all), err
		}, func(k *kit) int { return len(k.reapAll()) }},
	} {
		const total = 150
		begin := func(k *kit) {
			for range total {
				k.begin(blink, row.ttl, row.takeover)
			}
			k.lapse()
		}
		k.test(row.name+" with a limit", func(k *kit) {
			begin(k)
			for _, limit := range []int{0, -1, 1, 9, 0, 100} {
				n, err := row.sweep(k, k.store, limit)
				require.Equal(k, max(limit, 0), n)
				require.False(k, limit >= 0 && err != nil, err)
			}
			assert.Equal(k, total-110, row.rest(k))
		})
		k.test("several at once: "+row.name, func(k *kit) {
			begin(k)
			var swept atomic.Int64
			ctx := k.patient()
			together(4, func(i int) {
				for swept.Load() < total && ctx.Err() == nil { // one that finds nothing may have met the others
					n, err := row.sweep(k, k.handle(i), 7)
					if !assert.NoError(k, err) {
						return
					}
					swept.Add(int64(n))
				}
			})
			assert.Equal(k, total, int(swept.Load())+row.rest(k))
		})
	}
}

// drain sweeps until nothing is left, and returns the number of records.
func (k *kit) drain() int {
	for total := 0; ; {
		n, err := k.store.Sweep(k.patient(), 500)
		require.NoError(k, err)
		require.True(k, n >= 0 && n <= 500)
		if total += n; n == 0 {
			return total
		}
	}
}

// reapAll reaps until nothing is left, and returns the records.
func (k *kit) reapAll() map[idempotency.ID]idempotency.Record {
	const limit = 50
	for found := make(map[idempotency.ID]idempotency.Record); ; {
		all, err := k.store.Reap(k.patient(), limit)
		require.NoError(k, err)
		require.LessOrEqual(k, len(all), limit)
		for _, r := range all {
			require.NotContains(k, found, r.ID)
			found[r.ID] = r
		}
		if len(all) == 0 {
			return found
		}
	}
}

// sweepWhat lists, sweeps and reaps among records in all states. Sweep must not delete a dead execution that is not yet marked.
func (k *kit) sweepWhat() {
	subjects := k.prepare(states())
	listed := k.list(k.scope, nil)
	want := 0
	for i := range subjects {
		if subjects[i].swept() {
			want++
		}
	}
	assert.Equal(k, want, k.drain())
	for i := range subjects {
		k.unchanged(subjects[i].before, subjects[i].lease.ID)
	}
	found := k.reapAll()
	assert.Zero(k, k.drain())
	for i := range subjects {
		s := &subjects[i]
		k.test(s.name, func(k *kit) {
			got, reaped := found[s.lease.ID]
			delete(found, s.lease.ID)
			assert.Equal(k, s.dead && !s.takeover.Repeats(), reaped)
			if s.status == idempotency.Unknown {
				assert.Contains(k, listed, s.lease.ID)
			} else {
				assert.NotContains(k, listed, s.lease.ID)
			}
			switch {
			case reaped:
				after := k.load(s.lease.ID)
				k.equalRecord(got, after, "of Reap and of Load")
				k.checkMarkedUnknown(s.before, after)
				k.cannotWrite(s.lease)
				completed(idempotency.Completed, time.Hour)(k, got.Lease())
			case s.swept():
				k.cannotWrite(s.lease)
				assert.EqualValues(k, 1, k.acquire(k.claim(s.lease.ID)).Generation)
				k.cannotWrite(s.lease)
			default:
				k.unchanged(s.before, s.lease.ID)
			}
		})
	}
	assert.Empty(k, found)
}
