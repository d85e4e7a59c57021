package idempotency

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"
)

// Store keeps the records: a sqlitestore, pgstore, redisstore, or Memory. Services give it to a Handler or an Executor, and call Load,
// Unknown, Complete and Release to resolve the records that are Unknown. A store of another repository is possible, but the
// interface may change with each minor release. Memory is the shortest example, and Decide is the state machine of a claim.
//
// Each operation is atomic: it checks a record's state and changes it in one step, so only the transitions listed at Status can happen,
// with any number of processes. A store is safe for concurrent use and uses only the
// database's clock. What an operation that returned nil has written is durable. No
// operation waits for a record that another execution holds. If the context ends,
// the operation returns the context's error.
//
// After an error that is not of this package, the result is unknown: read it with Load.
// The caller repeats a failed claim once, but not after ErrStoreBusy.
type Store interface {
	// Check reports whether the store can be used: the database answers, and its
	// tables are those that this version of the store reads and writes. It changes
	// nothing and needs no right to write. The error says in one sentence what is
	// wrong and what to run.
	Check(ctx context.Context) error

	// Reserve claims an operation for an execution that holds it under a lease. A
	// store reads before it writes: it finds a finished record without a lock or a
	// write, also where it cannot write. A claim that was granted is granted again
	// to the same owner, because the first answer may have been lost.
	Reserve(ctx context.Context, claim Claim) (Reservation, error)

	// Renew extends the lease to d from now. It returns ErrLeaseLost if the execution
	// no longer holds the record.
	Renew(ctx context.Context, lease Lease, d time.Duration) error

	// Complete ends an execution with its outcome, or resolves a record that is
	// Unknown. It returns ErrLeaseLost if the lease does not hold the record.
	Complete(ctx context.Context, lease Lease, outcome Outcome) error

	// Release ends an execution that had no effect (FailedRetryable): the next claim
	// is granted. It returns ErrLeaseLost if the lease does not hold the record.
	Release(ctx context.Context, lease Lease) error

	// Load reads a record. It must work where the store cannot write. It returns
	// ErrNotFound if there is no record, or if the record has expired.
	Load(ctx context.Context, id ID) (Record, error)

	// Reap makes an execution Unknown if its lease is over and its Takeover does not
	// repeat it. It returns the records that it changed, at most limit. Like Sweep,
	// it does not wait for records in use.
	Reap(ctx context.Context, limit int) ([]Record, error)

	// Unknown lists the records of a scope that are Unknown, or of all scopes if scope
	// is empty, ordered by scope, operation and key. It reads pages and holds nothing
	// between them, so the caller may resolve each record as it arrives. An error
	// ends the list.
	Unknown(ctx context.Context, scope string) iter.Seq2[Record, error]

	// Sweep deletes at most limit expired records and returns their number. It does
	// not wait for records in use, and does not block others for long.
	Sweep(ctx context.Context, limit int) (int, error)
}

// Transactor is a Store in the service's own database. The work's writes and the
// record are one transaction. Such transactional work needs no lease: the open
// transaction excludes other executions, and it ends with its process.
type Transactor interface {
	Store

	// Begin claims an operation for transactional work. It returns an open
	// transaction if, and only if, the decision is DecisionAcquired. Until it ends, other
	// claims get DecisionInProgress. Reservation.Record is the record to be.
	//
	// ctx bounds Begin, not the transaction. The database may end the transaction
	// after limit; 0 means no limit. If the host of the execution is silent for
	// Claim.Lease, the database may end it too.
	Begin(ctx context.Context, claim Claim, limit time.Duration) (Reservation, Transaction, error)

	// InCallerTx reports whether all operations are part of a transaction of the
	// caller. Then all work is transactional, and Commit does not commit.
	InCallerTx() bool
}

// Transaction is the open transaction of an execution. It ends with the first of
// Commit, RollbackAndRecord and Rollback, whatever that returns. It is not safe for
// concurrent use.
type Transaction interface {
	// Value is the transaction of the database's driver, a pgx.Tx or *sql.Tx.
	Value() any

	// Commit writes the record and commits it with the work's writes: both or
	// neither. ErrLeaseLost, ErrTransactionFailed and ErrUncommittable mean neither. ErrUnknown means
	// that the work committed its writes without the record. After another error,
	// Begin returns the result, or DecisionInProgress while the transaction may still
	// commit.
	Commit(ctx context.Context, outcome Outcome) error

	// RollbackAndRecord undoes the work's writes and stores the outcome alone. Its
	// errors are those of Commit.
	RollbackAndRecord(ctx context.Context, outcome Outcome) error

	// Rollback undoes the work's writes and stores nothing. After the end it does
	// nothing. ErrUnknown is as for Commit.
	Rollback(ctx context.Context) error
}

