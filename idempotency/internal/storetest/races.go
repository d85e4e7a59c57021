package storetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/resilienthttp/resilienthttp/idempotency/internal/driver"
)

const (
	// raceKeys is the number of records in a race: with some of them, operations meet.
	raceKeys = 24

	// racers is the number of racers for each record.
	racers = 6
)

// testRaces runs operations on the same record at the same time. The record and all
// replies must be those of one order. A claim may also be answered with
// DecisionInProgress.
func (k *kit) testRaces(t *testing.T) {
	t.Run("Reserve and Reserve", k.raceReserves)
	for _, row := range []struct {
		name   string
		second driver.Decision // of a claim after the operation
		do     func(ctx context.Context, store driver.Store, lease driver.Lease) error
	}{
		{"Complete", driver.Done, completeAs(driver.Completed)},
		{"Complete as unknown", driver.DecisionUnknown, completeAs(driver.Unknown)},
		{"Renew", driver.DecisionInProgress, renew},
		{"Release", driver.Acquired, release},
	} {
		t.Run(row.name+" and takeover", func(t *testing.T) { k.raceTakeover(t, row.second, row.do) })
	}
	t.Run("Release and Reserve", k.raceRelease)
	t.Run("Complete and Complete", func(t *testing.T) {
		k.raceEnds(t, driver.InProgress, func(int) driver.Status { return driver.Completed })
	})
	either := func(i int) driver.Status {
		return []driver.Status{driver.FailedRetryable, driver.FailedFinal}[i%2]
	}
	t.Run("Complete and Release", func(t *testing.T) { k.raceEnds(t, driver.InProgress, either) })
	t.Run("reconcilers", func(t *testing.T) { k.raceEnds(t, driver.Unknown, either) })
	t.Run("Reap", k.raceReap)
	t.Run("all", k.raceAll)
}

func completeAs(status driver.Status) func(context.Context, driver.Store, driver.Lease) error {
	return func(ctx context.Context, store driver.Store, lease driver.Lease) error {
		return store.Complete(ctx, lease, driver.Outcome{Status: status, Result: answer()})
	}
}

// renewal is the lease after renew.
const renewal = 5 * time.Hour

func renew(ctx context.Context, store driver.Store, lease driver.Lease) error {
	return store.Renew(ctx, lease, renewal)
}

func release(ctx context.Context, store driver.Store, lease driver.Lease) error {
	return store.Release(ctx, lease)
}

// raceReserves makes many claims of one operation: one is granted.
func (k *kit) raceReserves(t *testing.T) {
	acquired := func(r driver.Reservation) bool { return r.Decision == driver.Acquired }
	marked := func(r driver.Reservation) bool { return r.LeaseExpired }
	for _, row := range []struct {
		name   string
		begin  func(id driver.ID)
		winner func(driver.Reservation) bool
		loser  driver.Decision
	}{
		{"absent", func(driver.ID) {}, acquired, driver.DecisionInProgress},
		{"failed retryable", func(id driver.ID) { k.release(t, k.acquire(t, k.claim(id))) }, acquired, driver.DecisionInProgress},
		{"lease over", func(id driver.ID) { k.acquire(t, k.short(id)) }, acquired, driver.DecisionInProgress},
		{"lease over, MarkUnknown", func(id driver.ID) { k.acquire(t, k.mortal(id)) }, marked, driver.DecisionUnknown},
		{"TTL over", func(id driver.ID) { reserve(blink, blink, driver.Reexecute)(t, k, id) }, acquired, driver.DecisionInProgress},
	} {
		t.Run(row.name, func(t *testing.T) {
			ids := make([]driver.ID, raceKeys)
			before := make([]driver.Record, raceKeys)
			for i := range ids {
				ids[i] = k.id()
				row.begin(ids[i])
			}
			k.lapse(t)
			for i := range ids {
				before[i] = k.find(t, ids[i])
			}
			got := make([]driver.Reservation, raceKeys*racers)
			ctx := patient(t)
			together(len(got), func(i int) {
				var err error
				if got[i], err = k.handle(i/raceKeys).Reserve(ctx, k.claim(ids[i%raceKeys])); err != nil {
					t.Errorf("Reserve: got %v, want no error", err)
				}
			})
			for key, id := range ids {
				winners := 0
				after := k.load(t, id)
				for i := key; i < len(got); i += raceKeys {
					switch {
					case row.winner(got[i]):
						winners++
					case got[i].Decision == driver.DecisionInProgress:
						continue
					default:
						wantReservation(t, "Reserve", got[i], driver.Reservation{Decision: row.loser})
					}
					wantRecord(t, "of Reserve is not that of Load", got[i].Record, after)
				}
				equal(t, "granted claims", winners, 1)
				if before[key].Status != 0 {
					equal(t, "generation", after.Generation, before[key].Generation+1)
				}
			}
		})
	}
}

