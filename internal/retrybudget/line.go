package retrybudget

import (
	"time"

	"github.com/resilienthttp/resilienthttp/internal/waitqueue"
)

// line is where retries after timeouts wait for one another. One is in flight at a time, and each that is answered soon lets one
// more go. They take tokens when they are sent, and those return. If the server has too many requests, each takes nearly as
// long as a timeout, so they hardly add to its work.
type line struct {
	waiters

	sent int // in flight
	more int // that may be in flight, beside one
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
		b.timeouts = &line{}
		b.timeouts.open(b, rules, b.timeouts)
		// The last has the most time left: a retry without it is work for no result.
		b.timeouts.queue.LastFirst = true
	}
	l := b.timeouts
	b.mu.Unlock()
	return l.enter(now, limits)
}

// Take implements waitqueue.Gate. A call gets the zero Permit if there are too few tokens, and none in flight that may return.
func (l *line) Take(now time.Time, _ int64) (p Permit, ok bool) {
	if l.sent > l.more {
		return p, false
	}
	if p, ok = l.bucket.take(Request{Slow: true}, l.rules, now); ok {
		p.in = l
		l.sent++
	}
	return p, ok || l.sent == 0
}

// ended counts a retry that is no longer in flight.
func (l *line) ended(r Result, canceled bool) {
	switch l.sent--; {
	case canceled:
	case r.Succeeded && !r.Slow:
		l.more++
	default:
		l.more = 0
	}
}

// Dispatch implements waitqueue.Gate.
func (l *line) Dispatch(now time.Time) { l.queue.GrantAll(now) }
