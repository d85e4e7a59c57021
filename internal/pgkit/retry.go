package pgkit

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/resilienthttp/resilienthttp/internal/sleep"
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

// How often something is tried, and how long is waited in between: a second in all,
// about. Commits that are in the way last as long as a flush, which a disk that stalls
// makes longer than anybody would think.
const (
	Tries    = 24
	firstGap = time.Millisecond
	longGap  = 64 * time.Millisecond
)

// Retry calls f, again if it fails with an error that Again knows.
func Retry(ctx context.Context, f func() error) error {
	return Ended(ctx, Repeat(ctx, Again, func(error) error { return f() }))
}

// Repeat calls f, again if it fails with an error that again knows. f gets the error of
// the time before.
func Repeat(ctx context.Context, again func(error) bool, f func(last error) error) error {
	var err error
	gap := firstGap
	for try := 1; ; try++ {
		err = f(err)
		if try == Tries || !again(err) {
			return err
		}
		if err := sleep.Jittered(ctx, gap); err != nil {
			return err
		}
		gap = min(2*gap, longGap)
	}
}
