package quota

import (
	"math"
	"math/rand/v2"
	"sync"
	"time"
)

// block is what rejections mean for requests that they did not meet.
//
// A rejection that shows an exhausted quota concerns all requests. Any other delays its own
// call alone, until rejections are all that comes back: then the scope is blocked for as
// long as all of them ask. The first success of a request that was sent later ends that
// block. If a quota is shown to be exhausted again after its reset, without a success
// between, the block is twice as long: other clients use it too.
type block struct {
	mu    sync.Mutex
	until time.Time // blocked until; zero: not
	cause time.Time // a success of a request that was sent later ends the block

	streak int64         // rejections without a success between
	first  time.Time     // when the first of them came
	least  time.Duration // that one of them asks to wait; 0: one does not say

	shown time.Time // the latest reset that was shown; zero: successes have followed
	level float64   // how often a quota was shown again
}

const (
	// Rejections are all that comes back when there are so many without a success, and as
	// many as there are requests in flight, over the time that they ask for or a second.
	// Many within a moment may be the end of a window that is a second long.
	minStreak, minStreakTime = 8, time.Second

	maxDoubled = 30 * time.Second // no wait is made longer than this

	maxLevel   = 5    // 2^5 s are more than that
	levelDecay = 0.25 // so much of it ends with each success
)

// rejection is what a rejection says.
type rejection struct {
	sent, now time.Time
	wait      time.Duration // it asks for; 0: it does not say
	shown     bool          // it shows an exhausted quota,
	known     bool          // the dimension waits for its reset: the block is only for the doubling
}

// reject counts a rejection. No block is longer than longest.
func (b *block) reject(r rejection, longest time.Duration, inflight int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.streak++; b.streak == 1 {
		b.first, b.least = r.now, r.wait
	}
	b.least = min(b.least, r.wait)
	wait := min(r.wait, longest)
	switch {
	case r.shown && wait > 0:
		if wait = min(b.double(r.sent, r.now, wait), longest); wait > 0 && (!r.known || b.level > 0) {
			b.extend(r.now.Add(wait), r.now.Add(wait)) // no success ends it earlier
		}
	case r.shown:
	case b.streak >= max(minStreak, inflight) && r.now.Sub(b.first) >= min(b.least, minStreakTime):
		if wait = min(b.least, longest); wait > 0 { // else the server rounds down what is left of a second
			b.extend(r.now.Add(wait), r.sent)
		}
	}
}

// extend blocks until a time, if that is later than before.
func (b *block) extend(until, cause time.Time) {
	if until.After(b.until) {
		b.until, b.cause = until, cause
	}
}

// double is the wait for a quota that is shown to be exhausted. A request that was sent
// before the last reset says nothing new.
func (b *block) double(sent, now time.Time, wait time.Duration) time.Duration {
	if !b.shown.IsZero() && !sent.Before(b.shown) {
		b.level = min(b.level+1, maxLevel)
	}
	b.shown = later(b.shown, now.Add(wait))
	if b.level == 0 {
		return wait
	}
	wait = time.Duration(min(float64(wait)*math.Exp2(b.level), float64(max(maxDoubled, wait))))
	return wait + rand.N(wait/4+1)
}

// succeed counts a success.
func (b *block) succeed(sent time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.streak = 0
	if sent.After(b.cause) {
		b.until = time.Time{}
	}
	if b.level = max(b.level-levelDecay, 0); b.level == 0 && b.until.IsZero() {
		b.shown = time.Time{}
	}
}

// at is until when requests are blocked; the zero time if they are not.
func (b *block) at(now time.Time) time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.until.After(now) {
		return time.Time{}
	}
	return b.until
}
