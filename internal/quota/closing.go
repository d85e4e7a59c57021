package quota

import (
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// closing is what refusals that ask to wait mean for those whom they did not meet.
//
// One that proves that a quota is used up is a word to everybody. Any other holds
// its own request alone: a limiter that lets fifty a second through refuses the
// others and means nobody else, and a server may refuse one in a hundred for
// reasons of its own. Only when refusals are the rule, a run of them in which
// nothing was served of what was sent since its first, is it of use to nobody to
// ask, and the scope is closed for as long as the last of them asks. The first
// success of a request that was sent later than the refusal that closed it opens it.
//
// Where a run goes on although the wait was kept, others use the quota too, and
// the server does not know that: when a thousand clients share one, each of them
// is told to come back in a second. So each further closing doubles the wait, and
// every fourth success halves it again.
type closing struct {
	known atomic.Bool // there is a run, or something left of a doubling

	mu     sync.Mutex
	run    int64         // refusals
	from   time.Time     // when the first of them was sent
	came   time.Time     // and came
	until  time.Time     // closed until; zero: never was
	proven time.Time     // and by proof, which is a word to calls of any priority
	asked  time.Time     // until, without the doubling
	cause  time.Time     // when the request was sent whose refusal closed it
	length time.Duration // of the closing, where that is no more than the server's wish
	level  float64       // closings in a row, that followed the first
}

const (
	// A run is so many refusals at least, and as many as there are in flight, over
	// the time that they ask for, or so long.
	leastRun, runTime = 8, time.Second

	mostDoublings = 5

	// A wait is not made longer than this: where a quota is proven to be used up,
	// and where it is not. A bucket that grants little refuses most of what is sent
	// to it, whatever it says, and waits for nobody.
	mostDoubledProven, mostDoubled = 30 * time.Second, 10 * time.Second
)

// proof is whether a refusal proves that a quota is used up.
type proof uint8

const (
	noProof    proof = iota
	knownReset       // it does, and says until when: the axis waits for that, to the moment
	proven           // it does, and all that is known of the reset is the wait
)

// busy keeps what says something from being forgotten first.
func (c *closing) busy() bool { return c.known.Load() }

// refuse is told of a refusal that asks for a wait, and reports whether that
// closes.
func (c *closing) refuse(sent, now time.Time, wait, longest time.Duration, inflight int64, proof proof) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known.Store(true)
	if c.run++; c.run == 1 {
		c.from, c.came = sent, now
	}
	if proof == noProof && (c.run < max(leastRun, inflight) || now.Sub(c.came) < min(wait, runTime)) {
		return false // or those in flight may be served yet: that takes longer than a refusal
	}
	// One that was on its way before the last wait was over tells nothing new. Nor
	// does one that asks for none: that is what the rest of a second is called by
	// a server that rounds down, and the wait before it was too short by as much.
	if wait > 0 && !c.asked.IsZero() && !sent.Before(c.asked) {
		c.level = min(c.level+1, mostDoublings+1)
	}
	c.asked = later(c.asked, now.Add(wait))
	most := mostDoubled
	if proof != noProof {
		most = mostDoubledProven
	}
	if c.level > 1 && wait > 0 && wait < most {
		wait = time.Duration(min(float64(wait)*math.Exp2(c.level-1), float64(most)))
		wait += rand.N(wait/4 + 1)
	} else if proof == knownReset {
		return false
	}
	wait = min(wait, longest)
	if until := now.Add(wait); until.After(c.until) {
		c.until, c.cause, c.length = until, sent, wait
		if proof != noProof {
			c.cause, c.length, c.proven = until, 0, until // no success opens it before
		}
	}
	return true
}

// serve is told of a success. It ends a run of requests that were sent before it,
// opens what they closed, and takes a part of a doubling back.
func (c *closing) serve(sent time.Time) {
	if !c.known.Load() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if sent.Before(c.from) {
		return
	}
	c.run = 0
	if sent.After(c.cause) {
		c.until = time.Time{}
	}
	if c.level = max(c.level-0.25, 0); c.level == 0 && c.until.IsZero() {
		c.asked = time.Time{}
		c.known.Store(false)
	}
}

// closedUntil is the zero time when it is open.
func (c *closing) closedUntil(now time.Time) time.Time {
	if !c.known.Load() {
		return time.Time{}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.until.After(now) {
		return time.Time{}
	}
	return c.until
}

// provenUntil is until when it is closed by proof; the zero time if it is not.
func (c *closing) provenUntil(now time.Time) time.Time {
	if !c.known.Load() {
		return time.Time{}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.proven.After(now) {
		return time.Time{}
	}
	return c.proven
}
