package storetest

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/resilienthttp/resilienthttp/durable/internal/driver"
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
var terms = map[string]driver.Terms{ //nolint:gochecknoglobals // constant
	gateway: {KeyTTL: time.Hour, CanQuery: true},
	mute:    {},
}

// kit is one test of the suite.
type kit struct {
	Suite
	*testing.T

	store driver.Store
	again driver.Store // the same as store if there is only one

	// The expected journals and dead letters, from the results of the verbs.
	attempts map[idempotency.ID][]driver.Attempt
	letters  map[idempotency.ID][]driver.DeadLetter
}

func newKit(t *testing.T, s Suite) *kit {
	t.Helper()
	k := &kit{
		Suite: s, T: t, store: s.Open(t),
		attempts: make(map[idempotency.ID][]driver.Attempt), letters: make(map[idempotency.ID][]driver.DeadLetter),
	}
	k.again = k.store
	if s.Again != nil {
		k.again = s.Again(t, k.store)
	}
	return k
}

// handle returns the Store of the i-th of several processes.
func (k *kit) handle(i int) driver.Store {
	if i%2 == 1 {
		return k.again
	}
	return k.store
}

// ctx ends when something hangs.
func (k *kit) ctx() context.Context {
	k.Helper()
	ctx, cancel := context.WithTimeout(k.Context(), patience)
	k.Cleanup(cancel)
	return ctx
}

// intent returns a new intent of a scope.
func intent(scope string) driver.Intent {
	return driver.Intent{
		ID:      idempotency.ID{Scope: scope, Operation: "POST /charges", Key: rand.Text()},
		Gateway: gateway, Payload: []byte(`{"amount":100}`), Batch: "batch", Row: 7,
	}
}

func enqueue(in driver.Intent) driver.Event {
	return driver.Event{Kind: driver.EventEnqueue, Intent: in}
}

// finish ends the attempt that a claim began.
func finish(r *driver.Record, outcome driver.Outcome, decision driver.Decision) driver.Event {
	t := terms[r.Gateway]
	return driver.Event{
		Kind: driver.EventFinish, Intent: driver.Intent{ID: r.ID}, Worker: r.Worker, Generation: r.Generation,
		Terms: &t, Outcome: outcome, Decision: decision,
	}
}

func event(kind driver.EventKind, id idempotency.ID) driver.Event {
	return driver.Event{Kind: kind, Intent: driver.Intent{ID: id}, By: "ann", Note: "why"}
}

// claim returns a claim without limits.
func claim(name string) driver.Claim {
	c := driver.Claim{Worker: name, Lease: time.Hour, Limit: 1000, Gateways: make(map[string]driver.Allowance)}
	for name := range terms {
		c.Gateways[name] = driver.Allowance{Terms: terms[name], Limit: 1000, PerScope: 1000}
	}
	return c
}

// allow changes the allowance of the gateway that most tests use.
func allow(c *driver.Claim, change func(*driver.Allowance)) {
	a := c.Gateways[gateway]
	change(&a)
	c.Gateways[gateway] = a
}

// apply applies one event, and compares the result with Decide.
func (k *kit) apply(e driver.Event) driver.Result {
	k.Helper()
	before := k.look(e.ID())
	results, err := k.store.Apply(k.ctx(), []driver.Event{e})
	k.fatalIf(err != nil || len(results) != 1, "Apply: %d results, %v", len(results), err)
	k.checkResult(before, e, &results[0])
	return results[0]
}

// must applies an event that must succeed, and returns the record.
func (k *kit) must(e driver.Event) driver.Record {
	k.Helper()
	result := k.apply(e)
	k.fatalIf(result.Err != nil, "%v of an intent that is %v: got %v, want success", e.Kind, result.Before, result.Err)
	return result.Record
}

