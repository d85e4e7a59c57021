package storetest

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/resilienthttp/resilienthttp/idempotency/driver"
)

// testAbandon finds the dead, and nobody else.
func (k *kit) testAbandon(t *testing.T) {
	k.bury(t)
	t.Run("what", k.abandonWhat)
	t.Run("limit", k.abandonLimit)
	t.Run("several sweepers", k.abandonTogether)
}

// bury abandons until nobody is left to abandon, and returns who was.
func (k *kit) bury(t *testing.T) map[driver.ID]driver.Record {
	t.Helper()
	const limit = 50
	found := make(map[driver.ID]driver.Record)
	for {
		all, err := k.store.Reap(patient(t), limit)
		if err != nil || len(all) > limit {
			t.Fatalf("Abandon with a limit of %d: %d records, %v", limit, len(all), err)
		}
		for _, r := range all {
			if _, twice := found[r.ID]; twice {
				t.Fatalf("Abandon gives a record twice: %s", show(r))
			}
			found[r.ID] = r
		}
		if len(all) == 0 {
			return found
		}
	}
}

// abandonWhat looks for the dead among records in every state, and sweeps before
// and after: a dead execution is never forgotten before somebody was told of it.
func (k *kit) abandonWhat(t *testing.T) {
	subjects := k.prepare(t, states())
	k.drain(t)
	before := make([]driver.Record, len(subjects))
	for i := range subjects {
		before[i] = k.standing(t, &subjects[i])
	}
	found := k.bury(t)
	k.drain(t)
	for i := range subjects {
		s := &subjects[i]
		t.Run(s.name, func(t *testing.T) {
			id := s.lease.ID
			got, ok := found[id]
			delete(found, id)
			if s.dead && (s.takeover == driver.TakeoverDefault || s.takeover == driver.MarkUnknown) {
				k.abandoned(t, before[i], got)
				return
			}
			if ok {
				t.Errorf("it was abandoned: %s", show(got))
			}
			k.unchanged(t, before[i], id)
		})
	}
	if len(found) > 0 {
		t.Errorf("Abandon gives %d records of nobody: %v", len(found), found)
	}
}

// abandoned looks at a record that Abandon gave, and settles it.
func (k *kit) abandoned(t *testing.T, before, got driver.Record) {
	t.Helper()
	after := k.load(t, before.ID)
	if d := diff(got, after); d != "" {
		t.Errorf("the record that Abandon gives is not the one that Load finds:\n%s", d)
	}
	checkAbandoned(t, before, after)
	k.cannotWrite(t, before.Lease())
	reservation := k.reserve(t, k.claim(before.ID))
	if reservation.Decision != driver.DecisionUnknown || reservation.LeaseExpired {
		t.Errorf("a later Reserve: %v, Abandoned %v; want undecided, false", reservation.Decision, reservation.LeaseExpired)
	}
	k.complete(t, got.Lease(), driver.Outcome{Status: driver.Completed, Result: answer(), TTL: time.Hour})
}

// die makes n executions that are dead, and not to be begun again.
func (k *kit) die(t *testing.T, n int) []driver.Lease {
	t.Helper()
	leases := make([]driver.Lease, n)
	for i := range leases {
		leases[i] = k.acquire(t, k.mortal(k.id()))
	}
	k.lapse(t)
	return leases
}

func (k *kit) abandonLimit(t *testing.T) {
	const total = 130
	k.die(t, total)
	for _, row := range []struct{ limit, want int }{{0, 0}, {-1, 0}, {1, 1}, {9, 9}, {0, 0}, {100, 100}} {
		all, err := k.store.Reap(patient(t), row.limit)
		if len(all) != row.want || err != nil && row.limit >= 0 {
			t.Fatalf("Abandon with a limit of %d: %d records, %v, want %d", row.limit, len(all), err, row.want)
		}
	}
	if n := len(k.bury(t)); n != total-110 {
		t.Errorf("%d were left after 110 of %d, want %d", n, total, total-110)
	}
}

