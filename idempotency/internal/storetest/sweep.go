package storetest

import (
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/resilienthttp/resilienthttp/idempotency/internal/driver"
)

// testSweep deletes expired records and no others.
func (k *kit) testSweep(t *testing.T) {
	k.drain(t)
	t.Run("what", k.sweepWhat)
	t.Run("limit", k.sweepLimit)
	t.Run("several sweepers", func(t *testing.T) {
		const total = 150
		k.expire(t, total)
		swept := k.sweepTogether(t, total, func(store driver.Store) (int, error) { return store.Sweep(patient(t), 7) })
		equal(t, "swept records", swept+k.drain(t), total)
	})
	t.Run("Sweep and Reserve", k.sweepReserved)
}

// drain sweeps until nothing is left, and returns the number of records.
func (k *kit) drain(t *testing.T) int {
	t.Helper()
	total := 0
	for {
		n, err := k.store.Sweep(patient(t), 500)
		must(t, "Sweep", err)
		if total += n; n < 0 || n > 500 || total > k.Rows+100_000 {
			t.Fatalf("Sweep(500): got %d records, %d in total", n, total)
		}
		if n == 0 {
			return total
		}
	}
}

// expire makes n expired records.
func (k *kit) expire(t *testing.T, n int) []driver.Lease {
	t.Helper()
	leases := make([]driver.Lease, n)
	for i := range leases {
		leases[i] = reserve(blink, blink, driver.Reexecute)(t, k, k.id())
	}
	k.lapse(t)
	return leases
}

// sweepTogether runs sweep from four goroutines until total records are swept, and returns
// the sum. A sweep that finds nothing may have met the others.
func (k *kit) sweepTogether(t *testing.T, total int, sweep func(store driver.Store) (int, error)) int {
	t.Helper()
	var swept atomic.Int64
	ctx := patient(t)
	together(4, func(i int) {
		for swept.Load() < int64(total) && ctx.Err() == nil {
			n, err := sweep(k.handle(i))
			if err != nil {
				t.Errorf("got %v, want no error", err)
				return
			}
			swept.Add(int64(n))
		}
	})
	return int(swept.Load())
}

// sweepWhat sweeps records in all states.
func (k *kit) sweepWhat(t *testing.T) {
	subjects := k.prepare(t, states())
	want := 0
	for i := range subjects {
		if subjects[i].swept {
			want++
		}
	}
	equal(t, "swept records", k.drain(t), want)
	for i := range subjects {
		t.Run(subjects[i].name, func(t *testing.T) {
			id := subjects[i].lease.ID
			k.unchanged(t, subjects[i].before, id)
			if !subjects[i].swept {
				return
			}
			k.cannotWrite(t, subjects[i].lease)
			equal(t, "generation after Sweep", k.acquire(t, k.claim(id)).Generation, 1)
			k.cannotWrite(t, subjects[i].lease)
		})
	}
}

func (k *kit) sweepLimit(t *testing.T) {
	const total = 120
	leases := k.expire(t, total)
	limits(t, "Sweep", []int{0, -1, 1, 9, 0}, func(limit int) (int, error) { return k.store.Sweep(patient(t), limit) })
	left := 0
	for _, lease := range leases { // an expired record that exists passes on its generation
		if k.acquire(t, k.claim(lease.ID)).Generation > 1 {
			left++
		}
	}
	equal(t, "records after the sweep of 10", left, total-10)
	equal(t, "swept records that were claimed again", k.drain(t), 0)
}

// limits calls sweep with limits for which there are enough records.
func limits(t *testing.T, what string, all []int, sweep func(limit int) (int, error)) {
	t.Helper()
	for _, limit := range all {
		n, err := sweep(limit)
		if n != max(limit, 0) || err != nil && limit >= 0 {
			t.Fatalf("%s(%d): got %d records, %v, want %d", what, limit, n, err, max(limit, 0))
		}
	}
}

// sweepReserved sweeps while expired records are claimed. Sweep must not delete a claim.
func (k *kit) sweepReserved(t *testing.T) {
	leases := k.expire(t, 3*raceKeys)
	var claims atomic.Int64
	got := make([]driver.Reservation, 2*len(leases))
	ctx := patient(t)
	together(2+len(got), func(i int) {
		var err error
		if i < len(got) {
			got[i], err = k.handle(i).Reserve(ctx, k.claim(leases[i/2].ID))
			claims.Add(1)
		}
		for i >= len(got) && claims.Load() < int64(len(got)) && err == nil {
			_, err = k.handle(i).Sweep(ctx, 3)
			breathe(ctx)
		}
		if err != nil {
			t.Errorf("Reserve or Sweep: got %v, want no error", err)
		}
	})
	k.drain(t)
	for i, lease := range leases {
		record := k.find(t, lease.ID)
		granted := 0
		for _, reservation := range got[2*i : 2*i+2] {
			if reservation.Decision != driver.Acquired {
				equal(t, "Reserve", reservation.Decision, driver.DecisionInProgress)
				continue
			}
			granted++
			equal(t, "lease after Reserve", record.Lease(), reservation.Record.Lease())
		}
		equal(t, "granted claims", granted, 1)
		k.cannotWrite(t, lease)
	}
}

// testRows sweeps many records. Claims meanwhile must not wait for the whole sweep.
func (k *kit) testRows(t *testing.T) {
	k.drain(t)
	if k.Fill != nil {
		must(t, "Suite.Fill", k.Fill(t.Context(), k.Rows))
	} else {
		together(8, func(i int) {
			for n := i; n < k.Rows; n += 8 {
				claim := k.short(k.id())
				claim.TTL = blink
				if _, err := k.handle(i).Reserve(t.Context(), claim); err != nil {
					t.Errorf("Reserve: got %v, want no error", err)
					return
				}
			}
		})
	}
	k.lapse(t)

	swept := 0
	done := make(chan error, 1)
	go func() {
		for {
			n, err := k.again.Sweep(t.Context(), 500)
			if swept += n; n == 0 || err != nil {
				done <- err
				return
			}
		}
	}()
	var took []time.Duration
	for sweeping := true; sweeping; {
		began := time.Now()
		k.acquire(t, k.claim(k.id()))
		took = append(took, time.Since(began))
		select {
		case err := <-done:
			must(t, "Sweep", err)
			sweeping = false
		default:
		}
	}
	slices.Sort(took)
	median := took[len(took)/2]
	t.Logf("%d claims during the sweep: median %v, maximum %v", len(took), median, took[len(took)-1])
	equal(t, "swept records", swept+k.drain(t), k.Rows)
	if median > 5*time.Second { // a slow machine alone does not take that long
		t.Errorf("claims wait for the sweep: median %v of %d", median, len(took))
	}
}
