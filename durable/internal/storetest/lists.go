package storetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/durable"
	"github.com/resilienthttp/resilienthttp/idempotency"
)

// listed is what a list has, in its order.
type listed[T any] struct {
	k       *kit
	all     []T
	matches func(*durable.Filter, *T) bool
	read    func(f durable.Filter, after *T, limit int) ([]T, error)
}

// letters and intents are the lists of these rows.
func (k *kit) letters(all []durable.DeadLetter) listed[durable.DeadLetter] {
	slices.SortFunc(all, func(a, b durable.DeadLetter) int { return a.Compare(&b) })
	return listed[durable.DeadLetter]{k, all, (*durable.Filter).Matches, func(f durable.Filter, after *durable.DeadLetter, limit int) ([]durable.DeadLetter, error) {
		return k.store.DeadLetters(k.ctx(), f, after, limit)
	}}
}

func (k *kit) intents(all []durable.Record) listed[durable.Record] {
	for i := range all {
		all[i].Payload, all[i].Result = nil, nil
	}
	slices.SortFunc(all, func(a, b durable.Record) int { return a.Compare(&b) })
	return listed[durable.Record]{k, all, (*durable.Filter).MatchesIntent, func(f durable.Filter, after *durable.Record, limit int) ([]durable.Record, error) {
		records, err := k.store.Intents(k.ctx(), f, after, limit)
		for i := range records {
			records[i] = stored(records[i])
		}
		return records, err
	}}
}

// check reads the rows that a filter selects, in pages of 4: oldest first, and newest first.
func (l listed[T]) check(name string, f durable.Filter) {
	var want []T
	for i := range l.all {
		if l.matches(&f, &l.all[i]) {
			want = append(want, l.all[i])
		}
	}
	for _, f.NewestFirst = range []bool{false, true} {
		var got []T
		for page := make([]T, 4); len(page) == 4 && len(got) <= len(l.all); got = append(got, page...) {
			var after *T
			if len(got) > 0 {
				after = &got[len(got)-1]
			}
			var err error
			page, err = l.read(f, after, 4)
			require.NoError(l.k, err, name)
			require.LessOrEqual(l.k, len(page), 4, name)
		}
		if f.NewestFirst {
			slices.Reverse(got)
		}
		equalRows(l.k, want, got, name)
	}
}

// checkAll checks filters by what all rows have. one is the ID of a row, and mid the time of another.
func (l listed[T]) checkAll(one idempotency.ID, mid time.Time, filters map[string]durable.Filter) {
	for name, f := range map[string]durable.Filter{
		"all":               {IncludeResolved: true},
		"scope":             {Scope: "tenant 1"},
		"operation":         {Operation: one.Operation, IncludeResolved: true},
		"no such operation": {Operation: "none", IncludeResolved: true},
		"key":               {Key: one.Key, IncludeResolved: true},
		"one":               {Scope: one.Scope, Operation: one.Operation, Key: one.Key, IncludeResolved: true},
		"batch":             {Batch: "batch 1"},
		"from":              {From: mid, IncludeResolved: true},
		"just after":        {From: mid.Add(1), IncludeResolved: true},
		"until":             {Until: mid, IncludeResolved: true},
		"until just after":  {Until: mid.Add(1), IncludeResolved: true},
	} {
		l.check(name, f)
	}
	for name, f := range filters {
		l.check(name, f)
	}
	for _, limit := range []int{0, -1} {
		page, err := l.read(durable.Filter{IncludeResolved: true}, nil, limit)
		require.NoError(l.k, err)
		assert.Empty(l.k, page)
	}
	for name, f := range map[string]durable.Filter{
		"no such state": {States: []durable.State{99}}, "no UTF-8": {Scope: "\xff"}, "a NUL": {Code: "\x00"},
	} {
		assert.ErrorIs(l.k, ignored(l.read(f, nil, 1)), durable.ErrInvalid, name)
	}
}

// testLetters lists dead letters.
func (k *kit) testLetters() {
	var want []durable.DeadLetter
	for i := range 25 {
		in := intent(fmt.Sprint("tenant ", i%3))
		in.Batch, in.Row = fmt.Sprint("batch ", i%2), i
		r := k.claimOne(k.must(enqueue(in)))
		o := outcome(durable.ClassDeclined)
		if i%5 == 0 {
			o.Class = durable.ClassUnknown
		}
		o.Code = fmt.Sprint("code ", i%4)
		k.must(finish(&r, o, durable.Decision{Action: durable.Bury, Reason: fmt.Sprint("reason ", i%2)}))
		if i < 5 { // dealt with
			k.must(event(durable.EventRedrive, in.ID))
		}
		want = append(want, k.journal(in.ID).Letters[0])
	}
	k.letters(want).checkAll(want[20].ID, want[12].DeadAt, map[string]durable.Filter{
		"open":      {},
		"gateway":   {Gateway: gateway},
		"no such":   {Gateway: "none"},
		"code":      {Code: "code 3"},
		"reason":    {Reason: "reason 0", IncludeResolved: true},
		"all three": {Scope: "tenant 2", Code: "code 1", Batch: "batch 1", IncludeResolved: true},
	})
}

