package storetest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/resilienthttp/resilienthttp/durable/internal/driver"
	"github.com/resilienthttp/resilienthttp/idempotency"
	"github.com/resilienthttp/resilienthttp/internal/sleep"
)

// outcome returns an outcome of a class.
func outcome(class driver.Class) driver.Outcome {
	return driver.Outcome{
		Class: class, Code: "code", Reference: "ref", Status: 418, Result: []byte("result"), Err: errors.New("text"), //nolint:err113 // any
	}
}

// reach brings a new intent to a state. doubt distinguishes dead intents that are in doubt.
func (k *kit) reach(state driver.State, doubt bool) driver.Record {
	k.Helper()
	return k.reachWith(intent("reach"), state, doubt)
}

func (k *kit) reachWith(in driver.Intent, state driver.State, doubt bool) driver.Record {
	k.Helper()
	r := k.must(enqueue(in))
	step := func(class driver.Class, do driver.Action) {
		r = k.claimOne(r)
		r = k.must(finish(&r, outcome(class), driver.Decision{Action: do}))
	}
	switch state {
	case driver.StateWaiting:
		step(driver.ClassFailed, driver.Retry)
	case driver.StateSending:
		r = k.claimOne(r)
	case driver.StateQuerying:
		step(driver.ClassUnknown, driver.Query)
		r = k.claimOne(r)
	case driver.StateUnknown:
		step(driver.ClassUnknown, driver.Retry)
	case driver.StateDone:
		step(driver.ClassSucceeded, driver.Retry)
	case driver.StateDead:
		if doubt {
			step(driver.ClassUnknown, driver.Bury)
		} else {
			step(driver.ClassDeclined, driver.Bury)
		}
	case driver.StateCanceled:
		r = k.must(event(driver.EventCancel, r.ID))
	default:
	}
	k.fatalIf(r.State != state || r.InDoubt != doubt, "it is %v, doubt %v, want %v, %v", r.State, r.InDoubt, state, doubt)
	return r
}

