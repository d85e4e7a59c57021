// Package circuit is the engine behind the circuit breaker: for each scope a
// circuit that says whether the scope is asked at all.
//
// It knows scopes, times and results, and nothing of HTTP. Breaker.Admit gives a
// Ticket for one attempt, or says when to ask again; the Ticket is told once how
// the attempt went (Done), or given back (Cancel). A change of state is returned
// to whom it happened, who may tell others; no callback is ever called here.
package circuit

import (
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/scope"
)

// Breaker holds the circuits of all scopes. It is safe for concurrent use; a
// request whose circuit is closed passes without a lock.
type Breaker struct {
	rules    Rules
	origin   time.Time // window.Counter counts the time from here
	circuits scope.Map[scope.Key, circuit]
}

// New returns a Breaker with rules in which the defaults are put in.
func New(rules Rules, now time.Time) *Breaker {
	b := &Breaker{rules: rules.withDefaults(), origin: now}
	b.circuits.Clone = scope.Key.Clone
	b.circuits.Keep = func(c *circuit) bool {
		g := c.current.Load()
		return g != nil && g.state.name() != Closed
	}
	return b
}

// State is what a circuit does with requests.
type State int

// The states. A scope that was never heard of is Closed.
const (
	Closed   State = iota // requests go out
	HalfOpen              // a few do, to see what becomes of them
	Open                  // none do
)

// Change tells that a circuit went from one state to another. The From of each
// change of a scope is the To of the one before, and At is never before the
// change before.
type Change struct {
	Key      scope.Key
	From, To State
	At       time.Time
}

// Outcome is what the result of an attempt says about the server.
type Outcome int

// What a result says.
const (
	None      Outcome = iota // nothing: the caller gave up, or it was never sent
	Success                  // it works
	Failure                  // it does not
	Responded                // it is there, but has enough of us (429)
	Timeout                  // the call's deadline came before any answer: a Failure if that took unusually long
)

// Result is how an attempt went.
type Result struct {
	Outcome Outcome
	Took    time.Duration
	TimeOut bool // a Failure for want of time
	Retry   bool // it was not its call's first
}

// circuit is the state of one scope: the generation that is current, or nil
// before the first request.
//
// Every change is a compare-and-swap from one generation to the next, which
// exactly one goroutine wins and reports. Tickets lead to the generation that
// gave them, so a result that comes late is counted in a generation that is of
// no consequence anymore, without a comparison of numbers that one could
// forget.
type circuit struct {
	current  atomic.Pointer[generation]
	baseline baselineLatency
}

// generation is a circuit between two changes. Its fields do not change; what
// happens in it is in its state.
type generation struct {
	breaker *Breaker
	circuit *circuit
	key     scope.Key
	since   time.Time
	state   state
}

// state is what a circuit does in one generation.
type state interface {
	name() State
	// admit asks for a ticket at the time now. The zero Ticket is a refusal, and
	// notBefore when to ask again. With a change, or stale, the answer is to be
	// had from the generation that follows.
	admit(g *generation, now time.Time, retry bool) (t Permit, notBefore time.Time, change *Change, stale bool)
	// refuses tells what admit would say at the time at, as far as one can know,
	// and changes nothing.
	refuses(g *generation, at time.Time, retry bool) (notBefore time.Time, refuses bool)
	// describe is what is known.
	describe(g *generation, now time.Time) Status
	// done records the result of an attempt that this state has let out.
	done(t Permit, r Result, now time.Time) *Change
}

// Ticket lets one attempt out, and is to be told how it went. The zero Ticket is
// none. One that is never told, because its goroutine is gone, holds a probe's place
// for a cooldown, or counts as in flight until the circuit changes.
type Permit struct {
	generation *generation
	probe      *probe       // nil when closed
	told       *atomic.Bool // under a limit, which counts what is in flight: Done was called
}

// Admit asks whether an attempt may be sent. If not, notBefore is not zero: the
// earliest time at which it makes sense to ask again. retry says that the attempt
// is not its call's first: unless the rules are static, those wait until the
// circuit is closed, for the few places before that are for new calls, which
// find out as well whether the server is back.
func (b *Breaker) Admit(key scope.Key, now time.Time, retry bool) (t Permit, notBefore time.Time, change *Change) {
	c := b.circuits.Get(key)
	for {
		g := c.current.Load()
		if g == nil {
			// The name is a part of a URL, maybe, and is kept for longer.
			g = &generation{breaker: b, circuit: c, key: key.Clone(), since: now, state: &closed{}}
			if !c.current.CompareAndSwap(nil, g) {
				continue
			}
		}
		t, notBefore, change, stale := g.state.admit(g, now, retry)
		if !stale {
			return t, notBefore, change
		}
	}
}

