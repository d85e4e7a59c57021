package storetest

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/resilienthttp/resilienthttp/durable/internal/driver"
)

// testClaim (D1): Claim claims due intents, and no others.
func (k *kit) testClaim() {
	ready, later, held := intent("a"), intent("a"), intent("a")
	later.NotBefore = time.Now().Add(time.Hour)
	stray := intent("a")
	stray.Gateway = "unknown gateway"
	done, canceled := intent("a"), intent("a")
	for _, in := range []driver.Intent{held, later, canceled, done} {
		k.must(enqueue(in))
	}
	k.claimOne(*k.look(held.ID))
	k.must(event(driver.EventCancel, canceled.ID))
	r := k.claimOne(*k.look(done.ID))
	k.must(finish(&r, driver.Outcome{Class: driver.ClassSucceeded}, driver.Decision{}))
	before := []driver.Record{k.must(enqueue(ready)), k.must(enqueue(stray))}

	changes := k.claim(claim("other"), before...)
	k.fatalIf(len(changes) != 2, "got %d claimed intents, want 2", len(changes))
	for i := range changes {
		c := &changes[i]
		switch c.Record.ID {
		case ready.ID:
			if c.StartedAttempt == nil || c.Record.State != driver.StateSending || c.Record.Worker != "other" {
				k.Errorf("what is due: %v of %q, begun %+v", c.Record.State, c.Record.Worker, c.StartedAttempt)
			}
			k.failIf(!bytes.Equal(c.Record.Payload, ready.Payload), "the payload is %q", c.Record.Payload)
		case stray.ID:
			if c.StartedAttempt != nil || c.DeadLettered == nil || c.Record.Reason != driver.ReasonNoGateway {
				k.Errorf("intent of an unknown gateway: got %v, %q, want dead, %q", c.Record.State, c.Record.Reason, driver.ReasonNoGateway)
			}
		default:
			k.Errorf("claimed: %+v", c.Record)
		}
	}
	if again := k.claim(claim("third")); len(again) != 0 {
		k.Errorf("%d were claimed twice", len(again))
	}
}

// testOnly claims one intent and no other.
func (k *kit) testOnly() {
	a, b := k.must(enqueue(intent("a"))), k.must(enqueue(intent("a")))
	c := claim("w")
	c.ID = &b.ID
	if changes := k.claim(c, a, b); len(changes) != 1 || changes[0].Record.ID != b.ID {
		k.Errorf("claimed %d", len(changes))
	}
	if changes := k.claim(c); len(changes) != 0 {
		k.Errorf("an intent that is held was claimed")
	}
	later := intent("a")
	later.NotBefore = time.Now().Add(time.Hour)
	k.must(enqueue(later))
	absent := intent("a").ID
	c.ID = &later.ID
	if changes := k.claim(c); len(changes) != 0 {
		k.Errorf("an intent that is not due was claimed")
	}
	c.ID = &absent
	if changes := k.claim(c); len(changes) != 0 {
		k.Errorf("an intent that does not exist was claimed")
	}
}

// many enqueues n intents of a scope in one commit.
func (k *kit) many(scope string, n int) []driver.Record {
	k.Helper()
	return k.manyOf(driver.QueueKey{Scope: scope, Gateway: gateway}, n)
}

func (k *kit) manyOf(lane driver.QueueKey, n int) []driver.Record {
	k.Helper()
	var records []driver.Record
	for len(records) < n {
		events := make([]driver.Event, min(n-len(records), 1000))
		for i := range events {
			events[i] = enqueue(intent(lane.Scope))
			events[i].Intent.Gateway = lane.Gateway
		}
		results, err := k.store.Apply(k.ctx(), events)
		k.fatalIf(err != nil, "Apply: %v", err)
		for i := range results {
			if results[i].Err != nil {
				k.Fatalf("enqueue: %v", results[i].Err)
			}
			records = append(records, results[i].Record)
		}
	}
	return records
}

