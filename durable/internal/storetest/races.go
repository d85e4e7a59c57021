package storetest

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/stretchr/testify/assert"

	"github.com/resilienthttp/resilienthttp/durable"
	"github.com/resilienthttp/resilienthttp/idempotency"
)

// raceEnqueue enqueues the same intents concurrently, in batches of different order.
func (k *kit) raceEnqueue() {
	intents := make([]durable.Intent, raceIDs)
	for i := range intents {
		intents[i] = intent("race")
	}
	ctx := k.ctx()
	var inserted atomic.Int64
	together(racers, func(i int) {
		events := make([]durable.Event, raceIDs)
		for j := range events {
			events[j] = enqueue(intents[(j*7+i*3)%raceIDs])
		}
		results, err := k.handle(i).Apply(ctx, events)
		assert.NoError(k, err)
		for _, r := range results {
			assert.NoError(k, r.Err)
			if r.Step == durable.StepInsert {
				inserted.Add(1)
			}
		}
	})
	assert.EqualValues(k, raceIDs, inserted.Load())
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
			if !assert.NoError(k, err) {
				return
			}
			if len(claimed.Changes) == 0 {
				empty++
				continue
			}
			empty = 0
			mu.Lock()
			for _, change := range claimed.Changes {
				assert.Empty(k, owners[change.Record.ID], "it was claimed by %s too", c.Worker)
				owners[change.Record.ID] = c.Worker
			}
			mu.Unlock()
			allow(&c, func(a *durable.Allowance) { a.Cursor = claimed.Changes[len(claimed.Changes)-1].Record.ID.Scope })
		}
	})
	for _, change := range k.claim(claim("last")) {
		owners[change.Record.ID] = "last"
	}
	assert.Len(k, owners, k.Rows/5*5)
	for id, owner := range owners {
		r := k.look(id)
		assert.Equal(k, owner, r.Worker)
		assert.EqualValues(k, 1, r.Generation)
		assert.Equal(k, 1, r.Attempts)
	}
}

// raceFinish finishes each intent twice while its worker is reaped. One of the three writes.
func (k *kit) raceFinish() {
	var held []durable.Record
	place := make(map[idempotency.ID]int)
	for i := range raceIDs {
		held = append(held, k.reach(durable.StateSending, false))
		place[held[i].ID] = i
	}
	ctx := k.ctx()
	k.beat(worker, 0)
	wrote := make([]atomic.Int64, raceIDs)
	together(2*raceIDs+racers, func(i int) {
		if i < 2*raceIDs {
			results, err := k.handle(i).Apply(ctx, []durable.Event{success(&held[i/2])})
			switch {
			case !assert.NoError(k, err):
			case results[0].Err == nil:
				wrote[i/2].Add(1)
			default:
				assert.ErrorIs(k, results[0].Err, durable.ErrFenced)
			}
			return
		}
		for left := 1; left > 0; {
			changes, err := k.handle(i).Reap(ctx, 3)
			assert.NoError(k, err)
			for _, c := range changes {
				wrote[place[c.Record.ID]].Add(1)
			}
			left = len(changes)
		}
	})
	for i := range held {
		r := k.look(held[i].ID)
		assert.EqualValues(k, 1, wrote[i].Load())
		assert.Contains(k, []durable.State{durable.StateDone, durable.StateUnknown}, r.State)
		assert.Empty(k, r.Worker)
	}
}
