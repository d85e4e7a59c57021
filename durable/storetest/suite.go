// Package storetest tests that a [durable.Store] is one: that each of its verbs
// writes what [durable.Decide] says, all of it in one commit, and nothing else; that
// claims are fair, leases end and letters are found; and what must hold when
// everything happens at once.
//
//	func TestStore(t *testing.T) {
//		storetest.Suite{
//			Open:  func(t *testing.T) durable.Store { return open(t, emptyDatabase(t)) },
//			Again: func(t *testing.T, first durable.Store) durable.Store { … },
//		}.Run(t)
//	}
//
// # What is asked beyond the words of Store
//
//   - The Result of an event, and each Change of a claim or a reaping, is exactly what
//     Decide says of the record that was there before, at the time that became Updated;
//     after an error, too. Payload and Result may be missing from what Apply and Reap
//     return of records that were there before.
//   - Find, Attempts and Letters then tell the same, to the last microsecond and byte;
//     an empty payload or result may come back nil.
//   - Names are compared and ordered byte by byte.
//   - Claims, ends, losses and redrives that meet on one intent have one winner.
package storetest

import (
	"testing"

	"github.com/resilienthttp/resilienthttp/durable/driver"
)

// Suite is what is tested, and how. The zero value lacks a store; everything else is
// optional. It is not changed by being run.
type Suite struct {
	// Open gives an empty store that nobody else uses. It is called once for each test.
	Open func(t *testing.T) driver.Store

	// Again gives another Store of the same records, as another process would have it:
	// through a connection or pool of its own. nil: there is only one.
	Again func(t *testing.T, first driver.Store) driver.Store

	// Within calls work with the outbox of a transaction, which is committed if work
	// returns nil and rolled back if not, and returns what came of that. nil: the store
	// has no transactions.
	Within func(t *testing.T, store driver.Store, work func(driver.Outbox) error) error

	// Rows is how many intents wait in the test of fairness; 0: 500.
	Rows int
}

// Run tests the store that open gives. One with transactions or several handles needs
// a [Suite].
func Run(t *testing.T, open func(t *testing.T) driver.Store) {
	t.Helper()
	Suite{Open: open}.Run(t)
}

// Run tests the store.
func (s Suite) Run(t *testing.T) {
	t.Helper()
	if s.Rows == 0 {
		s.Rows = 500
	}
	for _, test := range []struct {
		name string
		run  func(*kit)
	}{
		{"Enqueue", (*kit).testEnqueue},
		{"Fingerprint", (*kit).testFingerprint},
		{"Erase", (*kit).testErase},
		{"Values", (*kit).testValues},
		{"Invalid", (*kit).testInvalid},
		{"Cancelled", (*kit).testCancelled},
		{"Transitions", (*kit).testTransitions},
		{"Fenced", (*kit).testFenced},
		{"Claim", (*kit).testClaim},
		{"Only", (*kit).testOnly},
		{"Fairness", (*kit).testFairness},
		{"Due", (*kit).testDue},
		{"Clock", (*kit).testClock},
		{"Shares", (*kit).testShares},
		{"Gateways", (*kit).testGateways},
		{"Hold", (*kit).testHold},
		{"Deadline", (*kit).testDeadline},
		{"Workers", (*kit).testWorkers},
		{"Letters", (*kit).testLetters},
		{"LettersAtOnce", (*kit).testLettersAtOnce},
		{"Intents", (*kit).testIntents},
		{"IntentsAtOnce", (*kit).testIntentsAtOnce},
		{"Counts", (*kit).testCounts},
		{"Stats", (*kit).testStats},
		{"Sweep", (*kit).testSweep},
		{"SweepAge", (*kit).testSweepAge},
		{"Walk", (*kit).testWalk},
		{"RaceEnqueue", (*kit).raceEnqueue},
		{"RaceClaim", (*kit).raceClaim},
		{"RaceFinish", (*kit).raceFinish},
		{"RaceRedrive", (*kit).raceRedrive},
		{"Within", (*kit).testWithin},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(newKit(t, s)) })
	}
}
