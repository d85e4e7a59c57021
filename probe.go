package resilienthttp

import "time"

// probeAnswer is when it is worth to ask whether a probe has been answered. Its
// lease may be half a minute, but most answers come at once.
const probeAnswer = time.Second

// probe is a place in a half-open generation, leased until it expires.
type probe struct {
	expires time.Time
	settled bool // guarded by generation.mu
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
func (g *generation) settle(p *probe, r result, now time.Time, o breakerObserver) {
	if next := g.judge(p, r, now); next != nil {
		g.report(next, o)
	}
}

// judge is the part of settle that is done under the lock. It returns the next
// generation, if there is one because of this result.
func (g *generation) judge(p *probe, r result, now time.Time) *generation {
	g.mu.Lock()
	defer g.mu.Unlock()
	if p.settled {
		return nil
	}
	p.settled = true
	g.drop(func(other *probe) bool { return other == p })
	var next *generation
	switch r.outcome {
	case outcomeFailure:
		next = g.next(StateOpen, r.took, now)
	case outcomeSuccess, outcomeAlive:
		if g.successes++; g.successes >= g.rules.probes {
			next = g.next(StateClosed, r.took, now)
		}
	case outcomeNone:
	}
	if next != nil && g.circuit.current.CompareAndSwap(g, next) {
		return next
	}
	return nil
}
