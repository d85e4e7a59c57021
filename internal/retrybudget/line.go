package retrybudget

import (
	"time"

	"github.com/resilienthttp/resilienthttp/internal/waitqueue"
)

// Kind is what the retries of a line follow. The zero Kind is none.
type Kind uint8

// The kinds.
const (
	// AfterTimeouts take their tokens when they are sent. If the server has too many requests, each takes nearly as long as a
	// timeout, so they hardly add to its work.
	AfterTimeouts Kind = iota + 1
	// AfterRejections take no tokens, because a limit has rejected their calls before the server did any work.
	AfterRejections

	kinds
)

// line is where retries wait for one another. One is in flight at a time, and each that is answered soon lets one more go. After a
// rejection all wait as long as it asks.
type line struct {
	kind   Kind
	bucket *Bucket
	rules  *Rules
	queue  waitqueue.Queue[Permit]
	sent   int // in flight
	more   int // that may be in flight, beside one

	since time.Time     // when the last one was sent, or rejected
	pause time.Duration // after it, when one may be sent in any case
}

// maxHang is how long a retry after a rejection keeps the others back that gets no response.
const maxHang = time.Second

// MayAwait reports whether Await might return tokens after a timeout.
func (b *Bucket) MayAwait(rules *Rules, now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, enough := b.cost(Request{Slow: true}, rules, now)
	timeouts := b.lines[AfterTimeouts]
	return enough || timeouts != nil && timeouts.sent > 0
}

// Await waits until a retry may be sent. ok is false if there are too few tokens then, or if the limits end the wait.
func (b *Bucket) Await(kind Kind, rules *Rules, now time.Time, limits waitqueue.Limits) (p Permit, ok bool) {
	b.mu.Lock()
	l := b.lines[kind]
	if l == nil {
		l = &line{kind: kind, bucket: b, rules: rules}
		l.queue.Mu, l.queue.Gate = &b.mu, l
		l.queue.LastFirst = kind == AfterTimeouts // it has the most time left: a retry without it is work for no result
		b.lines[kind] = l
	}
	b.mu.Unlock()
	p, _, _ = l.queue.Enter(now, limits)
	return p, p.withdrawal != nil
}

// Take implements waitqueue.Gate. After a timeout, a call gets the zero Permit if there are too few tokens, and none in flight
// that may return.
func (l *line) Take(now time.Time, _ int64) (p Permit, ok bool) {
	free := l.kind == AfterRejections
	switch passed := now.Sub(l.since); {
	case l.sent > l.more && (!free || 0 <= passed && passed < l.pause): // below 0: the clock was set back
		return p, false
	case free:
		p, ok = Permit{&withdrawal{from: l.bucket}}, true
		l.since, l.pause = now, maxHang
	default:
		p, ok = l.bucket.take(Request{Slow: true}, l.rules, now)
	}
	if ok {
		p.line = l
		l.sent++
	}
	return p, ok || l.sent == 0
}

// ended counts a retry that is no longer in flight.
func (l *line) ended(r Result, canceled bool, now time.Time) {
	free := l.kind == AfterRejections
	switch l.sent--; {
	case canceled:
	case r.Succeeded && (free || !r.Slow):
		l.more++
	case free && r.Pause > 0:
		l.more, l.since, l.pause = -1, now, r.Pause
	default:
		l.more = 0
	}
}

// Dispatch implements waitqueue.Gate.
func (l *line) Dispatch(now time.Time) {
	l.queue.GrantAll(now)
	wake := time.Time{}
	if l.kind == AfterRejections && l.queue.Len() > 0 {
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
