package storetest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/durable"
	"github.com/resilienthttp/resilienthttp/idempotency"
	"github.com/resilienthttp/resilienthttp/internal/sleep"
)

// outcome returns an outcome of a class.
func outcome(class durable.Class) durable.Outcome {
	return durable.Outcome{
		Class: class, Code: "code", Reference: "ref", Status: 418, Result: []byte("result"), Err: errors.New("text"), //nolint:err113 // any
	}
}

// doubtful reports whether each intent of the state is in doubt.
func doubtful(state durable.State) bool {
	return state == durable.StateUnknown || state == durable.StateQuerying
}

// reach brings a new intent to a state. doubt distinguishes dead intents that are in doubt.
func (k *kit) reach(state durable.State, doubt bool) durable.Record {
	return k.reachWith(intent("reach"), state, doubt)
}

func (k *kit) reachWith(in durable.Intent, state durable.State, doubt bool) durable.Record {
	r := k.must(enqueue(in))
	step := func(class durable.Class, do durable.Action) {
		r = k.claimOne(r)
		r = k.must(finish(&r, outcome(class), durable.Decision{Action: do}))
	}
	switch state {
	case durable.StateWaiting:
		step(durable.ClassFailed, durable.Retry)
	case durable.StateSending:
		r = k.claimOne(r)
	case durable.StateQuerying:
		step(durable.ClassUnknown, durable.Query)
		r = k.claimOne(r)
	case durable.StateUnknown:
		step(durable.ClassUnknown, durable.Retry)
	case durable.StateDone:
		step(durable.ClassSucceeded, durable.Retry)
	case durable.StateDead:
		if doubt {
			step(durable.ClassUnknown, durable.Bury)
		} else {
			step(durable.ClassDeclined, durable.Bury)
		}
	case durable.StateCanceled:
		r = k.must(event(durable.EventCancel, r.ID))
	default:
	}
	require.Equal(k, state.String(), r.State.String())
	require.Equal(k, doubt, r.InDoubt)
	return r
}

// testTransitions (D14) applies each event to each state, and compares what is stored with
// Decide. The end of an attempt with each decision is for states that a worker holds: the other
// states are fenced before a store reads the decision.
func (k *kit) testTransitions() {
	events := map[string]func(r *durable.Record) durable.Event{
		"the same": func(r *durable.Record) durable.Event { return enqueue(r.Intent) },
		"another": func(r *durable.Record) durable.Event {
			in := r.Intent
			in.Payload, in.Batch, in.Row, in.Gateway = []byte("mended"), "second", 8, mute
			return enqueue(in)
		},
		"redrive": func(r *durable.Record) durable.Event { return event(durable.EventRedrive, r.ID) },
		"redrive later": func(r *durable.Record) durable.Event {
			return changed(event(durable.EventRedrive, r.ID), func(e *durable.Event) { e.After = time.Hour })
		},
		"redrive of another letter": func(r *durable.Record) durable.Event {
			return changed(event(durable.EventRedrive, r.ID), func(e *durable.Event) { e.Generation = r.Generation + 7 })
		},
		"D27: interrupted before it was sent": func(r *durable.Record) durable.Event {
			e := finish(r, durable.Outcome{Class: durable.ClassFailed, Err: unsentError{}}, durable.Decision{})
			return changed(e, func(e *durable.Event) { e.Interrupted = true })
		},
		"D2: finish by another worker": func(r *durable.Record) durable.Event {
			return changed(success(r), func(e *durable.Event) { e.Worker += "'s successor" })
		},
		"D2: finish of an earlier generation": func(r *durable.Record) durable.Event {
			return changed(success(r), func(e *durable.Event) { e.Generation-- })
		},
		"cancel": func(r *durable.Record) durable.Event { return event(durable.EventCancel, r.ID) },
		"erase":  func(r *durable.Record) durable.Event { return event(durable.EventErase, r.ID) },
	}
	ends := make(map[string]func(r *durable.Record) durable.Event)
	for class := durable.ClassUnknown; class <= durable.ClassNotFound; class++ {
		events["finish as "+class.String()] = func(r *durable.Record) durable.Event {
			return finish(r, outcome(class), durable.Decision{At: time.Now().Add(time.Minute)})
		}
		events["resolve as "+class.String()] = func(r *durable.Record) durable.Event {
			return changed(event(durable.EventResolve, r.ID), func(e *durable.Event) { e.Outcome = outcome(class) })
		}
		for _, do := range []durable.Action{durable.Retry, durable.Query, durable.Bury} {
			for _, newKey := range []bool{false, true} {
				ends[fmt.Sprintf("finish as %v, do %d, new key %v", class, do, newKey)] = func(r *durable.Record) durable.Event {
					return finish(r, outcome(class), durable.Decision{Action: do, NewKey: newKey, At: time.Now().Add(time.Minute)})
				}
			}
		}
	}
	for state := durable.StatePending; state <= durable.StateCanceled; state++ {
		for _, doubt := range []bool{false, true} {
			if doubt != doubtful(state) && (!doubt || state != durable.StateDead) {
				continue
			}
			try := func(name string, e func(r *durable.Record) durable.Event) {
				r := k.reach(state, doubt)
				result := k.apply(e(&r)) // checks everything
				assert.True(k, result.Err != nil || result.Before == state, "%s of one that is %v: Before is %v", name, state, result.Before)
			}
			for name, e := range events {
				try(name, e)
			}
			if state.Held() {
				for name, e := range ends {
					try(name, e)
				}
			}
		}
	}
}