// look reads a record; nil: there is none.
func (k *kit) look(id idempotency.ID) *driver.Record {
	k.Helper()
	record, err := k.again.Find(k.ctx(), id)
	if errors.Is(err, driver.ErrNotFound) || errors.Is(err, driver.ErrInvalid) {
		return nil
	}
	k.fatalIf(err != nil, "Find: %v", err)
	return &record
}

// checkResult compares a result with Decide, and the stored record with the result. It completes
// the result with values that the store has not read.
func (k *kit) checkResult(before *driver.Record, e driver.Event, got *driver.Result) {
	k.Helper()
	now := got.Record.UpdatedAt
	if got.Step == driver.StepKeep {
		now = time.Now() // nothing was written, so the time is not known
	}
	want, err := driver.Decide(before, &e, now)
	k.fatalIf(fmt.Sprint(got.Err) != fmt.Sprint(err), "%v: the error is %v, but Decide says %v", e.Kind, got.Err, err)
	complete(&got.Record, &want.Record)
	if d := diff(got.Change, want); d != "" {
		k.Fatalf("%v of one that was %v is not as Decide says:\n%s", e.Kind, got.Before, d)
	}
	k.note(&got.Change)
	if got.Err == nil || before != nil {
		k.checkStored(&got.Record)
	}
}

// complete sets the values of a record that the store has not read.
func complete(got, want *driver.Record) {
	if len(got.Payload) == 0 {
		got.Payload = want.Payload
	}
	if len(got.Result) == 0 {
		got.Result = want.Result
	}
}

// note adds a result to the expected journals and dead letters.
func (k *kit) note(c *driver.Change) {
	id := c.Record.ID
	if c.StartedAttempt != nil {
		k.attempts[id] = append(k.attempts[id], *c.StartedAttempt)
	}
	if e := c.FinishedAttempt; e != nil {
		for i := range k.attempts[id] {
			if a := &k.attempts[id][i]; a.Generation == e.Generation {
				a.FinishedAt, a.Class, a.Code, a.Status, a.Reference, a.Error = e.FinishedAt, e.Class, e.Code, e.Status, e.Reference, e.Error
			}
		}
	}
	if c.Resolved != nil {
		for i := range k.letters[id] {
			if l := &k.letters[id][i]; l.Number == c.Resolved.Number {
				l.RedrivenAt, l.By, l.Note = c.Resolved.RedrivenAt, c.Resolved.By, c.Resolved.Note
			}
		}
	}
	if c.DeadLettered != nil {
		k.letters[id] = append(k.letters[id], *c.DeadLettered)
	}
	if c.Erased {
		for i := range k.attempts[id] {
			k.attempts[id][i].Error = ""
		}
		for i := range k.letters[id] {
			if l := &k.letters[id][i]; l.Note != driver.NoteErased {
				l.Note = ""
			}
		}
	}
}

// checkStored compares the stored record with the result of the verb.
func (k *kit) checkStored(want *driver.Record) {
	k.Helper()
	got := k.look(want.ID)
	if got == nil {
		k.Fatalf("Find: nothing, but it is %v", want.State)
	}
	if d := diff(*got, *want); d != "" {
		k.Fatalf("Find differs from the result of the verb:\n%s", d)
	}
	attempts, err := k.again.Attempts(k.ctx(), want.ID)
	k.fatalIf(err != nil, "Attempts: %v", err)
	if d := diff(attempts, k.attempts[want.ID]); d != "" {
		k.Fatalf("Attempts differ from the results of the verbs:\n%s", d)
	}
	letters, err := k.again.DeadLetters(k.ctx(), driver.Filter{
		Scope: want.ID.Scope, Operation: want.ID.Operation, Key: want.ID.Key, IncludeResolved: true,
	}, nil, 1000)
	k.fatalIf(err != nil, "DeadLetters: %v", err)
	if d := diff(letters, k.letters[want.ID]); d != "" {
		k.Fatalf("DeadLetters differ from the results of the verbs:\n%s", d)
	}
}

