package storetest

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/durable"
	"github.com/resilienthttp/resilienthttp/idempotency"
	"github.com/resilienthttp/resilienthttp/internal/sleep"
)

// patience limits waits for events that must happen, on a slow machine too.
const patience = time.Minute

const (
	gateway = "psp"    // has a Finder
	mute    = "mute"   // has none
	worker  = "worker" // is that of the tests with one
)

// terms are the terms of all claims.
var terms = map[string]durable.Terms{ //nolint:gochecknoglobals // constant
	gateway: {KeyTTL: time.Hour, CanQuery: true},
	mute:    {},
}

// kit is one test of the suite. Testify's messages have the lines of all callers.
type kit struct {
	Suite
	*testing.T

	store durable.Store
	again durable.Store // the same as store if there is only one

	journals map[idempotency.ID]*durable.Journal // as expected, from the results of the verbs
}

func newKit(t *testing.T, s Suite) *kit {
	t.Helper()
	k := &kit{Suite: s, T: t, store: s.Open(t), journals: make(map[idempotency.ID]*durable.Journal)}
	k.again = k.store
	if s.Again != nil {
		k.again = s.Again(t, k.store)
	}
	return k
}

// handle returns the Store of the i-th of several processes.
func (k *kit) handle(i int) durable.Store {
	if i%2 == 1 {
		return k.again
	}
	return k.store
}

// ctx ends when something hangs.
func (k *kit) ctx() context.Context {
	ctx, cancel := context.WithTimeout(k.Context(), patience)
	k.Cleanup(cancel)
	return ctx
}

// intent returns a new intent of a scope.
func intent(scope string) durable.Intent {
	return durable.Intent{
		ID:      idempotency.ID{Scope: scope, Operation: "POST /charges", Key: rand.Text()},
		Gateway: gateway, Payload: []byte(`{"amount":100}`), Batch: "batch", Row: 7,
	}
}

// inAnHour returns a new intent that is not due yet.
func inAnHour(scope string) durable.Intent {
	in := intent(scope)
	in.NotBefore = time.Now().Add(time.Hour)
	return in
}

func enqueue(in durable.Intent) durable.Event {
	return durable.Event{Kind: durable.EventEnqueue, Intent: in}
}

// finish ends the attempt that a claim began.
func finish(r *durable.Record, outcome durable.Outcome, decision durable.Decision) durable.Event {
	return durable.Event{
		Kind: durable.EventFinish, Intent: durable.Intent{ID: r.ID}, Worker: r.Worker, Generation: r.Generation,
		Terms: new(terms[r.Gateway]), Outcome: outcome, Decision: decision,
	}
}

// success ends the attempt with success.
func success(r *durable.Record) durable.Event {
	return finish(r, durable.Outcome{Class: durable.ClassSucceeded}, durable.Decision{})
}

func event(kind durable.EventKind, id idempotency.ID) durable.Event {
	return durable.Event{Kind: kind, Intent: durable.Intent{ID: id}, By: "ann", Note: "why"}
}

// changed is the event after a change.
func changed(e durable.Event, change func(*durable.Event)) durable.Event {
	change(&e)
	return e
}

// claim returns a claim without limits.
func claim(name string) durable.Claim {
	c := durable.Claim{Worker: name, Lease: time.Hour, Limit: 1000, Gateways: make(map[string]durable.Allowance)}
	for name := range terms {
		c.Gateways[name] = durable.Allowance{Terms: terms[name], Limit: 1000, PerScope: 1000}
	}
	return c
}

// alone returns a claim of a suspect.
func alone() durable.Claim {
	c := claim(worker)
	c.Alone = true
	return c
}

// allow changes the allowance of the gateway that most tests use.
func allow(c *durable.Claim, change func(*durable.Allowance)) {
	a := c.Gateways[gateway]
	change(&a)
	c.Gateways[gateway] = a
}

// apply applies one event, and compares the result with Decide.
func (k *kit) apply(e durable.Event) durable.Result {
	before := k.look(e.ID())
	results, err := k.store.Apply(k.ctx(), []durable.Event{e})
	require.NoError(k, err)
	require.Len(k, results, 1)
	k.checkResult(before, e, &results[0])
	return results[0]
}

// must applies an event that must succeed, and returns the record.
func (k *kit) must(e durable.Event) durable.Record {
	result := k.apply(e)
	require.NoError(k, result.Err, "%v of an intent that is %v", e.Kind, result.Before)
	return result.Record
}

// applyAll applies events that must succeed, in one commit, and returns the records.
func (k *kit) applyAll(events ...durable.Event) (records []durable.Record) {
	results, err := k.store.Apply(k.ctx(), events)
	require.NoError(k, err)
	for i := range results {
		require.NoError(k, results[i].Err, "%v", events[i].Kind)
		k.note(&results[i].Change)
		records = append(records, results[i].Record)
	}
	return records
}

// look reads a record; nil: there is none.
func (k *kit) look(id idempotency.ID) *durable.Record {
	record, err := k.again.Find(k.ctx(), id)
	if errors.Is(err, durable.ErrNotFound) || errors.Is(err, durable.ErrInvalid) {
		return nil
	}
	require.NoError(k, err)
	return &record
}

