package resilienthttp

import (
	"time"

	"github.com/resilienthttp/resilienthttp/internal/circuit"
	"github.com/resilienthttp/resilienthttp/internal/latency"
	"github.com/resilienthttp/resilienthttp/internal/outcome"
	"github.com/resilienthttp/resilienthttp/internal/quota"
	"github.com/resilienthttp/resilienthttp/internal/retrybudget"
	"github.com/resilienthttp/resilienthttp/internal/route"
)

// permits is what an attempt holds. donePermits and cancelPermits end all but the tokens. Each forgets what it
// ends, so that a panic in a hook, and the abandon that follows, end nothing twice.
type permits struct {
	circuit  circuit.Permit
	quota    *quota.Permit      // nil: no quota is known
	slot     *quota.Slot        // of quota; nil: none. It stays, because calls inside the attempt read it
	tokens   retrybudget.Permit // of a retry or a copy. Their result is that of the call
	inFlight *latency.InFlight  // counts the attempt; nil: Base does not have it, or it has its outcome
}

// donePermits gives the gates the result of the attempt. The circuit has it before the slot is free, because the call
// that gets the slot asks whether the circuit has opened. The quotas have it while the attempt still counts as in
// flight, because they count the others.
func (a *attempt) donePermits(info *responseInfo, now time.Time) *circuit.Change {
	held := a.permits.circuit
	a.permits.circuit = circuit.Permit{}
	result := circuit.Result{
		Server: a.outcome.Server, Took: a.report.Latency, TimeOut: a.outcome.Trouble == outcome.Slow, Retry: a.visit.Again,
		InFlight: a.visit.Record.inFlight.Count() - 1,
	}
	if c := a.call; a.outcome.Server == outcome.Fails {
		result.Route = c.routeHash()
	}
	change := held.Done(result, now)
	a.reportQuota(info, now)
	a.leaveFlight()
	a.call.route.Done(&a.visit, route.Result{
		Sent: a.report.Start, Now: now, Success: a.outcome.Server == outcome.Works, Failure: a.report.Verdict.retryable(),
		NoWork: a.report.work.NotDone(), RetryAfter: a.report.RetryAfter,
	})
	return change
}

// cancelPermits returns what an attempt without a result holds. A gate rejects it, or Base panicked.
func (a *attempt) cancelPermits(now time.Time) {
	p := &a.permits
	p.circuit.Cancel(now)
	p.circuit = circuit.Permit{}
	if p.quota != nil {
		p.quota.Cancel(now)
		p.quota = nil
	}
	a.visit.EndProbe(time.Time{})
	a.leaveFlight()
}

func (a *attempt) leaveFlight() {
	if counted := a.permits.inFlight; counted != nil {
		a.permits.inFlight = nil
		counted.End(a.report.Start.Sub(a.call.origin))
	}
}
