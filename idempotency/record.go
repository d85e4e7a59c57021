package idempotency

import (
	"net/http"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/idempotencykey"
)

// ID identifies an operation that takes effect once. Each name has at most MaxName
// bytes of UTF-8 without NUL; only Key must not be empty.
type ID struct {
	// Scope is the tenant or account of the caller. Keys of different scopes are
	// independent.
	Scope string

	// Operation is what is requested, such as "POST /charges" or "import-invoices".
	// The same key with another operation is another ID.
	Operation string

	// Key is the idempotency key, a message id, or a business key such as
	// "comp1:invoice:001".
	Key string
}

// KeyFor returns the idempotency key for a call that the operation's work makes to
// another service. call names the call if there are several. The key is the same in
// each execution, and different for another ID, so two tenants with the same key do
// not collide. It has 40 characters (Square accepts 45, Adyen 64) and does not reveal
// the ID's names.
func (id *ID) KeyFor(call string) string {
	return idempotencykey.Derived(nil, id.Scope, id.Operation, id.Key, call)
}

// KeyHash returns a short hash of Key for logs, the same as in the client's
// LogTrace, or "" if there is no key. In some systems, the key itself is a secret.
func (id *ID) KeyHash() string {
	if id.Key == "" {
		return ""
	}
	return idempotencykey.Hash(id.Key)
}

// Fingerprint is the same for two requests if they are the same request. It begins
// with the version of the rule that made it. A record keeps the fingerprint of the request
// that created it.
type Fingerprint string

// Status is the state of a record. The numbers are stored and never change. These
// are all transitions:
//
//	absent                 -> StatusInProgress              Reserve
//	StatusInProgress       -> Completed, FailedFinal,
//	                          CompletedUnreplayable, Unknown   Complete
//	StatusInProgress       -> FailedRetryable               Release
//	StatusInProgress, lease over
//	                       -> StatusInProgress              Reserve, if Takeover repeats
//	StatusInProgress, lease over
//	                       -> Unknown                       Reserve, Reap, if it does not
//	FailedRetryable        -> StatusInProgress              Reserve
//	Unknown                -> Completed, FailedFinal,
//	                          CompletedUnreplayable         Complete, by a reconciler
//	Unknown                -> FailedRetryable               Release, by a reconciler
//	expired                -> StatusInProgress, absent      Reserve, Sweep
//	absent, FailedRetryable, expired
//	                       -> Completed, FailedFinal,
//	                          CompletedUnreplayable, Unknown   the end of transactional work
type Status uint8

// The statuses.
const (
	// StatusInProgress means that an execution holds the record under a lease.
	StatusInProgress Status = iota + 1

	// Completed means that the operation took effect. Its result is stored.
	Completed

	// FailedRetryable means that an execution ended without an effect. The next
	// claim is granted.
	FailedRetryable

	// FailedFinal means that the operation was rejected, and would be rejected again.
	// The response is stored.
	FailedFinal

	// CompletedUnreplayable means that the operation took effect, and that its result
	// is not stored. It is not executed again.
	CompletedUnreplayable

	// Unknown means that the operation may or may not have taken effect. A reconciler
	// must resolve the record with Complete or Release.
	Unknown
)

// String returns the name in snake_case, as in metrics and logs.
func (s Status) String() string {
	switch s {
	case StatusInProgress:
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

// Finished reports whether the operation is not executed again while the record
// is kept.
func (s Status) Finished() bool {
	return s == Completed || s == FailedFinal || s == CompletedUnreplayable
}

// Result is the result of an operation.
type Result struct {
	// Code is the HTTP status, or a number that the work chose.
	Code int

	// Header is the response's header without the fields that are not replayed. It is
	// nil outside of HTTP.
	Header http.Header

	// Body is the response's body, or the bytes that the work returned.
	Body []byte

	// Reference says where the result is if it is not in Body, such as a row's id.
	Reference string
}

// Record is the state of one operation. All its times are from the database's clock.
type Record struct {
	ID

	// Fingerprint identifies the request that created the record.
	Fingerprint Fingerprint

	// Status is the state of the operation.
	Status Status

	// Owner is the execution that holds the record, or that held it last.
	Owner string

	// Generation counts the executions from 1. It is the fencing token: a write of an
	// earlier generation changes nothing.
	Generation int64

	// LeaseExpires is when an execution in progress is considered dead.
	LeaseExpires time.Time

	// Takeover says what happens then.
	Takeover Takeover

	// Result is set if the status is Completed or FailedFinal.
	Result Result

	// Started is when the current execution began. Updated is the last change.
	Started, Updated time.Time

	// Expires is when the key can be used again. A lease that holds keeps the record
	// longer.
	Expires time.Time
}

// Lease returns the lease of the record's current execution. With it, a reconciler
// calls Complete or Release.
func (r *Record) Lease() Lease {
	return Lease{ID: r.ID, Owner: r.Owner, Generation: r.Generation}
}

// Lease is an execution's proof of ownership of a record. Only the lease holder can
// renew, complete or release the record.
type Lease struct {
	ID

	// Owner identifies the execution.
	Owner string

	// Generation is the fencing token. Pass it to other systems that accept one, so
	// that they can reject an execution that lost its lease.
	Generation int64
}
