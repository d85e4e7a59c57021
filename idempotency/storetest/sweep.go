package storetest

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/resilienthttp/resilienthttp/idempotency/driver"
)

// testSweep deletes what has expired, and nothing else.
func (k *kit) testSweep(t *testing.T) {
	k.drain(t)
	t.Run("what", k.sweepWhat)
	t.Run("limit", k.sweepLimit)
	t.Run("several sweepers", k.sweepTogether)
	t.Run("Sweep and Reserve", k.sweepReserved)
}

// drain sweeps until nothing is left to sweep, and returns how much it was.
func (k *kit) drain(t *testing.T) int {
	t.Helper()
	total := 0
	for {
		n, err := k.store.Sweep(patient(t), 500)
		switch {
		case err != nil:
			t.Fatalf("Sweep: %v", err)
		case n < 0 || n > 500:
			t.Fatalf("Sweep with a limit of 500: %d", n)
		case n == 0:
			return total
		case total > k.Rows+100_000:
			t.Fatalf("Sweep finds no end: %d records", total)
		}
		total += n
	}
}

// expire makes n records that have expired.
func (k *kit) expire(t *testing.T, n int) []driver.Lease {
	t.Helper()
	leases := make([]driver.Lease, n)
	for i := range leases {
		claim := k.short(k.id())
		claim.TTL = blink
		leases[i] = k.acquire(t, claim)
	}
	k.lapse(t)
	return leases
}

// sweepWhat sweeps records in every state.
func (k *kit) sweepWhat(t *testing.T) {
	subjects := k.prepare(t, states())
	before := make([]driver.Record, len(subjects))
	want := 0
	for i := range subjects {
		before[i] = k.standing(t, &subjects[i])
		if subjects[i].swept {
			want++
		}
	}
	if got := k.drain(t); got != want {
		t.Errorf("Sweep: %d records, want %d", got, want)
	}
	for i := range subjects {
		t.Run(subjects[i].name, func(t *testing.T) {
			id := subjects[i].lease.ID
			k.unchanged(t, before[i], id)
			if !subjects[i].swept {
				return
			}
			k.cannotWrite(t, subjects[i].lease)
			if lease := k.acquire(t, k.claim(id)); lease.Generation != 1 {
				t.Errorf("Reserve of a record that was swept: generation %d, want 1", lease.Generation)
			}
			k.cannotWrite(t, subjects[i].lease)
		})
	}
}

func (k *kit) sweepLimit(t *testing.T) {
	const total = 120
	leases := k.expire(t, total)
	left := func() int {
		// A record that is still there passes on its generation.
		n := 0
		for _, lease := range leases {
			if k.acquire(t, k.claim(lease.ID)).Generation > 1 {
				n++
			}
		}
		return n
	}
	for _, row := range []struct{ limit, want int }{{0, 0}, {-1, 0}, {1, 1}, {9, 9}, {0, 0}} {
		n, err := k.store.Sweep(patient(t), row.limit)
		if n != row.want || err != nil && row.limit >= 0 {
			t.Fatalf("Sweep with a limit of %d: %d, %v, want %d", row.limit, n, err, row.want)
		}
	}
	if got, want := left(), total-10; got != want {
		t.Errorf("%d of %d records are left after 10 were swept, want %d", got, total, want)
	}
	if n := k.drain(t); n != 0 {
		t.Errorf("Sweep: %d of the records that were claimed anew", n)
	}
}

// sweepTogether has several sweep at once: each record is deleted and counted
// once.
func (k *kit) sweepTogether(t *testing.T) {
	const total = 150
	k.expire(t, total)
	var swept atomic.Int64
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	together(4, func(i int) {
		// None may be found because others are at them: that is no reason to stop.
		for swept.Load() < total && ctx.Err() == nil {
			n, err := k.handle(i).Sweep(ctx, 7)
			if err != nil {
				t.Errorf("Sweep: %v", err)
				return
			}
			swept.Add(int64(n))
		}
	})
	if n := swept.Load() + int64(k.drain(t)); n != total {
		t.Errorf("%d records were swept, want %d", n, total)
	}
}

