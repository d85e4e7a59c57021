package quota

import (
	"time"

	"github.com/resilienthttp/resilienthttp/internal/ratelimitheader"
	"github.com/resilienthttp/resilienthttp/internal/waitqueue"
)

// dimension is one quota of a bucket: requests, tokens, or the window of a policy. The bucket's lock guards it. Its times are by the
// local clock. Each of its parts answers one question. They are embedded, because most rules ask two of them.
type dimension struct {
	source
	amount
	costs
	period
	trust
	trial
	usage
	span
}

// source says which quota it is, and which responses show it.
type source struct {
	name           string
	costed         bool   // a request takes more than one unit: those in flight cannot be counted
	shownOnSuccess bool   // responses to served requests show it; otherwise only rejections do
	method, path   string // of the request that showed it last
	mentioned      uint64 // the bucket's version at the last response that showed it
}

// amount says how much the quota permits, and what is left of it.
type amount struct {
	limit   int64 // 0: unknown
	atLeast int64 // of a quota without a limit: one more than what a response has shown to be left

	remaining int64     // as the newest response says
	at        time.Time // when that response came
	version   uint64    // the bucket's version when remaining was learned
	old       int64     // requests in flight that were sent before this window
	short     bool      // a rejection shows that too little remains
}

// period says when the window ends, and how units come back.
type period struct {
	since      time.Time     // start of this window; zero: unknown
	window     time.Duration // the server's window, or the longest that was observed
	end        end
	oneByOne   bool // units come back one by one, and not all at the reset
	resetMoves int  // how often the reset moved to a later time before it was reached
}

// usage is what this process uses of the quota.
type usage struct {
	lately    int64 // its requests in the last window, or half of those before; above the limit: unknown
	base, own int64 // what remained when this window was first seen, and requests since then
}

// end is the end of a window: between early and reset. The zero value is unknown.
type end struct {
	early, reset time.Time
	likely       time.Time // between them
	cut          time.Time // the end of the longest block, or of the wait that a rejection asks for, or the earliest reset of the window; zero: none
	guessed      bool      // estimated from the last window
}

// until returns the time until which calls wait.
func (e end) until() time.Time { return sooner(sooner(e.likely, e.reset), e.cut) }

// learn adds an observation. It returns false if that is of the previous window.
//
// Responses may arrive in another order than the server wrote them. An observation is newer if
// its request was sent after the last observation. Otherwise the one with the lowest remaining
// count is the newest, because that count only falls within a window.
func (d *dimension) learn(o *observation) bool {
	d.mentioned = o.version
	// Successes have contradicted the quota, so only a rejection can show that it exists.
	if d.standing == refuted && !o.rejected {
		return true
	}
	d.more = d.more || o.field.Remaining > 0 || o.field.Limit == 1
	if !d.more && !o.rejected && (o.probe || !d.since.IsZero()) { // some servers always say that nothing remains
		d.standing = refuted
		return true
	}
	d.standing = followed
	if !o.rejected && !d.shownOnSuccess {
		d.shownOnSuccess, d.part, d.waits, d.patience = true, 1, maxLimit, probeFactor
	}
	d.learnSize(o)
	if o.newer && !o.rejected && d.version != 0 {
		// A request was served and took nothing from the count.
		d.oneByOne = d.oneByOne || o.field.Remaining == d.remaining && d.remaining < d.size()-1
		if d.limit == 1 && d.waits == maxLimit { // it cannot show that, and no wait has ended with a success
			d.waits = 1
		}
	}
	if o.rejected && d.endsBy.After(o.now) { // the same window: it ends no later than its rejections have said
		o.end.cut = sooner(o.end.cut, d.endsBy)
	}
	// A late response of the window before must not replace the count of this one.
	if !o.end.reset.After(o.now) || o.sent.Before(d.since) && !o.end.early.After(o.now) {
		return false
	}
	switch {
	// Only what the last window lets expect is known of this one.
	case d.end.guessed:
		d.take(o)
	// The reset is certainly later than before, if one was known: a new window, or a token bucket that was used.
	case o.end.early.After(d.end.reset):
		if d.end.early.After(o.now) && !o.probe && d.refills(o) {
			d.resetMoves++
		}
		d.take(o)
	// An earlier reset or a higher count is a contradiction, so the request that was sent last is right.
	case o.end.reset.Before(d.end.early):
		if o.newer {
			// A bucket that was used is full later, and not earlier: the server shows the next unit, or has several counters.
			d.resetMoves = 0
			d.take(o)
		}
	case o.newer && o.field.Remaining > d.remaining: // a new window that no response showed, or a token bucket
		d.take(o)
	default:
		// The two resets may be the same instant, so both bounds hold, and the range becomes narrower.
		early, reset := later(d.end.early, o.end.early), sooner(d.end.reset, o.end.reset)
		if o.newer || o.field.Remaining < d.refilled(o.now) {
			d.take(o)
		}
		d.end.early, d.end.reset, d.end.cut = sooner(early, reset), reset, o.end.cut
		d.guess()
	}
	return true
}

