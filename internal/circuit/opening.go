package circuit

import (
	"math/rand/v2"
	"slices"
	"time"
)

// opening is the state of a circuit from the failure that opens it until it closes or opens
// again. It is open for a cooldown, and then half-open: it admits a few probes. It opens again at
// the same ratio of failures; probes in flight count as successes. Otherwise it closes when all
// probes have results. Circuit.mu guards it.
//
// A probe holds its slot for one cooldown at most, because it may hang. A later result still
// counts. Otherwise the circuit of a server that is slower than the cooldown could never close.
//
// A probe that hangs holds its caller too. So after a failure that took at least as long as the
// first cooldown there is one slot. The probe holds it for the first cooldown, or until some calls
// were rejected: so a client with many calls notices soon that the server responds again.
type opening struct {
	cooldown       time.Duration
	hangs          bool          // a failure took at least as long as the first cooldown
	lease          time.Duration // for which a probe holds its slot
	began          time.Time
	until          time.Time     // end of the cooldown, with jitter
	slowestFailure time.Duration // highest latency of a failure since the circuit was last closed
	opened         tally         // the results that opened the circuit

	halfOpen     bool // a probe was admitted
	probes       []*slot
	newest       time.Time     // when the last probe was sent
	rejected     int           // calls rejected since then
	results      tally         // results of probes
	slowestProbe time.Duration // highest latency of a failed probe
	lastResponse time.Duration // latency of the last successful probe
}

// probeResult is the usual time until a probe has its result. A probe may hold its slot for
// longer.
const probeResult = time.Second

// callsPerProbe is the number of rejected calls after which a hanging probe loses its slot.
const callsPerProbe = 10

// newOpening returns the opening after a failure. took is the latency of the failure, slowest the
// highest one since the circuit was last closed, and before is the cooldown of the previous
// opening, or 0.
func newOpening(rules *Rules, before, took, slowest time.Duration, now time.Time) *opening {
	cooldown := rules.cooldown(before, took)
	o := &opening{began: now, cooldown: cooldown, lease: cooldown, slowestFailure: slowest}
	if first := rules.cooldown(0, slowest); slowest >= first && !rules.Static {
		// The failure itself took the time of a cooldown.
		o.hangs, o.lease, cooldown = true, jittered(first), rules.Cooldown
	}
	o.until = now.Add(jittered(cooldown))
	return o
}

// wentBack reports whether the clock was set back since a time, as in the next testing/synctest
// bubble. Then a cooldown and a slot have ended. A smaller step is the delay between reading the clock
// and getting the lock.
func wentBack(since, now time.Time) bool { return since.Sub(now) > time.Second }

// jittered adds up to a quarter at random, so that many clients do not return at once.
func jittered(cooldown time.Duration) time.Duration { return cooldown + rand.N(cooldown/4+1) }

// inFlight returns the number of probes that hold a slot, and when the first slot is free.
func (o *opening) inFlight(at time.Time) (n int, free time.Time) {
	for _, p := range o.probes {
		if !o.holds(p, at) {
			continue
		}
		if n++; n == 1 || p.expires.Before(free) {
			free = p.expires
		}
	}
	return n, free
}

// holds reports whether the probe holds its slot.
func (o *opening) holds(probe *slot, at time.Time) bool {
	return at.Before(probe.expires) && !wentBack(o.began, at)
}

// free reports whether a slot is free while n probes hold one each.
func (o *opening) free(rules *Rules, n int, at time.Time) bool {
	if o.hangs {
		return n == 0 || o.rejected >= callsPerProbe && at.Sub(o.newest) >= rules.Cooldown
	}
	return o.results.results+n < rules.Probes
}

// admitProbe admits a request to a circuit that is not closed. The circuit is locked.
func (c *Circuit) admitProbe(retry bool, now time.Time) (Permit, *Rejection) {
	o := c.opening
	if rejection := c.rejects(retry, now); rejection != nil {
		if !retry {
			o.rejected++
		}
		return Permit{}, rejection
	}
	p := Permit{circuit: c, slot: &slot{opening: o, expires: now.Add(o.lease)}}
	if !o.halfOpen {
		o.halfOpen, p.Change = true, c.changed(Open, HalfOpen, now)
	}
	o.probes = slices.DeleteFunc(o.probes, func(probe *slot) bool { return o.hangs || !o.holds(probe, now) })
	o.probes = append(o.probes, p.slot)
	o.newest, o.rejected = now, 0
	return p, nil
}

// doneProbe records the result of a probe. The circuit is locked.
func (c *Circuit) doneProbe(probe *slot, r Result, now time.Time) *Change {
	o := c.opening
	if probe.opening != o {
		return nil
	}
	o.probes = slices.DeleteFunc(o.probes, func(other *slot) bool { return other == probe })
	switch r.Outcome {
	case Failure:
		o.results.failures++
		o.slowestProbe = max(o.slowestProbe, r.Took)
	case Success, Responded:
		o.lastResponse = r.Took
	default:
		return nil
	}
	o.results.results++
	return c.judge(now)
}

// judge opens or closes a half-open circuit if the results are sufficient. The circuit is locked.
func (c *Circuit) judge(now time.Time) *Change {
	o, rules := c.opening, &c.breaker.rules
	complete, expected := o.results.results >= rules.Probes, o.results.results
	if !complete && !rules.Static {
		inFlight, _ := o.inFlight(now)
		expected += inFlight
	}
	slowest := max(o.slowestFailure, o.slowestProbe)
	switch {
	case rules.tooMany(o.results.failures, expected):
		next := newOpening(rules, o.cooldown, o.slowestProbe, slowest, now)
		next.opened = o.results
		if next.hangs { // the last probe keeps its slot, so that the pause between two is the same
			next.probes, next.newest, next.rejected = o.probes, o.newest, o.rejected
		}
		c.opening = next
		return c.changed(HalfOpen, Open, now)
	case complete:
		next := new(closed)
		next.slowStart.Store(newSlowStart(rules, c.baseline.Get(), slowest, o.lastResponse, now))
		c.opening = nil
		c.closed.Store(next)
		return c.changed(HalfOpen, Closed, now)
	}
	return nil
}
