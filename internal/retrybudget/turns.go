package retrybudget

import (
	"time"

	"github.com/resilienthttp/resilienthttp/internal/waitqueue"
)

// turns is where calls without a token wait for one, in the order in which they began. Calls bring the tokens. If all callers
// wait here, no call comes, and so none brings any. So a call that a limit has rejected is sent without a token, as a test, if
// nothing has come or gone for as long as three calls usually take. If the limit has named its wait, the test follows that wait.
type turns struct {
	bucket *Bucket
	rules  *Rules
	queue  waitqueue.Queue[Permit]

	moved   time.Time     // when something last came or went
	testing bool          // a test is in flight
	ended   time.Time     // of the last test
	asks    time.Duration // the wait after it for which its rejection asks
}

// Why a call waits for a token.
const (
	Failed   uint8 = iota // its attempt has failed
	Rejected              // a limit has rejected its attempt
	Asked                 // a limit has rejected its attempt, and has named the wait, which is over
)

// AwaitTurn takes a token for a retry when its turn comes. limits.Class is why it waits. ok is false if the limits end the wait.
func (b *Bucket) AwaitTurn(rules *Rules, now time.Time, limits waitqueue.Limits) (p Permit, ok bool) {
	b.mu.Lock()
	if b.turns == nil {
		b.turns = &turns{bucket: b, rules: rules}
		b.turns.queue.Mu, b.turns.queue.Gate = &b.mu, b.turns
	}
	t := b.turns
	if t.queue.Len() == 0 {
		t.moved = now
	}
	b.mu.Unlock()
	p, _, _ = t.queue.Enter(now, limits)
	return p, p.withdrawal != nil
}

// Take implements waitqueue.Gate: all join the queue, and Dispatch takes for them.
func (*turns) Take(time.Time, int64) (p Permit, ok bool) { return p, false }

// Dispatch implements waitqueue.Gate.
func (t *turns) Dispatch(now time.Time) {
	for t.queue.Len() > 0 {
		first := t.queue.First()
		p, ok := t.bucket.take(Request{Limited: first.Class != Failed}, t.rules, now)
		if !ok && t.mayTest(first.Class, now) {
			t.testing = true
			p, ok = Permit{&withdrawal{from: t.bucket, limited: true, test: true}}, true
		}
		if !ok {
			break
		}
		t.moved = now
		t.queue.Grant(first, p)
	}
	t.bucket.waiting.Store(t.queue.Len() > 0)
	t.queue.WakeAt(t.wake(), now)
}

func (t *turns) mayTest(class uint8, now time.Time) bool {
	since, wait := t.rest(class)
	return class != Failed && !t.testing && !within(wait, since, now)
}

// rest returns the time and the wait after which the first call may be sent as a test.
func (t *turns) rest(class uint8) (since time.Time, wait time.Duration) {
	if class == Asked {
		return t.ended, t.asks
	}
	return t.moved, t.bucket.gap(t.rules, t.moved)
}

// within reports whether a wait that began at a time is not over. It is, if the clock was set back.
func within(wait time.Duration, since, now time.Time) bool {
	passed := now.Sub(since)
	return 0 <= passed && passed < wait
}

// wake returns when Dispatch should look again; zero: when something comes or goes.
func (t *turns) wake() time.Time {
	if t.queue.Len() == 0 || t.testing || t.queue.First().Class == Failed {
		return time.Time{}
	}
	since, wait := t.rest(t.queue.First().Class)
	return since.Add(wait)
}

// Estimate implements waitqueue.Gate. When tokens come is unknown.
func (t *turns) Estimate(now time.Time, _ waitqueue.Load, _ int64) (at time.Time, blocked bool) {
	return now, false
}

// Return implements waitqueue.Gate.
func (t *turns) Return(p Permit, now time.Time) { p.end(Result{}, true, now) }

// gap returns the time in which three calls usually come, by those of the last Recent before a time.
func (b *Bucket) gap(rules *Rules, before time.Time) time.Duration {
	calls := time.Duration(max(b.recentCalls(rules, before), 1))
	return 3 * Recent / calls
}
