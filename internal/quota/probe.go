package quota

import (
	"slices"
	"time"
)

// probes are single requests that are sent although nothing seems to be left: the count may be wrong or
// late, its reset may be too far away, or it may concern other paths. After a first call was rejected, a
// window has one at once if nothing has proved the count. Others have an interval.
type probes struct {
	first    time.Time     // when a call of this window was rejected; zero: none was
	next     time.Time     // after a rejected probe of this window: when the next one may be sent
	interval time.Duration // of all windows
	inFlight bool
}

// minProbe is the shortest interval. A rejected probe makes it probeFactor times as long, and one that is
// served as much shorter. So a server that tells the truth rejects few: in all windows of an hour four or five.
const (
	minProbe    = time.Second
	probeFactor = 8
)

// begin begins a window. A probe that hangs is forgotten.
func (p *probes) begin() { p.first, p.next, p.inFlight = time.Time{}, time.Time{}, false }

// due reports whether a call that would be rejected may be a probe.
func (p *probes) due(now time.Time, proven bool) bool {
	if p.first.IsZero() {
		p.first = now
		return false
	}
	at := p.next
	if at.IsZero() && proven {
		at = p.first.Add(max(p.interval, minProbe))
	}
	return p.may(now, at)
}

func (p *probes) may(now, at time.Time) bool { return !p.inFlight && !now.Before(at) }

// end records the result of a probe. A failure is like a rejection: more probes would not help.
func (p *probes) end(a *Response, now time.Time) {
	if a.served() {
		p.first, p.next = now, time.Time{}
		p.interval /= probeFactor
		return
	}
	p.interval = min(max(p.interval, minProbe)*probeFactor, Horizon)
	p.next = now.Add(p.interval)
}

// endProbe records the result of a probe. One that is served ends a wait that only rejections have shown.
func (b *bucket) endProbe(p *Permit, a *Response, now time.Time) {
	p.probe.end(a, now)
	if !a.served() {
		return
	}
	b.block.succeed(p.sent)
	for i := range b.dims {
		if d := &b.dims[i]; !d.shownOnSuccess && d.version <= p.version {
			d.silence()
			b.releaseEvenly(now)
		}
	}
}

// mayTest reports whether a request tests at once what only rejections of other paths have shown. Many servers limit each
// method or customer. They do not say which, and show the count on rejections only.
func (b *bucket) mayTest(p *Permit, now time.Time) bool {
	if b.tests.inFlight || !b.heldByRejections(now) {
		return false
	}
	full := len(b.rejectedRoutes) >= maxRejectedRoutes
	if full && now.Before(b.tests.next) {
		return false // before the hash, because each call that is held comes here
	}
	route, path := p.set.route(p.method, p.path)
	p.otherRoute = !slices.Contains(b.rejectedRoutes, route)
	switch {
	case p.otherRoute && !full:
		return true // each of them is rejected once
	case path != b.rejectedPath && !now.Before(b.tests.next):
		return true
	}
	p.otherRoute = false // it waits like the others, so what is served of it then shows no quota of its own
	return false
}

// heldByRejections reports whether calls wait for what only rejections have shown.
func (b *bucket) heldByRejections(now time.Time) bool {
	if until := b.blockedUntil(now); !until.IsZero() {
		return until.Equal(b.block.until) && !b.block.cause.After(now)
	}
	for i := range b.dims {
		if d := &b.dims[i]; !d.shownOnSuccess && d.exhausted(now) && b.beforeReset(now, d) {
			return true
		}
	}
	return false
}

// beforeReset reports whether a request is sent so early that its success refutes the quota: what is served about the reset
// proves nothing.
func (b *bucket) beforeReset(sent time.Time, d *dimension) bool {
	return sent.Add(2 * b.RTT).Before(d.end.early)
}

// mayProbe reports whether a request that would be rejected is sent as a probe, also of a block that rejections have made: a server that
// bans for seconds may ask to wait for an hour. Before an inexact reset there is one for each quarter of
// its unit.
func (b *bucket) mayProbe(now time.Time) bool {
	blocked := !b.blockedUntil(now).IsZero()
	// A block of all routes has its end from the server, and no probe may break it.
	if blocked && !b.heldByRejections(now) {
		return false
	}
	may, proven, soon := blocked, blocked, !blocked // soon: each reset is rounded, so it may have come
	for i := range b.dims {
		d := &b.dims[i]
		if !d.exhausted(now) {
			continue
		}
		// A count that is late looks as if others had used nearly all before this process did.
		late := d.usedByOthers() > 0 && 4*d.own <= d.base
		may, proven = true, proven || d.proof != unproven && !late
		unit := d.inexact()
		soon = soon && unit > 0 && now.Sub(d.at) >= unit/4
	}
	return may && (b.Len() == 0 || !proven) && (soon && !b.probes.inFlight || b.probes.due(now, proven))
}