// raceTakeover runs an operation of the holder of a lease that has ended, while another
// execution takes over. second is the decision of a claim that comes second.
func (k *kit) raceTakeover(t *testing.T, second driver.Decision, do func(context.Context, driver.Store, driver.Lease) error) {
	leases := make([]driver.Lease, raceKeys)
	for i := range leases {
		leases[i] = k.acquire(t, k.short(k.id()))
	}
	k.lapse(t)
	errs := make([]error, raceKeys)
	got := make([]driver.Reservation, raceKeys)
	ctx := patient(t)
	together(2*raceKeys, func(i int) {
		if i%2 == 0 {
			errs[i/2] = do(ctx, k.handle(i/2), leases[i/2])
			return
		}
		var err error
		if got[i/2], err = k.handle(1+i/2).Reserve(ctx, k.claim(leases[i/2].ID)); err != nil {
			t.Errorf("Reserve: got %v, want no error", err)
		}
	})
	first := 0
	for i, lease := range leases {
		record := k.load(t, lease.ID)
		if errs[i] == nil {
			first++
			if got[i].Decision != driver.DecisionInProgress {
				equal(t, "Reserve after the holder", got[i].Decision, second)
			}
		} else {
			wantError(t, "the holder", errs[i], driver.ErrLeaseLost)
			equal(t, "Reserve before the holder", got[i].Decision, driver.Acquired)
		}
		if got[i].Decision != driver.Acquired {
			equal(t, "lease after the holder", record.Lease(), lease)
			continue
		}
		equal(t, "lease after Reserve", record.Lease(), got[i].Record.Lease())
		equal(t, "status after Reserve", record.Status, driver.InProgress)
		equal(t, "generation after Reserve", record.Generation, lease.Generation+1)
		k.cannotWrite(t, lease)
	}
	t.Logf("the holder came first %d times of %d", first, raceKeys)
}

// raceRelease releases a record while others claim it.
func (k *kit) raceRelease(t *testing.T) {
	leases := make([]driver.Lease, raceKeys)
	for i := range leases {
		leases[i] = k.acquire(t, k.claim(k.id()))
	}
	got := make([]driver.Reservation, raceKeys*3)
	ctx := patient(t)
	together(len(got), func(i int) {
		lease := leases[i%raceKeys]
		var err error
		if i < raceKeys {
			err = k.handle(i).Release(ctx, lease)
		} else {
			got[i], err = k.handle(i/raceKeys).Reserve(ctx, k.claim(lease.ID))
		}
		if err != nil {
			t.Errorf("Release or Reserve: got %v, want no error", err)
		}
	})
	for key, lease := range leases {
		record := k.load(t, lease.ID)
		want, granted := driver.FailedRetryable, 0
		for i := key + raceKeys; i < len(got); i += raceKeys {
			if got[i].Decision != driver.Acquired {
				equal(t, "Reserve", got[i].Decision, driver.DecisionInProgress)
				continue
			}
			granted++
			want = driver.InProgress
			equal(t, "lease after Reserve", record.Lease(), got[i].Record.Lease())
			equal(t, "generation after Reserve", record.Generation, lease.Generation+1)
		}
		equal(t, "more than one granted claim", granted > 1, false)
		equal(t, "status", record.Status, want)
	}
}

