// Package storetest tests implementations of [durable.Store]. Each verb must write what
// [durable.Decide] returns, in one commit, and nothing else. Claims must be fair, leases must
// end, and concurrent verbs must not conflict.
//
//	func TestStore(t *testing.T) {
//		storetest.Suite{
//			Open:  func(t *testing.T) durable.Store { return open(t, emptyDatabase(t)) },
//			Again: func(t *testing.T, first durable.Store) durable.Store { … },
//		}.Run(t)
//	}
//
// # Requirements beyond the documentation of Store
//
//   - The Result of an event, and each Change of Claim and Reap, is what Decide returns for
//     the record before it, at the time UpdatedAt; after an error too. Payload and Result of
//     existing records may be missing in the results of Apply and Reap.
//   - Find, Attempts and DeadLetters then return the same, to the microsecond and byte. An
//     empty payload or result may become nil.
//   - Names are compared and ordered byte by byte.
//   - If claims, outcomes, expired leases and redrives of one intent are concurrent, one of
//     them succeeds.
package storetest

import (
	"testing"
	"time"

	"github.com/resilienthttp/resilienthttp/durable"
)

// Suite is the configuration of the tests. Open is required; the other fields are optional.
// Run does not change it.
type Suite struct {
	// Open returns an empty store that no other test uses. It is called once for each test.
	Open func(t *testing.T) durable.Store

	// Again returns another Store with the same records, as another process has it: with its
	// own connection or pool. nil: there is only one.
	Again func(t *testing.T, first durable.Store) durable.Store

	// WithTx calls work with the outbox of a transaction. It commits if work returns nil, and
	// rolls back otherwise. It returns the error of work or of the commit. nil: the store has
	// no transactions.
	WithTx func(t *testing.T, store durable.Store, work func(durable.Outbox) error) error

	// MoveClock sets the clock of the store forward, or back if by is negative. nil: it cannot.
	MoveClock func(t *testing.T, store durable.Store, by time.Duration)

	// Rows is the number of waiting intents in the test of fairness. Zero means 500.
	Rows int
}

// Run tests the store.
func (s Suite) Run(t *testing.T) {
	t.Helper()
	if s.Rows == 0 {
		s.Rows = 500
	}
	type part struct {
		name string
		run  func(*kit)
	}
	tests := []part{
		{"Enqueue", (*kit).testEnqueue},
		{"Erase", (*kit).testErase},
		{"Values", (*kit).testValues},
		{"Invalid", (*kit).testInvalid},
		{"Canceled", (*kit).testCanceled},
		{"Transitions", (*kit).testTransitions},
		{"Claim", (*kit).testClaim},
		{"Fairness", (*kit).testFairness},
		{"Due", (*kit).testDue},
		{"Clock", (*kit).testClock},
		{"Shares", (*kit).testShares},
		{"Gateways", (*kit).testGateways},
		{"Hold", (*kit).testHold},
		{"ProviderHold", (*kit).testProviderHold},
		{"ProviderHoldShare", (*kit).testProviderHoldShare},
		{"ProviderHoldQueries", (*kit).testProviderHoldQueries},
		{"Deadline", (*kit).testDeadline},
		{"Workers", (*kit).testWorkers},
		{"Suspect", (*kit).testSuspect},
		{"Letters", (*kit).testLetters},
		{"Intents", (*kit).testIntents},
		{"ListsAtOnce", (*kit).testListsAtOnce},
		{"Counts", (*kit).testCounts},
		{"Jobs", (*kit).testJobs},
		{"JobsInvalid", (*kit).testJobsInvalid},
		{"Stats", (*kit).testStats},
		{"Sweep", (*kit).testSweep},
		{"SweepAge", (*kit).testSweepAge},
		{"Walk", (*kit).testWalk},
		{"RaceEnqueue", (*kit).raceEnqueue},
		{"RaceClaim", (*kit).raceClaim},
		{"RaceFinish", (*kit).raceFinish},
		{"RaceRedrive", (*kit).raceRedrive},
		{"RaceJobs", (*kit).raceJobs},
		{"WithTx", (*kit).testWithTx},
	}
	if s.MoveClock != nil {
		tests = append(tests, part{"LostLeases", (*kit).testLostLeases}, part{"ClockBack", (*kit).testClockBack},
			part{"ClockBackWaiting", (*kit).testClockBackWaiting}, part{"ClockBackLeases", (*kit).testClockBackLeases},
			part{"ClockBackHolds", (*kit).testClockBackHolds})
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) { test.run(newKit(t, s)) })
	}
}
