// Package sleep waits for a time or for a context, whichever ends first.
package sleep

import (
	"context"
	"math/rand/v2"
	"time"
)

// For waits for d. Where ctx ends before, it returns its error.
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

// About waits as For does, for half of d to all of it, at random: so many that wait for
// the same do not all ask at once.
func Jittered(ctx context.Context, d time.Duration) error { return Context(ctx, d/2+rand.N(d/2+1)) }
