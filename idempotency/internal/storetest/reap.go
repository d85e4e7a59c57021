package storetest

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/resilienthttp/resilienthttp/idempotency/internal/driver"
)

// testReap marks dead executions and no others.
func (k *kit) testReap(t *testing.T) {
	k.reapAll(t)
	t.Run("what", k.reapWhat)
	t.Run("limit", func(t *testing.T) {
		const total = 130
		k.die(t, total)
		limits(t, "Reap", []int{0, -1, 1, 9, 0, 100}, func(limit int) (int, error) {
			all, err := k.store.Reap(patient(t), limit)
			return len(all), err
		})
		equal(t, "records after the reap of 110", len(k.reapAll(t)), total-110)
	})
	t.Run("several reapers", func(t *testing.T) {
		const total = 150
		k.die(t, total)
		reaped := k.sweepTogether(t, total, func(store driver.Store) (int, error) {
			all, err := store.Reap(patient(t), 7)
			return len(all), err
		})
		equal(t, "reaped records", reaped+len(k.reapAll(t)), total)
	})
}

// reapAll reaps until nothing is left, and returns the records.
func (k *kit) reapAll(t *testing.T) map[driver.ID]driver.Record {
	t.Helper()
	const limit = 50
	found := make(map[driver.ID]driver.Record)
	for {
		all, err := k.store.Reap(patient(t), limit)
		must(t, "Reap", err)
		if len(all) > limit {
			t.Fatalf("Reap(%d): got %d records", limit, len(all))
		}
		for _, r := range all {
			if _, twice := found[r.ID]; twice {
				t.Fatalf("Reap: got a record twice: %s", show(r))
			}
			found[r.ID] = r
		}
		if len(all) == 0 {
			return found
		}
	}
}

// reapWhat reaps among records in all states. It sweeps before and after: Sweep must not
// delete a dead execution that is not yet marked.
func (k *kit) reapWhat(t *testing.T) {
	subjects := k.prepare(t, states())
	k.drain(t)
	for i := range subjects {
		k.unchanged(t, subjects[i].before, subjects[i].lease.ID)
	}
	found := k.reapAll(t)
	k.drain(t)
	for i := range subjects {
		s := &subjects[i]
		t.Run(s.name, func(t *testing.T) {
			got, ok := found[s.lease.ID]
			delete(found, s.lease.ID)
			equal(t, "reaped", ok, s.dead && !s.takeover.Repeats())
			if ok {
				k.checkReaped(t, s.before, got)
			} else {
				k.unchanged(t, s.before, s.lease.ID)
			}
		})
	}
	equal(t, "reaped records of no test", len(found), 0)
}

// checkReaped checks a record that Reap returned, and resolves it.
func (k *kit) checkReaped(t *testing.T, before, got driver.Record) {
	t.Helper()
	after := k.load(t, before.ID)
	wantRecord(t, "of Reap is not that of Load", got, after)
	checkMarkedUnknown(t, before, after)
	k.cannotWrite(t, before.Lease())
	wantReservation(t, "a later Reserve", k.reserve(t, k.claim(before.ID)), driver.Reservation{Decision: driver.DecisionUnknown})
	k.complete(t, got.Lease(), driver.Outcome{Status: driver.Completed, Result: answer(), TTL: time.Hour})
}

// die makes n dead executions that must not be executed again.
func (k *kit) die(t *testing.T, n int) []driver.Lease {
	t.Helper()
	leases := make([]driver.Lease, n)
	for i := range leases {
		leases[i] = k.acquire(t, k.mortal(k.id()))
	}
	k.lapse(t)
	return leases
}

// raceReap runs an operation on dead executions while they are reaped: one of both
// succeeds.
func (k *kit) raceReap(t *testing.T) {
	for _, row := range []struct {
		name   string
		do     func(ctx context.Context, store driver.Store, lease driver.Lease) error
		status driver.Status // after the operation
	}{
		{"Renew", renew, driver.InProgress},
		{"Complete", completeAs(driver.Completed), driver.Completed},
		{"Release", release, driver.FailedRetryable},
		{"Reserve", k.reserveDead, driver.Unknown},
	} {
		t.Run(row.name, func(t *testing.T) {
			k.reapAll(t)
			leases := k.die(t, raceKeys)
			reaped := make([]map[driver.ID]int, 2)
			errs := make([]error, raceKeys)
			var done atomic.Int64
			ctx := patient(t)
			together(len(reaped)+raceKeys, func(i int) {
				if i >= len(reaped) {
					errs[i-len(reaped)] = row.do(ctx, k.handle(i), leases[i-len(reaped)])
					done.Add(1)
					return
				}
				reaped[i] = make(map[driver.ID]int)
				for last := false; !last; {
					last = done.Load() == raceKeys
					all, err := k.handle(i).Reap(ctx, 3)
					if err != nil {
						t.Errorf("Reap: got %v, want no error", err)
						return
					}
					for _, r := range all {
						reaped[i][r.ID]++
					}
					breathe(ctx)
				}
			})
			for i, lease := range leases {
				record := k.load(t, lease.ID)
				times, status := 0, row.status
				if errs[i] != nil {
					wantError(t, row.name, errs[i], driver.ErrLeaseLost)
					times, status = 1, driver.Unknown
					equal(t, "generation after Reap", record.Generation, lease.Generation+1)
				}
				equal(t, "times reaped", reaped[0][lease.ID]+reaped[1][lease.ID], times)
				equal(t, "status", record.Status, status)
			}
		})
	}
}

// reserveDead claims the operation of a dead execution. It returns nil if this claim has
// marked the record, and ErrLeaseLost if Reap has.
func (k *kit) reserveDead(ctx context.Context, store driver.Store, lease driver.Lease) error {
	reservation, err := store.Reserve(ctx, k.claim(lease.ID))
	switch {
	case err != nil || reservation.LeaseExpired:
		return err
	case reservation.Decision == driver.DecisionUnknown || reservation.Decision == driver.DecisionInProgress:
		return driver.ErrLeaseLost
	default:
		return errors.New(reservation.Decision.String())
	}
}
