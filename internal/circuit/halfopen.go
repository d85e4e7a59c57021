package circuit

import (
	"sync"
	"time"
)

// halfOpen lets a few probes out. The ratio that opens circuits decides here too:
// the circuit opens again as soon as that share of the results are failures, where
// probes in flight count as answered until they are back, and closes if, with all
// the results there, it is not.
type halfOpen struct {
	cooldown       time.Duration // of the opening before, and for how long a place is leased
	slowestFailure time.Duration // latency of the slowest failure of this trouble
	opened         results       // for which it opened

	// Every change from here is made under the lock, so that nobody is let in or
	// sent away by a generation that is over.
	mu        sync.Mutex
	probes    []*probe // those that are out, and hold a place
	successes int
	failures  int
	answered  time.Duration // latency of the last answer
	slowest   time.Duration // and of the slowest failure
}

// probe is a place in a half-open circuit. It is leased for one cooldown: if
// there is no result by then, because the probe hangs or its goroutine is gone,
// the place is free for another one. A result that comes later counts
// nevertheless while the circuit is still half-open for the same time, or else a
// server slower than the cooldown could never be let back in.
type probe struct {
	expires time.Time
	settled bool // guarded by halfOpen.mu
}

// probeAnswer is when it is worth to ask whether a probe has been answered. Its
// lease may be long, but most answers come at once.
const probeAnswer = time.Second

func (p *probe) expired(now time.Time) bool { return !now.Before(p.expires) }

func (h *halfOpen) name() State { return HalfOpen }

func (h *halfOpen) describe(g *generation, now time.Time) Status {
	h.mu.Lock()
	defer h.mu.Unlock()
	notBefore, _ := h.full(g, now, false)
	return Status{State: HalfOpen, Calls: h.opened.calls, Failures: h.opened.failures, Since: g.since, NotBefore: notBefore}
}

func (h *halfOpen) admit(g *generation, now time.Time, retry bool) (Permit, time.Time, *Change, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if g.circuit.current.Load() != g {
		return Permit{}, time.Time{}, nil, true
	}
	if notBefore, refuses := h.full(g, now, retry); refuses {
		return Permit{}, notBefore, nil, false
	}
	h.drop(func(p *probe) bool { return p.expired(now) })
	return h.lease(g, now), time.Time{}, nil, false
}

func (h *halfOpen) refuses(g *generation, at time.Time, retry bool) (time.Time, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if next := g.circuit.current.Load(); next != g {
		return next.state.refuses(next, at, retry)
	}
	return h.full(g, at, retry)
}

// full tells whether there is no place at the time at, and if so, when to ask
// again: when the first of them will be free, or sooner, for a probe's answer may
// close the circuit at any moment. It is locked.
func (h *halfOpen) full(g *generation, at time.Time, retry bool) (notBefore time.Time, full bool) {
	if retry && !g.breaker.rules.Static {
		return at.Add(min(h.cooldown, probeAnswer)), true
	}
	taken := h.successes + h.failures
	for _, p := range h.probes {
		if p.expired(at) {
			continue
		}
		if taken++; notBefore.IsZero() || p.expires.Before(notBefore) {
			notBefore = p.expires
		}
	}
	if taken < g.breaker.rules.Probes {
		return time.Time{}, false
	}
	if soon := at.Add(probeAnswer); notBefore.IsZero() || soon.Before(notBefore) {
		notBefore = soon
	}
	return notBefore, true
}

// lease gives out a place. The state is locked, or not known to others yet.
func (h *halfOpen) lease(g *generation, now time.Time) Permit {
	p := &probe{expires: now.Add(h.cooldown)}
	h.probes = append(h.probes, p)
	return Permit{generation: g, probe: p}
}

// drop takes the places of some probes back. It is locked.
func (h *halfOpen) drop(some func(*probe) bool) {
	kept := h.probes[:0]
	for _, p := range h.probes {
		if !some(p) {
			kept = append(kept, p)
		}
	}
	clear(h.probes[len(kept):])
	h.probes = kept
}

func (h *halfOpen) done(t Permit, r Result, now time.Time) *Change {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := t.probe
	if p.settled {
		return nil
	}
	p.settled = true
	h.drop(func(other *probe) bool { return other == p })
	switch r.Outcome {
	case Failure:
		h.failures++
		h.slowest = max(h.slowest, r.Took)
	case Success, Responded:
		h.successes++
		h.answered = r.Took
	default:
		return nil
	}
	return h.judge(t.generation, now)
}

// inFlight is how many probes are out whose lease is not over. It is locked.
func (h *halfOpen) inFlight(now time.Time) (n int) {
	for _, p := range h.probes {
		if !p.expired(now) {
			n++
		}
	}
	return n
}

// judge opens or closes the circuit once that is decided. It is locked.
func (h *halfOpen) judge(g *generation, now time.Time) *Change {
	rules := &g.breaker.rules
	results := h.successes + h.failures
	answered := results // or not back yet
	if results < rules.Probes && !rules.Static {
		answered += h.inFlight(now)
	}
	switch {
	case rules.tooMany(uint64(h.failures), uint64(answered)):
		next := g.openAfter(h.slowest, h.slowestFailure, h.cooldown, now)
		next.opened = resultsOf(h.failures, results)
		return g.become(next, now)
	case results >= rules.Probes:
		limit := newSlowStart(rules, g.circuit.baseline.latency(), max(h.slowestFailure, h.slowest), h.answered, now)
		return g.become(&closed{slowStart: limit}, now)
	}
	return nil
}
