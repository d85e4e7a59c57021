package circuit

import (
	"time"

	"github.com/resilienthttp/resilienthttp/internal/hold"
	"github.com/resilienthttp/resilienthttp/internal/outcome"
)

// opening is an outage: the state of a circuit from the failure that opens it until it closes. Probes test the server,
// one at a time. After the first success Probes of them may be in flight, and when all have results the circuit closes,
// unless too many failed. Circuit.mu guards it.
//
// A probe may hang. So another one may follow after a cooldown, and a later result still counts: otherwise the
// circuit of a server that is slower than the cooldown could never close.
type opening struct {
	hold     hold.Hold
	opened   tally         // the results that opened the circuit
	failed   time.Time     // the last failure
	quickest time.Duration // lowest latency of the failures that opened the circuit
	slowest  time.Duration // highest latency of a failure since the circuit was last closed

	failedProbes int
	lastFailure  time.Duration // latency of the last of them
	failing      routes        // those that have failed in the outage, or are being tested

	halfOpen     bool          // a probe was sent since the last change to open
	results      tally         // results of probes since then
	inFlight     int           // probes without a result; after a success those that were sent since then
	lastResponse time.Duration // latency of the last successful probe
}

// probeAt returns when the next probe may be sent, as far as it is known at a time.
func (o *opening) probeAt(rules *Rules, at time.Time) time.Time {
	several := o.results.succeeded() || rules.Static && o.halfOpen
	if several && o.results.results+o.inFlight < rules.Probes {
		return at
	}
	return o.hold.Next(at)
}

// probe returns the Permit of a probe. The circuit is not closed, and locked.
func (c *Circuit) probe(now time.Time, route uint64) Permit {
	o := c.opening
	p := Permit{circuit: c, opening: o, counted: &counted{}}
	if !o.failing.has(route) {
		p.counted.tested = route
	}
	// Until it has a result it may hang, so no other call tests the route meanwhile.
	o.failing.add(route)
	if !o.halfOpen {
		o.halfOpen, p.Change = true, c.changed(Open, HalfOpen, now)
	}
	o.hold.Test(now)
	o.inFlight++
	return p
}

// hasQueue reports whether the last failed probe took much longer than the quickest failure at the beginning. A server that waits
// for its database fails as slowly at the beginning. So this one has a queue, which the calls of other clients fill, for example.
func (o *opening) hasQueue() bool { return o.lastFailure >= MinSlow(o.quickest) }

// describe returns the Opening, of which a nil one is zero.
func (o *opening) describe() Opening {
	if o == nil {
		return Opening{}
	}
	return Opening{OpenedAt: o.hold.Since(), Attempts: o.opened.results, Failures: o.opened.failures, FailedProbes: o.failedProbes}
}

// doneProbe records the result of a probe. The circuit is locked.
func (c *Circuit) doneProbe(p Permit, r Result, now time.Time) *Change {
	o := p.opening
	if c.opening != o {
		// The circuit has changed since the probe was sent.
		return nil
	}
	o.inFlight = max(o.inFlight-1, 0)
	switch r.Server {
	case outcome.Fails:
		o.results.failures++
		o.failedProbes++
		o.failed, o.lastFailure = now, r.Took
		o.slowest = max(o.slowest, r.Took)
	case outcome.Works, outcome.Rejects:
		// It works, so slow start does not limit it, as it does those that have failed.
		if tested := p.counted.tested; tested != 0 {
			o.failing.remove(tested)
		}
		o.lastResponse = r.Took
		if !o.results.succeeded() {
			o.inFlight = 0 // older probes may hang
		}
	default:
		// Without a result another probe may follow at once.
		o.hold.Cancel(now)
		return nil
	}
	o.results.results++
	return c.judge(r.Took, now)
}

// judge opens or closes a half-open circuit if the results are sufficient. took is the latency of the last one. The
// circuit is locked.
func (c *Circuit) judge(took time.Duration, now time.Time) *Change {
	o, rules := c.opening, &c.breaker.rules
	switch complete := o.results.results >= rules.Probes; {
	case !o.results.succeeded(), complete && rules.tooMany(o.results.failures, o.results.results, 0):
		o.hold.Fail(now, rules.Cooldown, rules.longestCooldown(took))
		wasHalfOpen := o.halfOpen
		o.results, o.halfOpen = tally{}, false
		if !wasHalfOpen {
			return nil // an older probe has failed too
		}
		return c.changed(HalfOpen, Open, now)
	case complete:
		// Only after all probes: one success of a server that answers now and then is no recovery.
		from := HalfOpen
		if !o.halfOpen {
			from = Open // an older probe has succeeded
		}
		next := new(closed)
		next.took.Store(int64(o.lastResponse))
		if c.outage.slow || o.hasQueue() {
			next.slowStart.Store(newSlowStart(rules, c.baseline.Get(), &c.outage, o.slowest, o.lastResponse, now))
		}
		change := c.changed(from, Closed, now)
		c.opening, c.outage.routes = nil, o.failing
		c.closed.Store(next)
		// After the store, because it notes in the closed circuit that calls are being released.
		c.startRelease(now)
		return change
	}
	return nil
}
