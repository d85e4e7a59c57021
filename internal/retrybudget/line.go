package retrybudget

import (
	"time"

	"github.com/resilienthttp/resilienthttp/internal/hold"
	"github.com/resilienthttp/resilienthttp/internal/waitqueue"
)

// line is where retries wait for one another. One is in flight at a time, and each that is answered soon lets one more go. There are
// two for each bucket.
//
// Retries after timeouts take tokens when they are sent, and those return. If the server has too many requests, each takes nearly
// as long as a timeout, so they hardly add to its work.
//
// Turns are retries without tokens of calls that a limit has rejected. If one is rejected too, all wait for its Pause. So however
// many wait, the server rejects few.
type line struct {
	bucket *Bucket
	rules  *Rules // of the tokens; nil: these are turns
	queue  waitqueue.Queue[Permit]
	sent   int // in flight
	more   int // that may be in flight, beside one; -1: a turn was rejected

	since time.Time     // when the last turn began, or was rejected
	pause time.Duration // after which one more begins in any case
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
	return b.wait(&b.timeouts, rules, now, limits)
}

// AwaitTurn waits until a retry without tokens may be sent. ok is false if the limits end the wait.
func (b *Bucket) AwaitTurn(now time.Time, limits waitqueue.Limits) (p Permit, ok bool) {
	return b.wait(&b.turns, nil, now, limits)
}

func (b *Bucket) wait(in **line, rules *Rules, now time.Time, limits waitqueue.Limits) (p Permit, ok bool) {
	b.mu.Lock()
	l := *in
	if l == nil {
		l = &line{bucket: b, rules: rules}
		l.queue.Mu, l.queue.Gate = &b.mu, l
		l.queue.LastFirst = rules != nil // it has the most time left: a retry without it is work for no result
		*in = l
	}
	b.mu.Unlock()
	p, _, _ = l.queue.Enter(now, limits)
	return p, p.withdrawal != nil
}

// Take implements waitqueue.Gate. A call gets the zero Permit if there are too few tokens, and none in flight that may return.
func (l *line) Take(now time.Time, _ int64) (p Permit, ok bool) {
	passed := now.Sub(l.since) // below 0: the clock was set back
	switch {
	case l.sent > l.more && (l.rules != nil || 0 <= passed && passed < l.pause):
		return p, false
	case l.rules != nil:
		p, ok = l.bucket.take(Request{Slow: true}, l.rules, now)
	default:
		p, ok = Permit{&withdrawal{from: l.bucket}}, true
		l.more, l.since, l.pause = max(l.more, 0), now, hold.Hanging
	}
	if ok {
		p.in = l
		l.sent++
	}
	return p, ok || l.sent == 0
}

// ended counts a retry that is no longer in flight.
func (l *line) ended(r Result, canceled bool, now time.Time) {
	switch l.sent--; {
	case canceled, r.Succeeded && l.more < 0: // it was sent before the one that was rejected
	case r.Succeeded && !r.Slow:
		l.more++
	case l.rules == nil && r.Pause > 0:
		l.more, l.since, l.pause = -1, now, r.Pause
	default:
		l.more = min(l.more, 0)
	}
}

// Dispatch implements waitqueue.Gate.
func (l *line) Dispatch(now time.Time) {
	l.queue.GrantAll(now)
	wake := time.Time{}
	if l.rules == nil && l.queue.Len() > 0 {
		wake = l.since.Add(l.pause)
	}
	l.queue.WakeAt(wake, now)
}

// Estimate implements waitqueue.Gate. When a retry in flight ends is unknown.
func (l *line) Estimate(now time.Time, _ waitqueue.Load, _ int64) (at time.Time, blocked bool) {
	return now, false
}

// Return implements waitqueue.Gate.
func (l *line) Return(p Permit, now time.Time) { p.end(Result{}, true, now) }
