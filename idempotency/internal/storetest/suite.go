// Package storetest tests implementations of [idempotency.Store]: each operation, the
// transitions between the statuses of a record and no others, the leases, and races.
//
//	func TestStore(t *testing.T) {
//		storetest.Suite{Open: func(t *testing.T) idempotency.Store { return open(t) }}.Run(t)
//	}
//
// A store that is a [idempotency.Transactor] is tested further. The suite then needs to
// know how the work writes:
//
//	storetest.Suite{
//		Open:  func(t *testing.T) idempotency.Store { return store },
//		Write: func(ctx context.Context, tx any, id string) error { … tx.(*sql.Tx) … },
//		Count: func(ctx context.Context, id string) (int, error) { … },
//	}.Run(t)
//
// # Requirements beyond the documentation of Store
//
//   - Every operation treats an expired record as absent, swept or not: Renew, Complete
//     and Release fail with ErrLeaseLost.
//   - Reserve returns the record that Load returns. Their times are equal.
//   - Results are returned as they were given. A nil header or body differs from an
//     empty one. Header values are bytes that need not be UTF-8.
//   - Codes have the range of int.
//   - Names are compared byte by byte, and Unknown lists them in the order of their bytes.
//   - Load, Renew, Complete and Release reject the names that Reserve rejects, with
//     ErrInvalid.
//   - A claim that races with another operation on the same record may be answered with
//     DecisionInProgress and the record as it was. One of several claims is granted.
//   - A record that is Unknown cannot be completed as Unknown, or renewed.
package storetest

import (
	"context"
	"crypto/rand"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/idempotency"
)

// Suite describes the store that is tested. Only Open is required, and Write and Count
// for a Transactor. Run does not change it.
type Suite struct {
	// Open opens the store. Run calls it once. The store need not be empty, but must not be
	// used by others during the tests.
	Open func(t *testing.T) idempotency.Store

	// Again opens another Store with the same records and a connection of its own, as
	// another process does. Run calls it once, after Open, and runs the races between the
	// two. nil means that there is only one.
	Again func(t *testing.T) idempotency.Store

	// Write writes a row named id into a table of the test, through the Value of a
	// [idempotency.Transaction].
	Write func(ctx context.Context, tx any, id string) error

	// Count returns the number of committed rows named id. It must not wait for an open
	// transaction that has written such rows.
	Count func(ctx context.Context, id string) (int, error)

	// Queues means that a claim through Again waits for the end of transactional work on the
	// same operation, because the database has one writer. false means that it is answered
	// with DecisionInProgress at once.
	Queues bool
}

// Run tests the store.
func (s Suite) Run(t *testing.T) {
	t.Helper()
	k := &kit{Suite: s, T: t, scope: "storetest " + rand.Text(), stuck: new(bool)}
	k.store = patiently(s.Open(t))
	k.again = k.store
	if s.Again != nil {
		k.again = patiently(s.Again(t))
	}
	k.test("Check", (*kit).testCheck)
	k.test("Reserve", (*kit).testReserve)
	k.test("Lease", (*kit).testLease)
	k.test("Times", (*kit).testTimes)
	k.test("Results", (*kit).testResults)
	k.test("Names", (*kit).testNames)
	k.test("Invalid", (*kit).testInvalid)
	k.test("Canceled", (*kit).testCanceled)
	k.test("Races", (*kit).testRaces)
	if transactor, ok := k.store.(idempotency.Transactor); ok {
		k.test("Transactions", func(k *kit) { k.testTransactions(transactor) })
	}
	k.test("Unknown", (*kit).testUnknown)
	k.test("Sweep", (*kit).testSweep)
}

// testCheck calls Check more than once, and with a context that has ended.
func (k *kit) testCheck() {
	for i := range 4 {
		require.NoError(k, k.handle(i).Check(k.patient()))
	}
	require.Error(k, k.store.Check(k.ended()))
}