// Refuses tells whether an attempt would be refused at the time at, as far as one
// can know now, and if so, until when. It changes nothing and takes no place: it
// is for the question whether a wait is worth beginning.
func (b *Breaker) Refuses(key scope.Key, at time.Time, retry bool) (notBefore time.Time, refuses bool) {
	g := b.peek(key)
	if g == nil {
		return time.Time{}, false
	}
	return g.state.refuses(g, at, retry)
}

// State returns the state of the circuit of a scope. A circuit whose cooldown is
// over is HalfOpen, even if no request has come yet to make use of it. To ask
// changes nothing: a scope that is not known stays unknown.
func (b *Breaker) State(key scope.Key, now time.Time) State {
	g := b.peek(key)
	if g == nil {
		return Closed
	}
	if o, ok := g.state.(*open); ok && !now.Before(o.until) {
		return HalfOpen
	}
	return g.state.name()
}

// Status is what is known of a circuit.
type Status struct {
	State           State
	Calls, Failures int       // results of the Window; where it is not closed, those for which it opened
	Since           time.Time // when it came into this state; zero: it was never heard of
	NotBefore       time.Time // requests are refused until then; zero: they are not
	Limit           float64   // of requests in flight; 0: none
}

// Status tells what is known of the circuit of a scope. It changes nothing.
func (b *Breaker) Status(key scope.Key, now time.Time) Status {
	g := b.peek(key)
	if g == nil {
		return Status{}
	}
	return g.state.describe(g, now)
}

// NotClosed calls f with each scope whose circuit is not closed.
func (b *Breaker) NotClosed(f func(scope.Key)) {
	b.circuits.All(func(key scope.Key, c *circuit) bool {
		if g := c.current.Load(); g != nil && g.state.name() != Closed {
			f(key)
		}
		return true
	})
}

// peek returns the current generation of a scope, or nil if there is none.
func (b *Breaker) peek(key scope.Key) *generation {
	if c := b.circuits.Peek(key); c != nil {
		return c.current.Load()
	}
	return nil
}

// Done tells how the attempt went. It is to be called once; where the ticket holds
// a place, a second call, or one after Cancel, does nothing. The change, if there
// is one, was made by this result.
func (t Permit) Done(r Result, now time.Time) *Change {
	g := t.generation
	if g == nil {
		return nil
	}
	if r.Outcome == Timeout {
		r.Outcome = None
		if r.Took >= minSilence(g.circuit.baseline.latency()) {
			r.Outcome = Failure
		}
	}
	return g.state.done(t, r, now)
}

// Cancel gives the ticket back: the attempt was not sent, or nobody knows what
// became of it.
func (t Permit) Cancel(now time.Time) { _ = t.Done(Result{}, now) }

// silenceLeast is how long an attempt must have gone without an answer, when its
// call's deadline ended it, to say anything about the server.
func minSilence(typical time.Duration) time.Duration {
	if typical == 0 {
		return time.Second
	}
	return max(slowFailure, 4*typical)
}

// become makes the circuit pass to the next state, unless it has left this
// generation already.
func (g *generation) become(s state, now time.Time) *Change {
	next := g.next(s, now)
	if !g.circuit.current.CompareAndSwap(g, next) {
		return nil
	}
	return &Change{Key: g.key, From: g.state.name(), To: s.name(), At: next.since}
}

func (g *generation) next(s state, now time.Time) *generation {
	if now.Before(g.since) {
		now = g.since // goroutines need not agree on the order of their clocks
	}
	return &generation{breaker: g.breaker, circuit: g.circuit, key: g.key, since: now, state: s}
}

// jittered is the cooldown with up to a quarter of it on top, lest a thousand
// clients come back in the same instant.
func jittered(cooldown time.Duration) time.Duration {
	sum := cooldown + time.Duration(rand.Int64N(int64(cooldown/4)+1))
	if sum < cooldown {
		return cooldown // it would overflow
	}
	return sum
}

// tired reports whether a failure took so long that it tells of a long queue, by
// itself and beside the answers. Of a server that has never answered, none does.
func (c *circuit) isSlowFailure(r Result) bool {
	typical := c.baseline.latency()
	return typical > 0 && (r.TimeOut || r.Took >= minSlow(typical))
}
