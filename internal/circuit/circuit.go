// Package circuit is the engine of the circuit breaker. It has a circuit for each scope and
// priority. It knows scopes, times and results, but not HTTP.
//
// A circuit is closed (requests are sent), open (requests wait or are rejected) or half-open (a probe is in flight, or
// may be sent). Circuit.Admit returns a Permit for one attempt, or a Rejection. After a Rejection, Circuit.Wait waits. The
// caller must call Done or Cancel on the Permit once. Admit and Done return the change of state that
// they made. The package calls no callbacks. See docs/circuit-breaker.md.
package circuit

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/hold"
	"github.com/resilienthttp/resilienthttp/internal/latency"
	"github.com/resilienthttp/resilienthttp/internal/outcome"
	"github.com/resilienthttp/resilienthttp/internal/scope"
	"github.com/resilienthttp/resilienthttp/internal/window"
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
	for key, c := range b.circuits.All {
		if c.NotClosed() {
			f(key)
		}
	}
}

// Circuit is the circuit of one scope and priority. It is safe for concurrent use. A request
// takes no lock while the circuit is closed, unless it fails or slow start limits it.
//
// Each change makes a new closed or a new opening. A Permit points to the one that admitted
// it, so a result that arrives after a change has no effect.
type Circuit struct {
	scope.Refs

	breaker  *Breaker
	key      scope.Key
	baseline latency.Median         // of successes
	closed   atomic.Pointer[closed] // nil: open or half-open; stored under mu
	first    closed                 // closed, until it opens for the first time

	mu      sync.Mutex // guards the fields below, and fields of closed
	since   time.Time  // the last change
	opening *opening   // nil: closed
	outage  outage     // the last one
	waiting *waiting   // nil: no call has waited

	openings window.Window[atomic.Int32] // of the closed circuit
}

// State is the state of a circuit.
type State int

// The states of a circuit.
const (
	Closed   State = iota // requests are sent
	HalfOpen              // a few requests are sent as probes
	Open                  // requests wait or are rejected
)

// Change is a change of a circuit from one state to another. From is the To of the previous
// change, and At is not earlier than that of the previous change.
type Change struct {
	Key      scope.Key
	From, To State
	At       time.Time
	Openings int // see Status
	Opening  Opening
}

// Result is the result of an attempt.
type Result struct {
	Server  outcome.Server // what the attempt says about the server; Rejects is a success of a probe, and nothing while the circuit is closed
	Took    time.Duration
	TimeOut bool // the server fails by a timeout
	Retry   bool // not the first attempt of its call

	InFlight int    // other attempts in flight in the scope
	Route    uint64 // the hash of the route, if the server fails
}

// Permit permits one attempt. The caller must call Done or Cancel once; the methods of the
// zero Permit have no effect. If the caller calls neither, another probe may follow after a cooldown.
type Permit struct {
	Change *Change // the change that Admit made; nil: none

	circuit *Circuit
	closed  *closed  // that admitted it; nil: it is a probe
	opening *opening // that admitted it; nil: it is no probe
	counted *counted // nil: a second call of Done or Cancel changes nothing, or too little
}

// counted is a permit that is counted until it ends. Circuit.mu guards it.
type counted struct {
	ended  bool   // Done or Cancel was called
	tested uint64 // the route of a probe that was not known to fail; 0: it was
}

// Current reports whether the circuit has not changed since it admitted the attempt.
func (p Permit) Current() bool {
	if p.opening == nil {
		return p.circuit.closed.Load() == p.closed
	}
	p.circuit.mu.Lock()
	defer p.circuit.mu.Unlock()
	return p.circuit.opening == p.opening
}

// Rejection is the result for a request that is not admitted.
type Rejection struct {
	NotBefore time.Time // the earliest time at which another request may be admitted
	Outage    time.Time // the first failure of the outage; zero: the circuit is closed
}

// Admit returns a Permit for one attempt, or a Rejection. It does not wait. route returns the hash of the attempt's route: it
// is called only if the circuit is not closed, or under slow start. An attempt that tests is sent at once if its route has not
// failed in the outage.
func (c *Circuit) Admit(now time.Time, route func() uint64, tests bool) (Permit, *Rejection) {
	if s := c.closed.Load(); s != nil && s.slowStart.Load() == nil {
		return Permit{circuit: c, closed: s}, nil
	}
	hash := route()
	c.mu.Lock()
	defer c.mu.Unlock()
	// A route that has not failed in the outage may work although others do not, and only a request shows that.
	if o := c.opening; o != nil && tests && !c.breaker.rules.Static && !o.failing.has(hash) {
		return c.probe(now, hash), nil
	}
	return c.admit(now, hash)
}

// admit is Admit for a locked circuit and a route that waits while the circuit is open.
func (c *Circuit) admit(now time.Time, route uint64) (Permit, *Rejection) {
	if c.opening != nil {
		if rejection := c.rejects(now); rejection != nil {
			return Permit{}, rejection
		}
		return c.probe(now, route), nil
	}
	s := c.closed.Load()
	p := Permit{circuit: c, closed: s}
	if l := s.slowStart.Load(); l != nil && l.expired(now) {
		s.slowStart.Store(nil)
	} else if l != nil && c.outage.routes.has(route) {
		// Slow start limits only the routes that have failed in the outage: the others work.
		if rejection := l.admit(now); rejection != nil {
			return Permit{}, rejection
		}
		p.counted = l.newest()
	}
	return p, nil
}

