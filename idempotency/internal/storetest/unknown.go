package storetest

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/resilienthttp/resilienthttp/idempotency/internal/driver"
)

// testUnknown lists records that are Unknown.
func (k *kit) testUnknown(t *testing.T) {
	t.Run("what", k.listWhat)
	t.Run("scopes and order", k.listOrder)
	t.Run("many", k.listMany)
	t.Run("none", func(t *testing.T) { k.lists(t, k.scope+" without records", nil) })
	t.Run("early end", k.listEarly)
	t.Run("canceled", k.listCanceled)
}

// list returns the ids that Unknown lists. It compares the records with those of Load, and
// calls visit for each.
func (k *kit) list(t *testing.T, scope string, visit func(record driver.Record)) []driver.ID {
	t.Helper()
	var got []driver.ID
	for record, err := range k.store.Unknown(patient(t), scope) {
		must(t, "Unknown", err)
		wantRecord(t, "of Unknown is not that of Load", record, k.load(t, record.ID))
		got = append(got, record.ID)
		if visit != nil {
			visit(record)
		}
	}
	return got
}

func (k *kit) lists(t *testing.T, scope string, want []driver.ID) {
	t.Helper()
	if got := k.list(t, scope, nil); !slices.Equal(got, want) {
		t.Errorf("Unknown of %q: got %d records, want %d in order:\n%q\n%q", scope, len(got), len(want), got, want)
	}
}

// listWhat lists records in all states.
func (k *kit) listWhat(t *testing.T) {
	subjects := k.prepare(t, states())
	listed := k.list(t, k.scope, nil)
	for i := range subjects {
		s := &subjects[i]
		equal(t, s.name+": listed", slices.Contains(listed, s.lease.ID), s.status == driver.Unknown)
	}
}

// listOrder lists similar names in several scopes.
func (k *kit) listOrder(t *testing.T) {
	var all []driver.ID
	for _, scope := range []string{"", "A", "a", "a ", "a\x01", "aa", "b", "ä", "🐎"} {
		for _, operation := range []string{"", "B", "a", "b", "é"} {
			for _, key := range []string{"2", "10", "1", "K", "k", "\u212a"} {
				all = append(all, driver.ID{Scope: k.scope + " order" + scope, Operation: operation, Key: key})
			}
		}
	}
	for _, i := range []int{7, 3, 5, 1, 0, 2, 4, 6} { // not in order
		for j := i; j < len(all); j += 8 {
			k.doubt(t, all[j])
		}
	}
	compare := func(a, b driver.ID) int {
		return cmp.Or(cmp.Compare(a.Scope, b.Scope), cmp.Compare(a.Operation, b.Operation), cmp.Compare(a.Key, b.Key))
	}
	slices.SortFunc(all, compare)
	for start, end := 0, 0; start < len(all); start = end {
		for end < len(all) && all[end].Scope == all[start].Scope {
			end++
		}
		k.lists(t, all[start].Scope, all[start:end])
	}

	got := k.list(t, "", nil) // the store may have other records
	equal(t, "Unknown of all scopes is in order", slices.IsSortedFunc(got, compare), true)
	got = slices.DeleteFunc(got, func(id driver.ID) bool { return !slices.Contains(all, id) })
	equal(t, "Unknown of all scopes lists all records", slices.Equal(got, all), true)
}

// doubt makes an operation Unknown.
func (k *kit) doubt(t *testing.T, id driver.ID) {
	t.Helper()
	k.complete(t, k.acquire(t, k.claim(id)), driver.Outcome{Status: driver.Unknown})
}

// doubtful makes n Unknown records, among others, in a new scope.
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

// listMany resolves each record when it is listed, as a reconciler does.
func (k *kit) listMany(t *testing.T) {
	all := k.doubtful(t, " many", 222) // more than two pages of 100
	k.lists(t, all[0].Scope, all)
	n := 0
	got := k.list(t, all[0].Scope, func(record driver.Record) {
		if n++; n%3 == 0 {
			k.release(t, record.Lease())
		} else {
			k.complete(t, record.Lease(), driver.Outcome{Status: driver.Completed, Result: answer(), TTL: time.Hour})
		}
		_, err := k.store.Sweep(patient(t), 1)
		must(t, "Sweep during a list", err)
	})
	equal(t, "Unknown lists all records while they are resolved", slices.Equal(got, all), true)
	k.lists(t, all[0].Scope, nil)
}

// listEarly ends more lists early than a store has connections, and nests lists.
func (k *kit) listEarly(t *testing.T) {
	all := k.doubtful(t, " early", 12)
	list := k.store.Unknown(patient(t), all[0].Scope)
	for i := range 30 {
		n := 0
		for record, err := range list { // each range begins at the start
			must(t, "Unknown", err)
			equal(t, "listed", record.ID, all[n])
			if n++; n > i%10 {
				k.lists(t, all[0].Scope, all)
				break
			}
		}
	}
}

// listCanceled ends the context of a list before its begin and in the middle.
func (k *kit) listCanceled(t *testing.T) {
	all := k.doubtful(t, " canceled", 130) // more than a page of 100
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	listed, failed := 0, 0
	list := func() {
		for record, err := range k.store.Unknown(ctx, all[0].Scope) {
			if failed > 0 {
				t.Fatalf("Unknown after an error: got %s, %v, want the end", show(record), err)
			}
			if err != nil {
				wantError(t, "Unknown", err, context.Canceled)
				equal(t, "status of the record with an error", record.Status, 0)
				failed++
			} else {
				listed++
			}
			cancel()
		}
	}
	list()
	if failed == 0 { // it may have read all records before
		equal(t, "listed records without an error", listed, len(all))
	}
	listed, failed = 0, 0
	list()
	if listed != 0 || failed != 1 {
		t.Errorf("Unknown with a canceled context: got %d records and %d errors, want an error", listed, failed)
	}
}
