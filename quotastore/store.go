package quotastore

import (
	"context"
	"errors"
	"time"
)

// ErrExceedsBurst is the error of a Take that asks for more than its Rule ever has at
// once, so that no waiting would help.
var ErrExceedsBurst = errors.New("quotastore: more than the rule ever allows at once")

// Store keeps what each key has taken. Memory is one, admission/redisstore another,
// and quotastore/storetest tests any. It must be safe for concurrent use.
type Store interface {
	// Take takes want units from the key's quota under the rule, or as many as there
	// are if that is at least least, in one atomic step: either of two that come
	// together sees what the other took. A least below 1 is content with nothing, so
	// want 0 only asks how things stand. A negative want gives so much back, at most
	// as much as was taken; least does not matter then.
	//
	// A refusal is no error: its Ticket has OK false. Errors are those of the rule
	// (Rule.Validate), ErrExceedsBurst if least is more than Rule.Capacity, the context's, and
	// those of whatever the store is made of: then it is not known whether anything
	// was taken.
	//
	// All takes of one key should have the same rule. If it changes, what was taken
	// counts under the new one.
	Take(ctx context.Context, key string, want, least int, r Rule) (Result, error)

	// Close refuses all that is asked for under the key until then, whatever is left
	// under the rule: somebody who knows better has said that the quota is used up.
	// Of several times the latest counts. A time that has passed changes nothing.
	Block(ctx context.Context, key string, until time.Time) error
}
