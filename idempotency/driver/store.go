package driver

import (
	"context"
	"errors"
	"iter"
	"time"
)

// Store keeps records. Its verbs are atomic, and each judges the record's state
// and changes it in one step, so that whoever calls them, in whatever order, on
// however many machines, the transitions listed at Status are the only ones.
//
// Implementations are safe for concurrent use, durable when a verb has returned
// nil, and pass storetest.Run. They use the database's clock alone. A verb never blocks on a record that another
// execution is working on. A verb that was cancelled returns the context's error.
//
// Errors that are not one of this package's are the database's: what they leave
// undecided is undecided, and Load tells. A claim that failed so is made once more at
// once, for the connection may have been a dead one; not so an ErrStoreBusy.
type Store interface {
	// Check reports whether the store can be used: the database answers, and its
	// tables are those that this version of the store reads and writes. It changes
	// nothing and needs no right to write. The error says in one sentence what is
	// wrong and what to run.
	Check(ctx context.Context) error

	// Reserve claims an operation for an execution that holds it by a lease. What
	// came of it is the reservation's Decision; an error means that nothing is known.
	//
	// A store reads before it writes: a finished record is found without a write.
	// A claim that was granted is granted again to the same owner, for the answer
	// may have been lost.
	Reserve(ctx context.Context, claim Claim) (Reservation, error)

	// Renew makes the lease last for d from now. ErrLeaseLost: somebody else has
	// taken over, or the execution is over.
	Renew(ctx context.Context, lease Lease, d time.Duration) error

	// Complete ends an execution with its outcome. It is also how a reconciler
	// settles a record that is Unknown; give it a TTL then, for the record's own may
	// be over, and it would be forgotten at once. ErrLeaseLost: the record is not that
	// execution's any more; nothing was changed.
	Complete(ctx context.Context, lease Lease, outcome Outcome) error

	// Release ends an execution that took no effect (FailedRetryable), so that the
	// next may begin at once. ErrLeaseLost as for Complete.
	Release(ctx context.Context, lease Lease) error

	// Load reads a record. ErrNotFound: there is none, or it has expired.
	Load(ctx context.Context, id ID) (Record, error)

	// Abandon makes executions Unknown that died: their lease is over, and they did
	// not say that they may be begun again (Claim.Takeover). It is the step of the
	// same name of Decide, for those whose clients never ask again. It returns the
	// records that it has changed, up to limit, as they are now. Other than that it
	// behaves as Sweep.
	Reap(ctx context.Context, limit int) ([]Record, error)

	// Unknown lists the records of a scope that are Unknown, or those of all scopes
	// if scope is empty, ordered by scope, operation and key. It reads them a page at
	// a time and holds nothing in between, so that the caller may settle each as it
	// comes. An error ends the list.
	Unknown(ctx context.Context, scope string) iter.Seq2[Record, error]

	// Sweep deletes up to limit expired records (Record.Expired) and returns how many
	// those were; 0 or less deletes none. It never waits for a record that somebody
	// is working on, nor makes others wait for long: call it in small batches, see
	// Sweeper.
	Sweep(ctx context.Context, limit int) (int, error)
}

// Transactor is a Store that shares its database with the work, so that the
// work's writes and its record are one transaction. Such joined work needs no
// lease: the transaction excludes all others from the operation, and disappears
// with its owner.
type Transactor interface {
	Store

	// Begin claims an operation for joined work. When the decision is Acquired, and
	// only then, it returns an open transaction. While that is open others are told
	// Busy, and nothing of the record is stored: Reservation.Record is what it will
	// be, with its Owner and Generation.
	//
	// ctx bounds Begin and not the transaction. limit is how long that may be open
	// before the database may end it; 0 means no limit. Claim.Lease is how long the
	// database waits for a host that has fallen silent.
	Begin(ctx context.Context, claim Claim, limit time.Duration) (Reservation, Transaction, error)

	// Enclosed reports whether the verbs are part of a transaction of the caller's, so
	// that all work under it is joined, and Commit does not commit.
	InCallerTx() bool
}

