package quota

import (
	"sync/atomic"
	"time"
)

// closings are what refusals mean for each class of calls, that is for each priority.
// A server may refuse one and serve the others, so a run of refusals closes the class
// that it has met. What proves that a quota is used up closes all, who share it.
type closings struct {
	closing // of calls that say nothing

	others atomic.Pointer[otherClosings] // nil until one of those classes is refused
}

// otherClosings are those of the two classes that say something.
type otherClosings [2]closing

// otherClass is the index of a class that is not 0.
func otherClass(class int8) int {
	if class < 0 {
		return 0
	}
	return 1
}

// apart reports whether any class but 0 was ever refused.
func (c *closings) apart() bool { return c.others.Load() != nil }

// of is the closing of a class; nil: it was never refused.
func (c *closings) of(class int8) *closing {
	if class == 0 {
		return &c.closing
	}
	if others := c.others.Load(); others != nil {
		return &others[otherClass(class)]
	}
	return nil
}

// refusedOf is the closing of a class that is refused.
func (c *closings) refusedOf(class int8) *closing {
	if class != 0 && c.others.Load() == nil {
		c.others.CompareAndSwap(nil, new(otherClosings))
	}
	return c.of(class)
}

// serve is told of a success.
func (c *closings) serve(class int8, sent time.Time) {
	if own := c.of(class); own != nil {
		own.serve(sent)
	}
}

// busy keeps what says something from being forgotten first.
func (c *closings) busy() bool {
	if others := c.others.Load(); others != nil && (others[0].busy() || others[1].busy()) {
		return true
	}
	return c.closing.busy()
}

// closedUntil is until when a class is closed, and alone whether that is for it alone;
// the zero time if it is not closed.
func (c *closings) closedUntil(class int8, now time.Time) (until time.Time, alone bool) {
	proven := c.closing.provenUntil(now)
	if others := c.others.Load(); others != nil {
		proven = later(proven, later(others[0].provenUntil(now), others[1].provenUntil(now)))
	}
	if own := c.of(class); own != nil {
		until = own.closedUntil(now)
	}
	if until.After(proven) {
		return until, true
	}
	return proven, false
}

// lengthOf is for how long refusals have closed a class, where that is no more than the
// server's wish.
func (c *closings) lengthOf(class int8) time.Duration {
	own := c.of(class)
	if own == nil {
		return 0
	}
	own.mu.Lock()
	defer own.mu.Unlock()
	return own.length
}
