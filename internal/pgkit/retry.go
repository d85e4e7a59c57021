package pgkit

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// Codes of PostgreSQL's errors.
const (
	SerializationFailure = "40001"
	DeadlockDetected     = "40P01"
	LockNotAvailable     = "55P03"
)

// HasCode reports whether err is PostgreSQL's, with one of the codes.
func HasCode(err error, codes ...string) bool {
	e, ok := errors.AsType[*pgconn.PgError](err)
	return ok && slices.Contains(codes, e.Code)
}

// Again reports whether a transaction that failed with err had no effect, and may have
// one if it is tried again.
func Again(err error) bool {
	return HasCode(err, SerializationFailure, DeadlockDetected, LockNotAvailable)
}

// How often a transaction is tried, and how long is waited in between: 300 ms in all,
// at most.
const (
	tries    = 12
	firstGap = time.Millisecond
	longGap  = 32 * time.Millisecond
)

// Retry calls f, again if it fails with an error that Again knows.
func Retry(ctx context.Context, f func() error) error {
	gap := firstGap
	for try := 1; ; try++ {
		err := f()
		if try == tries || !Again(err) {
			return Ended(ctx, err)
		}
		if err := Pause(ctx, gap); err != nil {
			return err
		}
		gap = min(2*gap, longGap)
	}
}

// Pause waits for half of d to all of it, or for the context, whose error it returns.
func Pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d/2 + rand.N(d/2+1))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