// everyState returns two or more intents in each state, of several scopes and gateways.
func (k *kit) everyState() (all []durable.Record) {
	for round := range 3 {
		for state := durable.StatePending; state <= durable.StateCanceled; state++ {
			in := intent(fmt.Sprint("tenant ", (round+int(state))%3))
			in.Batch, in.Row = fmt.Sprint("batch ", round%2), round
			if state != durable.StateQuerying && round == 1 {
				in.Gateway = mute
			}
			all = append(all, k.reachWith(in, state, doubtful(state)))
		}
	}
	for i := range all {
		all[i] = *k.look(all[i].ID)
	}
	return all
}

// testIntents (D23) lists intents of every state by filters.
func (k *kit) testIntents() {
	all := k.everyState()
	one := all[5].ID
	filters := map[string]durable.Filter{
		"gateway":             {Gateway: mute},
		"code":                {Code: "code"},
		"reason":              {Reason: "declined"},
		"one in a state":      {States: []durable.State{all[5].State}, Scope: one.Scope, Operation: one.Operation, Key: one.Key},
		"unknown and dead":    {States: []durable.State{durable.StateUnknown, durable.StateDead, durable.StateUnknown}},
		"held and done":       {States: []durable.State{durable.StateSending, durable.StateDone, durable.StateQuerying}},
		"unknown of a tenant": {States: []durable.State{durable.StateUnknown}, Scope: "tenant 0", From: all[0].CreatedAt},
	}
	for state := durable.StatePending; state <= durable.StateCanceled; state++ {
		filters[state.String()] = durable.Filter{States: []durable.State{state}}
	}
	k.intents(all).checkAll(one, all[12].CreatedAt, filters)
}

// testListsAtOnce has many rows of one instant, so that only their names order them.
func (k *kit) testListsAtOnce() {
	var enqueued, buried []durable.Event
	for i, name := range []string{"b", "a", "B", "é", "a!", "ab", "c"} {
		for j, id := range []idempotency.ID{
			{Scope: name, Operation: "o", Key: "k"}, {Scope: "s", Operation: name, Key: "k"}, {Scope: "s", Operation: "o", Key: name},
		} {
			in := intent("")
			in.ID, in.Row = id, 10*i+j
			enqueued = append(enqueued, enqueue(in))
		}
	}
	all := k.applyAll(enqueued...)
	intents := k.intents(slices.Clone(all))
	intents.check("all at once", durable.Filter{})
	intents.check("pending at once", durable.Filter{States: []durable.State{durable.StatePending}})
	for _, r := range all {
		r = k.claimOne(r)
		if len(r.ID.Key) == 1 && r.ID.Key != "k" { // the number of its letter is greater than that of others
			r = k.must(finish(&r, outcome(durable.ClassFailed), durable.Decision{}))
			r = k.claimOne(r)
		}
		buried = append(buried, finish(&r, outcome(durable.ClassDeclined), durable.Decision{Action: durable.Bury}))
	}
	var dead []durable.DeadLetter
	for _, r := range k.applyAll(buried...) {
		dead = append(dead, k.journal(r.ID).Letters...)
	}
	letters := k.letters(dead)
	letters.check("all at once", durable.Filter{})
	letters.check("from then", durable.Filter{From: dead[0].DeadAt})
	letters.check("until then", durable.Filter{Until: dead[0].DeadAt})
}

// testCounts (D23): counts by state, gateway and scope are exact.
func (k *kit) testCounts() {
	all := k.everyState()
	for _, states := range [][]durable.State{
		nil, {durable.StateDead, durable.StateUnknown, durable.StateDead}, {durable.StateSending}, {durable.StateDone, durable.StateQuerying},
	} {
		counted := make(map[durable.Count]int)
		for i := range all {
			if r := &all[i]; len(states) == 0 || slices.Contains(states, r.State) {
				counted[durable.Count{State: r.State, Gateway: r.Gateway, Scope: r.ID.Scope}]++
			}
		}
		var want []durable.Count
		for c, n := range counted {
			c.N = n
			want = append(want, c)
		}
		slices.SortFunc(want, durable.Count.Compare)
		got, err := k.store.Counts(k.ctx(), states)
		require.NoError(k, err)
		assert.Equal(k, want, got, "%v", states)
	}
	assert.ErrorIs(k, ignored(k.store.Counts(k.ctx(), []durable.State{99})), durable.ErrInvalid)
}