// Transaction is an open transaction of a Transactor. It ends with the first of
// Commit, Refuse and Rollback, whatever that returns. It is not safe for
// concurrent use.
type Transaction interface {
	// Value is the driver's own transaction, a pgx.Tx or a *sql.Tx, as Tx hands
	// it to the work.
	Value() any

	// Commit writes the record with its outcome and commits it together with the
	// work's writes: both or neither. ErrLeaseLost: neither, for somebody else has
	// written the record. ErrUnknown: the work has committed by itself, without the
	// record. ErrTransactionFailed: neither. After another error nobody knows before
	// Begin tells: it is Busy while the transaction may still come to its end.
	Commit(ctx context.Context, outcome Outcome) error

	// Refuse undoes the work's writes and stores the outcome alone. Its errors are
	// those of Commit.
	RollbackAndRecord(ctx context.Context, outcome Outcome) error

	// Rollback undoes the work's writes and stores nothing. After the end it does
	// nothing. ErrUnknown: as for Commit.
	Rollback(ctx context.Context) error
}

// Claim is what Reserve and Begin are asked for.
type Claim struct {
	ID

	// Fingerprint is compared with the record's.
	Fingerprint Fingerprint

	// Owner is the id of the execution, new for each. See NewOwner.
	Owner string

	// Lease is how long the execution counts as alive without a renewal. It must
	// be positive.
	Lease time.Duration

	// TTL is how long the record is kept, from now. It must be positive.
	TTL time.Duration

	// Takeover says what becomes of this execution when its lease is over. It is
	// kept in the record, so that whoever finds it knows.
	Takeover Takeover
}

// Takeover says what becomes of a detached execution that died, or whose end does
// not tell whether it took effect. Joined work left nothing behind, and is always
// begun again.
type Takeover uint8

// The policies of taking over. Their numbers are stored, and never change.
const (
	// TakeoverDefault is MarkUnknown.
	TakeoverDefault Takeover = iota

	// Reexecute begins again. Right when the work is harmless to repeat.
	Reexecute

	// Resume begins again too, and tells the work, which looks for what the execution
	// before it has left: see Execution.Resumed.
	Resume

	// MarkUnknown begins nothing: the record becomes Unknown, and waits for a
	// reconciler.
	MarkUnknown
)

// Repeats reports whether what died is begun again.
func (t Takeover) Repeats() bool { return t == Reexecute || t == Resume }

// Decision is what came of a claim.
type Decision uint8

// The decisions of Reserve.
const (
	// Acquired: the operation is the claimant's to execute. Reservation.Record
	// holds its lease.
	Acquired Decision = iota + 1

	// Busy: another execution is at it.
	DecisionInProgress

	// Done: it is finished, and the record has its result, unless it is
	// CompletedUnreplayable.
	Done

	// Mismatch: the key was used for another request.
	Mismatch

	// Undecided: the record is Unknown.
	DecisionUnknown
)

// String is the name in lower case.
func (d Decision) String() string {
	switch d {
	case Acquired:
		return "acquired"
	case DecisionInProgress:
		return "busy"
	case Done:
		return "done"
	case Mismatch:
		return "mismatch"
	case DecisionUnknown:
		return "undecided"
	default:
		return "invalid"
	}
}

// Reservation is the answer to a claim.
type Reservation struct {
	Decision Decision

	// Record is the record as it is now, after the claim.
	Record Record

	// Resumed: an execution before this one ended without a result, and its claim said
	// Resume.
	Resumed bool

	// Abandoned: this very claim found that an execution had died and made the
	// record Unknown. Later ones find it so.
	LeaseExpired bool
}

// Outcome is how an execution ended.
type Outcome struct {
	// Status is Completed, FailedFinal, CompletedUnreplayable or Unknown.
	Status Status

	// Result is stored with Completed and FailedFinal.
	Result Result

	// TTL is how long the record is kept from now. 0 leaves its expiry as the claim
	// has set it; that of a record that was Unknown, which may be long past when a
	// reconciler comes, is as far from now as it was from the execution's beginning.
	TTL time.Duration
}

// What stores say.
var (
	// ErrLeaseLost: the execution does not hold the record: it was taken over, is
	// over, or the record is gone. Nothing was changed.
	ErrLeaseLost = errors.New("idempotency: lease lost")

	// ErrStoreBusy is about a store that has waited as long as it may for its turn, and
	// has changed nothing. A claim is not made again at once after it: that would be to
	// wait twice as long as the store was told to.
	ErrStoreBusy = errors.New("idempotency: the store is busy")

	// ErrTransactionFailed: a statement of the work has failed and taken the
	// transaction with it, as in PostgreSQL; it was rolled back. Nothing was written.
	ErrTransactionFailed = errors.New("idempotency: a statement of the work has failed, and the transaction with it")

	// ErrUnknown means that the operation may or may not have taken effect.
	ErrUnknown = errors.New("idempotency: effect unknown")

	// ErrNotFound: there is no such record.
	ErrNotFound = errors.New("idempotency: no such record")
)
