package retrybudget

import (
	"time"

	"github.com/resilienthttp/resilienthttp/internal/waitqueue"
)

// waiters are the calls that wait for tokens of a bucket: what line and turns have in common. Each of them is the queue's Gate.
type waiters struct {
	bucket *Bucket
	rules  *Rules
	queue  waitqueue.Queue[Permit]
}

// open sets what the queue needs before its first use. gate is the line or the turns that it is a part of.
func (w *waiters) open(b *Bucket, rules *Rules, gate waitqueue.Gate[Permit]) {
	w.bucket, w.rules = b, rules
	w.queue.Mu, w.queue.Gate = &b.mu, gate
}

// enter waits for the tokens. ok is false if there are none, or if the limits end the wait.
func (w *waiters) enter(now time.Time, limits waitqueue.Limits) (p Permit, ok bool) {
	p, _, _ = w.queue.Enter(now, limits)
	return p, p.withdrawal != nil
}

// Estimate implements waitqueue.Gate. When tokens come, or a retry in flight ends, is unknown.
func (*waiters) Estimate(now time.Time, _ waitqueue.Load, _ int64) (at time.Time, blocked bool) {
	return now, false
}

// Return implements waitqueue.Gate.
func (*waiters) Return(p Permit, now time.Time) { p.end(Result{}, true, now) }
