package storetest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/resilienthttp/resilienthttp/idempotency/driver"
)

const (
	// raceKeys is how many records are raced for at once, so that of some the
	// verbs meet.
	raceKeys = 24

	// racers is how many there are for each.
	racers = 6
)

// testRaces lets verbs meet on one record. Whichever comes first, the record and
// the answers must tell the same story. A claim that meets another verb may be
// told that the operation is busy, and what the record was before.
func (k *kit) testRaces(t *testing.T) {
	t.Run("Reserve and Reserve", k.raceReserves)
	t.Run("Complete and takeover", func(t *testing.T) {
		k.raceTakeover(t, driver.Done, func(store driver.Store, lease driver.Lease) error {
			return store.Complete(patient(t), lease, driver.Outcome{Status: driver.Completed, Result: answer()})
		})
	})
	t.Run("Complete as unknown and takeover", func(t *testing.T) {
		k.raceTakeover(t, driver.DecisionUnknown, func(store driver.Store, lease driver.Lease) error {
			return store.Complete(patient(t), lease, driver.Outcome{Status: driver.Unknown})
		})
	})
	t.Run("Renew and takeover", func(t *testing.T) {
		k.raceTakeover(t, driver.DecisionInProgress, func(store driver.Store, lease driver.Lease) error {
			return store.Renew(patient(t), lease, time.Hour)
		})
	})
	t.Run("Release and takeover", func(t *testing.T) {
		k.raceTakeover(t, driver.Acquired, func(store driver.Store, lease driver.Lease) error {
			return store.Release(patient(t), lease)
		})
	})
	t.Run("Release and Reserve", k.raceRelease)
	t.Run("Complete and Complete", k.raceCompletes)
	t.Run("Complete and Release", k.raceCompleteRelease)
	t.Run("reconcilers", k.raceReconcilers)
	t.Run("Abandon", k.raceAbandon)
	t.Run("all", k.raceAll)
}

// raceReserves has many claim one operation: one gets it.
func (k *kit) raceReserves(t *testing.T) {
	for _, row := range []struct {
		name   string
		begin  func(id driver.ID)
		winner func(driver.Reservation) bool
		loser  driver.Decision
	}{
		{"absent", func(driver.ID) {}, acquired, driver.DecisionInProgress},
		{"failed retryable", func(id driver.ID) { k.release(t, k.acquire(t, k.claim(id))) }, acquired, driver.DecisionInProgress},
		{"lease over", func(id driver.ID) { k.acquire(t, k.short(id)) }, acquired, driver.DecisionInProgress},
		{"lease over, MarkUnknown", func(id driver.ID) { k.acquire(t, k.mortal(id)) }, abandoned, driver.DecisionUnknown},
		{"TTL over", func(id driver.ID) {
			claim := k.short(id)
			claim.TTL = blink
			k.acquire(t, claim)
		}, acquired, driver.DecisionInProgress},
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
					t.Errorf("Reserve: %v", err)
				}
			})
			for key, id := range ids {
				winners := 0
				after := k.load(t, id)
				for i := key; i < len(got); i += raceKeys {
					if row.winner(got[i]) {
						winners++
					} else if got[i].Decision != row.loser && got[i].Decision != driver.DecisionInProgress || got[i].LeaseExpired {
						t.Errorf("Reserve: %v, Abandoned %v, want %v or busy", got[i].Decision, got[i].LeaseExpired, row.loser)
					}
					if got[i].Decision == driver.DecisionInProgress {
						continue
					}
					if d := diff(got[i].Record, after); d != "" {
						t.Errorf("the record that Reserve answers with, %v, is not the one that was written:\n%s", got[i].Decision, d)
					}
				}
				if winners != 1 {
					t.Errorf("%d of %d claims were granted, want 1", winners, racers)
				}
				if before[key].Status != 0 && after.Generation != before[key].Generation+1 {
					t.Errorf("generation %d after %d", after.Generation, before[key].Generation)
				}
			}
		})
	}
}

func acquired(r driver.Reservation) bool  { return r.Decision == driver.Acquired }
func abandoned(r driver.Reservation) bool { return r.LeaseExpired }

