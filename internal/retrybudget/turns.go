package retrybudget

import (
	"time"

	"github.com/resilienthttp/resilienthttp/internal/waitqueue"
)

// turns are the retries without tokens of calls that a limit has rejected. One is in flight at a time. If it is rejected too, the
// next one waits as long as that rejection asks. So however many wait, the server rejects few.
type turns struct {
	bucket *Bucket
	queue  waitqueue.Queue[Permit]
	since  time.Time     // when the last one was sent, or ended
	pause  time.Duration // until the next one
}

// maxTurn is how long a turn lasts at most: a retry may hang.
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
	if passed := now.Sub(t.since); 0 <= passed && passed < t.pause { // below 0: the clock was set back
		return p, false
	}
	t.since, t.pause = now, maxTurn
	return Permit{&withdrawal{from: t.bucket, in: t}}, true
}

// ended ends the turn of a retry.
func (t *turns) ended(r Result, _ bool, now time.Time) {
	t.since, t.pause = now, r.Pause
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