// testTransitions (D14) applies each event to each state, and compares what is stored with
// Decide. The end of an attempt with each decision is for states that a worker holds: the other
// states are fenced before a store reads the decision.
func (k *kit) testTransitions() {
	events := map[string]func(r *driver.Record) driver.Event{
		"the same": func(r *driver.Record) driver.Event { return enqueue(r.Intent) },
		"another": func(r *driver.Record) driver.Event {
			in := r.Intent
			in.Payload, in.Batch, in.Row, in.Gateway = []byte("mended"), "second", 8, mute
			return enqueue(in)
		},
		"redrive": func(r *driver.Record) driver.Event { return event(driver.EventRedrive, r.ID) },
		"redrive later": func(r *driver.Record) driver.Event {
			e := event(driver.EventRedrive, r.ID)
			e.After = time.Hour
			return e
		},
		"redrive of another letter": func(r *driver.Record) driver.Event {
			e := event(driver.EventRedrive, r.ID)
			e.Generation = r.Generation + 7
			return e
		},
		"cancel": func(r *driver.Record) driver.Event { return event(driver.EventCancel, r.ID) },
		"erase":  func(r *driver.Record) driver.Event { return event(driver.EventErase, r.ID) },
	}
	ends := make(map[string]func(r *driver.Record) driver.Event)
	for class := driver.ClassUnknown; class <= driver.ClassNotFound; class++ {
		events["finish as "+class.String()] = func(r *driver.Record) driver.Event {
			return finish(r, outcome(class), driver.Decision{At: time.Now().Add(time.Minute)})
		}
		events["resolve as "+class.String()] = func(r *driver.Record) driver.Event {
			e := event(driver.EventResolve, r.ID)
			e.Outcome = outcome(class)
			return e
		}
		for _, do := range []driver.Action{driver.Retry, driver.Query, driver.Bury} {
			for _, newKey := range []bool{false, true} {
				ends[fmt.Sprintf("finish as %v, do %d, new key %v", class, do, newKey)] = func(r *driver.Record) driver.Event {
					return finish(r, outcome(class), driver.Decision{Action: do, NewKey: newKey, At: time.Now().Add(time.Minute)})
				}
			}
		}
	}
	for state := driver.StatePending; state <= driver.StateCanceled; state++ {
		for _, doubt := range []bool{false, true} {
			if doubt != (state == driver.StateUnknown || state == driver.StateQuerying) && (!doubt || state != driver.StateDead) {
				continue
			}
			try := func(name string, e func(r *driver.Record) driver.Event) {
				r := k.reach(state, doubt)
				result := k.apply(e(&r)) // checks everything
				if result.Before != state && result.Err == nil {
					k.Errorf("%s of one that is %v: Before is %v", name, state, result.Before)
				}
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

// testFenced (D2) has workers write after the end of their lease.
func (k *kit) testFenced() {
	success := func(r driver.Record) driver.Event {
		return finish(&r, driver.Outcome{Class: driver.ClassSucceeded}, driver.Decision{})
	}
	mustFence := func(name string, e driver.Event) {
		if result := k.apply(e); !errors.Is(result.Err, driver.ErrFenced) || result.Step != driver.StepKeep {
			k.Errorf("%s: %v, want ErrFenced", name, result.Err)
		}
	}
	r := k.reach(driver.StateSending, false)
	other := r
	other.Worker = "other"
	mustFence("another worker", success(other))
	other = r
	other.Generation--
	mustFence("an earlier generation", success(other))
	k.must(success(r))
	mustFence("the same twice", success(r))

	r = k.reach(driver.StateSending, false)
	k.leave(worker)
	mustFence("a worker that was reaped", success(r))
	next := k.claimOne(*k.look(r.ID))
	mustFence("a worker that was overtaken", success(r))
	k.must(success(next))
}

// leave makes the intents that a worker holds unknown.
func (k *kit) leave(name string) []driver.Change {
	k.Helper()
	if _, err := k.store.Heartbeat(k.ctx(), name, 0); err != nil {
		k.Fatalf("Beat: %v", err)
	}
	for _, limit := range []int{0, -1} {
		if changes, err := k.store.Reap(k.ctx(), limit); len(changes) != 0 || err != nil {
			k.Errorf("Reap of %d: %d changes, %v", limit, len(changes), err)
		}
	}
	var all []driver.Change
	k.eventually("the end of a lease of 0", func() bool {
		all = append(all, k.reap()...)
		return len(all) > 0
	})
	return all
}

// reap reaps a page at a time, and compares each change with Decide.
func (k *kit) reap() []driver.Change {
	k.Helper()
	var all []driver.Change
	for {
		changes, err := k.store.Reap(k.ctx(), 3)
		k.fatalIf(err != nil || len(changes) > 3, "Reap: %d changes, %v, want 3 at most", len(changes), err)
		for i := range changes {
			c := &changes[i]
			if !c.Before.Held() || c.Record.State != driver.StateUnknown || c.Record.Worker != "" || !c.Record.InDoubt || c.FinishedAttempt == nil {
				k.Errorf("reaped: %v became %v of %q", c.Before, c.Record.State, c.Record.Worker)
			}
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
	c.Limit, c.Lease = 7, time.Hour
	k.claim(c)
	c.Worker = "alive"
	k.claim(c)
	if changes := k.reap(); len(changes) != 0 {
		k.Fatalf("%d were reaped of workers that are alive", len(changes))
	}
	if _, err := k.store.Heartbeat(k.ctx(), "idle", time.Hour); err != nil {
		k.Fatal(err)
	}
	// A heartbeat may also shorten a lease. After its end, the worker's intents are unknown.
	if _, err := k.store.Heartbeat(k.ctx(), "short", 20*time.Millisecond); err != nil {
		k.Fatal(err)
	}
	var lost []driver.Change
	k.eventually("the end of a lease", func() bool {
		lost = append(lost, k.reap()...)
		return len(lost) > 0
	})
	k.failIf(len(lost) != 7, "%d were reaped, want 7", len(lost))
	for i := range lost {
		if lost[i].Record.NextAt.After(lost[i].Record.UpdatedAt) {
			k.Errorf("it is due %v later, want at once", lost[i].Record.NextAt.Sub(lost[i].Record.UpdatedAt))
		}
	}
	if stats, err := k.store.Stats(k.ctx()); err != nil || stats.Workers != 2 {
		k.Errorf("%d workers are alive, %v, want 2, one of which holds nothing", stats.Workers, err)
	}
	// A worker that was deleted can claim again.
	c.Worker, c.Limit = "short", 2
	if got := k.claim(c); len(got) != 2 {
		k.Errorf("claimed %d, want 2", len(got))
	}
	if changes := k.reap(); len(changes) != 0 {
		k.Errorf("%d were reaped of a worker that has come back", len(changes))
	}
	if got := k.leave("alive"); len(got) != 7 {
		k.Errorf("%d were reaped of a worker that took leave, want 7", len(got))
	}
}

// testSweep (D11) deletes intents that are done or canceled, and nothing else.
func (k *kit) testSweep() {
	var keep, gone []idempotency.ID
	for state := driver.StatePending; state <= driver.StateCanceled; state++ {
		id := k.reach(state, state == driver.StateUnknown || state == driver.StateQuerying).ID
		if state.Final() {
			gone = append(gone, id)
		} else {
			keep = append(keep, id)
		}
	}
	stats, err := k.store.Stats(k.ctx())
	if err != nil {
		k.Fatal(err)
	}
	for state := driver.StatePending; state <= driver.StateCanceled; state++ {
		if n := stats.States[state]; n != 1 {
			k.Errorf("%d are %v, want 1", n, state)
		}
	}
	sweep := func(ttl time.Duration, limit int) int {
		k.Helper()
		n, err := k.store.Sweep(k.ctx(), ttl, limit)
		k.fatalIf(err != nil, "Sweep: %v", err)
		return n
	}
	if n := sweep(time.Hour, 10); n != 0 {
		k.Errorf("%d were swept that are young", n)
	}
	_ = sleep.Context(k.Context(), 5*time.Millisecond)
	for _, limit := range []int{0, 1, 10} {
		if n := sweep(time.Millisecond, limit); n != min(limit, 1) {
			k.Errorf("%d were swept, want %d", n, min(limit, 1))
		}
	}
	for _, id := range keep {
		if k.look(id) == nil {
			k.Error("one was swept that is not over")
		}
	}
	for _, id := range gone {
		if _, err := k.store.Attempts(k.ctx(), id); !errors.Is(err, driver.ErrNotFound) {
			k.Errorf("the journal of what was swept: %v", err)
		}
		in := intent("reach")
		in.ID = id
		if result := k.apply2(enqueue(in)); result.Step != driver.StepInsert {
			k.Errorf("enqueued after it was swept: %d", result.Step)
		}
	}
}

// testSweepAge sweeps two intents of different age.
func (k *kit) testSweepAge() {
	for gap := 50 * time.Millisecond; ; gap *= 2 {
		old := k.reach(driver.StateDone, false)
		_ = sleep.Context(k.Context(), gap)
		young := k.reach(driver.StateCanceled, false)
		ttl := k.now().Sub(old.UpdatedAt) - time.Millisecond
		n, err := k.store.Sweep(k.ctx(), ttl, 10)
		k.fatalIf(err != nil, "Sweep: %v", err)
		if k.now().Sub(young.UpdatedAt) >= ttl {
			// Too slow: the younger intent may be old enough now, and must not be counted next time.
			if _, err := k.store.Sweep(k.ctx(), 0, 10); err != nil {
				k.Fatalf("Sweep: %v", err)
			}
			continue
		}
		if n != 1 || k.look(old.ID) != nil || k.look(young.ID) == nil {
			k.Errorf("%d were swept, want the older one", n)
		}
		return
	}
}

// testDeadline: an intent is dead after its deadline. Redriven, it has no deadline.
func (k *kit) testDeadline() {
	var r driver.Record
	for ahead := 50 * time.Millisecond; ; ahead *= 2 {
		in := intent("deadline")
		in.Deadline = time.Now().Add(ahead)
		if result := k.apply(enqueue(in)); result.Err == nil {
			r = result.Record
			break // otherwise the deadline passed before the insert
		}
	}
	k.eventually("the deadline", func() bool { return !k.now().Before(r.Deadline) })
	if result := k.apply(enqueue(r.Intent)); result.Err != nil || !result.Receipt().Existing {
		k.Errorf("the same again, past its deadline: %+v, %v", result.Receipt(), result.Err)
	}
	r = k.claimOne(r)
	k.fatalIf(r.State != driver.StateDead || r.Reason != driver.ReasonDeadline, "it is %v, %q", r.State, r.Reason)
	r = k.must(event(driver.EventRedrive, r.ID))
	k.failIf(!r.Deadline.IsZero(), "redriven, it has the deadline %v", r.Deadline)
}

// apply2 is apply after the intent's journal and dead letters were deleted.
func (k *kit) apply2(e driver.Event) driver.Result {
	delete(k.attempts, e.ID())
	delete(k.letters, e.ID())
	return k.apply(e)
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
			k.apply(event(driver.EventErase, any1()))
		case 0:
			k.apply(event(driver.EventCancel, any1()))
		case 1:
			k.apply(event(driver.EventRedrive, any1()))
		case 2:
			in := k.look(any1()).Intent
			in.Payload = fmt.Append(nil, rand.Int())
			k.apply(enqueue(in))
		case 3:
			e := event(driver.EventResolve, any1())
			e.Outcome = outcome(driver.Class(rand.IntN(5)))
			k.apply(e)
		case 4: // a worker dies
			if _, err := k.store.Heartbeat(k.ctx(), fmt.Sprint("worker ", rand.IntN(workers)), 0); err != nil {
				k.Fatal(err)
			}
			k.reap()
		case 5, 6:
			c := claim(fmt.Sprint("worker ", rand.IntN(workers)))
			c.Limit = 1 + rand.IntN(4)
			k.claim(c)
		default:
			if r := k.look(any1()); r.State.Held() {
				k.must(finish(r, outcome(driver.Class(rand.IntN(5))), driver.Decision{Action: driver.Action(rand.IntN(3)), NewKey: rand.IntN(2) == 0}))
			}
		}
	}
	k.eventually("the end of all", func() bool {
		over := 0
		for _, id := range ids {
			switch r := k.look(id); {
			case r.State.Final():
				over++
			case r.State == driver.StateDead:
				k.must(event(driver.EventRedrive, id))
			case r.State.Held():
				k.must(finish(r, driver.Outcome{Class: driver.ClassSucceeded}, driver.Decision{}))
			}
		}
		k.claim(claim(worker))
		return over == len(ids)
	})
}
