package quota

import (
	"net/http"
	"slices"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/ratelimitheader"
)

// block is the time for which rejections stop all requests of a bucket.
//
// A rejection that shows an exhausted quota concerns all requests. Any other rejection delays
// only its own call. When all responses are rejections, the scope is blocked for as long as all of
// them ask. The first success of a request that was sent later ends that block.
type block struct {
	until time.Time // end of the block; zero: none
	cause time.Time // a success of a request that was sent later ends the block

	streak int64         // consecutive rejections
	first  time.Time     // the time of the first of them
	least  time.Duration // the shortest wait that they ask for; 0: one of them asks for none
}

// The scope is blocked after minStreak consecutive rejections, and as many as there are
// requests in flight, over the time that they ask for or minStreakTime. Many rejections in a
// moment may only be the end of a window of a second.
const minStreak, minStreakTime = 8, time.Second

// reject counts a rejection that asks for a wait; 0: for none. longest is the maximum of a block.
func (b *block) reject(sent, now time.Time, wait, longest time.Duration, inflight int64) {
	if b.streak++; b.streak == 1 {
		b.first, b.least = now, wait
	}
	b.least = min(b.least, wait)
	if b.least > 0 && b.streak >= max(minStreak, inflight) && now.Sub(b.first) >= min(b.least, minStreakTime) {
		b.extend(now.Add(min(b.least, longest)), sent)
	}
}

func (b *block) extend(until, cause time.Time) {
	if until.After(b.until) {
		b.until, b.cause = until, cause
	}
}

func (b *block) succeed(sent time.Time) {
	b.streak = 0
	if sent.After(b.cause) {
		b.until = time.Time{}
	}
}

// at returns the end of the block, or zero if there is none.
func (b *block) at(now time.Time) time.Time {
	if !b.until.After(now) {
		return time.Time{}
	}
	return b.until
}

// rejected reports whether a limit rejected the request, so that the server has done no work.
func (a *Response) rejected() bool {
	switch a.Status {
	case http.StatusTooManyRequests:
		return true
	case http.StatusForbidden:
		return a.AsksToWait || a.Quota.Exhausted
	case http.StatusServiceUnavailable:
		return a.Quota.Exhausted
	}
	return false
}

// served reports whether the limits admitted the request.
func (a *Response) served() bool {
	unclear := a.Status == http.StatusBadRequest && a.Quota.Exhausted
	return a.Status != 0 && a.Status < http.StatusInternalServerError && !unclear && !a.rejected()
}

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
		b.block.succeed(p.sent)
		if general := b.general(); general != b {
			general.block.succeed(p.sent)
		}
		return
	}
	if !a.rejected() {
		b.block.streak = 0 // for example a 502
		return
	}
	of := b
	if a.Quota.Global {
		of = b.general()
	}
	b.account.known.Store(true)
	known := slices.ContainsFunc(b.dims, func(d dimension) bool { return d.exhausted(now) && d.mentioned == b.version })
	switch longest := b.limiter.MaxBlock; {
	case known: // it delays the calls until its reset
	case a.Quota.Exhausted && a.AsksToWait && len(a.Quota.Dimensions) == 0: // no success ends it earlier
		until := now.Add(min(a.RetryAfter, longest))
		of.block.extend(until, until)
	default:
		of.block.reject(p.sent, now, a.RetryAfter, longest, b.inflight)
	}
}
