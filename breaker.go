package resilienthttp

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/circuit"
	"github.com/resilienthttp/resilienthttp/internal/outcome"
	"github.com/resilienthttp/resilienthttp/internal/scope"
	"github.com/resilienthttp/resilienthttp/internal/transcript"
	"github.com/resilienthttp/resilienthttp/internal/waitqueue"
)

// Breaker is a circuit breaker: while a server only fails, calls wait for it, and single probes test it. When it has
// failed for 20 s, calls wait for 2 s at most. Each scope has a circuit for each [Priority]. It opens when nothing works any
// more: FailureRatio of at least MinRequests results in the Window are failures, or chance does not explain a series of
// failures. While it is open, it holds the routes that have failed.
// A call of any other route is sent at once and tests that route, unless its request must not be repeated. See
// docs/circuit-breaker.md.
//
// The zero value has the defaults below. A Breaker is safe for concurrent use, may be shared by
// Transports, and must not be modified or copied after its first use. It keeps some 16,384
// circuits and those that a Transport uses, and removes closed ones first.
type Breaker struct {
	// FailureRatio is the ratio of failures at which a circuit opens. Zero means 1, because as long as something works the
	// failures may be of one route, tenant or input, and retries help more than a wait. More than 1 means 1. A negative
	// number or NaN means that circuits never open.
	FailureRatio float64

	// MinRequests is the minimum number of results in the Window for FailureRatio, and for slow start to send fewer
	// requests. Zero means 20. A negative number means 1.
	MinRequests int

	// Window is the time for which a result counts, in steps of a sixteenth. Zero or a negative
	// duration means 10 s. The minimum is 1 ms.
	Window time.Duration

	// Cooldown is the minimum time between two probes. Zero means 100 ms. A negative
	// duration means 1 ms, the minimum.
	Cooldown time.Duration

	// MaxCooldown is the maximum time between two probes, without jitter. Zero means
	// 2 s. A duration below Cooldown means Cooldown.
	MaxCooldown time.Duration

	// Probes is the number of results of probes after which a circuit closes. All are sent at once after the first
	// success. Zero means 3. A negative number means 1.
	Probes int

	// MaxWait is how long a call may wait, from its beginning, for a server that fails. Zero means until its deadline,
	// at most 30 s, and 10 s without a deadline; 3 s if a third of the failures were timeouts. A negative duration means that calls
	// are rejected at once, as does zero with Static. With zero, a call that was never sent is sent once at the end of its wait,
	// unless a third of the failures were timeouts, or the server has failed for 20 s when the call begins; then, and with MaxWait set, it
	// ends with ErrBreakerOpen.
	MaxWait time.Duration

	// Static disables adaptive behavior. The circuit then opens by FailureRatio alone, and the cooldown does not
	// follow latencies. There is no slow start, and calls wait only if MaxWait is set.
	Static bool

	// OnChange is called after each change of a circuit, in the goroutine of the request that
	// caused it. It may use the Breaker. It must be safe for concurrent use: calls for one scope
	// may overlap.
	OnChange func(BreakerChange)

	once   sync.Once
	engine *circuit.Breaker
}

// BreakerState is the state of a circuit.
type BreakerState int

const (
	// StateClosed means that requests are sent. An unknown scope is closed.
	StateClosed BreakerState = iota
	// StateHalfOpen means that a probe may be sent, or is in flight.
	StateHalfOpen
	// StateOpen means that requests wait or are rejected.
	StateOpen
)

// String returns "closed", "half-open" or "open".
func (s BreakerState) String() string {
	names := [...]string{StateClosed: "closed", StateHalfOpen: "half-open", StateOpen: "open"}
	if s < 0 || int(s) >= len(names) {
		return fmt.Sprintf("BreakerState(%d)", int(s))
	}
	return names[s]
}

// BreakerChange is a change of a circuit from one state to another. Each change of a scope begins
// with the state of the previous one, at its time or later.
type BreakerChange struct {
	Scope    string
	Priority Priority // each priority of a scope has a circuit
	From, To BreakerState
	At       time.Time
	Openings int // how often the closed circuit has opened in the last 5 min, with this change

	Opening
}

// State returns the state of the circuit of a scope and priority. An unknown priority means
// PriorityDefault. A circuit is half-open as soon as its cooldown is over. State changes nothing,
// and is safe for concurrent use.
func (b *Breaker) State(name string, p Priority) BreakerState {
	now := time.Now()
	return BreakerState(b.circuits(now).Find(scope.Key{Name: name, Class: int8(p.known())}).Status(now).State)
}

func (b *Breaker) circuits(now time.Time) *circuit.Breaker {
	b.once.Do(func() {
		b.engine = circuit.New(circuit.Rules{
			FailureRatio: b.FailureRatio, MinRequests: b.MinRequests, Window: b.Window,
			Cooldown: b.Cooldown, MaxCooldown: b.MaxCooldown, Probes: b.Probes, Static: b.Static,
		}, now)
	})
	return b.engine
}

const (
	maxHold     = 30 * time.Second // default of Breaker.MaxWait, with a deadline; without one it is seriesTime
	maxHoldSlow = 3 * time.Second  // after timeouts: the server may have too much work
)

