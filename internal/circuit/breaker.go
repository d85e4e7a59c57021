// Package circuit is the engine of the circuit breaker. It has a circuit for each scope and
// priority. It knows scopes, times and results, but not HTTP.
//
// A circuit is closed (requests are sent), open (requests wait or are rejected) or half-open (a probe is in flight, or
// may be sent). Circuit.Admit returns a Permit for one attempt, or a Rejection. After a Rejection, Circuit.Wait waits. The
// caller must call Done or Cancel on the Permit once. Admit and Done return the change of state that
// they made. The package calls no callbacks. See docs/circuit-breaker.md.
package circuit

import (
	"time"

	"github.com/resilienthttp/resilienthttp/internal/scope"
)

// Breaker holds the circuits of all scopes, at most scope.DefaultMax. It is safe for
// concurrent use.
type Breaker struct {
	rules    Rules
	origin   time.Time // times of windows are measured from here
	circuits scope.Map[scope.Key, Circuit]
}

// New returns a Breaker. Zero fields of the rules mean their defaults.
func New(rules Rules, now time.Time) *Breaker {
	b := &Breaker{rules: rules.withDefaults(), origin: now}
	b.circuits.Init = b.init
	b.circuits.Keep = (*Circuit).NotClosed
	b.circuits.Held = (*Circuit).Held
	return b
}

func (b *Breaker) init(key scope.Key, c *Circuit) {
	c.breaker, c.key, c.since = b, key, b.origin
	c.closed.Store(&c.first)
}

// New returns a circuit that is not in the Breaker: Circuit, Find and NotClosed do not know it.
func (b *Breaker) New(key scope.Key) *Circuit {
	c := new(Circuit)
	b.init(key, c)
	return c
}

// NotClosed reports whether the circuit is open or half-open.
func (c *Circuit) NotClosed() bool { return c.closed.Load() == nil }

// Circuit returns the circuit of a key. It makes a closed one if there is none.
func (b *Breaker) Circuit(key scope.Key) *Circuit { return b.circuits.Get(key) }

// Find returns the circuit of a key, or nil if there is none. It changes nothing.
func (b *Breaker) Find(key scope.Key) *Circuit { return b.circuits.Peek(key) }

// NotClosed calls f with the key of each circuit that is not closed.
func (b *Breaker) NotClosed(f func(scope.Key)) {
	b.circuits.All(func(key scope.Key, c *Circuit) bool {
		if c.closed.Load() == nil {
			f(key)
		}
		return true
	})
}
