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
//   - Closed: requests are sent, and the circuit opens when FailureRatio of at least
//     MinRequests results in the Window are failures, or all of at least five over two
//     seconds and not by chance. Attempts in flight count as successes.
//   - Open: requests are rejected for Cooldown, or for twice the latency of the failure, at
//     most 1 s. This doubles each time that the circuit opens again, up to eight times that
//     latency and up to MaxCooldown. Up to a quarter is added at random.
//   - Half-open: as many probes as Probes are sent, none of them a retry. The circuit opens
//     again if FailureRatio of them fail, and closes otherwise. A probe without a result
//     after one cooldown frees its slot.
//   - Closed after slow failures (100 ms or more, and twice the usual latency): requests in
//     flight are limited, and the limit grows as responses succeed (slow start).
//
// Failures are responses of 500 and above, transport errors, attempt timeouts, and the
// call's own deadline if the attempt had far longer than usual. Other responses are
// successes. A 429 counts for nothing while the circuit is closed, and as a success of a
// probe. A call that the caller cancels counts for nothing, and neither does a result that
// arrives after the circuit has changed.
//
// The zero value has the defaults below. A Breaker is safe for concurrent use, may be shared
// by Transports, and must not be modified or copied after its first use. It keeps some 4096
// circuits, those that are not closed before others; a forgotten one begins anew, closed.
// See docs/defaults.md.
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

// State returns the state of the circuit of a scope, for dashboards and health
// checks. Each priority has a circuit of its own: those of calls that are not of
// PriorityDefault are named "scope;batch" and "scope;critical". A circuit whose cooldown
// is over is half-open, even before the next request. State changes nothing: an unknown
// scope is closed, and stays unknown.
func (b *Breaker) State(name string) BreakerState {
	now := time.Now()
	engine := b.withDefaults(now)
	found := engine.Find(scope.Key{Name: name})
	if found == nil { // else that is the scope's own name
		found = engine.Find(keyNamed(name))
	}
	return BreakerState(found.State(now))
}

// withDefaults is the engine, made of the fields as they were at first use.
func (b *Breaker) withDefaults(now time.Time) *circuit.Breaker {
	b.once.Do(func() {
		b.engine = circuit.New(circuit.Rules{
			FailureRatio: b.FailureRatio, MinRequests: b.MinRequests, Window: b.Window,
			Cooldown: b.Cooldown, MaxCooldown: b.MaxCooldown, Probes: b.Probes, Static: b.Static,
		}, now)
	})
	return b.engine
}

// breakerChanged reports a change, if there was one, to OnChange and then to the hooks of
// the call that caused it. No lock is held.
func (c *call) breakerChanged(change *circuit.Change) {
	if change == nil {
		return
	}
	told := BreakerChange{Scope: suffixed(change.Key), From: BreakerState(change.From), To: BreakerState(change.To), At: change.At}
	if c.breaker.OnChange != nil {
		c.breaker.OnChange(told)
	}
	c.eachTrace(func(t *Trace) {
		if t.BreakerChange != nil {
			t.BreakerChange(told)
		}
	})
}