// raceTakeover has the holder of a lease that is over do something while another
// execution takes over. second is what that one is told if it comes second.
func (k *kit) raceTakeover(t *testing.T, second driver.Decision, verb func(driver.Store, driver.Lease) error) {
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
			errs[i/2] = verb(k.handle(i/2), leases[i/2])
			return
		}
		var err error
		if got[i/2], err = k.handle(1+i/2).Reserve(ctx, k.claim(leases[i/2].ID)); err != nil {
			t.Errorf("Reserve: %v", err)
		}
	})
	first := 0
	for i, lease := range leases {
		record := k.load(t, lease.ID)
		switch {
		case errs[i] == nil:
			first++
			if got[i].Decision != second && got[i].Decision != driver.DecisionInProgress {
				t.Errorf("the holder came first, and then Reserve: %v, want %v or busy", got[i].Decision, second)
			}
		case !errors.Is(errs[i], driver.ErrLeaseLost):
			t.Errorf("the holder: %v", errs[i])
		case got[i].Decision != driver.Acquired:
			t.Errorf("the holder: %v, but Reserve: %v", errs[i], got[i].Decision)
		}
		switch {
		case got[i].Decision == driver.Acquired:
			if record.Lease() != got[i].Record.Lease() || record.Status != driver.InProgress || record.Generation != lease.Generation+1 {
				t.Errorf("Reserve: acquired, but the record is %s", show(record))
			}
			k.cannotWrite(t, lease)
		case record.Lease() != lease:
			t.Errorf("the holder came first, but the record is %s", show(record))
		}
	}
	t.Logf("the holder came first %d times of %d", first, raceKeys)
}

// raceRelease has an execution give up while others claim.
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
			t.Error(err)
		}
	})
	for key, lease := range leases {
		record := k.load(t, lease.ID)
		granted := 0
		for i := key + raceKeys; i < len(got); i += raceKeys {
			if acquired(got[i]) {
				granted++
				if record.Lease() != got[i].Record.Lease() || record.Generation != lease.Generation+1 {
					t.Errorf("Reserve: acquired, but the record is %s", show(record))
				}
			} else if got[i].Decision != driver.DecisionInProgress {
				t.Errorf("Reserve: %v, want acquired or busy", got[i].Decision)
			}
		}
		if want := map[bool]driver.Status{true: driver.InProgress, false: driver.FailedRetryable}[granted > 0]; granted > 1 || record.Status != want {
			t.Errorf("%d claims were granted, and the record is %s", granted, show(record))
		}
	}
}

// raceCompletes has an execution complete more than once: the first counts.
func (k *kit) raceCompletes(t *testing.T) {
	k.raceEnds(t, driver.InProgress, func(i int, store driver.Store, lease driver.Lease) error {
		return store.Complete(patient(t), lease, driver.Outcome{
			Status: driver.Completed, Result: driver.Result{Code: i, Body: fmt.Append(nil, i)},
		})
	}, func(i int, record driver.Record) bool {
		return record.Status == driver.Completed && record.Result.Code == i && string(record.Result.Body) == fmt.Sprint(i)
	})
}

// raceCompleteRelease has an execution complete and give up.
func (k *kit) raceCompleteRelease(t *testing.T) {
	k.raceEnds(t, driver.InProgress, k.endEitherWay(t), endedEitherWay)
}

// raceReconcilers has several settle the same record.
func (k *kit) raceReconcilers(t *testing.T) {
	k.raceEnds(t, driver.Unknown, k.endEitherWay(t), endedEitherWay)
}

func (k *kit) endEitherWay(t *testing.T) func(int, driver.Store, driver.Lease) error {
	t.Helper()
	return func(i int, store driver.Store, lease driver.Lease) error {
		if i%2 == 0 {
			return store.Release(patient(t), lease)
		}
		return store.Complete(patient(t), lease, driver.Outcome{Status: driver.FailedFinal, Result: driver.Result{Code: i}})
	}
}

func endedEitherWay(i int, record driver.Record) bool {
	if i%2 == 0 {
		return record.Status == driver.FailedRetryable && record.Result.Code == 0
	}
	return record.Status == driver.FailedFinal && record.Result.Code == i
}