// testFairness (D9) has one tenant with many intents, and others with few.
func (k *kit) testFairness() {
	k.many("m", k.Rows)
	for _, scope := range []string{"", "a", "b", "z"} {
		k.many(scope, 2)
	}
	c := claim("w")
	c.Limit = 10
	if got, want := scopes(k.claim(c)), strings.Fields(`"" a b m z "" a b m z`); fmt.Sprint(sorted(got)) != fmt.Sprint(sorted(unquoted(want))) {
		k.Errorf("a round of 10 took %q, want of each scope two", got)
	}

	// Claims of one intent, each with the cursor of the claim before it.
	k.many("a", 2)
	k.many("b", 2)
	cursor := "a"
	after := func() { allow(&c, func(a *driver.Allowance) { a.Cursor = cursor }) }
	c.Limit = 1
	var order []string
	for range 6 {
		after()
		changes := k.claim(c)
		k.fatalIf(len(changes) != 1, "%d were claimed, want 1", len(changes))
		cursor = changes[0].Record.ID.Scope
		order = append(order, cursor)
	}
	if want := []string{"b", "m", "a", "b", "m", "a"}; !slices.Equal(order, want) {
		k.Errorf("rounds of one after %q took %q, want %q", "a", order, want)
	}

	// Scopes with a common prefix are different scopes.
	alike := []string{"x", "x!", "xX", "xx", "y"}
	for _, scope := range alike {
		k.many(scope, 1)
	}
	cursor, c.Limit = "w", len(alike)
	after()
	if got := scopes(k.claim(c)); !slices.Equal(got, alike) {
		k.Errorf("a round after %q took %q, want %q", "w", got, alike)
	}

	// In one scope, the intent that is due longest is first.
	late := k.many("q", 3)
	for i := range late {
		k.must(event(driver.EventCancel, late[i].ID))
	}
	want := k.shuffled("q")
	cursor, c.Limit = "p", 1
	after()
	var got []driver.Record
	k.eventually("a turn", func() bool {
		for _, change := range k.claim(c) {
			if change.Record.ID.Scope == "q" {
				got = append(got, change.Record)
			}
		}
		return len(got) == len(want)
	})
	k.inOrder(got, want)
}

// inOrder checks that these intents were claimed, in the order in which they are due.
func (k *kit) inOrder(got, want []driver.Record) {
	k.Helper()
	k.fatalIf(len(got) != len(want), "%d were claimed, want %d", len(got), len(want))
	for i := range want {
		if got[i].ID != want[i].ID {
			k.Errorf("claim %d is of what is due at %v, want at %v", i, got[i].NextAt, want[i].NextAt)
		}
	}
}

// testDue has some intents that are not due yet. They are not claimed.
func (k *kit) testDue() {
	for _, scope := range []string{"a", "c"} {
		for range 5 {
			later := intent(scope)
			later.NotBefore = time.Now().Add(time.Hour)
			k.must(enqueue(later))
		}
	}
	k.many("b", 4)
	k.many("c", 1)
	c := claim("w")
	c.Limit = 1
	if got := scopes(k.claim(c)); !slices.Equal(got, []string{"b"}) {
		k.Errorf("a round of 1 took %q, want %q", got, "b")
	}
	c.Limit = 4
	if got := scopes(k.claim(c)); !slices.Equal(got, []string{"b", "c", "b", "b"}) {
		k.Errorf("a round of 4 took %q, want b, c, b, b", got)
	}

	// All are due now, in another order than that of their inserts.
	want := k.shuffled("d")
	k.eventually("the last of them", func() bool { return !k.now().Before(want[len(want)-1].NextAt) })
	var got []driver.Record
	for _, limit := range []int{1, 3} {
		c.Limit = limit
		for _, change := range k.claim(c) {
			got = append(got, change.Record)
		}
	}
	k.inOrder(got, want)
}