// passCircuit takes a permit of the circuit. It may wait for it. It returns the time of the permit.
func (c *call) passCircuit(a *attempt, now time.Time) (time.Time, *Error) {
	// A request that cannot be repeated tests no route of a server that is away: its result may be lost there.
	permit, rejection := a.visit.Record.circuit.Admit(now, c.routeHash, c.mayBeDoneTwice())
	// Another endpoint may admit it, or its original may succeed.
	mustNotWait := a.isCopy() || a.visit.AtOnce
	if rejection != nil && !mustNotWait {
		if longest := c.mayHold(a.visit.Record, now); longest > 0 {
			permit, rejection = c.waitForCircuit(a, now, longest, rejection.Outage)
			now = time.Now()
		}
	}
	if rejection != nil {
		return now, c.breakerOpen(rejection, now)
	}
	a.permits.circuit = permit
	if change := permit.Change; change != nil {
		// The hooks are called here, because the engine holds its lock while it admits.
		c.breakerChanged(change)
	}
	return now, nil
}

func (a *attempt) doneCircuit(now time.Time) *circuit.Change {
	held := a.permits.circuit
	a.permits.circuit = circuit.Permit{}
	result := circuit.Result{
		Server: a.outcome.Server, Took: a.report.Latency, TimeOut: a.outcome.Trouble == outcome.Slow, Retry: a.visit.Again,
		InFlight: a.visit.Record.inFlight.Count() - 1,
	}
	// The hash takes time, and only failures need it.
	if a.outcome.Server == outcome.Fails {
		result.Route = a.call.routeHash()
	}
	return held.Done(result, now)
}

func (a *attempt) cancelCircuit(now time.Time) {
	a.permits.circuit.Cancel(now)
	a.permits.circuit = circuit.Permit{}
}

func (c *call) waitForCircuit(a *attempt, now time.Time, longest time.Duration, outage time.Time) (circuit.Permit, *circuit.Rejection) {
	e := &waitqueue.Entry[circuit.Permit]{Limits: waitqueue.Limits{
		Ctx: c.ctx, Deadline: c.deadline, MaxWait: min(longest, c.route.MaxHold()), Since: c.start,
		Waiter: heldAttempt{(*queuedAttempt)(a)}, Sent: a.report.Number - 1, Route: c.routeHash(),
	}}
	if a.kind == kindRetry {
		e.RestsTo = c.retries.plan.restsTo
	}
	if failing := a.visit.Record.failingRoutes.find(func() uint64 { return e.Route }); failing.attempt < outage.Sub(c.origin) {
		e.Class = circuit.FailedBefore
	}
	// With MaxWait the caller has said when a call is to fail, and a list has other servers.
	lastly := c.breaker.MaxWait == 0 && c.route.Alone()
	rejection := a.visit.Record.circuit.Wait(now, e, lastly)
	return e.Permit, rejection
}

func (c *call) breakerOpen(r *circuit.Rejection, now time.Time) *Error {
	// The context has ended during the wait, so the circuit is not the reason.
	if ended := c.ctx.Err(); ended != nil {
		return c.canceled(ended)
	}
	var said []string
	switch failing := now.Sub(r.Outage); {
	case r.Outage.IsZero(): // the circuit has closed, and slow start rejects the call
		said = append(said, "the server is back, and gets few requests at first")
	case failing >= precision:
		said = append(said, "the server has failed for "+transcript.Duration(failing))
	}
	if waited := now.Sub(c.timeline.accounted); waited >= precision {
		said = append(said, "waited "+transcript.Duration(waited))
	}
	return &Error{Reason: ErrBreakerOpen, NotBefore: later(r.NotBefore, now), hold: strings.Join(said, ", ")}
}

// mayHold returns how long the call may wait for a circuit; not positive: it is rejected at once. Only the layer that owns
// the retries waits.
func (c *call) mayHold(r *record, now time.Time) time.Duration {
	longest := c.breaker.MaxWait
	switch {
	case c.owner != ownerCall, longest < 0, longest == 0 && c.breaker.Static:
		// If another layer retries, a wait here would take the time of its retries.
		return 0
	case longest > 0:
	case r.circuit.Slow():
		// It has too much work, and calls that wait would all add to it later.
		longest = maxHoldSlow
	case c.deadline.IsZero():
		// Without a deadline it waits no longer than retries would.
		longest = seriesTime
	default:
		longest = maxHold
	}
	return min(c.start.Add(longest).Sub(now), c.spare(now))
}

type heldAttempt struct{ *queuedAttempt }

func (h heldAttempt) WaitBegins(until time.Time, _ bool) {
	h.report.Held = true
	(*attempt)(h.queuedAttempt).beginQueue(until, true)
}

// breakerChanged calls OnChange, and then the hooks of the call that caused the change. The
// caller must not hold a lock.
func (c *call) breakerChanged(change *circuit.Change) {
	event := BreakerChange{
		Scope: change.Key.Name, Priority: Priority(change.Key.Class), From: BreakerState(change.From), To: BreakerState(change.To), At: change.At,
		Openings: change.Openings, Opening: Opening(change.Opening),
	}
	if c.breaker.OnChange != nil {
		c.breaker.OnChange(event)
	}
	runHooks(c, breakerChange, event)
}
