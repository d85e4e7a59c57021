package resilienthttp

import (
	"fmt"
	"sync"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/circuit"
	"github.com/resilienthttp/resilienthttp/internal/scope"
)

// Breaker is a circuit breaker: it rejects calls to a server that only fails, so that callers do
// not wait and the server can recover. Each scope has a circuit for each [Priority].
//
// A circuit opens when FailureRatio of at least MinRequests results in the Window are failures,
// or earlier if all results are failures. After a cooldown it sends Probes, and closes if fewer
// than FailureRatio of them fail. While a server hangs, it sends one probe at a time. After slow
// failures it limits the requests in flight until responses succeed (slow start). See
// docs/circuit-breaker.md.
//
// The zero value has the defaults below. A Breaker is safe for concurrent use, may be shared by
// Transports, and must not be modified or copied after its first use. It keeps some 16,384
// circuits and those that a Transport uses, and removes closed ones first.
type Breaker struct {
	// FailureRatio is the ratio of failures at which a circuit opens. Zero means 0.9. More than 1
	// means 1. A negative number or NaN means that circuits never open.
	FailureRatio float64

	// MinRequests is the minimum number of results in the Window for FailureRatio. Zero means 20.
	// A negative number means 1.
	MinRequests int

	// Window is the time for which a result counts, in steps of a sixteenth. Zero or a negative
	// duration means 10 s. The minimum is 1 ms.
	Window time.Duration

	// Cooldown is the minimum time for which a circuit stays open. Zero means 100 ms. A negative
	// duration means 1 ms, the minimum.
	Cooldown time.Duration

	// MaxCooldown is the maximum time for which a circuit stays open, without jitter. Zero means
	// 2 s. A duration below Cooldown means Cooldown.
	MaxCooldown time.Duration

	// Probes is the number of requests that a half-open circuit admits. Zero means 3. A
	// negative number means 1.
	Probes int

	// Static disables adaptive behavior. The circuit then opens by FailureRatio alone, attempts
	// in flight do not count, and the cooldown does not follow latencies. There is no slow start,
	// and retries may be probes.
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
	StateClosed = BreakerState(circuit.Closed)
	// StateHalfOpen means that a few requests are sent as probes.
	StateHalfOpen = BreakerState(circuit.HalfOpen)
	// StateOpen means that requests are rejected.
	StateOpen = BreakerState(circuit.Open)
)

// String returns "closed", "half-open" or "open".
func (s BreakerState) String() string {
	switch s {
	case StateClosed:
		return "closed"
	case StateHalfOpen:
		return "half-open"
	case StateOpen:
		return "open"
	}
	return fmt.Sprintf("BreakerState(%d)", int(s))
}

// BreakerChange is a change of a circuit from one state to another. Each change of a scope begins
// with the state of the previous one, at its time or later.
type BreakerChange struct {
	Scope    string
	Priority Priority // each priority of a scope has a circuit
	From, To BreakerState
	At       time.Time
	Openings int // how often the closed circuit has opened in the last 5 min, with this change
}

// State returns the state of the circuit of a scope and priority. An unknown priority means
// PriorityDefault. A circuit is half-open as soon as its cooldown is over. State changes nothing,
// and is safe for concurrent use.
func (b *Breaker) State(name string, p Priority) BreakerState {
	now := time.Now()
	return BreakerState(b.circuits(now).Find(scope.Key{Name: name, Class: int8(p.known())}).State(now))
}

// circuits returns the engine. The first call creates it from the fields.
func (b *Breaker) circuits(now time.Time) *circuit.Breaker {
	b.once.Do(func() {
		b.engine = circuit.New(circuit.Rules{
			FailureRatio: b.FailureRatio, MinRequests: b.MinRequests, Window: b.Window,
			Cooldown: b.Cooldown, MaxCooldown: b.MaxCooldown, Probes: b.Probes, Static: b.Static,
		}, now)
	})
	return b.engine
}

// passBreaker takes a permit of the circuit.
func (c *call) passBreaker(a *attempt, now time.Time) *Error {
	permit, rejection := a.record().circuit.Admit(a.again(), now)
	if rejection != nil {
		return breakerOpen(rejection)
	}
	a.circuit = permit // before the hook, which may panic
	if permit.Change != nil {
		c.breakerChanged(permit.Change)
	}
	return nil
}

// breakerRejects returns the error of an attempt that the circuit would not admit now, or nil.
func (c *call) breakerRejects(a *attempt, now time.Time) *Error {
	if rejection := a.record().circuit.Rejects(a.again(), now); rejection != nil {
		return breakerOpen(rejection)
	}
	return nil
}

func breakerOpen(r *circuit.Rejection) *Error {
	return &Error{Reason: ErrBreakerOpen, NotBefore: r.NotBefore}
}

// breakerChanged calls OnChange, and then the hooks of the call that caused the change. The
// caller must not hold a lock.
func (c *call) breakerChanged(change *circuit.Change) {
	event := BreakerChange{
		Scope: change.Key.Name, Priority: Priority(change.Key.Class), From: BreakerState(change.From), To: BreakerState(change.To), At: change.At,
		Openings: change.Openings,
	}
	if c.breaker.OnChange != nil {
		c.breaker.OnChange(event)
	}
	c.eachTrace(func(t *Trace) {
		if t.BreakerChange != nil {
			t.BreakerChange(event)
		}
	})
}
