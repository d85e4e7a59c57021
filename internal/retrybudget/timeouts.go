package retrybudget

import (
	"time"

	"github.com/resilienthttp/resilienthttp/internal/waitqueue"
)

// timeouts are the retries after timeouts. One is in flight at a time, and each that is answered soon lets one more go, because
// its tokens return. If the server has too many requests, each takes nearly as long as a timeout, so they hardly add to its
// work.
type timeouts struct {
	bucket *Bucket
	rules  *Rules
	queue  waitqueue.Queue[Permit]
	sent   int // in flight
	more   int // that may be in flight, beside one
}

// MayAwait reports whether Await might return tokens.
func (b *Bucket) MayAwait(rules *Rules, now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, enough := b.cost(Request{Slow: true}, rules, now)
	return enough || b.timeouts != nil && b.timeouts.sent > 0
}

// Await takes the tokens of a retry after a timeout when it may be sent. ok is false if there are too few then, or if the
// limits end the wait.
func (b *Bucket) Await(rules *Rules, now time.Time, limits waitqueue.Limits) (p Permit, ok bool) {
	b.mu.Lock()
	if b.timeouts == nil {
		b.timeouts = &timeouts{bucket: b, rules: rules}
		b.timeouts.queue.Mu, b.timeouts.queue.Gate = &b.mu, b.timeouts
		b.timeouts.queue.LastFirst = true // it has the most time left: a retry without it is work for no result
	}
	b.mu.Unlock()
	p, _, _ = b.timeouts.queue.Enter(now, limits)
	return p, p.withdrawal != nil
}

// Take implements waitqueue.Gate. A call gets the zero Permit if there are too few tokens, and none in flight that may return.
func (t *timeouts) Take(now time.Time, _ int64) (p Permit, ok bool) {
	if t.sent > t.more {
		return Permit{}, false
	}
	if p, ok = t.bucket.take(Request{Slow: true}, t.rules, now); ok {
		p.in = t
		t.sent++
	}
	return p, ok || t.sent == 0
}

// ended counts a retry that is no longer in flight.
func (t *timeouts) ended(r Result, canceled bool, _ time.Time) {
	switch t.sent--; {
	case r.Succeeded && !r.Slow:
		t.more++
	case !canceled:
		t.more = 0
	}
}

// Dispatch implements waitqueue.Gate.
func (t *timeouts) Dispatch(now time.Time) { t.queue.GrantAll(now) }

// Estimate implements waitqueue.Gate. When a retry in flight ends is unknown.
func (t *timeouts) Estimate(now time.Time, _ waitqueue.Load, _ int64) (at time.Time, blocked bool) {
	return now, false
}

// Return implements waitqueue.Gate.
func (t *timeouts) Return(p Permit, now time.Time) { p.end(Result{}, true, now) }