// unsentError is the error of an attempt that sent nothing.
type unsentError struct{}

func (unsentError) Error() string { return "not sent" }

// NotSent is what Outcome.Unsent calls.
func (unsentError) NotSent() bool { return true }

// leave makes the intents that a worker holds unknown.
func (k *kit) leave(name string) (all []durable.Change) {
	k.beat(name, 0)
	for _, limit := range []int{0, -1} {
		changes, err := k.store.Reap(k.ctx(), limit)
		assert.NoError(k, err)
		assert.Empty(k, changes)
	}
	k.eventually("the end of a lease of 0", func() bool {
		all = append(all, k.reap()...)
		return len(all) > 0
	})
	return all
}

// reap reaps a page at a time, and compares each change with Decide.
func (k *kit) reap() (all []durable.Change) {
	for {
		changes, err := k.store.Reap(k.ctx(), 3)
		require.NoError(k, err)
		require.LessOrEqual(k, len(changes), 3)
		for i := range changes {
			c := &changes[i]
			assert.True(k, c.Before.Held(), "it was %v", c.Before)
			if c.DeadLettered == nil {
				assert.Equal(k, durable.StateUnknown, c.Record.State)
			}
			assert.Empty(k, c.Record.Worker)
			assert.True(k, c.Record.InDoubt)
			assert.NotNil(k, c.FinishedAttempt)
			k.note(c)
			if stored := k.look(c.Record.ID); stored != nil {
				complete(&c.Record, stored)
			}
			k.checkStored(&c.Record)
		}
		all = append(all, changes...)
		if len(changes) == 0 {
			return all
		}
	}
}

// testWorkers (D2, D3) tests leases.
func (k *kit) testWorkers() {
	k.many("a", 20)
	c := claim("short")
	c.Limit = 7
	k.claim(c)
	c.Worker = "alive"
	k.claim(c)
	require.Empty(k, k.reap(), "all workers are alive")
	k.beat("idle", time.Hour)
	// A heartbeat may also shorten a lease. After its end, the worker's intents are unknown.
	k.beat("short", 20*time.Millisecond)
	var lost []durable.Change
	k.eventually("the end of a lease", func() bool {
		lost = append(lost, k.reap()...)
		return len(lost) > 0
	})
	assert.Len(k, lost, 7)
	for i := range lost {
		assert.False(k, lost[i].Record.NextAt.After(lost[i].Record.UpdatedAt), "it is not due at once")
	}
	assert.Equal(k, 2, k.stats().Workers, "one of which holds nothing")
	// A worker that was deleted can claim again.
	c.Worker, c.Limit = "short", 2
	assert.Len(k, k.claim(c), 2)
	assert.Empty(k, k.reap(), "the worker has come back")
	assert.Len(k, k.leave("alive"), 7)
}

// testSweep (D11) deletes intents that are done or canceled, and nothing else.
func (k *kit) testSweep() {
	var keep, gone []idempotency.ID
	for state := durable.StatePending; state <= durable.StateCanceled; state++ {
		id := k.reach(state, doubtful(state)).ID
		if state.Final() {
			gone = append(gone, id)
		} else {
			keep = append(keep, id)
		}
	}
	states := k.stats().States
	for state := durable.StatePending; state <= durable.StateCanceled; state++ {
		assert.Equal(k, 1, states[state], state)
	}
	assert.Zero(k, k.sweep(time.Hour, 10), "they are young")
	_ = sleep.Context(k.Context(), 5*time.Millisecond)
	for _, limit := range []int{0, 1, 10} {
		assert.Equal(k, min(limit, 1), k.sweep(time.Millisecond, limit))
	}
	for _, id := range keep {
		assert.NotNil(k, k.look(id))
	}
	for _, id := range gone {
		assert.ErrorIs(k, ignored(k.store.Attempts(k.ctx(), id)), durable.ErrNotFound)
		in := intent("reach")
		in.ID = id
		delete(k.journals, id)
		assert.Equal(k, durable.StepInsert, k.apply(enqueue(in)).Step)
	}
}

