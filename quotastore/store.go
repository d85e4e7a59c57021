package quotastore

import (
	"context"
	"errors"
	"time"
)

// ErrExceedsBurst is the error of a Take that needs more units than its Rule ever
// allows at once. Waiting does not help.
var ErrExceedsBurst = errors.New("quotastore: more than the rule ever allows at once")

// Store keeps the quotas of keys. Memory is a Store, and admission/redisstore is another.
// A Store must be safe for concurrent use, and its methods must return when their context
// is done.
type Store interface {
	// Take takes want units from the key's quota, or fewer if fewer are left, but at
	// least min, in one atomic step. With min below 1 it may take nothing; want 0 only
	// asks. A negative want returns units, at most as many as were taken; min is
	// ignored then.
	//
	// A rejection is no error: its Result has OK false. Errors are those of
	// Rule.Validate, ErrExceedsBurst if min is more than Rule.Capacity, the context's,
	// and the store's own. After an error of the store the units may have been taken.
	//
	// All Takes of one key should have the same rule. After a change of the rule, the
	// units that were taken count under the new rule.
	Take(ctx context.Context, key string, want, min int, r Rule) (Result, error)

	// Block rejects every Take of the key until the given time, whatever is left under
	// the rule. The latest of several times counts. A time in the past has no effect.
	Block(ctx context.Context, key string, until time.Time) error
}

// Result is the result of a Take. Its durations start at the moment of the decision,
// so clocks of different machines do not matter. They are rounded up.
type Result struct {
	// OK reports whether the units were taken, or returned.
	OK bool

	// Allowed is the number of units that were taken. It is 0 for a rejection, and
	// negative for units that were returned.
	Allowed int

	// Remaining is the number of whole units that are left, at least 0.
	Remaining int

	// ResetAfter is the time until the whole quota is available, if nothing more is
	// taken. It is 0 if the whole quota is available now.
	ResetAfter time.Duration

	// RetryAfter is the time until the rejected units are available, if nothing else
	// takes them first. It is 0 if OK.
	RetryAfter time.Duration
}
