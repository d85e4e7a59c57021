package retrybudget

import (
	"math"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/waitqueue"
)

// turns is where calls without a token wait for one, in the order in which they began. Calls bring the tokens. If all callers
// wait here, no call comes, and so none brings any. So the first is sent without a token, as a test, if no call has come for as
// long as three calls usually take. If a limit has named its wait, the test follows that wait. Each test that is served lets one
// more go. While tests fail, the pause before the next grows with the time for which they have failed: to a quarter of it, or to all
// of it if the limit names its wait.
type turns struct {
	waiters

	quiet time.Time // since when no call has come to those that wait

	tests int           // in flight
	more  int           // tests that may be in flight, beside one: those that were served since a call came
	lost  time.Time     // when the first test failed since one was served; zero: none has
	ended time.Time     // when the last one failed
	asks  time.Duration // the wait after it that its rejection names
}

const tenths = 10 // of a token: the unit of Limits.Cost

// Why a call waits for a token.
const (
	Failed   uint8 = iota // its attempt has failed
	Rejected              // a limit has rejected its attempt
	Asked                 // a limit has rejected its attempt, and has named the wait, which is over
)

// AwaitTurn takes the tokens of a retry when its turn comes: cost, as long as retries succeed. limits.Class is why it waits. ok is
// false if the limits end the wait.
func (b *Bucket) AwaitTurn(cost float64, rules *Rules, now time.Time, limits waitqueue.Limits) (p Permit, ok bool) {
	limits.Cost = int64(math.Round(tenths * cost))
	b.mu.Lock()
	if b.turns == nil {
		b.turns = &turns{}
		b.turns.open(b, rules, b.turns)
	}
	t := b.turns
	// The queue may have been empty since, although its calls wait for backoffs: that is no reason for another pause.
	if t.came().After(t.quiet) {
		t.quiet, t.more = now, 0
	}
	// The clock was set back.
	if t.ended.After(now) {
		t.ended = now
	}
	b.mu.Unlock()
	return t.enter(now, limits)
}

// Take implements waitqueue.Gate: all join the queue, and Dispatch takes for them.
func (*turns) Take(time.Time, int64) (p Permit, ok bool) { return p, false }

// Dispatch implements waitqueue.Gate.
func (t *turns) Dispatch(now time.Time) {
	for t.queue.Len() > 0 {
		first := t.queue.First()
		p, ok := t.bucket.take(Request{Limited: first.Class != Failed, Cost: float64(first.Cost) / tenths}, t.rules, now)
		if !ok && t.mayTest(first.Class, now) {
			t.tests++
			p, ok = Permit{&withdrawal{from: t.bucket, limited: true, test: true}}, true
		}
		if !ok {
			break
		}
		t.queue.Grant(first, p)
	}
	t.bucket.waiting.Store(t.queue.Len() > 0)
	t.queue.WakeAt(t.wake(), now)
}

// called notes that a call has come, with a part of a token.
func (t *turns) called(now time.Time) {
	t.quiet, t.more = now, 0
	t.Dispatch(now)
}

func (t *turns) mayTest(class uint8, now time.Time) bool {
	return t.tests <= t.more && !now.Before(t.testAt(class))
}

// testAt returns when the first call may be sent as a test.
func (t *turns) testAt(class uint8) time.Time {
	named, failing := class == Asked, time.Duration(0)
	if !t.lost.IsZero() {
		// Tests fail for as long as the limit does, and they should find its end soon after it: so the pause grows with that time.
		failing = min(t.ended.Sub(t.lost), maxFailing)
		named = t.asks > 0 // the last answer of the limit says how long
	}
	if named {
		return t.ended.Add(max(t.asks, failing))
	}
	since := t.quiet
	if t.ended.After(since) {
		since = t.ended
	}
	return since.Add(max(3*t.interval(), failing/4))
}

const maxFailing = 6 * time.Minute // the longest time of failing tests from which a pause follows

// tested notes the result of a test.
func (t *turns) tested(r Result, canceled bool, now time.Time) {
	t.tests--
	switch {
	case canceled:
	case r.Succeeded:
		t.more++
		t.lost = time.Time{}
	default:
		t.more = 0
		t.ended, t.asks = now, r.Asks
		if t.lost.IsZero() {
			t.lost = now
		}
	}
}

// wake returns when Dispatch should look again; zero: when something comes or ends.
func (t *turns) wake() time.Time {
	if t.queue.Len() == 0 || t.tests > t.more {
		return time.Time{}
	}
	return t.testAt(t.queue.First().Class)
}

// came returns when a call last came.
func (t *turns) came() time.Time { return t.rules.Origin.Add(time.Duration(t.bucket.came.Load())) }

// interval returns the mean time between two calls of those that came in the Recent before the last one.
func (t *turns) interval() time.Duration {
	return Recent / time.Duration(max(t.bucket.recentCalls(t.rules, t.came()), 1))
}
