// Package sleep waits for a duration or for the end of a context, and tells whether a context has ended. Its functions are safe for
// concurrent use.
package sleep

import (
	"context"
	"math/rand/v2"
	"time"
)

// Context waits for d. If ctx ends before, Context returns its error at once.
func Context(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Jittered waits like Context for a random duration in [d/2, d], so that many callers do not
// continue at the same time.
func Jittered(ctx context.Context, d time.Duration) error { return Context(ctx, d/2+rand.N(d/2+1)) }

// BeforeDeadline waits like Context, but fails at once if the wait would end after the deadline.
func BeforeDeadline(ctx context.Context, d time.Duration) error {
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) <= d {
		return context.DeadlineExceeded
	}
	return Context(ctx, d)
}

// HasEnded reports whether ctx has ended or its deadline has passed. A connection takes the deadline of its context and may fail
// a moment before the context itself ends, because each of them has a timer.
func HasEnded(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ctx.Err() != nil || ok && !time.Now().Before(deadline)
}
