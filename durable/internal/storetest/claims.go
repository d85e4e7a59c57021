package storetest

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/durable"
)

// testClaim (D1): Claim claims due intents, and no others.
func (k *kit) testClaim() {
	ready, held, done, canceled, stray := intent("a"), intent("a"), intent("a"), intent("a"), intent("a")
	stray.Gateway = "unknown gateway"
	later := k.must(enqueue(inAnHour("a")))
	k.claimOne(k.must(enqueue(held)))
	k.must(enqueue(canceled))
	k.must(event(durable.EventCancel, canceled.ID))
	r := k.claimOne(k.must(enqueue(done)))
	k.must(success(&r))
	beside, due := k.must(enqueue(intent("a"))), k.must(enqueue(ready))
	k.claimOne(beside) // and no other
	assert.Empty(k, k.claimID(later.ID), "not due")
	assert.Empty(k, k.claimID(held.ID), "held")
	assert.Empty(k, k.claimID(intent("a").ID), "absent")

	changes := k.claim(claim("other"), due, k.must(enqueue(stray)))
	require.Len(k, changes, 2)
	slices.SortFunc(changes, func(a, b durable.Change) int { return a.Record.CreatedAt.Compare(b.Record.CreatedAt) })
	assert.Equal(k, ready.ID, changes[0].Record.ID)
	assert.NotNil(k, changes[0].StartedAttempt)
	assert.Equal(k, durable.StateSending, changes[0].Record.State)
	assert.Equal(k, "other", changes[0].Record.Worker)
	assert.Equal(k, ready.Payload, changes[0].Record.Payload)
	assert.Equal(k, stray.ID, changes[1].Record.ID)
	assert.Nil(k, changes[1].StartedAttempt)
	assert.Equal(k, durable.ReasonNoGateway, changes[1].DeadLettered.Reason)
	assert.Empty(k, k.claim(claim("third")), "claimed twice")
}

// many enqueues n intents of a scope.
func (k *kit) many(scope string, n int) []durable.Record {
	return k.manyOf(durable.QueueKey{Scope: scope, Gateway: gateway}, n)
}

func (k *kit) manyOf(queue durable.QueueKey, n int) []durable.Record {
	events := make([]durable.Event, n)
	for i := range events {
		events[i] = enqueue(intent(queue.Scope))
		events[i].Intent.Gateway = queue.Gateway
	}
	return k.applyAll(events...)
}

// testFairness (D9) has one tenant with many intents, and others with few.
func (k *kit) testFairness() {
	k.many("m", k.Rows)
	for _, scope := range []string{"", "a", "b", "z"} {
		k.many(scope, 2)
	}
	c := claim("w")
	c.Limit = 10
	assert.ElementsMatch(k, []string{"", "a", "b", "m", "z", "", "a", "b", "m", "z"}, scopes(k.claim(c)), "a round of 10")

	// Claims of one intent, each with the cursor of the claim before it.
	k.many("a", 2)
	k.many("b", 2)
	behind := func(scope string, limit int) []durable.Change {
		c.Limit = limit
		allow(&c, func(a *durable.Allowance) { a.Cursor = scope })
		return k.claim(c)
	}
	order := []string{"a"}
	for i := range 6 {
		order = append(order, scopes(behind(order[i], 1))...)
	}
	assert.Equal(k, []string{"a", "b", "m", "a", "b", "m", "a"}, order, "rounds of one")

	// Scopes with a common prefix are different scopes.
	alike := []string{"x", "x!", "xX", "xx", "y"}
	for _, scope := range alike {
		k.many(scope, 1)
	}
	assert.Equal(k, alike, scopes(behind("w", len(alike))))

	// In one scope, the intent that is due longest is first.
	for _, late := range k.many("q", 3) {
		k.must(event(durable.EventCancel, late.ID))
	}
	want := k.shuffled("q")
	var got []durable.Record
	k.eventually("a turn", func() bool {
		for _, change := range behind("p", 1) {
			if change.Record.ID.Scope == "q" {
				got = append(got, change.Record)
			}
		}
		return len(got) == len(want)
	})
	k.inOrder(got, want)
}

