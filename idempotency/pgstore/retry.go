package pgstore

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/resilienthttp/resilienthttp/internal/pgkit"
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
	uniqueViolation     = "23505"
	inFailedTransaction = "25P02"
	noTransaction       = "25P01"
	noSavepoint         = "3B001"
)

// severity is that of PostgreSQL's error, in English; "" of others.
func severity(err error) string {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		return e.SeverityUnlocalized
	}
	return ""
}

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
		if relaxed = relaxed || pgkit.HasCode(last, pgkit.SerializationFailure); !relaxed {
			return f(v)
		}
		return v.transact(ctx, func(q querier) error {
			return f(&verbs{querier: q, is: v.is, transact: v.transact, repeats: v.repeats, lane: v.lane})
		})
	})
}

// repeat calls f with the error of the time before.
func (v *verbs) repeat(ctx context.Context, f func(last error) error) error {
	return pgkit.Repeat(ctx, v.worthAnother, f)
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
		return errors.Is(err, errLocked) || pgkit.Again(err)
	}
}