// abandonTogether has several look for the dead at once: each is found once.
func (k *kit) abandonTogether(t *testing.T) {
	const total = 150
	k.die(t, total)
	var found atomic.Int64
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	together(4, func(i int) {
		// None may be found because others are at them: that is no reason to stop.
		for found.Load() < total && ctx.Err() == nil {
			all, err := k.handle(i).Reap(ctx, 7)
			if err != nil {
				t.Errorf("Abandon: %v", err)
				return
			}
			found.Add(int64(len(all)))
		}
	})
	if n := found.Load() + int64(len(k.bury(t))); n != total {
		t.Errorf("%d were abandoned, want %d", n, total)
	}
}

// raceAbandon has the dead come to life while they are abandoned: one of both.
func (k *kit) raceAbandon(t *testing.T) {
	for _, row := range []struct {
		name   string
		verb   func(ctx context.Context, store driver.Store, lease driver.Lease) error
		status driver.Status // of the record where the verb came first
	}{
		{"Renew", func(ctx context.Context, store driver.Store, lease driver.Lease) error {
			return store.Renew(ctx, lease, time.Hour)
		}, driver.InProgress},
		{"Complete", func(ctx context.Context, store driver.Store, lease driver.Lease) error {
			return store.Complete(ctx, lease, driver.Outcome{Status: driver.Completed, Result: answer()})
		}, driver.Completed},
		{"Release", func(ctx context.Context, store driver.Store, lease driver.Lease) error {
			return store.Release(ctx, lease)
		}, driver.FailedRetryable},
		{"Reserve", k.reserveDead, driver.Unknown},
	} {
		t.Run(row.name, func(t *testing.T) {
			k.bury(t)
			leases := k.die(t, raceKeys)
			told := make([]map[driver.ID]int, 2)
			errs := make([]error, raceKeys)
			var over atomic.Int64
			ctx := patient(t)
			together(len(told)+raceKeys, func(i int) {
				if i >= len(told) {
					errs[i-len(told)] = row.verb(ctx, k.handle(i), leases[i-len(told)])
					over.Add(1)
					return
				}
				told[i] = make(map[driver.ID]int)
				for last := false; !last; {
					last = over.Load() == raceKeys
					all, err := k.handle(i).Reap(ctx, 3)
					if err != nil {
						t.Errorf("Abandon: %v", err)
						return
					}
					for _, r := range all {
						told[i][r.ID]++
					}
					breathe(ctx)
				}
			})
			for i, lease := range leases {
				record := k.load(t, lease.ID)
				n := told[0][lease.ID] + told[1][lease.ID]
				switch {
				case errs[i] == nil && (n != 0 || record.Status != row.status):
					t.Errorf("%s came first, and Abandon has told of it %d times; the record is %s", row.name, n, show(record))
				case errs[i] != nil && !errors.Is(errs[i], driver.ErrLeaseLost):
					t.Errorf("%s: %v", row.name, errs[i])
				case errs[i] != nil && (n != 1 || record.Status != driver.Unknown || record.Generation != lease.Generation+1):
					t.Errorf("%s came second, and Abandon has told of it %d times; the record is %s", row.name, n, show(record))
				}
			}
		})
	}
}

// reserveDead claims the operation of a dead execution. nil: it was this claim that
// abandoned it.
func (k *kit) reserveDead(ctx context.Context, store driver.Store, lease driver.Lease) error {
	reservation, err := store.Reserve(ctx, k.claim(lease.ID))
	switch {
	case err != nil:
		return err
	case reservation.LeaseExpired:
		return nil
	case reservation.Decision == driver.DecisionUnknown || reservation.Decision == driver.DecisionInProgress:
		return driver.ErrLeaseLost
	default:
		return errors.New(reservation.Decision.String())
	}
}
