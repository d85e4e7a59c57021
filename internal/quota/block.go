package quota

import (
	"math"
	"math/rand/v2"
	"time"
)

// block is the time for which rejections stop all requests of a bucket.
//
// A rejection that shows an exhausted quota concerns all requests. Any other rejection delays
// only its own call. When all results are rejections, the scope is blocked for as long as all of
// them ask. The first success of a request that was sent later ends that block. If a quota is
// exhausted again after its reset, without a success between, the block is twice as long, because
// other clients use the quota too.
type block struct {
	until time.Time // end of the block; zero: none
	cause time.Time // a success of a request that was sent later ends the block

	streak int64         // consecutive rejections
	first  time.Time     // the time of the first of them
	least  time.Duration // the shortest wait that they ask for; 0: one of them asks for none

	shown time.Time // the latest reset of an exhausted quota; zero: successes have followed
	level float64   // how often a quota was exhausted again after its reset
}

const (
	// The scope is blocked after minStreak consecutive rejections, and as many as there are
	// requests in flight, over the time that they ask for or minStreakTime. Many rejections in a
	// moment may only be the end of a window of a second.
	minStreak, minStreakTime = 8, time.Second

	maxDoubled = 30 * time.Second // maximum of a doubled wait

	maxLevel   = 5    // 2^5 s are more than maxDoubled
	levelDecay = 0.25 // a success lowers the level by this
)

// rejection is the content of a rejection.
type rejection struct {
	sent, now time.Time
	wait      time.Duration // the wait that it asks for; 0: none
	shown     bool          // it shows an exhausted quota
	known     bool          // the dimension already waits for its reset: only doubling adds a block
}

// reject counts a rejection. longest is the maximum of a block.
func (b *block) reject(r rejection, longest time.Duration, inflight int64) {
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
		if wait = min(b.least, longest); wait > 0 { // 0: the server rounds the rest of a second down
			b.extend(r.now.Add(wait), r.sent)
		}
	}
}

func (b *block) extend(until, cause time.Time) {
	if until.After(b.until) {
		b.until, b.cause = until, cause
	}
}

// double returns the wait for an exhausted quota. A request that was sent before the last reset
// gives no new information.
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

func (b *block) succeed(sent time.Time) {
	b.streak = 0
	if sent.After(b.cause) {
		b.until = time.Time{}
	}
	if b.level = max(b.level-levelDecay, 0); b.level == 0 && b.until.IsZero() {
		b.shown = time.Time{}
	}
}

// at returns the end of the block, or zero if there is none.
func (b *block) at(now time.Time) time.Time {
	if !b.until.After(now) {
		return time.Time{}
	}
	return b.until
}
