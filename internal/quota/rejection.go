package quota

import (
	"math/rand/v2"
	"net/http"
	"slices"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/outcome"
	"github.com/resilienthttp/resilienthttp/internal/ratelimitheader"
)

// block is the time for which rejections stop all requests of a bucket.
//
// A rejection that shows an exhausted quota concerns all requests. Any other rejection delays
// only its own call. When all responses are rejections, the scope is blocked for as long as all of
// them ask. A request to another path tests a block, and the first success of one that was sent later ends
// it. If the first request after the reset of an exhausted quota is rejected again, the block
// is twice as long, because other clients use the quota too. The quotas of a mixed account hold all calls only if nothing but
// rejections comes back for as long as they ask.
type block struct {
	until time.Time // end of the block; zero: none
	cause time.Time // a success of a request that was sent later ends the block

	streak int64         // consecutive rejections
	first  time.Time     // the time of the first of them
	least  time.Duration // the shortest wait that they ask for; 0: one of them asks for none

	shown   time.Time     // the latest reset of an exhausted quota; zero: successes have followed
	test    time.Time     // when the first request after it was sent; earlier: none was
	doubled time.Duration // the wait after a quota was exhausted again at its reset; 0: it was not
}

const (
	// The scope is blocked after minStreak consecutive rejections, and as many as there are
	// requests in flight, over the time that they ask for or minStreakTime. Many rejections in a
	// moment may only be the end of a window of a second.
	minStreak, minStreakTime = 8, time.Second

	maxDoubled = 30 * time.Second // maximum of a doubled wait
)

// rejection is the content of a rejection.
type rejection struct {
	sent, now time.Time
	wait      time.Duration // the wait that it asks for; 0: none
	shown     bool          // it shows an exhausted quota
	known     bool          // the dimension already waits for its reset: only doubling adds a block
	mixed     bool          // it may be about one of several counters
}

// reject counts a rejection. longest is the maximum of a block.
func (b *block) reject(r rejection, longest time.Duration, inflight int64) {
	if b.streak++; b.streak == 1 {
		b.first, b.least = r.now, r.wait
	}
	b.least = min(b.least, r.wait)
	wait := min(r.wait, longest)
	// The server says that the quota is exhausted, so one rejection is enough.
	if r.shown && wait > 0 {
		if wait = min(b.double(r.sent, r.now, wait), longest); !r.known || b.doubled > 0 {
			b.extend(r.now.Add(wait), r.sent)
		}
		return
	}
	// Only a row of rejections without anything else shows a limit of all calls. If one asks for no wait, none is blocked.
	least := b.least
	if !r.mixed {
		least = min(least, minStreakTime)
	}
	if b.least > 0 && b.lasts(r.now, least, inflight) {
		b.extend(r.now.Add(min(b.least, longest)), r.sent)
	}
}

// lasts reports whether nothing but rejections has come back for so long, and so often, that the limit is one of all requests. One of
// several customers may send nearly all of them, so at a mixed account it takes as long as they ask to wait.
func (b *block) lasts(now time.Time, least time.Duration, inflight int64) bool {
	return b.streak >= max(minStreak, inflight) && now.Sub(b.first) >= least
}

func (b *block) extend(until, cause time.Time) {
	if until.After(b.until) {
		b.until, b.cause = until, cause
	}
}

// firstSince returns when the first request since a time was sent: now, if the one that is known was earlier.
func firstSince(known, since, now time.Time) time.Time {
	if known.Before(since) && !now.Before(since) {
		return now
	}
	return known
}

// double returns the wait for an exhausted quota. A request that was sent before the last reset gives no new information,
// nor does one behind the first after it: the first may be served, and its response late.
func (b *block) double(sent, now time.Time, wait time.Duration) time.Duration {
	if !sent.Before(b.shown) && (b.test.Before(b.shown) || !sent.After(b.test)) {
		b.doubled = min(2*max(wait, b.doubled), maxDoubled)
	}
	b.shown = later(b.shown, now.Add(wait))
	// The first rejection has said how long to wait, and it is believed as it is.
	if b.doubled == 0 {
		return wait
	}
	wait = max(wait, b.doubled)
	return wait + rand.N(wait/4+1) // other processes wait for the same moment
}

func (b *block) succeed(sent time.Time) {
	b.streak = 0
	if sent.After(b.cause) {
		b.until = time.Time{}
	}
	b.doubled, b.shown = 0, time.Time{}
}

