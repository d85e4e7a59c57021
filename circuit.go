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
}

type generation struct {
	// These do not change.
	rules    *breakerRules
	circuit  *circuit
	scope    string
	state    BreakerState
	since    time.Time
	cooldown time.Duration // of the opening that this is, or follows; 0 when closed
	until    time.Time     // of the cooldown, with what is added at random; when open

	// When closed.
	results     window.Counter // failures, successes
	lastFailure atomic.Int64   // nanoseconds since the origin; 0: none yet

	// When half-open. The lock is for the few probes and those who would be;
	// every change from here on is made under it, so that nobody is let in or
	// sent away by a generation that is over.
	mu        sync.Mutex
	probes    []*probe // those that are out, and hold a place
	successes int
}

// probeAnswer is when it is worth to ask whether a probe has been answered. Its
// lease may be half a minute, but most answers come at once.
const probeAnswer = time.Second

// probe is a place in a half-open generation, leased until it expires.
type probe struct {
	expires time.Time
	settled bool // guarded by generation.mu
}

// permit lets one attempt out, and is to be told how it went. The zero permit
// is one of a Breaker that is off. One that is never told, because a goroutine
// panicked, does no harm: at most it holds a probe's place for a cooldown.
type permit struct {
	generation *generation
	probe      *probe // nil when closed
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
			return permit{generation: g}, time.Time{}, true
		case StateOpen:
			if now.Before(g.until) {
				return permit{}, g.until, false
			}
			// Whoever makes it half-open has the first place, and has it before
			// anybody is told: a callback may take its time.
			next := g.next(StateHalfOpen, now)
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

// wouldRefuse tells whether an attempt would be refused at the time at, as far
// as one can know now, and if so, until when. It changes nothing and takes no
// place: it is for the question whether a wait is worth beginning.
func (b *Breaker) wouldRefuse(scope string, at time.Time) (notBefore time.Time, refuses bool) {
	for {
		g := b.peek(scope)
		switch {
		case g == nil || g.state == StateClosed:
			return time.Time{}, false
		case g.state == StateOpen:
			if at.Before(g.until) {
				return g.until, true
			}
			return time.Time{}, false
		}
		g.mu.Lock()
		notBefore, full, current := g.full(at)
		g.mu.Unlock()
		if current {
			return notBefore, full
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
func (p permit) done(outcome breakerOutcome, now time.Time, o breakerObserver) {
	switch g := p.generation; {
	case g == nil:
	case p.probe != nil:
		g.settle(p.probe, outcome, now, o)
	default:
		g.count(outcome, now, o)
	}
}

// count records a result in a closed generation, and opens the circuit if it is
// one too many.
func (g *generation) count(outcome breakerOutcome, now time.Time, o breakerObserver) {
	rules := g.rules
	at := now.Sub(rules.origin)
	switch outcome {
	case outcomeSuccess:
		g.results.Add(at, rules.window, 0, 1)
		// A success too can complete MinRequests. But where nothing failed,
		// nothing needs to be summed up: the happy path ends here. (The
		// failure that is not seen yet will see this success.)
		if last := g.lastFailure.Load(); last == 0 || at-time.Duration(last) > rules.window {
			return
		}
	case outcomeFailure:
		g.lastFailure.Store(max(int64(at), 1))
		g.results.Add(at, rules.window, 1, 0)
	default:
		return
	}
	failures, successes := g.results.Sum(at, rules.window)
	n := failures + successes
	// The quotient, not failures < ratio × n: 7 of 100 are 0.07, but 0.07 × 100
	// is a little more than 7.
	if n < rules.minRequests || float64(failures)/float64(n) < rules.ratio {
		return
	}
	if g.circuit.current.Load() != g {
		return // long open: do not make a generation for each of the late failures
	}
	next := g.next(StateOpen, now)
	if g.circuit.current.CompareAndSwap(g, next) {
		g.report(next, o)
	}
}

// enter asks a half-open generation for a place. The permit is zero if there is
// none.
func (g *generation) enter(now time.Time) (p permit, notBefore time.Time, current bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	notBefore, full, current := g.full(now)
	if full || !current {
		return permit{}, notBefore, current
	}
	g.drop(func(p *probe) bool { return p.expired(now) })
	return g.lease(now), time.Time{}, true
}

// full tells whether all places are taken at the time at, and if so, when to ask
// again: when the first of them will be free, or sooner, for a probe's answer may
// close the circuit at any moment. If the generation is over, current is false,
// and the answer is to be had from the one that follows. The generation is locked.
func (g *generation) full(at time.Time) (notBefore time.Time, full, current bool) {
	if g.circuit.current.Load() != g {
		return time.Time{}, false, false
	}
	taken := g.successes
	for _, p := range g.probes {
		if p.expired(at) {
			continue
		}
		if taken++; notBefore.IsZero() || p.expires.Before(notBefore) {
			notBefore = p.expires
		}
	}
	if taken < g.rules.probes {
		return time.Time{}, false, true
	}
	if soon := at.Add(probeAnswer); soon.Before(notBefore) {
		notBefore = soon
	}
	return notBefore, true, true
}

func (p *probe) expired(now time.Time) bool { return !now.Before(p.expires) }

// lease gives out a place. The generation is locked, or not known to others yet.
func (g *generation) lease(now time.Time) permit {
	p := &probe{expires: now.Add(g.cooldown)}
	g.probes = append(g.probes, p)
	return permit{generation: g, probe: p}
}

// drop takes the places of some probes back. The generation is locked.
func (g *generation) drop(some func(*probe) bool) {
	kept := g.probes[:0]
	for _, p := range g.probes {
		if !some(p) {
			kept = append(kept, p)
		}
	}
	clear(g.probes[len(kept):])
	g.probes = kept
}

// settle records the result of a probe, also if its lease has expired.
func (g *generation) settle(p *probe, outcome breakerOutcome, now time.Time, o breakerObserver) {
	if next := g.judge(p, outcome, now); next != nil {
		g.report(next, o)
	}
}

// judge is the part of settle that is done under the lock. It returns the next
// generation, if there is one because of this result.
func (g *generation) judge(p *probe, outcome breakerOutcome, now time.Time) *generation {
	g.mu.Lock()
	defer g.mu.Unlock()
	if p.settled {
		return nil
	}
	p.settled = true
	g.drop(func(other *probe) bool { return other == p })
	var next *generation
	switch outcome {
	case outcomeFailure:
		next = g.next(StateOpen, now)
	case outcomeSuccess, outcomeAlive:
		if g.successes++; g.successes >= g.rules.probes {
			next = g.next(StateClosed, now)
		}
	case outcomeNone:
	}
	if next != nil && g.circuit.current.CompareAndSwap(g, next) {
		return next
	}
	return nil
}

// next returns the generation that is to follow g.
func (g *generation) next(state BreakerState, now time.Time) *generation {
	if now.Before(g.since) {
		now = g.since // goroutines need not agree on the order of their clocks
	}
	next := &generation{rules: g.rules, circuit: g.circuit, scope: g.scope, state: state, since: now}
	switch state {
	case StateClosed:
	case StateHalfOpen:
		next.cooldown = g.cooldown
	case StateOpen:
		next.cooldown = g.rules.cooldown
		if g.state == StateHalfOpen {
			next.cooldown = g.rules.maxCooldown
			if g.cooldown < g.rules.maxCooldown/2 { // twice that cannot overflow
				next.cooldown = 2 * g.cooldown
			}
		}
		jitter := time.Duration(rand.Int64N(int64(next.cooldown/4) + 1))
		next.until = now.Add(min(next.cooldown, math.MaxInt64-jitter) + jitter)
	}
	return next
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
