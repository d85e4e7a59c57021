package driver

import (
	"net/http"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/idempotencykey"
)

// ID names one operation that is to take effect once.
type ID struct {
	// Scope is who asks: a tenant, an account. Keys of different scopes have
	// nothing to do with each other.
	Scope string

	// Operation is what is asked for, "POST /charges" or "import-invoices". The
	// same key under two operations is two operations.
	Operation string

	// Key is the idempotency key, a message id, or a business key such as
	// "comp1:invoice:001".
	Key string
}

// KeyFor is the idempotency key under which the operation's work calls somebody else, the
// same whoever executes it, and when; call says what for, where there are several. Two
// tenants may use the same key, and to the other side both are you: so it is made of
// scope, operation and key. It has 40 characters, which all that take keys accept (Square
// takes no more than 45, Adyen 64), and nobody reads a business key from it. An operation
// that is renamed has other keys.
func (id *ID) KeyFor(call string) string {
	return idempotencykey.Derived(nil, id.Scope, id.Operation, id.Key, call)
}

// Status is where a record stands. Its numbers are stored, and never change.
//
//	absent            -> InProgress                       Reserve
//	InProgress        -> Completed, FailedFinal,
//	                     CompletedUnreplayable, Unknown   Complete
//	InProgress        -> FailedRetryable                  Release
//	InProgress, lease over -> InProgress                  Reserve, where its Takeover repeats
//	InProgress, lease over -> Unknown                     Reserve, Abandon, where not
//	FailedRetryable   -> InProgress                       Reserve
//	Unknown           -> Completed, FailedFinal,
//	                     CompletedUnreplayable            Complete, by a reconciler
//	Unknown           -> FailedRetryable                  Release, by a reconciler
//	expired           -> InProgress, absent               Reserve, Sweep
//	absent, FailedRetryable, expired
//	                  -> Completed, FailedFinal,
//	                     CompletedUnreplayable, Unknown   Commit and Refuse of joined work
//
// Nothing else happens to a record. Stores see to that by comparing and setting
// in one statement.
type Status uint8

// The statuses of a record.
const (
	// InProgress: a detached execution holds the record, under a lease.
	InProgress Status = iota + 1

	// Completed: the operation has taken effect and its result is stored.
	Completed

	// FailedRetryable: an execution ended without an effect. The next one may
	// begin.
	FailedRetryable

	// FailedFinal: the operation was refused for good, and repeating it would
	// give the same refusal, which is stored.
	FailedFinal

	// CompletedUnreplayable: the operation has taken effect, but its result is
	// not stored, being too large. It is not executed again.
	CompletedUnreplayable

	// Unknown: an execution ended, and nobody knows whether it took effect. It
	// needs somebody who finds out: see Handler.Trace and Store.Complete.
	Unknown
)

// String is the name in lower case with underscores, as in metrics and logs.
func (s Status) String() string {
	switch s {
	case InProgress:
		return "in_progress"
	case Completed:
		return "completed"
	case FailedRetryable:
		return "failed_retryable"
	case FailedFinal:
		return "failed_final"
	case CompletedUnreplayable:
		return "completed_unreplayable"
	case Unknown:
		return "unknown"
	default:
		return "invalid"
	}
}

// Finished reports whether the operation has its one result: it will not be
// executed again as long as the record lives.
func (s Status) Finished() bool {
	return s == Completed || s == FailedFinal || s == CompletedUnreplayable
}

// completable reports whether Complete may be asked to set s.
func (s Status) completable() bool { return s.Finished() || s == Unknown }

// Result is what an operation gave: the response of a handler, or whatever a
// consumer passes on to those who ask again.
type Result struct {
	// Code is the HTTP status, or a consumer's own number.
	Code int

	// Header is the response's header, less what must not be replayed. nil for
	// consumers.
	Header http.Header

	// Body is the response's body, or a consumer's bytes.
	Body []byte

	// Reference says where the result is when it is not in Body: a row's id, an
	// object's URL. The package only carries it.
	Reference string
}

// Record is what a store keeps of one operation. All its times are the store's
// own, by the database's clock: no application's clock enters.
type Record struct {
	ID

	// Fingerprint tells whether two requests under one key are the same request.
	Fingerprint Fingerprint

	// Status is where the operation stands.
	Status Status

	// Owner is the execution that holds the record, or held it last.
	Owner string

	// Generation counts the executions, from 1. It is the fencing token: a write
	// of an earlier generation changes nothing.
	Generation int64

	// LeaseExpires is when an execution that gives no sign of life counts as
	// dead. It has a meaning only in progress.
	LeaseExpires time.Time

	// Takeover is what becomes of the execution then.
	Takeover Takeover

	// Result is set once the status is Completed or FailedFinal.
	Result Result

	// Started is when the current execution began, Updated the last change.
	Started, Updated time.Time

	// Expires is when the record is forgotten, and its key is new again. A live
	// lease keeps it longer.
	Expires time.Time
}

// Lease identifies the record's current execution, for Complete and Release by
// somebody else than the execution itself: a reconciler.
func (r *Record) Lease() Lease {
	return Lease{ID: r.ID, Owner: r.Owner, Generation: r.Generation}
}

// Lease is an execution's title to a record. Only its holder can renew, complete
// or release; anybody else's writes change nothing and fail with ErrLeaseLost.
type Lease struct {
	ID

	// Owner is the execution's id.
	Owner string

	// Generation is the fencing token. An effect elsewhere that takes such tokens
	// should be given it, so that it can refuse an execution that was overtaken.
	Generation int64
}

// Fingerprint is the same for two requests if they are the same request. It begins
// with the version of the rule that made it, "v1:". A record keeps the fingerprint
// of the request that created it.
type Fingerprint string
