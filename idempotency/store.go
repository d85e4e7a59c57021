package idempotency

import (
	"context"
	"errors"
	"time"
)

// Store keeps records. Its verbs are atomic, and each judges the record's state
// and changes it in one step, so that whoever calls them, in whatever order, on
// however many machines, the transitions listed at Status are the only ones.
//
// Implementations are safe for concurrent use, durable when a verb has returned
// nil (save where Claim.Joined says otherwise), and pass storetest.Run. They use
// the database's clock alone. A verb never blocks on a record that another
// execution is working on. A verb that was cancelled returns the context's error.
//
// Errors that are not one of this package's are the database's: what they leave
// undecided is undecided, and Load tells.
type Store interface {
	// Reserve claims an operation for an execution. What came of it is the
	// reservation's Decision; an error means that nothing is known.
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

	// Sweep deletes up to limit expired records and returns how many those were; 0
	// or less deletes none.
	// Records in progress under a live lease, and Unknown ones, are kept. It never
	// waits for a record that somebody is working on, nor makes others wait for
	// long: call it in small batches, see Sweeper.
	Sweep(ctx context.Context, limit int) (int, error)
}

// Transactor is a Store that shares its database with the work, so that the
// work's writes and the record's end are one transaction.
type Transactor interface {
	Store

	// Begin opens a transaction that holds the lease by itself: as long as it is
	// open nobody can take the record over, and no renewal is needed. limit is how
	// long it may be open before the database may end it; 0 means no limit.
	// ErrLeaseLost: the record is not that execution's any more.
	Begin(ctx context.Context, lease Lease, limit time.Duration) (Transaction, error)
}

// Transaction is an open transaction of a Transactor. It is not safe for
// concurrent use.
type Transaction interface {
	// Value is the driver's own transaction, a pgx.Tx or a *sql.Tx, as Tx hands
	// it to the work.
	Value() any

	// Commit writes the outcome into the record and commits it together with the
	// work's writes: both or neither. ErrLeaseLost: neither. ErrUnknown: the work
	// has committed by itself, without the record. ErrTransactionFailed: neither, and
	// the record stays in progress. After another error nobody knows before Load
	// tells.
	Commit(ctx context.Context, outcome Outcome) error

	// Rollback undoes the work's writes. The record stays in progress under its
	// lease. After Commit it does nothing. ErrUnknown: as for Commit.
	Rollback(ctx context.Context) error
}

// Claim is what Reserve is asked for.
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

	// Takeover says what becomes of an execution whose lease is over.
	Takeover Takeover

	// Joined promises that the work has no effect but through Begin's
	// transaction. The reservation then need not be durable before Reserve
	// returns: a crash of the database that forgets it forgets the work too. That
	// saves a flush to disk.
	Joined bool
}

// Takeover says what becomes of an execution that died: its lease is over, and
// nobody knows how far it got.
type Takeover uint8

// The policies of taking over.
const (
	// TakeoverDefault is Reexecute for joined work, whose half-done writes died
	// with it, and MarkUnknown for detached work.
	TakeoverDefault Takeover = iota

	// Reexecute begins again. Right when the work is harmless to repeat.
	Reexecute

	// Resume begins again too, and tells the work, which looks for what the dead
	// execution left: see Execution.Resumed.
	Resume

	// MarkUnknown begins nothing: the record becomes Unknown, and waits for a
	// reconciler.
	MarkUnknown
)

// Decision is what came of a claim.
type Decision uint8

// The decisions of Reserve.
const (
	// Acquired: the operation is the claimant's to execute. Reservation.Record
	// holds its lease.
	Acquired Decision = iota + 1

	// Busy: another execution is at it.
	Busy

	// Done: it is finished, and the record has its result, unless it is
	// CompletedUnreplayable.
	Done

	// Mismatch: the key was used for another request.
	Mismatch

	// Undecided: the record is Unknown.
	Undecided
)

// String is the name in lower case.
func (d Decision) String() string {
	switch d {
	case Acquired:
		return "acquired"
	case Busy:
		return "busy"
	case Done:
		return "done"
	case Mismatch:
		return "mismatch"
	case Undecided:
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

	// Resumed: the claimant takes over from an execution that died in the middle.
	Resumed bool

	// Abandoned: this very claim found that an execution had died and made the
	// record Unknown. Later ones find it so.
	Abandoned bool

	// Held: the store holds the claim by itself, by a transaction of the caller's
	// say, and it must not be renewed.
	Held bool
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

	// ErrTransactionFailed: a statement of the work has failed and taken the
	// transaction with it, as in PostgreSQL; it was rolled back. Nothing was written.
	ErrTransactionFailed = errors.New("idempotency: a statement of the work has failed, and the transaction with it")

	// ErrNotFound: there is no such record.
	ErrNotFound = errors.New("idempotency: no such record")
)