// raceEnds ends an execution several times at once: one call succeeds, and the record has
// its outcome. status returns the outcome of the i-th.
func (k *kit) raceEnds(t *testing.T, from driver.Status, status func(i int) driver.Status) {
	t.Helper()
	leases := make([]driver.Lease, raceKeys)
	for i := range leases {
		leases[i] = k.acquire(t, k.claim(k.id()))
		if from == driver.Unknown {
			k.complete(t, leases[i], driver.Outcome{Status: driver.Unknown})
		}
	}
	result := func(i int) driver.Result {
		if status(i) == driver.FailedRetryable {
			return driver.Result{}
		}
		return driver.Result{Code: i, Body: fmt.Append(nil, i)}
	}
	errs := make([]error, raceKeys*racers)
	ctx := patient(t)
	together(len(errs), func(n int) {
		i, store, lease := n/raceKeys, k.handle(n/raceKeys), leases[n%raceKeys]
		if status(i) == driver.FailedRetryable {
			errs[n] = store.Release(ctx, lease)
		} else {
			errs[n] = store.Complete(ctx, lease, driver.Outcome{Status: status(i), Result: result(i)})
		}
	})
	for key, lease := range leases {
		record := k.load(t, lease.ID)
		winners := 0
		for n := key; n < len(errs); n += raceKeys {
			if errs[n] != nil {
				wantError(t, "the end", errs[n], driver.ErrLeaseLost)
				continue
			}
			winners++
			equal(t, "status", record.Status, status(n/raceKeys))
			wantResult(t, "of the winner", record.Result, result(n/raceKeys))
		}
		equal(t, "successful ends", winners, 1)
	}
}

// ledger is what the executions of one operation have been granted.
type ledger struct {
	mu        sync.Mutex
	id        driver.ID
	granted   map[int64]string // owners by generation
	completed []int64
	leases    []driver.Lease
}

// raceAll runs random operations, with leases so short that executions are taken over,
// and with lost leases.
func (k *kit) raceAll(t *testing.T) {
	const workers, rounds = 8, 40
	ledgers := make([]*ledger, 4)
	for i := range ledgers {
		ledgers[i] = &ledger{id: k.id(), granted: make(map[int64]string)}
	}
	ctx := patient(t)
	together(workers, func(i int) {
		for range rounds {
			l, do := ledgers[rand.IntN(len(ledgers))], k.claimAny
			if rand.IntN(2) == 0 {
				do = k.writeAny
			}
			if err := do(ctx, k.handle(i), l); err != nil {
				t.Errorf("got %v, want no error", err)
				return
			}
		}
	})
	for _, l := range ledgers {
		record := k.load(t, l.id)
		last := int64(len(l.granted))
		for generation := int64(1); generation <= last; generation++ {
			if l.granted[generation] == "" {
				t.Errorf("generation %d of %d was granted to no owner", generation, last)
			}
		}
		equal(t, "generation", record.Generation, last)
		equal(t, "owner", record.Owner, l.granted[last])
		equal(t, "record is completed", record.Status == driver.Completed, len(l.completed) == 1)
		if record.Status == driver.Completed && len(l.completed) == 1 {
			equal(t, "completed generation", l.completed[0], last)
			equal(t, "code", int64(record.Result.Code), last)
		}
	}
}

// claimAny makes a claim with a short lease.
func (k *kit) claimAny(ctx context.Context, store driver.Store, l *ledger) error {
	claim := k.short(l.id)
	claim.Lease = time.Duration(1 + rand.Int64N(int64(5*time.Millisecond)))
	reservation, err := store.Reserve(ctx, claim)
	if err != nil || reservation.Decision != driver.Acquired {
		return err
	}
	lease := reservation.Record.Lease()
	l.mu.Lock()
	defer l.mu.Unlock()
	if other, ok := l.granted[lease.Generation]; ok {
		return fmt.Errorf("generation %d was granted to %q and to %q", lease.Generation, other, lease.Owner)
	}
	l.granted[lease.Generation] = lease.Owner
	l.leases = append(l.leases, lease)
	return nil
}

// writeAny uses one of the last two leases.
func (*kit) writeAny(ctx context.Context, store driver.Store, l *ledger) error {
	l.mu.Lock()
	leases := l.leases[max(0, len(l.leases)-2):]
	l.mu.Unlock()
	if len(leases) == 0 {
		return nil
	}
	lease := leases[rand.IntN(len(leases))]
	var err error
	switch chance := rand.IntN(100); {
	case chance < 10:
		err = store.Complete(ctx, lease, driver.Outcome{
			Status: driver.Completed, Result: driver.Result{Code: int(lease.Generation)},
		})
		if err == nil {
			l.mu.Lock()
			l.completed = append(l.completed, lease.Generation)
			l.mu.Unlock()
		}
	case chance < 50:
		err = store.Renew(ctx, lease, time.Millisecond)
	default:
		err = store.Release(ctx, lease)
	}
	if errors.Is(err, driver.ErrLeaseLost) {
		return nil
	}
	return err
}