// take replaces the known values by the observation.
func (d *dimension) take(o *observation) {
	d.learnCost(o)
	if d.claimed && o.field.Remaining > 0 {
		d.proof = max(d.proof, provenByReset)
	}
	d.claimed = o.field.Remaining == 0
	d.remaining, d.at, d.version = o.field.Remaining, o.now, o.version
	d.short = o.rejected && o.field.Remaining == 0
	d.end = o.end
	d.guess()
}

// guess guesses when the reset is. Most servers round it up to a second. That is long if it is half of the wait, so a part of it
// is waited then.
func (d *dimension) guess() {
	d.end.likely = d.end.reset
	if d.inexact() > 0 {
		from := later(d.end.early, d.at)
		d.end.likely = from.Add(time.Duration(d.part * float64(d.end.reset.Sub(from))))
	}
}

// inexact returns the unit of the reset if it is half of the wait; 0: it is not.
func (d *dimension) inexact() time.Duration {
	if unit := d.end.reset.Sub(d.end.early); d.claimed && d.end.reset.Sub(d.at) <= 2*unit {
		return unit
	}
	return 0
}

// bucketMoves is how often the reset of a token bucket must move.
const bucketMoves = 3

// refill returns what a token bucket gains in a second, or 0 if that is unknown. A dimension is a token bucket if its
// reset moves to later times before it is reached: the reset is when the bucket is full. One that trickles gains what its limit says.
func (d *dimension) refill() float64 {
	switch {
	case d.end.guessed || d.remaining >= d.size() || !d.end.reset.After(d.at):
		return 0
	case d.resetMoves >= bucketMoves:
		return float64(d.size()-d.remaining) / d.end.reset.Sub(d.at).Seconds()
	case d.trickles():
		return float64(d.size()) / d.window.Seconds()
	}
	return 0
}

// trickles reports whether units come back one by one before a reset that is too inexact to show when.
func (d *dimension) trickles() bool { return d.oneByOne && d.inexact() > 0 }

// refilledAt returns when so much is left of a token bucket.
func (d *dimension) refilledAt(needed int64, sent load) time.Time {
	lacking := needed - d.left(d.at, sent)
	wait := min(float64(lacking)/d.refill()*float64(time.Second), float64(Horizon))
	return sooner(d.at.Add(time.Duration(wait)+1), d.end.cut) // 1 ns later, because of rounding
}

// need returns what must be left for a request, at most all of the quota. After a rejection it is what a token bucket
// gains in initialPart of the time until it is full: others use the bucket too, or a request takes several units.
func (d *dimension) need(cost int64) int64 {
	need := int64(1)
	if d.costed {
		need = max(min(d.expect(cost), d.limit), 1)
	}
	if d.short && d.refill() > 0 {
		need = max(int64(initialPart*float64(d.limit)), need)
	}
	return need
}

// rises reports whether half of the limit more is shown than what a quota that fills evenly until its reset has by now. So
// many requests may have been counted later than the one of the response.
func (d *dimension) rises(remaining, later int64, now time.Time) bool {
	if d.costed || !d.end.early.After(now) {
		return false
	}
	gained := float64(d.limit-d.remaining) * now.Sub(d.at).Seconds() / d.end.reset.Sub(d.at).Seconds()
	return float64(remaining-d.remaining-later)-gained > float64(d.limit)/2
}

// refills reports whether the reset may be the time at which a token bucket is full: half of the
// tokens need half of the window. The reset of a sliding window is always a whole window away.
func (d *dimension) refills(o *observation) bool {
	used := 1 - float64(o.field.Remaining)/float64(max(d.limit, 1))
	return o.field.Window == 0 || o.end.reset.Sub(o.now) <= time.Duration(used*float64(o.field.Window))+time.Second
}

// newLimit returns the limit that a response shows, and whether it is another one than before.
func (a *amount) newLimit(field *ratelimitheader.Dimension) (limit int64, changed bool) {
	limit = min(field.Limit, maxLimit)
	return limit, limit > 0 && limit != a.limit
}

func (d *dimension) learnSize(o *observation) {
	if limit, changed := d.newLimit(&o.field); changed {
		d.limit, d.served, d.lately = limit, 0, 2*limit
	}
	// What a rejection shows as left says nothing of the limit.
	if o.field.Limit == 0 && !d.costed && !o.rejected {
		d.atLeast = max(d.atLeast, o.field.Remaining+1)
		d.lately = max(d.lately, d.atLeast+1) // unknown, as long as the limit is
	}
	if d.window = min(max(d.window, o.window), o.longest); o.field.Window > 0 {
		d.window = min(o.field.Window, o.longest)
	}
}

