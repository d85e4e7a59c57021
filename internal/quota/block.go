package quota

import (
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
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
	known atomic.Bool // there is anything below

	mu     sync.Mutex
	streak int64         // rejections without a success between
	seen   time.Time     // when the first of them came
	least  time.Duration // that one of them asks to wait; 0: one does not say
	until  time.Time     // blocked until; zero: never
	asked  time.Time     // the same, without the doubling; zero: successes have ended that
	cause  time.Time     // when the request was sent whose rejection blocked
	length time.Duration // of the block; 0: a quota is shown
	level  float64       // how often it was blocked again
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

// reject counts a rejection that asks for the wait; 0: it does not say. shown is true if it
// shows an exhausted quota, and exact if the quota's reset is known too: then the block
// is only for what the doubling adds. It reports whether the scope is blocked.
func (b *block) reject(sent, now time.Time, wait, longest time.Duration, inflight int64, shown, exact bool) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.known.Store(true)
	if b.streak++; b.streak == 1 {
		b.seen, b.least = now, wait
	}
	b.least = min(b.least, wait)
	if !shown {
		wait = b.least
		if b.streak < max(minStreak, inflight) || now.Sub(b.seen) < min(wait, minStreakTime) {
			return false
		}
	}
	if wait <= 0 {
		return false // the server rounds down what is left of a second
	}
	// A request that was sent before the last block ended says nothing new.
	if shown && !b.asked.IsZero() && !sent.Before(b.asked) {
		b.level = min(b.level+1, maxLevel)
	}
	b.asked = later(b.asked, now.Add(wait))
	switch {
	case b.level > 0:
		wait = time.Duration(min(float64(wait)*math.Exp2(b.level), float64(max(maxDoubled, wait))))
		wait += rand.N(wait/4 + 1)
	case exact:
		return false
	}
	wait = min(wait, longest)
	if until := now.Add(wait); until.After(b.until) {
		b.until, b.cause, b.length = until, sent, wait
		if shown {
			b.cause, b.length = until, 0 // no success ends it earlier
		}
	}
	return true
}

// succeed counts a success.
func (b *block) succeed(sent time.Time) {
	if !b.known.Load() {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.streak = 0
	if sent.After(b.cause) {
		b.until = time.Time{}
	}
	if b.level = max(b.level-levelDecay, 0); b.level == 0 && b.until.IsZero() {
		b.asked = time.Time{}
		b.known.Store(false)
	}
}

// now is until when it blocks, and for how long in all; the zero time if it does not.
func (b *block) now(now time.Time) (until time.Time, length time.Duration) {
	if b == nil {
		return time.Time{}, 0
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.until.After(now) {
		return time.Time{}, b.length
	}
	return b.until, b.length
}

// blocks are those of a bucket. A server may reject one priority and serve the others, so
// rejections that show no quota block their own class.
type blocks struct {
	all     block
	classes atomic.Pointer[[numClasses]block] // nil until one is needed
}

// numClasses is how many classes of a scope there are: -1, 0 and 1.
const numClasses = 3

// of is the block of a class alone; nil: there has been none.
func (b *blocks) of(class int8) *block {
	if classes := b.classes.Load(); classes != nil {
		return &classes[class+1]
	}
	return nil
}

// toReject is the block that counts a rejection.
func (b *blocks) toReject(class int8, shown bool) *block {
	if shown {
		return &b.all
	}
	if b.classes.Load() == nil {
		b.classes.CompareAndSwap(nil, new([numClasses]block))
	}
	return b.of(class)
}

func (b *blocks) succeed(class int8, sent time.Time) {
	b.all.succeed(sent)
	if own := b.of(class); own != nil {
		own.succeed(sent)
	}
}

// busy reports whether there is anything that must not be evicted first.
func (b *blocks) busy() bool {
	if classes := b.classes.Load(); classes != nil {
		for i := range classes {
			if classes[i].known.Load() {
				return true
			}
		}
	}
	return b.all.known.Load()
}

// blockedUntil is until when the class is blocked, and alone whether the others are not.
func (b *blocks) blockedUntil(class int8, now time.Time) (until time.Time, alone bool) {
	until, _ = b.all.now(now)
	if own, _ := b.of(class).now(now); own.After(until) {
		return own, true
	}
	return until, false
}

// length is how long the class was blocked last.
func (b *blocks) length(class int8, now time.Time) time.Duration {
	_, all := b.all.now(now)
	_, own := b.of(class).now(now)
	return max(all, own)
}
