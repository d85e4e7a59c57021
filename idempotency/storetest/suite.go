// Package storetest tests that an [idempotency.Store] is one: its verbs, the
// transitions between the statuses of a record and no others, the leases, and
// what must hold when everything happens at once.
//
//	func TestStore(t *testing.T) {
//		storetest.Run(t, func(t *testing.T) idempotency.Store { return open(t) })
//	}
//
// A store that is an [idempotency.Transactor] is asked for more, and the suite
// must be told how the work writes:
//
//	storetest.Suite{
//		Open:  func(t *testing.T) idempotency.Store { return store },
//		Write: func(ctx context.Context, tx any, id string) error { … tx.(*sql.Tx) … },
//		Count: func(ctx context.Context, id string) (int, error) { … },
//	}.Run(t)
//
// # What is asked beyond the words of Store
//
//   - An expired record is as if it were not there for every verb: Renew, Complete
//     and Release fail with ErrLeaseLost, whether or not it was swept.
//   - The record that Reserve answers with is the one that Load finds, its times
//     included, to the last digit that the store keeps.
//   - Results come back as they were given: a nil header, body or list of values is
//     told from an empty one where net/http does, and header values are bytes that
//     need not be UTF-8.
//   - Codes have the range of int.
//   - Names are compared byte by byte: neither case nor trailing blanks nor the
//     normal forms of Unicode make two names one.
//   - Load, Renew, Complete and Release judge names as Reserve does: ErrInvalid.
//   - A claim that meets another verb on the same record, in the middle of its
//     write, may be answered Busy, with the record as it was; but one of several
//     claims is granted.
//   - Unknown lists names in the order of their bytes.
//   - Unknown is settled once: it cannot be completed as Unknown again, nor renewed.
package storetest

import (
	"context"
	"crypto/rand"
	"testing"

	"github.com/resilienthttp/resilienthttp/idempotency/driver"
)

// Suite is what is tested, and how. The zero value lacks a store; everything else
// has a default. It is not changed by being run.
type Suite struct {
	// Open gives the store. It is called once for each Run, and what it registers
	// with t.Cleanup is done when all tests are over. The store need not be empty,
	// but nobody else may use it meanwhile.
	Open func(t *testing.T) driver.Store

	// Again gives another Store of the same records, as another process would have
	// it: through a connection or pool of its own. The races are then run between
	// the two. It is called once, after Open. nil: there is only one.
	Again func(t *testing.T) driver.Store

	// Write writes a row named id into a table of the test's own, through the value
	// of a [idempotency.Transaction]. Only a Transactor needs it, and must have it.
	Write func(ctx context.Context, tx any, id string) error

	// Count tells how many rows named id have been committed. It may be called
	// while a transaction that wrote some is open, and must not wait for it. Only a
	// Transactor needs it, and must have it.
	Count func(ctx context.Context, id string) (int, error)

	// Queues: a claim through Again of an operation that joined work is at waits for
	// the end of that work, since the database has room for one writer only. false:
	// it is told Busy at once.
	Queues bool

	// Rows is how many expired records the test of sweeping has to cope with; 0:
	// 2,000; negative: that test is left out. A million shows what matters, and may
	// take minutes.
	Rows int

	// Fill writes that many records that are finished and have expired, in whatever
	// way is quick. nil: by as many calls of Reserve.
	Fill func(ctx context.Context, rows int) error
}

// Run tests the store that open gives, which must not be a Transactor: that one
// needs a [Suite].
func Run(t *testing.T, open func(t *testing.T) driver.Store) {
	t.Helper()
	Suite{Open: open}.Run(t)
}

// Run tests the store.
func (s Suite) Run(t *testing.T) {
	t.Helper()
	if s.Rows == 0 {
		s.Rows = 2000
	}
	k := &kit{Suite: s, scope: "storetest " + rand.Text()}
	k.store = s.Open(t)
	k.again = k.store
	if s.Again != nil {
		k.again = s.Again(t)
	}
	t.Run("Check", k.testCheck)
	t.Run("Reserve", k.testReserve)
	t.Run("Lease", k.testLease)
	t.Run("Life", k.testLife)
	t.Run("Reconciler", k.testReconciler)
	t.Run("Times", k.testTimes)
	t.Run("Results", k.testResults)
	t.Run("Copies", k.testCopies)
	t.Run("Names", k.testNames)
	t.Run("Invalid", k.testInvalid)
	t.Run("Cancelled", k.testCancelled)
	t.Run("Races", k.testRaces)
	if transactor, ok := k.store.(driver.Transactor); ok {
		t.Run("Transactions", func(t *testing.T) { k.testTransactions(t, transactor) })
	}
	t.Run("Abandon", k.testAbandon)
	t.Run("Unknown", k.testUnknown)
	t.Run("Sweep", k.testSweep)
	if s.Rows > 0 {
		t.Run("Rows", k.testRows)
	}
}

// testCheck: a store that was opened can be used, any number of times.
func (k *kit) testCheck(t *testing.T) {
	for i := range 4 {
		if err := k.handle(i).Check(patient(t)); err != nil {
			t.Fatalf("Check: %v", err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := k.store.Check(ctx); err == nil {
		t.Error("Check with a context that has ended: no error")
	}
}
