package circuit

import "time"

// open lets nothing out until its cooldown is over.
type open struct {
	cooldown       time.Duration
	until          time.Time // of the cooldown, with what is added at random
	slowestFailure time.Duration
	opened         results
}

// results are those for which a circuit has opened.
type results struct{ failures, calls int }

func resultsOf[N int | uint64](failures, calls N) results { return results{int(failures), int(calls)} }

// openAfter is the state of a circuit that opens because of a failure that took
// so long. worst is the latency of the slowest failure of this trouble, last the
// cooldown before, if the circuit was half-open.
func (g *generation) openAfter(took, worst, last time.Duration, now time.Time) *open {
	cooldown := g.breaker.rules.cooldown(last, took)
	return &open{cooldown: cooldown, until: now.Add(jittered(cooldown)), slowestFailure: max(took, worst)}
}

func (o *open) name() State { return Open }

func (o *open) describe(g *generation, now time.Time) Status {
	s := Status{State: Open, Calls: o.opened.calls, Failures: o.opened.failures, Since: g.since, NotBefore: o.until}
	if !now.Before(o.until) { // half-open, even if no request has come yet to make use of it
		s.State, s.Since, s.NotBefore = HalfOpen, o.until, time.Time{}
	}
	return s
}

func (o *open) admit(g *generation, now time.Time, retry bool) (Permit, time.Time, *Change, bool) {
	if notBefore, refuses := o.refuses(g, now, retry); refuses {
		return Permit{}, notBefore, nil, false
	}
	// Whoever makes it half-open has the first place, and has it before anybody
	// is told.
	half := &halfOpen{cooldown: o.cooldown, slowestFailure: o.slowestFailure, opened: o.opened}
	next := g.next(half, now)
	t := half.lease(next, now)
	if !g.circuit.current.CompareAndSwap(g, next) {
		return Permit{}, time.Time{}, nil, true
	}
	return t, time.Time{}, &Change{Key: g.key, From: Open, To: HalfOpen, At: next.since}, false
}

func (o *open) refuses(g *generation, at time.Time, retry bool) (time.Time, bool) {
	switch {
	case at.Before(o.until):
		return o.until, true
	case retry && !g.breaker.rules.Static:
		return at.Add(o.cooldown), true // by then new calls have found out
	}
	return time.Time{}, false
}

func (o *open) done(Permit, Result, time.Time) *Change { return nil } // it gives no tickets