// size returns the limit, or the least that it can be.
func (a *amount) size() int64 { return max(a.limit, a.atLeast) }

// over reports whether the reset has come.
func (p *period) over(now time.Time) bool {
	return !p.end.reset.IsZero() && !now.Before(p.end.until())
}

// roll begins a new window after the reset, and reports whether calls may have waited for it. The quota
// is assumed to be full. A dimension that only rejections show ends with its window.
func (d *dimension) roll(now time.Time, sent load, waited bool) bool {
	if !d.over(now) {
		return false
	}
	d.endsBy = time.Time{}
	if waited && d.inexact() > 0 {
		d.endsBy = d.end.reset
	}
	ended, refilled, trickles := d.end, d.refilled(now), d.trickles()
	d.old, d.upTo, d.since, d.end = sent.inflight, sent.spent, ended.until(), end{}
	d.back = 0
	switch {
	// A quota that only rejections show is unknown until the next rejection.
	case !d.shownOnSuccess:
		d.silence()
	// Calls have waited for a part of the time only, or units come back one by one, so the quota may still be empty.
	case ended.reset.After(now), trickles:
		d.remaining = max(min(refilled, d.size()), 1) // one request is a probe
	default:
		d.remaining = max(d.size(), 1)
	}
	d.at, d.lately = now, max(d.own, d.lately/2)
	d.begin(sent.inflight)
	return !d.costed && d.standing != refuted
}

// begin begins to count what this process uses. Requests in flight may be counted by the server later.
func (d *dimension) begin(inflight int64) { d.base, d.own = d.remaining, max(inflight, 0) }

// usedByOthers returns what other processes have certainly used since then.
func (d *dimension) usedByOthers() int64 {
	if d.costed {
		return 0
	}
	return max(d.base-d.remaining-d.own, 0)
}

// left returns the remaining count after the requests in flight are served.
func (d *dimension) left(now time.Time, sent load) int64 {
	if d.costed {
		return d.refilled(now) - d.expect(d.owed(sent.spent))
	}
	return d.refilled(now) - max(sent.inflight-d.old, 0) // those of an earlier window do not count
}

// refilled returns the remaining count with what a token bucket has gained since.
func (d *dimension) refilled(now time.Time) int64 {
	return d.remaining + int64(d.refill()*now.Sub(d.at).Seconds()+rounding)
}

// exhausted reports whether nothing remains until a reset in the future.
func (d *dimension) exhausted(now time.Time) bool {
	return d.standing == followed && d.left(now, load{d.old, d.upTo + d.back}) < d.need(0) && d.end.until().After(now)
}

// reject records a rejection that shows that the dimension is exhausted. It asks for a wait; 0: for none.
func (d *dimension) reject(now time.Time, wait time.Duration, current bool) {
	// The server serves the next request sooner than all: its window slides, or units come one by one.
	if current && wait > 0 {
		d.end.cut = sooner(d.end.cut, now.Add(wait))
	}
	// A costed quota may reject although some units remain, and it shows them.
	if current {
		d.remaining, d.at, d.short = 0, now, true
	}
	// More was served lately than such a quota permits, so this rejection concerns something else.
	if d.contradicted(now) {
		d.standing = refuted
		return
	}
	d.proof = provenByRejection
}

// estimate returns when a request could be sent that has such calls ahead of it. The first of them has waited since a
// time, and they came at that pace.
func (d *dimension) estimate(now, since time.Time, ahead waitqueue.Load, cost int64, sent load, trip, pace time.Duration) time.Time {
	before := ahead.Calls
	if d.costed {
		before = min(max(before, d.expect(ahead.Cost)), before*d.limit)
	}
	needed := d.need(cost) + before
	left := max(d.left(now, sent), 0)
	switch {
	// The order matters: what is enough now needs no estimate of a window or of a bucket.
	case d.standing != followed, left >= needed:
		return now
	case d.refill() > 0:
		return d.refilledAt(needed, sent)
	case d.limit <= 0, d.costed && cost <= 0, d.refilled(now) >= needed:
		// Without a limit, the number of windows to wait for is unknown.
		return now // the requests in flight may take less
	}
	beyond := needed - left - 1
	period := d.window + min(trip, d.alone()) // a window may begin with its first request
	windows := min(beyond/d.limit, int64(Horizon/period))
	at := d.end.until()
	if at.IsZero() {
		at = now.Add(d.window)
	}
	if !d.costed {
		at = at.Add(slower(d.spacing(at.Sub(since)), min(pace, d.usual())) * time.Duration(beyond%d.limit+1))
	}
	return at.Add(time.Duration(windows) * period)
}