// inOrder checks that these intents were claimed, in the order in which they are due.
func (k *kit) inOrder(got, want []durable.Record) {
	require.Len(k, got, len(want))
	for i := range want {
		assert.Equal(k, want[i].ID, got[i].ID, "claim %d is of what is due at %v, want at %v", i, got[i].NextAt, want[i].NextAt)
	}
}

// testDue has some intents that are not due yet. They are not claimed.
func (k *kit) testDue() {
	for _, scope := range []string{"a", "c"} {
		for range 5 {
			k.must(enqueue(inAnHour(scope)))
		}
	}
	k.many("b", 4)
	k.many("c", 1)
	c := claim("w")
	c.Limit = 1
	assert.Equal(k, []string{"b"}, scopes(k.claim(c)))
	c.Limit = 4
	assert.Equal(k, []string{"b", "c", "b", "b"}, scopes(k.claim(c)))

	// All are due now, in another order than that of their inserts.
	want := k.shuffled("d")
	k.eventually("the last of them", func() bool { return !k.now().Before(want[len(want)-1].NextAt) })
	var got []durable.Record
	for _, c.Limit = range []int{1, 3} {
		for _, change := range k.claim(c) {
			got = append(got, change.Record)
		}
	}
	k.inOrder(got, want)
}

// shuffled enqueues four intents that will soon be due. It returns them in the order in which
// they are due, which is another one.
func (k *kit) shuffled(scope string) []durable.Record {
	for step := 20 * time.Millisecond; ; step *= 2 {
		var events []durable.Event
		start := time.Now()
		for _, at := range []time.Duration{3 * step, step, 4 * step, 2 * step} {
			in := intent(scope)
			in.NotBefore = start.Add(at)
			events = append(events, enqueue(in))
		}
		all := k.applyAll(events...)
		first, second, third, fourth := all[1], all[3], all[0], all[2]
		if first.NextAt.Before(second.NextAt) && second.NextAt.Before(third.NextAt) {
			return []durable.Record{first, second, third, fourth}
		}
		for i := range events { // too slow: they were due when they were enqueued
			k.must(event(durable.EventCancel, events[i].ID()))
		}
	}
}

// testClock (D14): all verbs use the same clock.
func (k *kit) testClock() {
	k.many("a", 2)
	times := []time.Time{k.now()}
	for range 2 {
		c := claim("w")
		c.Limit = 1
		claimed, err := k.store.Claim(k.ctx(), c)
		require.NoError(k, err)
		require.Len(k, claimed.Changes, 1)
		assert.Equal(k, claimed.Now, claimed.Changes[0].Record.ClaimedAt)
		beat, err := k.again.Heartbeat(k.ctx(), "w", time.Hour)
		require.NoError(k, err)
		times = append(times, claimed.Now, beat, k.now())
	}
	assert.True(k, slices.IsSortedFunc(times, time.Time.Compare), "successive verbs returned the times %v", times)
	assert.Less(k, times[len(times)-1].Sub(times[0]), patience)
	for _, at := range times {
		assert.Equal(k, time.UTC, at.Location())
	}
}

// testShares (D9) limits the number of intents of a scope that a worker holds.
func (k *kit) testShares() {
	a, b := durable.QueueKey{Scope: "a", Gateway: gateway}, durable.QueueKey{Scope: "b", Gateway: gateway}
	k.many("a", 20)
	k.many("b", 2)
	c := claim("w")
	allow(&c, func(a *durable.Allowance) { a.PerScope = 5 })
	assert.Equal(k, queues{a: 5, b: 2}, queuesOf(k.claim(c)))
	k.many("b", 1)
	c.InFlight = queues{a: 5, b: 2}
	assert.Equal(k, queues{b: 1}, queuesOf(k.claim(c)), "with a's share held")
	c.InFlight = queues{a: 3, b: 9}
	k.many("b", 1)
	assert.Equal(k, queues{a: 2}, queuesOf(k.claim(c)), "with 3 of a held")
	c.InFlight, c.Limit = nil, 4
	assert.Equal(k, queues{a: 3, b: 1}, queuesOf(k.claim(c)), "with a limit of 4")
}

