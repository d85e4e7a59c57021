package circuit

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/scope"
)

// Circuit is the circuit of one scope and priority. It is safe for concurrent use. A request
// takes no lock while the circuit is closed, unless it fails or slow start limits it.
//
// Each change makes a new closed or a new opening. A Permit points to the one that admitted
// it, so a result that arrives after a change has no effect.
type Circuit struct {
	scope.Refs

	breaker  *Breaker
	key      scope.Key
	baseline baselineLatency
	closed   atomic.Pointer[closed] // nil: open or half-open; stored under mu

	mu      sync.Mutex // guards all that follows, and what closed marks
	since   time.Time  // the last change
	opening *opening   // of a circuit that is not closed
}

// State is what a circuit does with requests.
type State int

const (
	// Closed means that requests are sent.
	Closed State = iota
	// HalfOpen means that a few requests are sent as probes.
	HalfOpen
	// Open means that requests are rejected.
	Open
)

// Change is a change of a circuit from one state to another. The From of each change of a
// circuit is the To of the one before, and At is never earlier than that of the one before.
type Change struct {
	Key      scope.Key
	From, To State
	At       time.Time
}

// Outcome is what the result of an attempt says about the server.
type Outcome int

const (
	// None says nothing: the caller canceled, or the attempt was not sent.
	None Outcome = iota
	// Success means that the server works.
	Success
	// Failure means that the server does not work.
	Failure
	// Responded is a success of a probe, and says nothing while the circuit is closed (429).
	Responded
	// Timeout means that the deadline of the call came before a response. It is a Failure if
	// the attempt had far longer than usual, and says nothing otherwise.
	Timeout
)

// Result is the result of an attempt.
type Result struct {
	Outcome Outcome
	Took    time.Duration
	TimeOut bool // a Failure by a timeout
	Retry   bool // not the first attempt of its call
}

// Permit permits one attempt. The caller must call Done or Cancel once. The zero Permit
// permits nothing, and its methods have no effect.
//
// If neither is called, because the goroutine is gone, a probe holds its slot for one
// cooldown, and another attempt counts as in flight until the circuit changes.
type Permit struct {
	Change *Change // the change that Admit made; nil: none

	circuit *Circuit
	closed  *closed // nil: a probe
	slot    *slot   // of a probe, or of a request under slow start; nil: not counted
}

// slot is the place of a request where their number is limited. Circuit.mu guards it.
type slot struct {
	ended   bool      // Done or Cancel was called
	opening *opening  // of a probe
	expires time.Time // of a probe
}

// Rejection is the answer to a request that is not admitted.
type Rejection struct {
	NotBefore time.Time // the earliest time at which another request may be admitted
}

// Admit returns a Permit for one attempt, or a Rejection. retry means that the attempt is
// not the first of its call. A retry is no probe, unless the rules are static: the few
// slots are for new calls, which find out as well whether the server is back.
func (c *Circuit) Admit(now time.Time, retry bool) (Permit, *Rejection) {
	if s := c.closed.Load(); s != nil && s.slowStart.Load() == nil {
		s.inFlight.Add(1)
		return Permit{circuit: c, closed: s}, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.closed.Load(); s != nil {
		return c.admitSlowly(s, now)
	}
	return c.admitProbe(now, retry)
}

// Rejects returns the Rejection that Admit would return at a time, as far as it is known
// now, or nil. It changes nothing.
func (c *Circuit) Rejects(at time.Time, retry bool) *Rejection {
	if s := c.closed.Load(); s != nil && s.slowStart.Load() == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.opening != nil {
		return c.opening.rejects(&c.breaker.rules, at, retry)
	}
	if l := c.closed.Load().slowStart.Load(); l != nil && at.Before(l.paused) {
		return &Rejection{NotBefore: l.paused}
	}
	return nil
}

// Done records the result of the attempt. A call after the first, or after Cancel, has no
// effect for a probe and under slow start. It returns the change that this result made, or
// nil.
func (p Permit) Done(r Result, now time.Time) *Change {
	c := p.circuit
	if c == nil {
		return nil
	}
	if r.Outcome == Timeout {
		r.Outcome = None
		if r.Took >= minTimeout(c.baseline.latency()) {
			r.Outcome = Failure
		}
	}
	if p.closed == nil {
		return c.doneProbe(p.slot, r, now)
	}
	return c.doneClosed(p, r, now)
}

// Cancel returns the permit of an attempt that was not sent, or whose result is unknown.
func (p Permit) Cancel(now time.Time) { _ = p.Done(Result{}, now) }

// Status describes a circuit.
type Status struct {
	State           State
	Calls, Failures int       // results of the Window; if not closed, those for which it opened
	Since           time.Time // the last change, or the first use of the Breaker; zero: no circuit
	NotBefore       time.Time // requests are rejected until then; zero: they are not
	Limit           float64   // slow start's, of requests in flight; zero: none
}

// Status describes the circuit. A circuit whose cooldown is over is half-open, even before
// the next request. The Status of a nil Circuit is the zero value.
func (c *Circuit) Status(now time.Time) Status {
	if c == nil {
		return Status{}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.opening != nil {
		return c.opening.status(&c.breaker.rules, c.since, now)
	}
	s := c.closed.Load()
	sum := s.tally(&c.breaker.rules, now.Sub(c.breaker.origin))
	status := Status{State: Closed, Calls: sum.results, Failures: sum.failures, Since: c.since}
	if l := s.slowStart.Load(); l != nil {
		status.Limit = l.size
		if now.Before(l.paused) {
			status.NotBefore = l.paused
		}
	}
	return status
}

// State returns the State of the Status.
func (c *Circuit) State(now time.Time) State { return c.Status(now).State }

func (c *Circuit) isClosed() bool { return c.closed.Load() != nil }

// open changes the circuit to open. It is locked.
func (c *Circuit) open(from State, o *opening, now time.Time) *Change {
	c.opening = o
	c.closed.Store(nil)
	return c.changed(from, Open, now)
}

// changed returns the change that was made. The circuit is locked.
func (c *Circuit) changed(from, to State, now time.Time) *Change {
	if now.After(c.since) { // the clocks of goroutines need not agree on the order
		c.since = now
	}
	return &Change{Key: c.key, From: from, To: to, At: c.since}
}