// limit returns what the response says about limits.
func (a *Response) limit() outcome.Limit {
	var signs outcome.Signs
	if a.AsksToWait {
		signs |= outcome.AsksToWait
	}
	if a.Quota.Exhausted {
		signs |= outcome.Exhausted
	}
	return outcome.Of(outcome.Came(a.Status), signs).Limit
}

// rejected reports whether a limit rejected the request.
func (a *Response) rejected() bool { return a.limit() == outcome.Rejected }

// served reports whether the limits admitted the request.
func (a *Response) served() bool { return a.limit() == outcome.Served }

// counted reports whether the request took one of a quota, if there is one. GitHub counts no 304.
func (a *Response) counted() bool { return a.served() && a.Status != http.StatusNotModified }

// exhausts reports whether a rejection shows that the dimension is exhausted. A request may take
// several units of a costed dimension, so it may be rejected although something remains.
func (a *Response) exhausts(d *ratelimitheader.Dimension) bool {
	return d.Remaining == 0 || d.Costed && d.Limit > 0 && d.Remaining < d.Limit/costedEmpty && !a.Quota.Exhausted
}

// costedEmpty is the part of a costed dimension below which a rejection means that it is
// exhausted.
const costedEmpty = 10

// judge counts a success or a rejection for the blocks. It uses the block of the general bucket
// if the rejection does not identify a bucket.
func (b *bucket) judge(p *Permit, a *Response, now time.Time) {
	if a.served() {
		b.noteMixed(p)
		b.block.succeed(p.sent)
		b.common().block.succeed(p.sent)
		return
	}
	if !a.rejected() {
		b.block.streak = 0 // for example a 502: the limit of this bucket does not reject all requests
		return
	}
	b.noteRejected(p, a, now)
	of := b
	// Discord says so of all routes, those with quotas of their own too.
	if a.Quota.Global {
		of = &b.account.general
	}
	b.account.known.Store(true)
	known, longest := false, b.limiter.MaxBlock
	for i := range b.dims {
		d := &b.dims[i]
		if !d.exhausted(now) || d.mentioned != b.version {
			continue
		}
		known = true
		// Nothing was rejected after the reset, so a doubled wait ends there.
		if now.Add(a.RetryAfter).Before(d.end.reset) {
			longest = min(longest, d.end.reset.Sub(now))
		}
	}
	if known && b.shared != nil {
		return // doubling is not needed: the store divides the quota between the processes
	}
	// Without a reset, only Retry-After says when. One of a second is rounded up, so it says little of other calls: a bucket may have
	// refilled within milliseconds, and a limit of requests at once by the next response.
	byWait := len(a.Quota.Dimensions) == 0 && (a.Quota.Global || a.RetryAfter > time.Second)
	shown := a.Quota.Exhausted && (known || byWait)
	of.block.reject(rejection{p.sent, now, a.RetryAfter, shown, known, b.account.mixed}, longest, b.inflight)
	if a.Quota.Global {
		of.block.cause = of.block.until // all paths are rejected, so none tests it
	}
}

// noteRejected notes the route of a rejection, and until when it asks its calls to wait.
func (b *bucket) noteRejected(p *Permit, a *Response, now time.Time) {
	route, path := p.set.route(p.method, p.path)
	b.rejectedPath = path
	if !slices.Contains(b.rejectedRoutes, route) && len(b.rejectedRoutes) < maxRejectedRoutes {
		b.rejectedRoutes = append(b.rejectedRoutes, route)
	}
	until := now.Add(a.RetryAfter)
	for i := range b.dims {
		switch d := &b.dims[i]; {
		case d.mentioned != b.version:
		case d.shownOnSuccess:
			return // its counts say more, and a token bucket gains units before it is full: see showsAnother
		case d.exhausted(now):
			until = later(until, sooner(d.end.early, d.end.cut))
		}
	}
	if until.After(b.asked) {
		b.asked, b.askedAt = until, now
	}
}

// noteMixed notes that a request was served that was sent during the wait that a rejection asks for. So the rejection
// did not speak of all calls of the credential. The last second proves nothing, because waits are rounded up.
func (b *bucket) noteMixed(p *Permit) {
	if !p.sent.Before(b.askedAt) && p.sent.Add(time.Second+2*b.RTT).Before(b.asked) {
		b.account.mixed = true
	}
}