// shuffled enqueues four intents that will soon be due. It returns them in the order in which
// they are due, which is another one.
func (k *kit) shuffled(scope string) []driver.Record {
	k.Helper()
	for step := 20 * time.Millisecond; ; step *= 2 {
		var events []driver.Event
		start := time.Now()
		for _, at := range []time.Duration{3 * step, step, 4 * step, 2 * step} {
			in := intent(scope)
			in.NotBefore = start.Add(at)
			events = append(events, enqueue(in))
		}
		results, err := k.store.Apply(k.ctx(), events)
		k.fatalIf(err != nil, "Apply: %v", err)
		first, second, third, fourth := results[1].Record, results[3].Record, results[0].Record, results[2].Record
		if first.NextAt.Before(second.NextAt) && second.NextAt.Before(third.NextAt) {
			return []driver.Record{first, second, third, fourth}
		}
		for i := range events { // too slow: they were due when they were enqueued
			k.must(event(driver.EventCancel, events[i].ID()))
		}
	}
}

// now returns the store's time.
func (k *kit) now() time.Time {
	k.Helper()
	stats, err := k.store.Stats(k.ctx())
	k.fatalIf(err != nil, "Stats: %v", err)
	return stats.Now
}

// testClock (D14): all verbs use the same clock.
func (k *kit) testClock() {
	k.many("a", 2)
	times := []time.Time{k.now()}
	for range 2 {
		c := claim("w")
		c.Limit = 1
		claimed, err := k.store.Claim(k.ctx(), c)
		k.fatalIf(err != nil || len(claimed.Changes) != 1, "Claim: %d, %v", len(claimed.Changes), err)
		if at := claimed.Changes[0].Record.ClaimedAt; !at.Equal(claimed.Now) {
			k.Errorf("claimed at %v, by a claim at %v", at, claimed.Now)
		}
		beat, err := k.again.Heartbeat(k.ctx(), "w", time.Hour)
		k.fatalIf(err != nil, "Beat: %v", err)
		times = append(times, claimed.Now, beat, k.now())
	}
	if !slices.IsSortedFunc(times, time.Time.Compare) || times[len(times)-1].Sub(times[0]) > patience {
		k.Errorf("successive verbs returned the times %v", times)
	}
	for _, at := range times {
		k.failIf(at.Location() != time.UTC, "%v is not in UTC", at)
	}
}

func unquoted(names []string) []string {
	for i, name := range names {
		names[i] = strings.Trim(name, `"`)
	}
	return names
}

// testShares (D9) limits the number of intents of a scope that a worker holds.
func (k *kit) testShares() {
	k.many("a", 20)
	k.many("b", 2)
	c := claim("w")
	allow(&c, func(a *driver.Allowance) { a.PerScope = 5 })
	count := func(changes []driver.Change) string {
		n := make(map[string]int)
		for _, scope := range scopes(changes) {
			n[scope]++
		}
		return fmt.Sprint(n)
	}
	if got := count(k.claim(c)); got != "map[a:5 b:2]" {
		k.Errorf("claimed %s, want 5 of a and 2 of b", got)
	}
	k.many("b", 1)
	c.InFlight = held(5, 2)
	if got := count(k.claim(c)); got != "map[b:1]" {
		k.Errorf("with a's share held, claimed %s, want 1 of b", got)
	}
	c.InFlight = held(3, 9)
	k.many("b", 1)
	if got := count(k.claim(c)); got != "map[a:2]" {
		k.Errorf("with 3 of a held, claimed %s, want 2 of a", got)
	}
	c.InFlight, c.Limit = nil, 4
	if got := count(k.claim(c)); got != "map[a:3 b:1]" {
		k.Errorf("with a limit of 4, claimed %s, want 3 of a and 1 of b", got)
	}
}

// held is the number of intents of the scopes a and b, of one gateway.
func held(a, b int) map[driver.QueueKey]int {
	return map[driver.QueueKey]int{{Scope: "a", Gateway: gateway}: a, {Scope: "b", Gateway: gateway}: b}
}