// claim claims, and compares each change with Decide.
func (k *kit) claim(c driver.Claim, before ...driver.Record) []driver.Change {
	k.Helper()
	claimed, err := k.store.Claim(k.ctx(), c)
	k.fatalIf(err != nil, "Claim: %v", err)
	if least := c.Lease * 9 / 10; claimed.Lease != 0 && claimed.Lease < least {
		k.Errorf("a claim gives a lease of %v, want %v at least", claimed.Lease, least)
	}
	for i := range claimed.Changes {
		change := &claimed.Changes[i]
		k.note(change)
		for j := range before {
			if before[j].ID != change.Record.ID {
				continue
			}
			e := c.Event(&before[j])
			want, err := driver.Decide(&before[j], &e, change.Record.UpdatedAt)
			if d := diff(*change, want); d != "" || err != nil {
				k.Fatalf("a claim is not as Decide says (%v):\n%s", err, d)
			}
		}
		k.checkStored(&change.Record)
	}
	return claimed.Changes
}

// claimOne claims the only intent that can be claimed.
func (k *kit) claimOne(before driver.Record) driver.Record {
	k.Helper()
	c := claim(worker)
	c.ID = &before.ID
	changes := k.claim(c, before)
	k.fatalIf(len(changes) != 1, "Claim: %d changes, want 1; it is %v, due at %v", len(changes), before.State, before.NextAt)
	return changes[0].Record
}

// failIf reports an error if wrong is true, and goes on.
func (k *kit) failIf(wrong bool, format string, args ...any) {
	if wrong {
		k.Helper()
		k.Errorf(format, args...)
	}
}

// fatalIf reports an error if wrong is true, and ends the test.
func (k *kit) fatalIf(wrong bool, format string, args ...any) {
	if wrong {
		k.Helper()
		k.Fatalf(format, args...)
	}
}

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
	k.Helper()
	for deadline := time.Now().Add(patience); !f(); _ = sleep.Context(k.Context(), 5*time.Millisecond) {
		k.fatalIf(time.Now().After(deadline), "waited %v for %s", patience, what)
	}
}

// diff returns the differences of two values, one a line. Times are compared as instants, and
// empty slices are equal to nil.
func diff(got, want any) string {
	var b strings.Builder
	walk(&b, "", reflect.ValueOf(got), reflect.ValueOf(want))
	return b.String()
}

func walk(b *strings.Builder, path string, got, want reflect.Value) {
	differ := func() { fmt.Fprintf(b, "\t%s: %.200v, want %.200v\n", path, show(got), show(want)) }
	switch g := got.Interface().(type) {
	case time.Time:
		if w, _ := reflect.TypeAssert[time.Time](want); !g.Equal(w) {
			differ()
		}
		return
	case []byte:
		if !bytes.Equal(g, want.Bytes()) {
			differ()
		}
		return
	}
	switch got.Kind() {
	case reflect.Struct:
		for i := range got.NumField() {
			walk(b, path+"."+got.Type().Field(i).Name, got.Field(i), want.Field(i))
		}
	case reflect.Pointer:
		if got.IsNil() || want.IsNil() {
			if got.IsNil() != want.IsNil() {
				differ()
			}
			return
		}
		walk(b, path, got.Elem(), want.Elem())
	case reflect.Slice:
		if got.Len() != want.Len() {
			fmt.Fprintf(b, "\t%s: %d of them, want %d\n", path, got.Len(), want.Len())
			return
		}
		for i := range got.Len() {
			walk(b, fmt.Sprintf("%s[%d]", path, i), got.Index(i), want.Index(i))
		}
	default:
		if !got.Equal(want) {
			differ()
		}
	}
}

func show(v reflect.Value) string {
	text := fmt.Sprintf("%+v", v.Interface())
	return text[:min(len(text), 200)]
}

// scopes are those of the changes.
func scopes(changes []driver.Change) []string {
	names := make([]string, len(changes))
	for i := range changes {
		names[i] = changes[i].Record.ID.Scope
	}
	return names
}

func sorted(names []string) []string {
	slices.Sort(names)
	return names
}
