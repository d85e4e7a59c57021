package resilienthttp

import (
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/window"
)

// circuit is the state of one scope: the generation that is current, or nil
// before the first request.
//
// Every change is a compare-and-swap from one generation to the next, which
// exactly one goroutine wins and reports. Permits lead to the generation that
// gave them, so a result that comes late is counted in a generation that is of
// no consequence anymore, without a comparison of numbers that one could
// forget.
type circuit struct {
	current atomic.Pointer[generation]
	typical typicalLatency
}

type generation struct {
	// These do not change.
	rules    *breakerRules
	circuit  *circuit
	scope    string
	state    BreakerState
	since    time.Time
	cooldown time.Duration // of the opening that this is, or follows; 0 when closed
	worst    time.Duration // latency of the slowest failure of this trouble; 0 when closed
	until    time.Time     // of the cooldown, with what is added at random; when open

	// When closed.
	results     window.Counter // failures, successes
	lastFailure atomic.Int64   // nanoseconds since the origin; 0: none yet
	failing     atomic.Bool    // nothing has succeeded since the streak began
	valve       *valve         // nil: everybody may pass

	// The lock is for failures when closed, and when half-open for the few
	// probes and those who would be. Every change from half-open is made under
	// it, so that nobody is let in or sent away by a generation that is over.
	mu          sync.Mutex
	streak      int           // calls that failed, with no success since the first
	streakSince time.Duration // when that was, since the origin
	slowest     time.Duration // latency of the slowest failure of late
	slowestAt   time.Duration // when it came

	// When half-open, under the lock.
	probes    []*probe // those that are out, and hold a place
	successes int
}

// permit lets one attempt out, and is to be told how it went. The zero permit
// is one of a Breaker that is off. One that is never told, because a goroutine
// panicked, does no harm: at most it holds a probe's place for a cooldown.
type permit struct {
	generation *generation
	probe      *probe // nil when closed
}

// served reports whether the scope was ever known to answer.
func (p permit) served() bool {
	return p.generation != nil && p.generation.circuit.typical.latency() > 0
}

// firstContact reports whether the scope has not answered yet, as far as the
// Breaker knows, which knows nothing if it is off.
func (p permit) firstContact() bool { return p.generation != nil && !p.served() }

// result is how an attempt went.
type result struct {
	outcome breakerOutcome
	took    time.Duration
	retry   bool // it was not a call's first
}

// admit asks whether an attempt may be sent. If not, notBefore is the earliest
// time at which it makes sense to ask again.
func (b *Breaker) admit(scope string, now time.Time, o breakerObserver) (p permit, notBefore time.Time, ok bool) {
	rules := b.freeze(now)
	if rules.off {
		return permit{}, time.Time{}, true
	}
	c := b.circuits.Get(scope)
	for {
		g := c.current.Load()
		if g == nil {
			// The scope is a part of a URL, maybe, and is kept for longer.
			g = &generation{rules: rules, circuit: c, scope: strings.Clone(scope), since: now}
			if !c.current.CompareAndSwap(nil, g) {
				continue
			}
		}
		switch g.state {
		case StateClosed:
			if g.valve.works() {
				if notBefore, ok := g.valve.enter(now); !ok {
					return permit{}, notBefore, false
				}
			}
			return permit{generation: g}, time.Time{}, true
		case StateOpen:
			if now.Before(g.until) {
				return permit{}, g.until, false
			}
			// Whoever makes it half-open has the first place, and has it before
			// anybody is told: a callback may take its time.
			next := g.next(StateHalfOpen, 0, now)
			p := next.lease(now)
			if c.current.CompareAndSwap(g, next) {
				g.report(next, o)
				return p, time.Time{}, true
			}
		case StateHalfOpen:
			if p, notBefore, current := g.enter(now); current {
				return p, notBefore, p.generation != nil
			}
		}
	}
}

// wouldRefuse tells whether a retry would be refused at the time at, as far as
// one can know now, and if so, until when. It changes nothing and takes no place:
// it is for the question whether a wait is worth beginning. Where the recovery is
// adaptive, the few places of a circuit that is not closed are not for retries:
// new calls find out as well whether the server is back, and while it is not,
// each retry is load on top of theirs.
func (b *Breaker) wouldRefuse(scope string, at time.Time) (notBefore time.Time, refuses bool) {
	for {
		g := b.peek(scope)
		switch {
		case g == nil:
			return time.Time{}, false
		case g.state == StateClosed:
			if g.valve.works() {
				return g.valve.wouldRefuse(at)
			}
			return time.Time{}, false
		case g.state == StateOpen:
			if at.Before(g.until) || g.rules.adaptive {
				return g.until, true
			}
			return time.Time{}, false
		}
		g.mu.Lock()
		notBefore, full, current := g.full(at)
		g.mu.Unlock()
		switch {
		case !current:
		case full || !g.rules.adaptive:
			return notBefore, full
		default:
			return at, true
		}
	}
}

// peek returns the current generation of a scope, or nil if there is none.
func (b *Breaker) peek(scope string) *generation {
	if c := b.circuits.Peek(scope); c != nil {
		return c.current.Load()
	}
	return nil
}

