package storetest

import (
	"errors"
	"fmt"
	"slices"

	"github.com/resilienthttp/resilienthttp/durable/internal/driver"
	"github.com/resilienthttp/resilienthttp/idempotency"
)

// everyState returns two or more intents in each state, of several scopes and gateways.
func (k *kit) everyState() (all []driver.Record) {
	for round := range 3 {
		for state := driver.StatePending; state <= driver.StateCanceled; state++ {
			in := intent(fmt.Sprint("tenant ", (round+int(state))%3))
			in.Batch, in.Row = fmt.Sprint("batch ", round%2), round
			if state != driver.StateQuerying && round == 1 {
				in.Gateway = mute
			}
			all = append(all, k.reachWith(in, state, state == driver.StateUnknown || state == driver.StateQuerying))
		}
	}
	for i := range all {
		all[i] = *k.look(all[i].ID)
		all[i].Payload, all[i].Result = nil, nil
	}
	slices.SortFunc(all, func(a, b driver.Record) int { return a.Compare(&b) })
	return all
}

// testIntents (D23) lists intents of every state by filters.
func (k *kit) testIntents() {
	all := k.everyState()
	one, mid := all[5], all[12].CreatedAt
	for name, f := range map[string]driver.Filter{
		"all":                 {},
		"resolved or not":     {IncludeResolved: true},
		"scope":               {Scope: "tenant 1"},
		"operation":           {Operation: one.ID.Operation},
		"no such operation":   {Operation: "none"},
		"key":                 {Key: one.ID.Key},
		"gateway":             {Gateway: mute},
		"batch":               {Batch: "batch 1"},
		"code":                {Code: "code"},
		"reason":              {Reason: "declined"},
		"from":                {From: mid},
		"just after":          {From: mid.Add(1)},
		"until":               {Until: mid},
		"until just after":    {Until: mid.Add(1)},
		"one":                 {Scope: one.ID.Scope, Operation: one.ID.Operation, Key: one.ID.Key},
		"one in a state":      {States: []driver.State{one.State}, Scope: one.ID.Scope, Operation: one.ID.Operation, Key: one.ID.Key},
		"unknown and dead":    {States: []driver.State{driver.StateUnknown, driver.StateDead, driver.StateUnknown}},
		"held and done":       {States: []driver.State{driver.StateSending, driver.StateDone, driver.StateQuerying}},
		"unknown of a tenant": {States: []driver.State{driver.StateUnknown}, Scope: "tenant 0", From: all[0].CreatedAt},
	} {
		k.checkIntents(name, all, f)
	}
	for state := driver.StatePending; state <= driver.StateCanceled; state++ {
		k.checkIntents(state.String(), all, driver.Filter{States: []driver.State{state}})
	}
	for _, limit := range []int{0, -1} {
		if page, err := k.store.Intents(k.ctx(), driver.Filter{}, nil, limit); len(page) != 0 || err != nil {
			k.Errorf("a page of %d: %d intents, %v", limit, len(page), err)
		}
	}
	for name, f := range map[string]driver.Filter{
		"no such state": {States: []driver.State{99}}, "no UTF-8": {Scope: "\xff"}, "a NUL": {Code: "\x00"},
	} {
		_, err := k.store.Intents(k.ctx(), f, nil, 1)
		if _, err2 := k.store.DeadLetters(k.ctx(), f, nil, 1); !errors.Is(err, driver.ErrInvalid) || !errors.Is(err2, driver.ErrInvalid) {
			k.Errorf("%s: %v and %v, want ErrInvalid", name, err, err2)
		}
	}
}

func (k *kit) checkIntents(name string, all []driver.Record, f driver.Filter) {
	k.Helper()
	checkPages(k, name, all, f, f.MatchesIntent, func(f driver.Filter, after *driver.Record) ([]driver.Record, error) {
		return k.store.Intents(k.ctx(), f, after, 4)
	})
}

// testIntentsAtOnce has many intents of one instant, so that only their names order them.
func (k *kit) testIntentsAtOnce() {
	var events []driver.Event
	for _, name := range []string{"b", "a", "B", "é", "a!", "ab", "c"} {
		for _, id := range []idempotency.ID{
			{Scope: name, Operation: "o", Key: "k"}, {Scope: "s", Operation: name, Key: "k"}, {Scope: "s", Operation: "o", Key: name},
		} {
			in := intent("")
			in.ID = id
			events = append(events, enqueue(in))
		}
	}
	results, err := k.store.Apply(k.ctx(), events)
	k.fatalIf(err != nil, "Apply: %v", err)
	var all []driver.Record
	for i := range results {
		results[i].Record.Payload = nil
		all = append(all, results[i].Record)
	}
	slices.SortFunc(all, func(a, b driver.Record) int { return a.Compare(&b) })
	k.checkIntents("all at once", all, driver.Filter{})
	k.checkIntents("pending at once", all, driver.Filter{States: []driver.State{driver.StatePending}})
}

// testCounts (D23): counts by state, gateway and scope are exact.
func (k *kit) testCounts() {
	all := k.everyState()
	for _, states := range [][]driver.State{
		nil, {driver.StateDead, driver.StateUnknown, driver.StateDead}, {driver.StateSending}, {driver.StateDone, driver.StateQuerying},
	} {
		counted := make(map[driver.Count]int)
		for i := range all {
			if r := &all[i]; len(states) == 0 || slices.Contains(states, r.State) {
				counted[driver.Count{State: r.State, Gateway: r.Gateway, Scope: r.ID.Scope}]++
			}
		}
		var want []driver.Count
		for c, n := range counted {
			c.N = n
			want = append(want, c)
		}
		slices.SortFunc(want, driver.Count.Compare)
		got, err := k.store.Counts(k.ctx(), states)
		if d := diff(got, want); d != "" || err != nil {
			k.Errorf("counts of %v: %v\n%s", states, err, d)
		}
	}
	if _, err := k.store.Counts(k.ctx(), []driver.State{99}); !errors.Is(err, driver.ErrInvalid) {
		k.Errorf("counts of no such state: %v, want ErrInvalid", err)
	}
}