// testGateways limits the number of intents of each gateway in a claim.
func (k *kit) testGateways() {
	a, b, beside := durable.QueueKey{Scope: "a", Gateway: gateway}, durable.QueueKey{Scope: "b", Gateway: gateway},
		durable.QueueKey{Scope: "a", Gateway: mute}
	for _, row := range []struct {
		name           string
		limit          int
		allowed, other durable.Allowance
		inFlight, want queues // of 100 intents of a, 20 of b, and 6 others
	}{
		{"each its limit", 40, durable.Allowance{Limit: 20, PerScope: 40}, durable.Allowance{Limit: 20, PerScope: 40}, nil, queues{a: 10, b: 10, beside: 6}},
		{"none of one", 40, durable.Allowance{PerScope: 40}, durable.Allowance{Limit: 4, PerScope: 40}, nil, queues{beside: 4}},
		{"both take turns", 10, durable.Allowance{Limit: 20, PerScope: 40}, durable.Allowance{Limit: 20, PerScope: 40}, nil, queues{a: 3, b: 2, beside: 5}},
		{
			"a scope has its part", 40, durable.Allowance{Limit: 20, PerScope: 6}, durable.Allowance{Limit: 20, PerScope: 6}, queues{a: 6, b: 1},
			queues{b: 5, beside: 6},
		},
		{"behind the cursor", 40, durable.Allowance{Limit: 1, PerScope: 40, Cursor: "a"}, durable.Allowance{Limit: 20, PerScope: 40}, nil, queues{b: 1, beside: 6}},
	} {
		k.T.Run(row.name, func(t *testing.T) {
			k := newKit(t, k.Suite)
			k.manyOf(a, 100)
			k.manyOf(b, 20)
			k.manyOf(beside, 6)
			row.allowed.Terms = terms[gateway]
			c := claim("w")
			c.Limit, c.InFlight, c.Gateways = row.limit, row.inFlight, map[string]durable.Allowance{gateway: row.allowed, mute: row.other}
			assert.Equal(k, row.want, queuesOf(k.claim(c)))
		})
	}
}

// testStats counts.
func (k *kit) testStats() {
	k.many("a", 3)
	later := k.must(enqueue(inAnHour("b")))
	oldest := k.must(enqueue(intent("c"))).NextAt
	before := k.stats()
	assert.Equal(k, map[durable.State]int{durable.StatePending: 5}, before.States)
	assert.Equal(k, 4, before.Due)
	assert.False(k, before.Oldest.IsZero() || before.Oldest.After(oldest), "the oldest is %v", before.Oldest)
	assert.Zero(k, before.Workers)
	c := claim("w")
	c.Limit = 1
	k.claim(c)
	k.must(event(durable.EventCancel, later.ID))
	k.beat("gone", 0)
	after := k.stats()
	assert.Equal(k, map[durable.State]int{durable.StatePending: 3, durable.StateSending: 1, durable.StateCanceled: 1}, after.States)
	assert.Equal(k, 3, after.Due)
	assert.Equal(k, 1, after.Workers)
	assert.False(k, after.Now.Before(before.Now), "Stats at %v, and then at %v", before.Now, after.Now)
	// The intent of a dead worker is not being sent.
	k.beat("w", time.Millisecond)
	k.reach(durable.StateDead, true)
	k.reach(durable.StateDead, true)
	k.reach(durable.StateDead, false)
	k.eventually("the end of the lease", func() bool { return k.stats().States[durable.StateUnknown] == 1 })
	dead := k.stats()
	assert.Zero(k, dead.States[durable.StateSending])
	assert.Equal(k, 3, dead.States[durable.StateDead])
	assert.Equal(k, 2, dead.DeadInDoubt)
}
