package resilienthttp

import (
	"time"

	"github.com/resilienthttp/resilienthttp/internal/circuit"
	"github.com/resilienthttp/resilienthttp/internal/outcome"
	"github.com/resilienthttp/resilienthttp/internal/quota"
	"github.com/resilienthttp/resilienthttp/internal/retrybudget"
	"github.com/resilienthttp/resilienthttp/internal/route"
)

// permits is what an attempt holds of its gates. A gate has three functions in its own file: pass takes a permit, and waits for it if
// the attempt may wait; done ends it with the result, and cancel without one. done and cancel forget what they end, so that a panic in
// a hook, and the abandon that follows, end nothing twice.
//
// The order is written out in the functions below. A list of gates would take memory for each attempt.
type permits struct {
	circuit circuit.Permit
	quota   *quota.Permit      // nil: no quota is known
	slot    *quota.Slot        // of quota; nil: none. It stays, because calls inside the attempt read it
	tokens  retrybudget.Permit // of a retry or a copy. Their result is that of the call, so the gates do not end them
}

// pass passes the gates of a server. It returns the time of the last permit.
func (c *call) pass(a *attempt, now time.Time) (at time.Time, err *Error) {
	for {
		// First, because a call that waits for a server that is away must not keep a slot or tokens of a quota from other calls.
		now, err = c.passCircuit(a, now)
		// Most servers have no quota, and their attempts no permit of one.
		if err != nil || !a.visit.Record.quotas.Load().Active() {
			return now, err
		}
		now, err = c.passQuotas(a, now)
		// The wait for the quotas may have been long, and the circuit may have opened meanwhile. Then the attempt begins again.
		if err != nil || a.permits.circuit.Current() {
			return now, err
		}
		a.cancelPermits(now)
	}
}

// donePermits gives the gates the result of the attempt, and returns the change of the circuit.
func (a *attempt) donePermits(info *responseInfo, now time.Time) *circuit.Change {
	// Before the slot is free, because the call that gets the slot asks whether the circuit has opened.
	change := a.doneCircuit(now)
	// While the attempt counts as in flight, because the quotas count the others.
	a.doneQuotas(info, now)
	a.leaveFlight()
	// Last, because it lets other calls choose the server, and they ask the gates above.
	a.doneEndpoint(now)
	return change
}

// cancelPermits returns what an attempt without a result holds. A gate rejects it, or Base panicked.
func (a *attempt) cancelPermits(now time.Time) {
	a.cancelCircuit(now)
	a.cancelQuotas(now)
	a.leaveFlight()
	a.visit.EndProbe(time.Time{})
}

// leaveFlight ends what send has begun: the attempt no longer counts as in flight.
func (a *attempt) leaveFlight() {
	if a.phase == phaseSent {
		a.phase = phaseReturned
		a.visit.Record.inFlight.End(a.report.Start.Sub(a.call.origin))
	}
}

// doneEndpoint tells the list of endpoints how its server does. The list has no permit. It chooses the server, and then the gates of
// that server are passed: see passGates.
func (a *attempt) doneEndpoint(now time.Time) {
	a.call.route.Done(&a.visit, route.Result{
		Sent: a.report.Start, Now: now, Success: a.outcome.Server == outcome.Works, Failure: a.report.Verdict.retryable(),
		NoWork: a.report.work.NotDone(), RetryAfter: a.report.RetryAfter,
	})
}
