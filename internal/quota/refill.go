package quota

import (
	"math"
	"time"
)

// refill is how fast a quota fills up that does so all the time, and whose reset
// is when it is full: a token bucket. Each reading bounds the speed, in requests
// per second, from both sides. A window contradicts itself after a few: its
// reset does not come nearer with what remains.
type refill struct {
	least, most float64
	moves       int  // of the reset to a later time, before it had come
	never       bool // it is something else
}

// fewestMoves is how often a reset must have moved for the quota to be a bucket
// that fills up: that of a window does too, when a new one has begun unseen.
const fewestMoves = 3

// learn learns from a reading in which so much was missing, and so long the time
// until it is there again.
func (f *refill) learn(missing int64, least, most time.Duration) {
	if f.never || missing <= 0 || most <= 0 {
		return
	}
	if f.most == 0 {
		f.most = math.Inf(1)
	}
	// What remains was cut to a whole number.
	f.least = max(f.least, float64(missing-1)/most.Seconds())
	if least > 0 {
		f.most = min(f.most, float64(missing)/least.Seconds())
	}
	f.never = f.least > 1.02*f.most
}

// known reports whether the quota is sure to be of that kind.
func (f *refill) known() bool { return f.moves >= fewestMoves && !f.never && f.least > 0 }

// gain is what comes in that time, at least.
func (f *refill) gain(since time.Duration) int64 {
	return int64(min(f.least*max(since, 0).Seconds(), math.MaxInt32))
}

// time is how long it takes for n to come, at most.
func (f *refill) time(n int64) time.Duration {
	return time.Duration(min(float64(max(n, 0))/f.least*float64(time.Second)+1, float64(Longest)))
}