// testGateways limits the number of intents of each gateway in a claim.
func (k *kit) testGateways() {
	type queues map[driver.QueueKey]int
	a, b, beside := driver.QueueKey{Scope: "a", Gateway: gateway}, driver.QueueKey{Scope: "b", Gateway: gateway},
		driver.QueueKey{Scope: "a", Gateway: mute}
	for _, row := range []struct {
		name           string
		limit          int
		allowed, other driver.Allowance
		inFlight, want queues // of 100 intents of a, 20 of b, and 6 others
	}{
		{"each its limit", 40, driver.Allowance{Limit: 20, PerScope: 40}, driver.Allowance{Limit: 20, PerScope: 40}, nil, queues{a: 10, b: 10, beside: 6}},
		{"none of one", 40, driver.Allowance{PerScope: 40}, driver.Allowance{Limit: 4, PerScope: 40}, nil, queues{beside: 4}},
		{"both take turns", 10, driver.Allowance{Limit: 20, PerScope: 40}, driver.Allowance{Limit: 20, PerScope: 40}, nil, queues{a: 3, b: 2, beside: 5}},
		{
			"a scope has its part", 40, driver.Allowance{Limit: 20, PerScope: 6}, driver.Allowance{Limit: 20, PerScope: 6}, queues{a: 6, b: 1},
			queues{b: 5, beside: 6},
		},
		{"behind the cursor", 40, driver.Allowance{Limit: 1, PerScope: 40, Cursor: "a"}, driver.Allowance{Limit: 20, PerScope: 40}, nil, queues{b: 1, beside: 6}},
	} {
		k.T.Run(row.name, func(t *testing.T) {
			k := newKit(t, k.Suite)
			k.manyOf(a, 100)
			k.manyOf(b, 20)
			k.manyOf(beside, 6)
			row.allowed.Terms = terms[gateway]
			c := driver.Claim{Worker: "w", Lease: time.Hour, Limit: row.limit, InFlight: row.inFlight,
				Gateways: map[string]driver.Allowance{gateway: row.allowed, mute: row.other}}
			got := make(queues)
			for _, change := range k.claim(c) {
				got[driver.QueueKeyOf(&change.Record)]++
			}
			k.failIf(!maps.Equal(got, row.want), "claimed %v, want %v", got, row.want)
		})
	}
}

// testStats counts.
func (k *kit) testStats() {
	k.many("a", 3)
	later := intent("b")
	later.NotBefore = time.Now().Add(time.Hour)
	k.must(enqueue(later))
	oldest := k.must(enqueue(intent("c"))).NextAt
	before, err := k.store.Stats(k.ctx())
	if err != nil {
		k.Fatal(err)
	}
	if before.States[driver.StatePending] != 5 || before.Due != 4 || before.Oldest.IsZero() || before.Oldest.After(oldest) || before.Workers != 0 {
		k.Errorf("Stats: %+v", before)
	}
	c := claim("w")
	c.Limit = 1
	k.claim(c)
	k.must(event(driver.EventCancel, later.ID))
	if _, err := k.store.Heartbeat(k.ctx(), "gone", 0); err != nil {
		k.Fatal(err)
	}
	after, err := k.store.Stats(k.ctx())
	if err != nil {
		k.Fatal(err)
	}
	if s := after.States; s[driver.StatePending] != 3 || s[driver.StateSending] != 1 || s[driver.StateCanceled] != 1 || after.Due != 3 || after.Workers != 1 {
		k.Errorf("Stats: %+v", after)
	}
	k.failIf(after.Now.Before(before.Now), "Stats at %v, and then at %v", before.Now, after.Now)
	// The intent of a dead worker is not being sent.
	if _, err := k.store.Heartbeat(k.ctx(), "w", time.Millisecond); err != nil {
		k.Fatal(err)
	}
	k.reach(driver.StateDead, true)
	k.reach(driver.StateDead, false)
	var dead driver.Stats
	k.eventually("the end of the lease", func() bool {
		dead, err = k.store.Stats(k.ctx())
		return err == nil && dead.States[driver.StateUnknown] == 1
	})
	if s := dead.States; s[driver.StateSending] != 0 || s[driver.StateDead] != 2 || dead.DeadInDoubt != 1 {
		k.Errorf("Stats with a dead worker: %+v", dead)
	}
}
