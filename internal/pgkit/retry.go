// Package pgkit contains what the stores in PostgreSQL share: schema migrations with versions, statements that share a
// round trip, and retries. It knows nothing of the stored data.
//
// The stores' packages are named pgstore, so the texts of its errors begin with that.
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

// HasCode reports whether err is an error of PostgreSQL with one of the codes.
func HasCode(err error, codes ...string) bool {
	e, ok := errors.AsType[*pgconn.PgError](err)
	return ok && slices.Contains(codes, e.Code)
}

// Retryable reports whether a transaction that failed with err had no effect and may succeed if it is executed again.
func Retryable(err error) bool {
	return HasCode(err, SerializationFailure, DeadlockDetected, LockNotAvailable)
}

// Tries and the pauses between them add up to about a second. The commit that holds a
// lock lasts as long as a flush to disk, and a disk may stall.
const (
	Tries      = 24
	firstPause = time.Millisecond
	maxPause   = 64 * time.Millisecond
)

// Retry calls f, and calls it again after a Retryable error, up to Tries times.
func Retry(ctx context.Context, f func() error) error {
	return Ended(ctx, Repeat(ctx, Retryable, func(error) error { return f() }))
}

// Repeat calls f up to Tries times, as long as it fails with an error for which again
// returns true. f receives the error of the call before.
func Repeat(ctx context.Context, again func(error) bool, f func(last error) error) error {
	var err error
	pause := firstPause
	for try := 1; ; try++ {
		err = f(err)
		if try == Tries || !again(err) {
			return err
		}
		// Two transactions that have locked each other out must not meet again.
		if err := sleep.Jittered(ctx, pause); err != nil {
			return err
		}
		pause = min(2*pause, maxPause)
	}
}

// Ended returns err, joined with the context's own error if the context has ended.
func Ended(ctx context.Context, err error) error {
	// A canceled statement may return an error of the connection alone, and callers look for the context's.
	if err == nil || ctx.Err() == nil || errors.Is(err, ctx.Err()) {
		return err
	}
	return errors.Join(ctx.Err(), err)
}
