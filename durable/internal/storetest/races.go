package storetest

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/resilienthttp/resilienthttp/durable/internal/driver"
	"github.com/resilienthttp/resilienthttp/idempotency"
)

const (
	raceIDs = 20 // intents of a race
	racers  = 6  // concurrent callers for each
)

// raceEnqueue enqueues the same intents concurrently, in batches of different order.
func (k *kit) raceEnqueue() {
	intents := make([]driver.Intent, raceIDs)
	for i := range intents {
		intents[i] = intent("race")
	}
	ctx := k.ctx()
	var inserted atomic.Int64
	together(racers, func(i int) {
		events := make([]driver.Event, raceIDs)
		for j := range events {
			events[j] = enqueue(intents[(j*7+i*3)%raceIDs])
		}
		results, err := k.handle(i).Apply(ctx, events)
		k.failIf(err != nil, "Apply: %v", err)
		for _, r := range results {
			k.failIf(r.Err != nil, "enqueue: %v", r.Err)
			if r.Step == driver.StepInsert {
				inserted.Add(1)
			}
		}
	})
	if n := inserted.Load(); n != raceIDs {
		k.Errorf("%d were inserted, want %d", n, raceIDs)
	}
}

// raceClaim has several workers claim until nothing is left. Each intent has one worker.
func (k *kit) raceClaim() {
	for i := range 5 {
		k.many(fmt.Sprint("scope ", i), k.Rows/5)
	}
	ctx := k.ctx()
	var mu sync.Mutex
	owners := make(map[idempotency.ID]string)
	together(racers, func(i int) {
		c := claim(fmt.Sprint("worker ", i))
		c.Limit = 7
		for empty := 0; empty < 3; { // SKIP LOCKED may skip all that is left
			claimed, err := k.handle(i).Claim(ctx, c)
			if err != nil {
				k.Errorf("Claim: %v", err)
				return
			}
			if len(claimed.Changes) == 0 {
				empty++
				continue
			}
			empty = 0
			mu.Lock()
			for _, change := range claimed.Changes {
				if other, ok := owners[change.Record.ID]; ok {
					k.Errorf("one was claimed by %s and by %s", other, c.Worker)
				}
				owners[change.Record.ID] = c.Worker
			}
			mu.Unlock()
			allow(&c, func(a *driver.Allowance) { a.Cursor = claimed.Changes[len(claimed.Changes)-1].Record.ID.Scope })
		}
	})
	for _, change := range k.claim(claim("last")) {
		owners[change.Record.ID] = "last"
	}
	k.failIf(len(owners) != k.Rows/5*5, "%d were claimed, want %d", len(owners), k.Rows/5*5)
	for id, owner := range owners {
		if r := k.look(id); r.Worker != owner || r.Generation != 1 || r.Attempts != 1 {
			k.Errorf("claimed by %s, but it is %v of %q, generation %d", owner, r.State, r.Worker, r.Generation)
		}
	}
}

// raceFinish finishes each intent twice while its worker is reaped. One of the three writes.
func (k *kit) raceFinish() {
	var held []driver.Record
	for range raceIDs {
		held = append(held, k.reach(driver.StateSending, false))
	}
	ctx := k.ctx()
	if _, err := k.store.Heartbeat(ctx, worker, 0); err != nil {
		k.Fatal(err)
	}
	wrote := make([]atomic.Int64, raceIDs)
	place := make(map[idempotency.ID]int)
	for i := range held {
		place[held[i].ID] = i
	}
	together(2*raceIDs+racers, func(i int) {
		if i >= 2*raceIDs {
			for {
				changes, err := k.handle(i).Reap(ctx, 3)
				k.failIf(err != nil, "Reap: %v", err)
				for _, c := range changes {
					wrote[place[c.Record.ID]].Add(1)
				}
				if len(changes) == 0 {
					return
				}
			}
		}
		r := held[i/2]
		results, err := k.handle(i).Apply(ctx, []driver.Event{finish(&r, driver.Outcome{Class: driver.ClassSucceeded}, driver.Decision{})})
		switch {
		case err != nil:
			k.Errorf("Apply: %v", err)
		case results[0].Err == nil:
			wrote[i/2].Add(1)
		case !errors.Is(results[0].Err, driver.ErrFenced):
			k.Errorf("finish: %v", results[0].Err)
		}
	})
	done := 0
	for i := range held {
		r := k.look(held[i].ID)
		if n := wrote[i].Load(); n != 1 || r.State != driver.StateDone && r.State != driver.StateUnknown || r.Worker != "" {
			k.Errorf("%d have written, and it is %v of %q", n, r.State, r.Worker)
		}
		if r.State == driver.StateDone {
			done++
		}
	}
	k.Logf("the holder came first %d times of %d", done, raceIDs)
}

// raceRedrive redrives each intent twice concurrently. It is redriven once, even if it soon is
// dead again.
func (k *kit) raceRedrive() {
	var dead []driver.Record
	for range raceIDs {
		dead = append(dead, k.reach(driver.StateDead, false))
	}
	ctx := k.ctx()
	var redriven atomic.Int64
	together(raceIDs*racers, func(i int) {
		e := event(driver.EventRedrive, dead[i%raceIDs].ID)
		e.Generation, e.DeadLetterID = dead[i%raceIDs].Generation, dead[i%raceIDs].DeadLetterID
		results, err := k.handle(i/raceIDs).Apply(ctx, []driver.Event{e})
		switch {
		case err != nil:
			k.Errorf("Apply: %v", err)
		case results[0].Err == nil:
			redriven.Add(1)
		case !errors.Is(results[0].Err, driver.ErrStale):
			k.Errorf("redrive: got %v, want ErrStale", results[0].Err)
		}
	})
	if n := redriven.Load(); n != raceIDs {
		k.Errorf("%d were redriven, want %d", n, raceIDs)
	}
	for i := range dead {
		r := k.look(dead[i].ID)
		k.failIf(r.State != driver.StateWaiting, "it is %v, want waiting", r.State)
	}
}
