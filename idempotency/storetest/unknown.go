package storetest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/resilienthttp/resilienthttp/idempotency/driver"
)

// testUnknown lists what nobody knows.
func (k *kit) testUnknown(t *testing.T) {
	t.Run("what", k.listWhat)
	t.Run("scopes and order", k.listOrder)
	t.Run("many", k.listMany)
	t.Run("none", func(t *testing.T) { k.lists(t, k.scope+" of nobody", nil) })
	t.Run("early end", k.listEarly)
	t.Run("cancelled", k.listCancelled)
}

// doubt makes an operation Unknown.
func (k *kit) doubt(t *testing.T, id driver.ID) {
	t.Helper()
	k.complete(t, k.acquire(t, k.claim(id)), driver.Outcome{Status: driver.Unknown})
}

// lists looks that these are the Unknown records of a scope, as Load has them.
func (k *kit) lists(t *testing.T, scope string, want []driver.ID) {
	t.Helper()
	var got []driver.ID
	for record, err := range k.store.Unknown(patient(t), scope) {
		if err != nil {
			t.Fatalf("Unknown: %v", err)
		}
		if d := diff(record, k.load(t, record.ID)); d != "" {
			t.Errorf("the record that Unknown gives is not the one that Load finds:\n%s", d)
		}
		got = append(got, record.ID)
	}
	if !slices.Equal(got, want) {
		t.Errorf("Unknown of %q: %d records, want %d, in the order of their names:\n%q\n%q", scope, len(got), len(want), got, want)
	}
}

// listWhat lists records in every state.
func (k *kit) listWhat(t *testing.T) {
	subjects := k.prepare(t, states())
	listed := make(map[driver.ID]bool)
	for record, err := range k.store.Unknown(patient(t), k.scope) {
		if err != nil {
			t.Fatalf("Unknown: %v", err)
		}
		listed[record.ID] = true
	}
	for i := range subjects {
		s := &subjects[i]
		if want := s.status == driver.Unknown; listed[s.lease.ID] != want {
			t.Errorf("%s: listed %v, want %v", s.name, !want, want)
		}
	}
}

// listOrder lists names that are nearly the same, in several scopes.
func (k *kit) listOrder(t *testing.T) {
	base := k.scope + " order"
	var all []driver.ID
	for _, scope := range []string{"", "A", "a", "a ", "a\x01", "aa", "b", "ä", "🐎"} {
		for _, operation := range []string{"", "B", "a", "b", "é"} {
			for _, key := range []string{"2", "10", "1", "K", "k", "\u212a"} {
				all = append(all, driver.ID{Scope: base + scope, Operation: operation, Key: key})
			}
		}
	}
	for _, i := range []int{7, 3, 5, 1, 0, 2, 4, 6} { // not in order
		for j := i; j < len(all); j += 8 {
			k.doubt(t, all[j])
		}
	}
	slices.SortFunc(all, compareIDs)
	for start := 0; start < len(all); {
		end := start
		for end < len(all) && all[end].Scope == all[start].Scope {
			end++
		}
		k.lists(t, all[start].Scope, all[start:end])
		start = end
	}

	// There may be more in the store.
	var got []driver.ID
	mine := make(map[driver.ID]bool)
	for _, id := range all {
		mine[id] = true
	}
	last := driver.ID{}
	for record, err := range k.store.Unknown(patient(t), "") {
		if err != nil {
			t.Fatalf("Unknown: %v", err)
		}
		if compareIDs(last, record.ID) >= 0 {
			t.Errorf("Unknown of all scopes: %q comes after %q", record.ID, last)
		}
		last = record.ID
		if mine[record.ID] {
			got = append(got, record.ID)
		}
	}
	if !slices.Equal(got, all) {
		t.Errorf("Unknown of all scopes gives %d of %d records", len(got), len(all))
	}
}

func compareIDs(a, b driver.ID) int {
	return cmp.Or(cmp.Compare(a.Scope, b.Scope), cmp.Compare(a.Operation, b.Operation), cmp.Compare(a.Key, b.Key))
}

// doubtful makes many Unknown records, among others, in a scope of their own.
func (k *kit) doubtful(t *testing.T, scope string, n int) []driver.ID {
	t.Helper()
	all := make([]driver.ID, n)
	for i := range all {
		all[i] = driver.ID{Scope: k.scope + scope, Operation: fmt.Sprint("op ", i/100), Key: fmt.Sprintf("%04d", i)}
		k.doubt(t, all[i])
		other := all[i]
		other.Key += " is known"
		k.acquire(t, k.claim(other))
	}
	return all
}

// listMany settles each of many records as it comes, as a reconciler does.
func (k *kit) listMany(t *testing.T) {
	all := k.doubtful(t, " many", 333)
	k.lists(t, all[0].Scope, all)
	var got []driver.ID
	for record, err := range k.store.Unknown(patient(t), all[0].Scope) {
		if err != nil {
			t.Fatalf("Unknown: %v", err)
		}
		got = append(got, record.ID)
		if len(got)%3 == 0 {
			k.release(t, record.Lease())
		} else {
			k.complete(t, record.Lease(), driver.Outcome{Status: driver.Completed, Result: answer(), TTL: time.Hour})
		}
		if _, err := k.store.Sweep(patient(t), 1); err != nil {
			t.Fatalf("Sweep in the middle of a list: %v", err)
		}
	}
	if !slices.Equal(got, all) {
		t.Errorf("Unknown gives %d of %d records while they are settled", len(got), len(all))
	}
	k.lists(t, all[0].Scope, nil)
}

// listEarly leaves lists in the middle, more often than a store has connections,
// and goes through one list within another.
func (k *kit) listEarly(t *testing.T) {
	all := k.doubtful(t, " early", 20)
	for i := range 50 {
		n := 0
		for record, err := range k.store.Unknown(patient(t), all[0].Scope) {
			if err != nil || record.ID != all[n] {
				t.Fatalf("Unknown: %q, %v, want %q", record.ID, err, all[n])
			}
			if n++; n > i%10 {
				k.lists(t, all[0].Scope, all)
				break
			}
		}
	}
	list := k.store.Unknown(patient(t), all[0].Scope)
	for range 2 { // each range begins from the start
		n := 0
		for _, err := range list {
			if err != nil {
				t.Fatalf("Unknown: %v", err)
			}
			n++
		}
		if n != len(all) {
			t.Errorf("Unknown: %d records, want %d", n, len(all))
		}
	}
}

// listCancelled ends a list before it begins, and in the middle.
func (k *kit) listCancelled(t *testing.T) {
	all := k.doubtful(t, " cancelled", 250)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	n := 0
	var last error
	for record, err := range k.store.Unknown(ctx, all[0].Scope) {
		switch {
		case last != nil:
			t.Fatalf("Unknown goes on after %v: %s, %v", last, show(record), err)
		case err == nil:
			n++
		case !errors.Is(err, context.Canceled) || record.Status != 0:
			t.Fatalf("Unknown: %s, %v, want context.Canceled", show(record), err)
		}
		last = err
		cancel()
	}
	if last == nil && n != len(all) { // it may have read all before
		t.Errorf("Unknown ends after %d of %d records without an error", n, len(all))
	}
	n = 0
	for record, err := range k.store.Unknown(ctx, all[0].Scope) {
		if n++; n > 1 || !errors.Is(err, context.Canceled) {
			t.Errorf("Unknown of a context that is over: %s, %v, want context.Canceled once", show(record), err)
		}
	}
	if n != 1 {
		t.Errorf("Unknown of a context that is over gives %d times something, want an error once", n)
	}
}
