package retrybudget

import (
	"time"

	"github.com/resilienthttp/resilienthttp/internal/waitqueue"
)

// turns are the retries without tokens of calls that a limit has rejected. One is in flight at a time, and each that is served lets
// one more go. If one is rejected too, all wait as long as it asks. So however many wait, the server rejects few.
type turns struct {
	bucket *Bucket
	queue  waitqueue.Queue[Permit]
	sent   int           // in flight
	more   int           // that may be in flight, beside one; -1: one was rejected
	since  time.Time     // when the last one was sent, or rejected
	pause  time.Duration // after which one more is sent in any case
}

// maxTurn is how long a retry keeps the others back: it may hang.
const maxTurn = time.Second

// AwaitTurn waits until a retry without tokens may be sent. ok is false if the limits end the wait.
func (b *Bucket) AwaitTurn(now time.Time, limits waitqueue.Limits) (p Permit, ok bool) {
	b.mu.Lock()
	if b.turns == nil {
		b.turns = &turns{bucket: b}
		b.turns.queue.Mu, b.turns.queue.Gate = &b.mu, b.turns
	}
	b.mu.Unlock()
	p, _, rejected := b.turns.queue.Enter(now, limits)
	return p, rejected == nil
}

// Take implements waitqueue.Gate.
func (t *turns) Take(now time.Time, _ int64) (p Permit, ok bool) {
	passed := now.Sub(t.since) // below 0: the clock was set back
	if t.sent > t.more && 0 <= passed && passed < t.pause {
		return p, false
	}
	t.sent++
	t.more, t.since, t.pause = max(t.more, 0), now, maxTurn
	return Permit{&withdrawal{from: t.bucket, in: t}}, true
}

// ended counts a retry that is no longer in flight.
func (t *turns) ended(r Result, canceled bool, now time.Time) {
	switch t.sent--; {
	case canceled:
	case r.Succeeded && t.more >= 0:
		t.more++
	case r.Succeeded: // it was sent before the one that was rejected
	case r.Pause > 0:
		t.more, t.since, t.pause = -1, now, r.Pause
	default:
		t.more = min(t.more, 0)
	}
	t.Dispatch(now)
}

// Dispatch implements waitqueue.Gate.
func (t *turns) Dispatch(now time.Time) {
	t.queue.GrantAll(now)
	wake := time.Time{}
	if t.queue.Len() > 0 {
		wake = t.since.Add(t.pause)
	}
	t.queue.WakeAt(wake, now)
}

// Estimate implements waitqueue.Gate. When the server will serve a retry is unknown.
func (t *turns) Estimate(now time.Time, _ waitqueue.Load, _ int64) (at time.Time, blocked bool) {
	return now, false
}

// Return implements waitqueue.Gate.
func (t *turns) Return(p Permit, now time.Time) { p.end(Result{}, true, now) }