// Rejects returns the Rejection that Admit would return at a time, as far as it is known
// now, or nil. It changes nothing. For a closed circuit it takes no lock.
func (c *Circuit) Rejects(at time.Time) *Rejection {
	if s := c.closed.Load(); s != nil && s.slowStart.Load() == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rejects(at)
}

// rejects is Rejects for a locked circuit.
func (c *Circuit) rejects(at time.Time) *Rejection {
	var next, outage time.Time
	if o := c.opening; o != nil {
		next, outage = o.probeAt(&c.breaker.rules, at), c.outage.since
	} else if l := c.closed.Load().slowStart.Load(); l != nil && !hold.WentBack(l.quiet, at) {
		next = l.paused
	}
	if !at.Before(next) {
		return nil
	}
	return &Rejection{NotBefore: next, Outage: outage}
}

// Done records the result of the attempt. It returns the change that the result made, or nil.
// For a probe, and under slow start, later calls of Done and Cancel have no effect.
func (p Permit) Done(r Result, now time.Time) *Change {
	c := p.circuit
	if c == nil {
		return nil
	}
	// Most attempts end here, without a lock.
	if p.counted == nil && r.Server != outcome.Fails {
		return c.doneClosed(p, r, now)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	change := c.done(p, r, now)
	if c.waitingCalls() > 0 {
		// After the result, because it may have closed the circuit or made the next probe due.
		c.waiting.Dispatch(now)
	}
	return change
}

// done is Done for a locked circuit.
func (c *Circuit) done(p Permit, r Result, now time.Time) *Change {
	if p.counted != nil {
		// A second end would count a probe twice.
		if p.counted.ended {
			return nil
		}
		p.counted.ended = true
	}
	if p.opening != nil {
		return c.doneProbe(p, r, now)
	}
	return c.doneClosed(p, r, now)
}

// Late reports whether an attempt without a response had far longer than usual.
func (c *Circuit) Late(took time.Duration) bool { return took >= minTimeout(c.baseline.Get()) }

// AnsweredSince reports whether a request that was sent after a time has succeeded, since the circuit last closed. While it is not
// closed, none has.
func (c *Circuit) AnsweredSince(sent time.Time) bool {
	s := c.closed.Load()
	return s != nil && s.lastAnswered() > max(sent.Sub(c.breaker.origin), -1)
}

// MostSucceed reports whether the circuit is closed, and more than half of the results of the Window are successes.
func (c *Circuit) MostSucceed(now time.Time) bool {
	s := c.closed.Load()
	if s == nil {
		return false
	}
	sum := s.tally(&c.breaker.rules, now.Sub(c.breaker.origin))
	return sum.results > 2*sum.failures
}

// Usual returns the median latency of successes; 0: unknown.
func (c *Circuit) Usual() time.Duration { return c.baseline.Get() }

// Cancel returns the permit of an attempt that was not sent or has no known result.
func (p Permit) Cancel(now time.Time) { _ = p.Done(Result{}, now) }

// Opening is when a circuit opened, the results for which it did, and the probes that have failed since. It is zero while the
// circuit is closed, but not in the change that closes it.
type Opening struct {
	OpenedAt                         time.Time
	Attempts, Failures, FailedProbes int
}

// Status describes a circuit.
type Status struct {
	State           State
	Calls, Failures int       // results of the Window; if not closed, those for which it opened
	Openings        int       // how often the closed circuit opened in the last 5 min
	Opening         Opening   // zero: the circuit is closed
	Since           time.Time // the last change, or the first use of the Breaker; zero: no circuit
	NotBefore       time.Time // no request is sent until then; zero: one may be sent
	Limit           float64   // maximum of requests in flight under slow start; zero: none
	Outage          time.Time // the first failure of the outage; zero: the circuit is closed
	Waiting         int       // calls that wait for the circuit
}

// Status describes the circuit. The circuit is half-open from the end of its cooldown, even
// before the next request. The Status of a nil Circuit is the zero value.
func (c *Circuit) Status(now time.Time) Status {
	if c == nil {
		return Status{}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	s := Status{Since: c.since, Openings: c.countOpenings(now), Opening: c.opening.describe()}
	s.Waiting = int(c.waitingCalls())
	rejection := c.rejects(now)
	if rejection != nil {
		s.NotBefore = rejection.NotBefore
	}
	if o := c.opening; o != nil {
		s.State, s.Calls, s.Failures, s.Outage = HalfOpen, o.opened.results, o.opened.failures, c.outage.since
		if !o.halfOpen && rejection != nil {
			s.State = Open
		} else if !o.halfOpen {
			s.Since = o.hold.Next(now)
		}
		return s
	}
	closed := c.closed.Load()
	sum := closed.tally(&c.breaker.rules, now.Sub(c.breaker.origin))
	s.Calls, s.Failures = sum.results, sum.failures
	if l := closed.slowStart.Load(); l != nil {
		s.Limit = l.size
	}
	return s
}

// changed returns a change during the opening. The circuit is locked.
func (c *Circuit) changed(from, to State, now time.Time) *Change {
	// A goroutine that read the clock first may get the lock last.
	if now.After(c.since) {
		c.since = now
	}
	if at := now.Sub(c.breaker.origin); from == Closed {
		c.openings.At(at, window.Status, window.Buckets).Add(1)
	}
	return &Change{Key: c.key, From: from, To: to, At: c.since, Openings: c.countOpenings(now), Opening: c.opening.describe()}
}

// countOpenings returns how often the closed circuit has opened lately. The circuit is locked.
func (c *Circuit) countOpenings(now time.Time) (n int) {
	for _, some := range c.openings.All(now.Sub(c.breaker.origin), window.Status, window.Buckets) {
		n += int(some.Load())
	}
	return n
}
