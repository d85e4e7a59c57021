package quota

import "time"

// span is a span of a window, in which served requests are counted.
type span struct {
	from, to     time.Time
	served       int64
	refutedUntil time.Time // until then, what was served contradicts the quota; zero: it does not
}

// serve counts a request that was served. It reports whether this contradicts the dimension.
func (d *dimension) serve(o *observation) bool {
	inWindow := !d.since.IsZero() && !o.sent.Before(d.since) && (d.end.guessed || d.end.reset.IsZero())
	if d.mentioned != o.version && inWindow {
		d.silence() // no response of this window shows it
	}
	d.count(o)
	if d.standing == refuted || !d.contradicted(o.now) {
		return false
	}
	d.standing = refuted
	return true
}

// count counts requests that were sent before the reset that the first of them shows, and at least for as long
// as its response is inexact about that, at most a second. Such a span touches two windows, so more than twice the
// limit contradicts it. The fields then mean something else, for example the size of a bucket that refills
// within less than a second, or the quota of each route. Several responses together may narrow the reset to milliseconds, and in so
// short a span no bucket serves twice its limit, so the response alone counts.
func (d *dimension) count(o *observation) {
	switch {
	case d.costed, d.size() <= 0, o.sent.Before(d.span.from):
		return
	// Served requests of another route use another quota.
	case d.shownOnSuccess && d.mentioned != o.version:
		return
	// Requests of the last span are counted no longer.
	case o.sent.After(d.span.to):
		d.span.from, d.span.to, d.served = o.sent, o.sent.Add(d.window), 0
		if d.shownOnSuccess {
			d.span.to = later(d.end.early, o.sent.Add(min(o.end.reset.Sub(o.end.early), time.Second)))
		}
	}
	if d.served++; d.served > 2*d.size() {
		d.refutedUntil = o.now.Add(2 * d.span.to.Sub(d.span.from))
	}
}

// contradicted reports whether more requests were served lately than the limit allows.
func (s *span) contradicted(now time.Time) bool { return now.Before(s.refutedUntil) }
