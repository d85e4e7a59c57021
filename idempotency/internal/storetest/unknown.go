package storetest

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/idempotency"
)

// testUnknown lists records that are Unknown.
func (k *kit) testUnknown() {
	k.test("scopes and order", (*kit).listOrder)
	k.test("many", (*kit).listMany)
	k.test("none", func(k *kit) { assert.Empty(k, k.list(k.scope+" without records", nil)) })
	k.test("early end", (*kit).listEarly)
	k.test("canceled", (*kit).listCanceled)
}

// list returns the ids that Unknown lists. It compares the records with those of Load, and
// calls visit for each.
func (k *kit) list(scope string, visit func(record idempotency.Record)) []idempotency.ID {
	var got []idempotency.ID
	for record, err := range k.store.Unknown(k.patient(), scope) {
		require.NoError(k, err)
		k.equalRecord(record, k.load(record.ID), "of Unknown and of Load")
		got = append(got, record.ID)
		if visit != nil {
			visit(record)
		}
	}
	return got
}

// listOrder lists similar names in several scopes.
func (k *kit) listOrder() {
	var all []idempotency.ID
	for _, scope := range []string{"", "A", "a", "a ", "a\x01", "aa", "b", "ä", "🐎"} {
		for _, operation := range []string{"", "B", "a", "b", "é"} {
			for _, key := range []string{"2", "10", "1", "K", "k", "\u212a"} {
				all = append(all, idempotency.ID{Scope: k.scope + " order" + scope, Operation: operation, Key: key})
			}
		}
	}
	for _, i := range []int{7, 3, 5, 1, 0, 2, 4, 6} { // not in order
		for j := i; j < len(all); j += 8 {
			k.doubt(all[j])
		}
	}
	compare := func(a, b idempotency.ID) int {
		return cmp.Or(cmp.Compare(a.Scope, b.Scope), cmp.Compare(a.Operation, b.Operation), cmp.Compare(a.Key, b.Key))
	}
	slices.SortFunc(all, compare)
	for start, end := 0, 0; start < len(all); start = end {
		for end < len(all) && all[end].Scope == all[start].Scope {
			end++
		}
		assert.Equal(k, all[start:end], k.list(all[start].Scope, nil))
	}

	got := k.list("", nil) // the store may have other records
	assert.True(k, slices.IsSortedFunc(got, compare), "all scopes")
	assert.Equal(k, all, slices.DeleteFunc(got, func(id idempotency.ID) bool { return !slices.Contains(all, id) }))
}

// doubt makes an operation Unknown.
func (k *kit) doubt(id idempotency.ID) {
	k.complete(k.acquire(k.claim(id)), idempotency.Outcome{Status: idempotency.Unknown})
}

// doubtful makes n Unknown records, among others, in a new scope.
func (k *kit) doubtful(scope string, n int) []idempotency.ID {
	all := make([]idempotency.ID, n)
	for i := range all {
		all[i] = idempotency.ID{Scope: k.scope + scope, Operation: fmt.Sprint("op ", i/100), Key: fmt.Sprintf("%04d", i)}
		k.doubt(all[i])
		other := all[i]
		other.Key += " is known"
		k.acquire(k.claim(other))
	}
	return all
}

// listMany resolves each record when it is listed, as a reconciler does.
func (k *kit) listMany() {
	all := k.doubtful(" many", 222) // more than two pages of 100
	assert.Equal(k, all, k.list(all[0].Scope, nil))
	n := 0
	got := k.list(all[0].Scope, func(record idempotency.Record) {
		if n++; n%3 == 0 {
			k.release(record.Lease())
		} else {
			completed(idempotency.Completed, time.Hour)(k, record.Lease())
		}
		require.NoError(k, ignored(k.store.Sweep(k.patient(), 1)))
	})
	assert.Equal(k, all, got, "all records are listed while they are resolved")
	assert.Empty(k, k.list(all[0].Scope, nil))
}

// listEarly ends more lists early than a store has connections, and nests lists.
func (k *kit) listEarly() {
	all := k.doubtful(" early", 12)
	list := k.store.Unknown(k.patient(), all[0].Scope)
	for i := range 30 {
		n := 0
		for record, err := range list { // each range begins at the start
			require.NoError(k, err)
			assert.Equal(k, all[n], record.ID)
			if n++; n > i%10 {
				assert.Equal(k, all, k.list(all[0].Scope, nil))
				break
			}
		}
	}
}

// listCanceled ends the context of a list before its begin and in the middle.
func (k *kit) listCanceled() {
	all := k.doubtful(" canceled", 130) // more than a page of 100
	ctx, cancel := context.WithCancel(k.Context())
	defer cancel()
	list := func() (listed, failed int) {
		for record, err := range k.store.Unknown(ctx, all[0].Scope) {
			require.Zero(k, failed, "an error ends the list")
			if err != nil {
				require.ErrorIs(k, err, context.Canceled)
				assert.Zero(k, record.Status)
				failed++
			} else {
				listed++
			}
			cancel()
		}
		return listed, failed
	}
	if listed, failed := list(); failed == 0 { // it may have read all records before
		assert.Len(k, all, listed)
	}
	listed, failed := list()
	assert.Equal(k, [2]int{0, 1}, [2]int{listed, failed}, "with a canceled context")
}