func (k *kit) sweep(ttl time.Duration, limit int) int {
	n, err := k.store.Sweep(k.ctx(), ttl, limit)
	require.NoError(k, err)
	return n
}

// testSweepAge sweeps two intents of different age.
func (k *kit) testSweepAge() {
	for gap := 50 * time.Millisecond; ; gap *= 2 {
		old := k.reach(durable.StateDone, false)
		_ = sleep.Context(k.Context(), gap)
		young := k.reach(durable.StateCanceled, false)
		ttl := k.now().Sub(old.UpdatedAt) - time.Millisecond
		n := k.sweep(ttl, 10)
		if k.now().Sub(young.UpdatedAt) >= ttl {
			k.sweep(0, 10) // too slow: the younger intent may be old enough now, and must not be counted next time
			continue
		}
		assert.Equal(k, 1, n)
		assert.Nil(k, k.look(old.ID))
		assert.NotNil(k, k.look(young.ID))
		return
	}
}

// testDeadline: an intent is dead after its deadline. Redriven, it has no deadline.
func (k *kit) testDeadline() {
	var r durable.Record
	for ahead := 50 * time.Millisecond; ; ahead *= 2 {
		in := intent("deadline")
		in.Deadline = time.Now().Add(ahead)
		if result := k.apply(enqueue(in)); result.Err == nil {
			r = result.Record
			break // otherwise the deadline passed before the insert
		}
	}
	k.eventually("the deadline", func() bool { return !k.now().Before(r.Deadline) })
	assert.True(k, new(k.apply(enqueue(r.Intent))).Receipt().Existing, "the same again, past its deadline")
	r = k.claimOne(r)
	require.Equal(k, durable.StateDead, r.State)
	assert.Equal(k, durable.ReasonDeadline, r.Reason)
	assert.Zero(k, k.must(event(durable.EventRedrive, r.ID)).Deadline)
}

// testWalk applies random verbs for a while, with workers that die between any two verbs, and
// compares each step with Decide. At the end all intents are done.
func (k *kit) testWalk() {
	const intents, workers, steps = 12, 3, 400
	var ids []idempotency.ID
	for i := range intents {
		ids = append(ids, k.must(enqueue(intent(fmt.Sprint("scope ", i%3)))).ID)
	}
	any1 := func() idempotency.ID { return ids[rand.IntN(len(ids))] }
	for range steps {
		switch rand.IntN(11) {
		case 10:
			k.apply(event(durable.EventErase, any1()))
		case 0:
			k.apply(event(durable.EventCancel, any1()))
		case 1:
			k.apply(event(durable.EventRedrive, any1()))
		case 2:
			in := k.look(any1()).Intent
			in.Payload = fmt.Append(nil, rand.Int())
			k.apply(enqueue(in))
		case 3:
			k.apply(changed(event(durable.EventResolve, any1()), func(e *durable.Event) { e.Outcome = outcome(durable.Class(rand.IntN(5))) }))
		case 4: // a worker dies
			k.beat(fmt.Sprint("worker ", rand.IntN(workers)), 0)
			k.reap()
		case 5, 6:
			c := claim(fmt.Sprint("worker ", rand.IntN(workers)))
			c.Limit = 1 + rand.IntN(4)
			k.claim(c)
		default:
			if r := k.look(any1()); r.State.Held() {
				k.must(finish(r, outcome(durable.Class(rand.IntN(5))), durable.Decision{Action: durable.Action(rand.IntN(3)), NewKey: rand.IntN(2) == 0}))
			}
		}
	}
	k.eventually("the end of all", func() bool {
		over := 0
		for _, id := range ids {
			switch r := k.look(id); {
			case r.State.Final():
				over++
			case r.State == durable.StateDead:
				k.must(event(durable.EventRedrive, id))
			case r.State.Held():
				k.must(success(r))
			}
		}
		k.claim(claim(worker))
		k.claim(alone())
		return over == len(ids)
	})
}