// sweepReserved sweeps while expired records are claimed. Sweep may come first,
// and then the record is new, but it must not delete what was claimed.
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
			t.Errorf("Reserve or Sweep: %v", err)
		}
	})
	k.drain(t)
	for i, lease := range leases {
		record := k.find(t, lease.ID)
		granted := 0
		for _, reservation := range got[2*i : 2*i+2] {
			switch reservation.Decision {
			case driver.Acquired:
				granted++
				if record.Lease() != reservation.Record.Lease() {
					t.Errorf("Reserve: acquired by %+v, but the record is %s", reservation.Record.Lease(), show(record))
				}
			case driver.DecisionInProgress:
			default:
				t.Errorf("Reserve: %v, want acquired or busy", reservation.Decision)
			}
		}
		if granted != 1 {
			t.Errorf("%d claims were granted, want 1", granted)
		}
		k.cannotWrite(t, lease)
	}
}

// testRows measures how long claims take while many records are swept.
func (k *kit) testRows(t *testing.T) {
	k.drain(t)
	began := time.Now()
	k.fill(t)
	t.Logf("%d expired records written in %v", k.Rows, time.Since(began).Round(time.Millisecond))

	const claims = 500
	quiet := make([]time.Duration, claims)
	for i := range quiet {
		quiet[i] = k.timeClaim(t)
	}

	var swept atomic.Int64
	done := make(chan time.Duration, 1)
	began = time.Now()
	go func() {
		defer func() { done <- time.Since(began) }()
		for t.Context().Err() == nil {
			n, err := k.again.Sweep(t.Context(), 500)
			if err != nil {
				t.Errorf("Sweep: %v", err)
			}
			if n == 0 || err != nil {
				return
			}
			swept.Add(int64(n))
		}
	}()
	var busy []time.Duration
	var took time.Duration
	for took == 0 {
		busy = append(busy, k.timeClaim(t))
		select {
		case took = <-done:
		default:
		}
	}
	t.Logf("claims before the sweep: p50 %v, p99 %v, worst %v of %d", quantile(quiet, 0.5), quantile(quiet, 0.99), quantile(quiet, 1), len(quiet))
	t.Logf("claims during the sweep: p50 %v, p99 %v, worst %v of %d", quantile(busy, 0.5), quantile(busy, 0.99), quantile(busy, 1), len(busy))
	t.Logf("%d records swept in %v", swept.Load(), took.Round(time.Millisecond))

	if total := int(swept.Load()) + k.drain(t); total != k.Rows {
		t.Errorf("%d records were swept, want %d", total, k.Rows)
	}
	// Loosely: machines are busy, and stand still now and then. A sweep that makes claims
	// wait for all of it takes longer, if there are many records.
	most := 10*quantile(quiet, 0.99) + time.Second/2
	if len(busy) < 100 {
		most += 5 * time.Second
	}
	if got := quantile(busy, 0.9); got > most {
		t.Errorf("claims take %v (p90) while records are swept, more than %v", got, most)
	}
}

func (k *kit) fill(t *testing.T) {
	t.Helper()
	if k.Fill != nil {
		if err := k.Fill(t.Context(), k.Rows); err != nil {
			t.Fatalf("Fill: %v", err)
		}
		k.lapse(t)
		return
	}
	const writers = 8
	var next atomic.Int64
	together(writers, func(i int) {
		for int(next.Add(1)) <= k.Rows {
			claim := k.short(k.id())
			claim.TTL = blink
			if _, err := k.handle(i).Reserve(t.Context(), claim); err != nil {
				t.Errorf("Reserve: %v", err)
				return
			}
		}
	})
	k.lapse(t)
}

// timeClaim is how long a new claim takes.
func (k *kit) timeClaim(t *testing.T) time.Duration {
	t.Helper()
	claim := k.claim(k.id())
	began := time.Now()
	reservation, err := k.store.Reserve(t.Context(), claim)
	took := time.Since(began)
	if err != nil || reservation.Decision != driver.Acquired {
		t.Fatalf("Reserve: %v, %v, want acquired", reservation.Decision, err)
	}
	return took
}

func quantile(all []time.Duration, q float64) time.Duration {
	sorted := slices.Sorted(slices.Values(all))
	return sorted[int(q*float64(len(sorted)-1))]
}
