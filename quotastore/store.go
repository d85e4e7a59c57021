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