// raceEnds has an execution end by several hands. One of them succeeds, and
// stands tells whether the record is as the i-th would have it.
func (k *kit) raceEnds(t *testing.T, from driver.Status, end func(i int, store driver.Store, lease driver.Lease) error, stands func(i int, record driver.Record) bool) {
	t.Helper()
	leases := make([]driver.Lease, raceKeys)
	for i := range leases {
		leases[i] = k.acquire(t, k.claim(k.id()))
		if from == driver.Unknown {
			k.complete(t, leases[i], driver.Outcome{Status: driver.Unknown})
		}
	}
	errs := make([]error, raceKeys*racers)
	together(len(errs), func(i int) {
		errs[i] = end(i/raceKeys, k.handle(i/raceKeys), leases[i%raceKeys])
	})
	for key, lease := range leases {
		record := k.load(t, lease.ID)
		winners := 0
		for i := key; i < len(errs); i += raceKeys {
			switch {
			case errs[i] == nil:
				winners++
				if !stands(i/raceKeys, record) {
					t.Errorf("number %d succeeded, but the record is %s", i/raceKeys, show(record))
				}
			case !errors.Is(errs[i], driver.ErrLeaseLost):
				t.Errorf("number %d: %v", i/raceKeys, errs[i])
			}
		}
		if winners != 1 {
			t.Errorf("%d of %d succeeded, want 1", winners, racers)
		}
	}
}

// ledger is what executions of one operation have been told.
type ledger struct {
	mu        sync.Mutex
	id        driver.ID
	granted   map[int64]string // by generation
	completed []int64
	leases    []driver.Lease
}

// raceAll lets executions do as they please, with leases so short that they are
// taken over in the middle, and with leases of the past.
func (k *kit) raceAll(t *testing.T) {
	const workers, rounds = 8, 40
	books := make([]*ledger, 4)
	for i := range books {
		books[i] = &ledger{id: k.id(), granted: make(map[int64]string)}
	}
	together(workers, func(i int) {
		for range rounds {
			if err := k.doAny(t, k.handle(i), books[rand.IntN(len(books))]); err != nil {
				t.Error(err)
				return
			}
		}
	})
	for _, book := range books {
		record := k.load(t, book.id)
		last := int64(len(book.granted))
		for generation := range book.granted {
			if generation < 1 || generation > last {
				t.Errorf("generation %d was granted, but no more than %d in all", generation, last)
			}
		}
		if record.Generation != last || record.Owner != book.granted[last] {
			t.Errorf("generation %d of %q was granted last, but the record is %s", last, book.granted[last], show(record))
		}
		switch {
		case len(book.completed) > 1:
			t.Errorf("generations %v all completed", book.completed)
		case len(book.completed) == 1 && (book.completed[0] != last || record.Status != driver.Completed || record.Result.Code != int(last)):
			t.Errorf("generation %d completed, but the record is %s", book.completed[0], show(record))
		case len(book.completed) == 0 && record.Status == driver.Completed:
			t.Errorf("nobody was told that it completed, but the record is %s", show(record))
		}
	}
}

// doAny does one thing to one record, and writes down what was said to it.
func (k *kit) doAny(t *testing.T, store driver.Store, book *ledger) error {
	t.Helper()
	ctx := patient(t)
	if rand.IntN(2) == 0 {
		claim := k.short(book.id)
		claim.Lease = time.Duration(1 + rand.Int64N(int64(5*time.Millisecond)))
		reservation, err := store.Reserve(ctx, claim)
		if err != nil {
			return fmt.Errorf("claim: %w", err)
		}
		if reservation.Decision != driver.Acquired {
			return nil
		}
		lease := reservation.Record.Lease()
		book.mu.Lock()
		defer book.mu.Unlock()
		if other, ok := book.granted[lease.Generation]; ok {
			return fmt.Errorf("generation %d was granted to %q and to %q", lease.Generation, other, lease.Owner)
		}
		book.granted[lease.Generation] = lease.Owner
		book.leases = append(book.leases, lease)
		return nil
	}

	book.mu.Lock()
	if len(book.leases) == 0 {
		book.mu.Unlock()
		return nil
	}
	lease := book.leases[len(book.leases)-1-rand.IntN(min(2, len(book.leases)))]
	book.mu.Unlock()
	var err error
	switch chance := rand.IntN(100); {
	case chance < 10:
		err = store.Complete(ctx, lease, driver.Outcome{
			Status: driver.Completed, Result: driver.Result{Code: int(lease.Generation)},
		})
		if err == nil {
			book.mu.Lock()
			book.completed = append(book.completed, lease.Generation)
			book.mu.Unlock()
		}
	case chance < 50:
		err = store.Renew(ctx, lease, time.Millisecond)
	default:
		err = store.Release(ctx, lease)
	}
	if err != nil && !errors.Is(err, driver.ErrLeaseLost) {
		return fmt.Errorf("generation %d: %w", lease.Generation, err)
	}
	return nil
}
