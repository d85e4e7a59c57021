package pgstore

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// Why a statement had no effect.
var (
	// errMoved: the record changed between the look at it and the write.
	errMoved = errors.New("pgstore: the record changed again and again")

	// errLocked: the lease is good, and its record in an open transaction, of somebody
	// who has changed it and not committed that.
	errLocked = errors.New("pgstore: the record is locked by an open transaction")
)

// Codes of PostgreSQL's errors.
const (
	serializationFailure = "40001"
	deadlockDetected     = "40P01"
	lockNotAvailable     = "55P03"
	uniqueViolation      = "23505"
	inFailedTransaction  = "25P02"
	noTransaction        = "25P01"
	noSavepoint          = "3B001"
)

func hasCode(err error, codes ...string) bool {
	e, ok := errors.AsType[*pgconn.PgError](err)
	return ok && slices.Contains(codes, e.Code)
}

// severity is that of PostgreSQL's error, in English; "" of others.
func severity(err error) string {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		return e.SeverityUnlocalized
	}
	return ""
}

// How often a statement is sent, and how long is waited before it is sent again:
// 300 ms in all, at most. Commits that are in the way last as long as a flush.
const (
	tries    = 12
	firstGap = time.Millisecond
	longGap  = 32 * time.Millisecond
)

// safely runs a statement, again if it had no effect and may have one now: after a
// race, after a deadlock, and after a serialization failure, which happens where the
// database's default isolation is stricter than read committed. There the next try is
// a transaction of that level, for which there is no such failure.
//
// Within a caller's transaction nothing can be repeated after an error of the
// database's, and a lock that is in the way will be for long.
func (v *verbs) safely(ctx context.Context, f func(*verbs) error) error {
	relaxed := false
	return v.repeat(ctx, func(last error) error {
		if relaxed = relaxed || hasCode(last, serializationFailure); !relaxed {
			return f(v)
		}
		return v.transact(ctx, func(q querier) error {
			return f(&verbs{querier: q, is: v.is, transact: v.transact, repeats: v.repeats, lane: v.lane})
		})
	})
}

// repeat calls f with the error of the time before.
func (v *verbs) repeat(ctx context.Context, f func(last error) error) error {
	var err error
	gap := firstGap
	for try := 1; ; try++ {
		err = f(err)
		if try == tries || !v.worthAnother(err) {
			return err
		}
		if err := pause(ctx, gap); err != nil {
			return err
		}
		gap = min(2*gap, longGap)
	}
}

func (v *verbs) worthAnother(err error) bool {
	switch {
	case err == nil:
		return false
	case errors.Is(err, errMoved):
		return true
	case v.inside():
		return false
	default:
		return errors.Is(err, errLocked) || hasCode(err, serializationFailure, deadlockDetected, lockNotAvailable)
	}
}

// pause waits for up to d, or for the context.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d/2 + rand.N(d/2+1))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
