package resilienthttp

import (
	"fmt"
	"sync"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/circuit"
	"github.com/resilienthttp/resilienthttp/internal/scope"
)

// Breaker is a circuit breaker: it stops sending to a server that does nothing
// but fail, for the sake of both sides. The callers get their answer at once
// instead of after a timeout, and the server gets the quiet that it needs to
// come back. (The pattern is from Michael Nygard's Release It!; that it should
// judge a ratio over a sliding window, with a minimum of requests, and not
// count failures in a row, is what Hystrix and resilience4j have taught.)
//
// Each scope, by default a host, has a circuit of its own, and within it each
// [Priority]: a server that refuses what matters least may well serve the rest.
//
//   - Closed: requests are sent and their results counted. The circuit opens when
//     FailureRatio of at least MinRequests results in the Window are failures, or when
//     all calls of two seconds have failed, at least five attempts. Neither opens it if
//     the attempts in flight, or chance, explain the failures.
//   - Open, requests are refused until the cooldown is over: Cooldown, or twice
//     what the failure took, a second at most. It doubles every time that the
//     circuit opens again without having closed, up to eight times what the
//     failure took, and up to MaxCooldown. Up to a quarter of it is added at
//     random, lest a thousand clients come back in the same instant.
//   - Half-open, as many as Probes requests are let through, none of them a
//     retry. When FailureRatio of them have failed, the circuit opens again; when
//     all have their results and fewer have, it closes, and its count begins
//     afresh.
//   - Closed after slow failures (100ms or more, and twice the usual latency): requests
//     in flight are limited (slow start). The limit grows as responses succeed and
//     shrinks when they fail. Below one it is a pause after each request. It ends when it
//     rejected nothing for a Window, or nothing failed for four.
//
// Failures are answers of 500 and above, transport errors, attempt timeouts, and
// the call's own deadline where the attempt had far longer than is usual. Other
// answers are successes, save 429: that says nothing about the server's health
// while the circuit is closed, and that there is life in it when half-open. A
// call that the caller gave up says nothing.
//
// A probe has its place for one cooldown. If there is no result by then, since
// it hangs, or its goroutine is gone, the place is free for another one; the
// result counts nevertheless if it comes while the circuit is still half-open
// for the same time. A result that arrives after the circuit has changed is of a
// time that is over, and ignored.
//
// The zero value is ready for use, with the defaults below; to write a default
// out changes nothing. A Breaker is safe for concurrent use and may be shared by
// several Transports, which then learn from each other. A request to a scope
// whose circuit is closed passes without a lock. The fields are read at first use
// and must not change after it; a Breaker must not be copied after first use. It
// holds the few thousand circuits that were used last, and of those that are not
// closed as many as it can; a circuit that was forgotten begins anew, closed.
type Breaker struct {
	// FailureRatio is the share of failures at which a circuit opens: nearly all,
	// for where some calls succeed, repeating helps more than refusing. 0: 0.9.
	// Negative, or NaN: circuits never open. Above 1: 1.
	FailureRatio float64

	// MinRequests is how many results there must be in the Window before
	// their ratio is judged. 0: 20. Negative: 1.
	MinRequests int

	// Window is for how long a result counts. It slides in steps of a
	// sixteenth. 0 or negative: 10s. The least is a millisecond.
	Window time.Duration

	// Cooldown is how long a circuit stays open at first, at least. 0: 100ms.
	// Negative: the least that there is, a millisecond.
	Cooldown time.Duration

	// MaxCooldown is how long, not counting what is added at random, a circuit
	// stays open at most. 0: 2s. Negative, or less than Cooldown: Cooldown, which
	// then never grows.
	MaxCooldown time.Duration

	// Probes is how many requests a half-open circuit lets through. 0: 3.
	// Negative: 1.
	Probes int

	// Static makes the fields above all there is: no early opening, no cooldown
	// that follows latencies, no limit after slow failures; what is in flight does
	// not count, and retries may be probes too.
	Static bool

	// OnChange, if not nil, is called after each change of a circuit, by the
	// goroutine whose request or result brought it about, which waits for it.
	// It is called without a lock held, so it may use the Breaker; and it may
	// be called by several goroutines at once, also for one scope, in which
	// case From and To tell the order.
	OnChange func(BreakerChange)

	once   sync.Once
	engine *circuit.Breaker
}

// BreakerState is what a circuit does with requests: see [Breaker].
type BreakerState int

const (
	// StateClosed is when requests go out; also that of a scope never heard of.
	StateClosed = BreakerState(circuit.Closed)
	// StateHalfOpen is when a few requests go out, to see what becomes of them.
	StateHalfOpen = BreakerState(circuit.HalfOpen)
	// StateOpen is when requests are refused.
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

// BreakerChange tells that the circuit of a scope went from one state to
// another. The From of each change of a scope is the To of the one before. At is
// when it happened, and never before the change before.
type BreakerChange struct {
	Scope    string // with ";batch" or ";critical" behind it where it is the circuit of that priority
	From, To BreakerState
	At       time.Time
}

// State returns the state of the circuit of a scope, for dashboards and health
// checks. Each priority has a circuit of its own: those of calls that are not of
// PriorityDefault are named "scope;batch" and "scope;critical". A circuit whose cooldown is over is half-open, even if no request has
// come yet to make use of it. To ask changes nothing: a scope that is not known
// is closed, and stays unknown.
func (b *Breaker) State(name string) BreakerState {
	now := time.Now()
	engine, key := b.withDefaults(now), scope.Key{Name: name}
	if engine.Status(key, now).Since.IsZero() { // else that is the scope's own name
		key = keyNamed(name)
	}
	return BreakerState(engine.State(key, now))
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

// breakerChanged tells of a change, if there was one: OnChange first, and then the
// hooks of the call that has brought it about. No lock is held.
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
