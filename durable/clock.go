package durable

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// ErrClockMoved is reported to Trace.Failed if the clock of the store was set. VisibilityDelay begins
// anew then, because the times of earlier sends show nothing any more.
var ErrClockMoved = errors.New("durable: the clock of the store was set")

// storeClock compares the clock of the store with the monotonic one of this process, which cannot be
// set. core.mu guards it.
type storeClock struct {
	now             time.Time // of the store, in the last claim
	asked, answered time.Time // ours, before and after it

	movedAt  time.Time // the store's time, after its clock was set last; zero: it was not
	rebaseAt time.Time // ours, when waits begin anew once more; zero: they need not
}

// Two clocks drift apart between two claims, and NTP corrects them at most at one second in two
// thousand. clockTolerance and one second in maxDrift is more.
const (
	clockTolerance = time.Second
	maxDrift       = 1000
)

// read learns the store's time from a claim, and returns how far its clock was set since the claim
// before it. The latency of both claims counts as no difference.
func (c *storeClock) read(now, asked, answered time.Time) (moved time.Duration) {
	last := *c
	c.now, c.asked, c.answered = now, asked, answered
	if last.now.IsZero() {
		return 0
	}
	passed := now.Sub(last.now)
	most, least := answered.Sub(last.asked), asked.Sub(last.answered)
	tolerance := clockTolerance + most/maxDrift
	switch {
	case passed > most+tolerance:
		moved = passed - most
	case passed < least-tolerance:
		moved = passed - least
	default:
		return 0
	}
	c.movedAt = now
	return moved
}

// readClock learns the store's time from a claim, and reports that the clock was set. It returns
// whether waits begin anew: at once if the clock was set back, and again when each verb is over that
// has read the clock before.
func (c *core) readClock(now, asked time.Time) (rebase bool) {
	answered := time.Now()
	c.mu.Lock()
	moved := c.clock.read(now, asked, answered)
	again := c.clock.rebaseAt
	switch {
	case moved < 0:
		c.clock.rebaseAt = answered.Add(max(c.LeaseDuration, minStoreTimeout))
	case !again.IsZero() && answered.After(again):
		c.clock.rebaseAt = time.Time{}
		rebase = true
	}
	c.mu.Unlock()
	if moved > 0 {
		c.Trace.failed(fmt.Errorf("%w forward by %v", ErrClockMoved, moved.Round(time.Millisecond)))
	}
	if moved < 0 {
		c.Trace.failed(fmt.Errorf("%w back by %v", ErrClockMoved, -moved.Round(time.Millisecond)))
	}
	return rebase || moved < 0
}

// dueByOurs returns when the record is due, by the clock of this process. Before the first claim both clocks are taken for equal. A
// record that was changed in the future shows that the store's clock was set forward since the last claim.
func (c *core) dueByOurs(r *Record) time.Time {
	c.mu.Lock()
	now := time.Now().Add(c.clock.now.Sub(c.clock.asked))
	c.mu.Unlock()
	if r.UpdatedAt.After(now) {
		now = r.UpdatedAt
	}
	return time.Now().Add(r.NextAt.Sub(now))
}

// rebase lets the intents that wait for a retry wait from now on.
func (c *core) rebase(ctx context.Context) {
	const page = 1000
	for n := page; n == page; {
		var err error
		n, err = bounded(ctx, c, func(ctx context.Context) (int, error) { return c.Store.Rebase(ctx, page) })
		c.report(ctx, nil, err)
	}
}

// termsOf returns the terms of an intent. A send from before the store's clock was set may take effect
// for a VisibilityDelay from then on.
func (c *core) termsOf(r *route, record *Record) Terms {
	c.mu.Lock()
	defer c.mu.Unlock()
	terms := r.terms
	if before := c.clock.movedAt.Sub(record.LastSentAt); record.InDoubt && before > 0 {
		terms.VisibilityDelay += before
	}
	return terms
}