// Claim is the argument of Reserve and Begin.
type Claim struct {
	ID

	// Fingerprint is compared with the record's.
	Fingerprint Fingerprint

	// Owner identifies the execution. It is new for each execution: 130 random bits, from crypto/rand.Text.
	Owner string

	// Lease is the time after which an execution without a renewal is considered
	// dead. It must be positive.
	Lease time.Duration

	// TTL is how long the record is kept from now. It must be positive.
	TTL time.Duration

	// Takeover is stored in the record for the claim that finds this execution dead.
	Takeover Takeover
}

// Takeover says what happens to an execution that died, or that ended without a
// known effect. Transactional work leaves nothing behind and is always executed
// again.
type Takeover uint8

// The values of Takeover. The numbers are stored and never change.
const (
	// TakeoverDefault is MarkUnknown.
	TakeoverDefault Takeover = iota

	// Reexecute executes the operation again, for work that is safe to repeat.
	Reexecute

	// Resume executes the operation again, with Execution.Resumed set. The work must look
	// for what the execution before it has left.
	Resume

	// MarkUnknown makes the record Unknown. A reconciler must resolve it. It is the default.
	MarkUnknown
)

// Repeats reports whether the operation is executed again.
func (t Takeover) Repeats() bool { return t == Reexecute || t == Resume }

// Decision is the answer to a claim.
type Decision uint8

// The decisions.
const (
	// DecisionAcquired means that the claim is granted. Reservation.Record holds its lease.
	DecisionAcquired Decision = iota + 1

	// DecisionInProgress means that another execution is in progress.
	DecisionInProgress

	// DecisionDone means that the record is finished. It has the result, unless it is
	// CompletedUnreplayable.
	DecisionDone

	// DecisionMismatch means that the key was used with another fingerprint.
	DecisionMismatch

	// DecisionUnknown means that the record is Unknown.
	DecisionUnknown
)

// String returns the name in lower case.
func (d Decision) String() string {
	switch d {
	case DecisionAcquired:
		return "acquired"
	case DecisionInProgress:
		return "in_progress"
	case DecisionDone:
		return "done"
	case DecisionMismatch:
		return "mismatch"
	case DecisionUnknown:
		return "unknown"
	default:
		return "invalid"
	}
}

// Reservation is the result of a claim.
type Reservation struct {
	Decision Decision

	// Record is the record after the claim.
	Record Record

	// Resumed means that an execution before this one ended without a result, and
	// that its Takeover was Resume.
	Resumed bool

	// LeaseExpired means that this claim found a dead execution and made the record
	// Unknown.
	LeaseExpired bool
}

// Outcome is the end of an execution. A reconciler completes a record that is Unknown with one.
type Outcome struct {
	// Status is Completed, FailedFinal, CompletedUnreplayable or Unknown.
	Status Status

	// Result is stored with Completed and FailedFinal.
	Result Result

	// TTL is how long the record is kept from now. 0 keeps the expiry that the claim set. For a
	// record that was Unknown, zero means the claim's TTL from now.
	TTL time.Duration
}

// Stored returns the part of the result that a store keeps. It is empty for a
// status that is not replayed.
func (o *Outcome) Stored() Result {
	if o.Status == Completed || o.Status == FailedFinal {
		return o.Result
	}
	return Result{}
}

// The errors of stores.
var (
	// ErrLeaseLost means that the execution no longer holds the record: another
	// execution took over, or the record is finished or gone. Nothing was changed.
	ErrLeaseLost = errors.New("idempotency: lease lost")

	// ErrStoreBusy means that the store had no connection or lock in time, or is full.
	// Nothing was changed. The caller does not repeat the claim at once.
	ErrStoreBusy = errors.New("idempotency: store is busy")

	// ErrTransactionFailed means that the transaction failed and was rolled back.
	// Nothing was written.
	ErrTransactionFailed = errors.New("idempotency: transaction failed")

	// ErrUncommittable is an ErrTransactionFailed that a repetition would meet again: what the work has written
	// violates a constraint that is checked at COMMIT, or the work has broken its transaction. Nothing was written.
	ErrUncommittable = fmt.Errorf("%w: it can never be committed", ErrTransactionFailed)

	// ErrUnknown means that the operation may or may not have taken effect. Work
	// returns it, or an error that wraps it, when it does not know.
	ErrUnknown = errors.New("idempotency: outcome unknown")

	// ErrNotFound means that there is no record.
	ErrNotFound = errors.New("idempotency: record not found")
)