// checkResult compares a result with Decide, and the stored record with the result. It completes
// the result with values that the store has not read.
func (k *kit) checkResult(before *durable.Record, e durable.Event, got *durable.Result) {
	now := got.Record.UpdatedAt
	if got.Step == durable.StepKeep {
		now = time.Now() // nothing was written, so the time is not known
	}
	want, err := durable.Decide(before, &e, now)
	if err != nil {
		require.EqualError(k, got.Err, err.Error(), "%v", e.Kind)
	}
	complete(&got.Record, &want.Record)
	require.Equal(k, whole(want), whole(got.Change), "%v of one that was %v is not as Decide says", e.Kind, got.Before)
	k.note(&got.Change)
	if got.Err == nil || before != nil {
		k.checkStored(&got.Record)
	}
}

// complete sets the values of a record that the store has not read.
func complete(got, want *durable.Record) {
	if len(got.Payload) == 0 {
		got.Payload = want.Payload
	}
	if len(got.Result) == 0 {
		got.Result = want.Result
	}
}

// whole and stored make nil of empty values, so that they are equal.
func whole(c durable.Change) durable.Change {
	c.Record = stored(c.Record)
	return c
}

func stored(r durable.Record) durable.Record {
	if len(r.Payload) == 0 {
		r.Payload = nil
	}
	if len(r.Result) == 0 {
		r.Result = nil
	}
	return r
}

// note adds a result to the expected journals and dead letters.
func (k *kit) note(c *durable.Change) { k.journal(c.Record.ID).Add(c) }

// journal returns what is expected of an intent.
func (k *kit) journal(id idempotency.ID) *durable.Journal {
	if k.journals[id] == nil {
		k.journals[id] = new(durable.Journal)
	}
	return k.journals[id]
}

// checkStored compares the stored record with the result of the verb.
func (k *kit) checkStored(want *durable.Record) {
	got := k.look(want.ID)
	require.NotNil(k, got, "it is %v", want.State)
	require.Equal(k, stored(*want), stored(*got), "Find differs from the result of the verb")
	attempts, err := k.again.Attempts(k.ctx(), want.ID)
	require.NoError(k, err)
	letters, err := k.again.DeadLetters(k.ctx(), durable.Filter{
		Scope: want.ID.Scope, Operation: want.ID.Operation, Key: want.ID.Key, IncludeResolved: true,
	}, nil, 1000)
	require.NoError(k, err)
	journal := k.journal(want.ID)
	require.Equal(k, journal.Attempts, attempts, "Attempts differ from the results of the verbs")
	equalRows(k, journal.Letters, letters, "DeadLetters differ from the results of the verbs")
}

// equalRows compares rows, of which none may be nil.
func equalRows[T any](k *kit, want, got []T, message ...any) {
	require.Equal(k, slices.Concat([]T{}, want), slices.Concat([]T{}, got), message...)
}

// claim claims, and compares each change with Decide.
func (k *kit) claim(c durable.Claim, before ...durable.Record) []durable.Change {
	claimed, err := k.store.Claim(k.ctx(), c)
	require.NoError(k, err)
	assert.True(k, claimed.Lease == 0 || claimed.Lease >= c.Lease*9/10, "a claim gives a lease of %v", claimed.Lease)
	for i := range claimed.Changes {
		change := &claimed.Changes[i]
		k.note(change)
		for j := range before {
			if before[j].ID != change.Record.ID {
				continue
			}
			want, err := durable.Decide(&before[j], new(c.Event(&before[j])), change.Record.UpdatedAt)
			require.NoError(k, err)
			require.Equal(k, whole(want), whole(*change), "a claim is not as Decide says")
		}
		k.checkStored(&change.Record)
	}
	return claimed.Changes
}

// claimID claims an intent and no other.
func (k *kit) claimID(id idempotency.ID, before ...durable.Record) []durable.Change {
	c := claim(worker)
	c.ID = &id
	return k.claim(c, before...)
}

// claimOne claims an intent that can be claimed.
func (k *kit) claimOne(before durable.Record) durable.Record {
	changes := k.claimID(before.ID, before)
	require.Len(k, changes, 1, "it is %v, due at %v", before.State, before.NextAt)
	return changes[0].Record
}

// beat renews a lease.
func (k *kit) beat(name string, lease time.Duration) {
	_, err := k.store.Heartbeat(k.ctx(), name, lease)
	require.NoError(k, err)
}

// stats returns the numbers of the store.
func (k *kit) stats() durable.Stats {
	stats, err := k.store.Stats(k.ctx())
	require.NoError(k, err)
	return stats
}

// now returns the store's time.
func (k *kit) now() time.Time { return k.stats().Now }

// together calls f with 0 to n-1, all at the same time, and waits for them.
func together(n int, f func(i int)) {
	start := make(chan struct{})
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			<-start
			f(i)
		})
	}
	close(start)
	all.Wait()
}

// eventually calls f until it is true.
func (k *kit) eventually(what string, f func() bool) {
	for deadline := time.Now().Add(patience); !f(); _ = sleep.Context(k.Context(), 5*time.Millisecond) {
		require.True(k, time.Now().Before(deadline), "waited %v for %s", patience, what)
	}
}

// scopes are those of the changes.
func scopes(changes []durable.Change) []string {
	names := make([]string, len(changes))
	for i := range changes {
		names[i] = changes[i].Record.ID.Scope
	}
	return names
}

// queues are the numbers of intents of each queue.
type queues map[durable.QueueKey]int

// queuesOf counts the changes.
func queuesOf(changes []durable.Change) queues {
	n := make(queues)
	for i := range changes {
		n[durable.QueueKeyOf(&changes[i].Record)]++
	}
	return n
}

// ignored returns the error of a verb.
func ignored[T any](_ T, err error) error { return err }