// done tells how an attempt went. It is to be called once; a second call does
// nothing for a probe, and counts again for others.
func (p permit) done(r result, now time.Time, o breakerObserver) {
	switch g := p.generation; {
	case g == nil:
	case p.probe != nil:
		g.settle(p.probe, r, now, o)
	default:
		g.count(r, now, o)
	}
}

// count records a result in a closed generation, and opens the circuit if it is
// one too many.
func (g *generation) count(r result, now time.Time, o breakerObserver) {
	works := g.valve.works()
	if works {
		g.valve.left(now.Add(-r.took), now, r.outcome)
	}
	rules := g.rules
	at := now.Sub(rules.origin)
	stalled := false
	switch r.outcome {
	case outcomeSuccess:
		g.results.Add(at, rules.window, 0, 1)
		if g.failing.Load() {
			g.failing.Store(false)
		}
		if !works {
			g.circuit.typical.sample(at, r.took)
		}
		// A success too can complete MinRequests. But where nothing failed,
		// nothing needs to be summed up: the happy path ends here. (The
		// failure that is not seen yet will see this success.)
		if last := g.lastFailure.Load(); last == 0 || at-time.Duration(last) > rules.window {
			return
		}
		r.took = 0 // it is not what the circuit opens for
	case outcomeFailure:
		g.lastFailure.Store(max(int64(at), 1))
		g.results.Add(at, rules.window, 1, 0)
		stalled = g.failed(r, at)
	default:
		return
	}
	if !stalled && !g.tooMany(at) {
		return
	}
	if g.circuit.current.Load() != g {
		return // long open: do not make a generation for each of the late failures
	}
	next := g.next(StateOpen, r.took, now)
	if g.circuit.current.CompareAndSwap(g, next) {
		g.report(next, o)
	}
}

// tooMany reports whether FailureRatio is reached.
func (g *generation) tooMany(at time.Duration) bool {
	failures, successes := g.results.Sum(at, g.rules.window)
	n := failures + successes
	// The quotient, not failures < ratio × n: 7 of 100 are 0.07, but 0.07 × 100
	// is a little more than 7.
	return n >= g.rules.minRequests && float64(failures)/float64(n) >= g.rules.ratio
}

const (
	stallCalls = 5
	stallTime  = 2 * time.Second
)

// failed notes a failure: how long the slowest took, and how many calls have
// failed in a row. It reports whether that has gone on for so long that
// MinRequests need not be waited for: a client that makes one call per second
// would need a third of a minute for them, and the server would have its retries
// for as long. Calls are counted, not attempts, so that one call that is retried
// does not open the circuit; and those within the Window, as for the ratio.
func (g *generation) failed(r result, at time.Duration) (stalled bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if r.took >= g.slowest || at-g.slowestAt > g.rules.window {
		g.slowest, g.slowestAt = r.took, at
	}
	if r.retry || !g.rules.early {
		return false
	}
	if !g.failing.Swap(true) || at-g.streakSince > g.rules.window {
		g.streak, g.streakSince = 0, at
	}
	g.streak++
	return g.streak >= stallCalls && at-g.streakSince >= stallTime
}

// next returns the generation that is to follow g, because of an attempt that
// took so long.
func (g *generation) next(state BreakerState, took time.Duration, now time.Time) *generation {
	if now.Before(g.since) {
		now = g.since // goroutines need not agree on the order of their clocks
	}
	next := &generation{rules: g.rules, circuit: g.circuit, scope: g.scope, state: state, since: now}
	switch state {
	case StateClosed:
		next.valve = newValve(g.rules, g.circuit.typical.latency(), g.worst, took, now)
	case StateHalfOpen:
		next.cooldown, next.worst = g.cooldown, g.worst
	case StateOpen:
		next.cooldown = g.cooldownAfter(took)
		next.worst = max(took, g.worst)
		if g.state == StateClosed {
			g.mu.Lock()
			next.worst = max(took, g.slowest)
			g.mu.Unlock()
		}
		jitter := time.Duration(rand.Int64N(int64(next.cooldown/4) + 1))
		next.until = now.Add(min(next.cooldown, math.MaxInt64-jitter) + jitter)
	}
	return next
}

// cooldownAfter is how long the circuit stays open after a failure that took so
// long. A probe that fails at once costs nobody anything, so it can be repeated
// soon; one that times out has held a caller and a place in the server's queue
// all that time. But that a timeout is long says nothing of how long the trouble
// will last, and so the first cooldown never is.
func (g *generation) cooldownAfter(took time.Duration) time.Duration {
	first, most := g.rules.cooldown, g.rules.maxCooldown
	if g.rules.adaptive {
		took = min(took, most) // eight times that does not overflow
		most = min(max(first, 8*took), most)
		first = min(max(first, 2*took), mostFirstCooldown)
	}
	switch {
	case g.state != StateHalfOpen:
		return first
	case g.cooldown < most/2: // twice that cannot overflow
		return 2 * g.cooldown
	}
	return most
}

// report tells of the change from g to next, which the caller has made. No lock
// is held.
func (g *generation) report(next *generation, o breakerObserver) {
	change := BreakerChange{Scope: g.scope, From: g.state, To: next.state, At: next.since}
	if g.rules.onChange != nil {
		g.rules.onChange(change)
	}
	if o != nil {
		o.breakerChanged(change)
	}
}
