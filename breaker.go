package resilienthttp

import (
	"fmt"
	"sync"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/circuit"
	"github.com/resilienthttp/resilienthttp/internal/scope"
)

// Breaker is a circuit breaker: it rejects calls to a server that only fails, so that the
// callers need not wait and the server can recover. Each scope, by default a host, has a
// circuit for each [Priority].
//
// It opens when FailureRatio of at least MinRequests results in the Window are failures, or
// all of at least five over two seconds and not by chance. After a cooldown it sends Probes
// and closes again if fewer than FailureRatio of them fail. After slow failures it limits the
// requests in flight, until responses succeed (slow start). See docs/defaults.md.
//
// The zero value has the defaults below. A Breaker is safe for concurrent use, may be shared
// by Transports, and must not be modified or copied after its first use. It keeps some 4096
// circuits, and forgets closed ones first.
type Breaker struct {
	// FailureRatio is the ratio of failures at which a circuit opens. It is high because
	// retries help more than rejections where some calls succeed. Zero means 0.9. A negative
	// number or NaN means that circuits never open. Above 1 means 1.
	FailureRatio float64

	// MinRequests is the number of results in the Window from which FailureRatio applies.
	// Zero means 20. A negative number means 1.
	MinRequests int

	// Window is the time for which a result counts. It slides in steps of a sixteenth.
	// Zero or a negative duration means 10 s. The minimum is 1 ms.
	Window time.Duration

	// Cooldown is the minimum time for which a circuit stays open. Zero means 100 ms. A
	// negative duration means the minimum, 1 ms.
	Cooldown time.Duration

	// MaxCooldown is the maximum time for which a circuit stays open, without the random
	// part. Zero means 2 s. A negative duration, or one less than Cooldown, means Cooldown.
	MaxCooldown time.Duration

	// Probes is the number of requests that a half-open circuit admits. Zero means 3. A
	// negative number means 1.
	Probes int

	// Static disables adaptive behavior: the circuit opens by FailureRatio alone, attempts
	// in flight do not count, the cooldown does not follow latencies, there is no slow
	// start, and retries may be probes.
	Static bool

	// OnChange, if not nil, is called after each change of a circuit, by the goroutine
	// whose request or result caused it. No lock is held, so it may use the Breaker. It may
	// be called by several goroutines at once, also for one scope: From and To give the
	// order.
	OnChange func(BreakerChange)

	once   sync.Once
	engine *circuit.Breaker
}

// BreakerState is what a circuit does with requests: see [Breaker].
type BreakerState int

const (
	// StateClosed means that requests are sent. It is also the state of an unknown scope.
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

// BreakerChange is a change of a circuit from one state to another. The From of each
// change of a scope is the To of the one before, and At is never earlier than that of the
// one before.
type BreakerChange struct {
	Scope    string // with ";batch" or ";critical" behind it where it is the circuit of that priority
	From, To BreakerState
	At       time.Time
}

// State returns the state of the circuit of a scope. The circuits of other priorities are
// named "scope;batch" and "scope;critical". A circuit whose cooldown is over is half-open,
// even before the next request. State changes nothing: an unknown scope is closed, and stays
// unknown. It is safe for concurrent use.
func (b *Breaker) State(name string) BreakerState {
	now := time.Now()
	circuits := b.circuits(now)
	found := circuits.Find(scope.Key{Name: name})
	if found.Status(now).Since.IsZero() { // else the scope itself has that name
		found = circuits.Find(parseScope(name))
	}
	return BreakerState(found.State(now))
}

// circuits returns the engine, made from the fields at the first use.
func (b *Breaker) circuits(now time.Time) *circuit.Breaker {
	b.once.Do(func() {
		b.engine = circuit.New(circuit.Rules{
			FailureRatio: b.FailureRatio, MinRequests: b.MinRequests, Window: b.Window,
			Cooldown: b.Cooldown, MaxCooldown: b.MaxCooldown, Probes: b.Probes, Static: b.Static,
		}, now)
	})
	return b.engine
}

// passBreaker asks the circuit for a permit. The caller reports its Change when it has stored
// the permit: a hook may panic.
func (c *call) passBreaker(now time.Time, retry bool) (circuit.Permit, *Error) {
	permit, rejection := c.record.circuit.Admit(now, retry)
	if rejection != nil {
		return permit, &Error{Reason: ErrBreakerOpen, NotBefore: rejection.NotBefore}
	}
	return permit, nil
}

// breakerChanged reports a change to OnChange and then to the hooks of the call that caused
// it. No lock is held.
func (c *call) breakerChanged(change *circuit.Change) {
	event := BreakerChange{Scope: scopeName(change.Key), From: BreakerState(change.From), To: BreakerState(change.To), At: change.At}
	if c.breaker.OnChange != nil {
		c.breaker.OnChange(event)
	}
	c.eachTrace(func(t *Trace) {
		if t.BreakerChange != nil {
			t.BreakerChange(event)
		}
	})
}
