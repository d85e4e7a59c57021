package durable

import (
	"cmp"
	"context"
	"time"

	"github.com/resilienthttp/resilienthttp/idempotency"
)

// Store keeps the intents: a sqlitestore, a pgstore, or Memory. Each verb is one commit: it reads and locks the rows, asks Decide for the
// transition, and writes the Change. All rules of the state machine are in Decide. So the transitions of State are the only ones, and a crash between two
// verbs loses nothing.
//
// Implementations are safe for concurrent use. They are durable when a verb has returned nil,
// and use the database's clock alone. A verb returns the context's error
// if its context ended. After an error that is not one of this package's, the verb may have
// been committed or not, and can be repeated.
//
// A store with transactions has a method WithTx that returns an Outbox in a transaction of the
// caller.
type Store interface {
	// Apply applies events of the kinds enqueue, finish, redrive, resolve, cancel and erase, in
	// their order and in one commit. There is a Result for each, with the error of Decide. An
	// event that fails does not affect the others.
	Apply(ctx context.Context, events []Event) ([]Result, error)

	// Claim claims due intents, and journals their attempts in the same commit. It also renews
	// the worker's lease, unless nine tenths of it are left.
	Claim(ctx context.Context, claim Claim) (Claimed, error)

	// Heartbeat renews a worker's lease from now on, and returns the time. A lease of 0 ends
	// it: what the worker still holds may be reaped at once.
	Heartbeat(ctx context.Context, worker string, lease time.Duration) (now time.Time, err error)

	// Reap takes up to limit intents from dead workers, as EventLeaseExpired, and returns the
	// changes. A worker is dead if its lease is over. Reap deletes dead workers that hold
	// nothing.
	Reap(ctx context.Context, limit int) ([]Change, error)

	// Rebase lets up to limit intents begin their wait for a retry anew, if they were changed in the
	// future, and returns their number. An Engine calls it after the clock was set back. The other
	// verbs need no call: what was due stays due, and the leases of workers begin anew.
	Rebase(ctx context.Context, limit int) (int, error)

	// Find reads an intent. ErrNotFound: there is none.
	Find(ctx context.Context, id idempotency.ID) (Record, error)

	// Attempts reads the journal of an intent, in the order of generations. ErrNotFound:
	// there is no such intent.
	Attempts(ctx context.Context, id idempotency.ID) ([]Attempt, error)

	// DeadLetters reads up to limit dead letters that the filter selects, in the order of
	// DeadLetter.Compare or, with NewestFirst, in the reverse order: those behind after. nil:
	// from the first. ErrInvalid: see Filter.Validate.
	DeadLetters(ctx context.Context, filter Filter, after *DeadLetter, limit int) ([]DeadLetter, error)

	// Intents reads up to limit intents that the filter selects, in the order of
	// Record.Compare or, with NewestFirst, in the reverse order: those behind after. nil:
	// from the first. The records lack Payload and Result, which Find reads. A page reads
	// intents of the given states only, through an index. ErrInvalid: see Filter.Validate.
	Intents(ctx context.Context, filter Filter, after *Record, limit int) ([]Record, error)

	// Counts counts the intents in these states by state, gateway and scope, exactly, and
	// sorts the counts by these. None: all states.
	Counts(ctx context.Context, states []State) ([]Count, error)

	// SetHold holds a gateway or, if ReleasedBy is set, releases it: from a person's hold and from
	// those of its provider. A person's second hold replaces the first one but for Since. Of two
	// holds of a provider for one scope, the one that ends later stays, with the Since of the first.
	// ErrNotFound: the gateway to release is not held.
	SetHold(ctx context.Context, hold Hold) error

	// Holds reads the holds that are in effect, in the order of gateways and scopes: those of
	// persons, then those of providers.
	Holds(ctx context.Context) ([]Hold, error)

	// AddJob stores Job.Opened and returns it with its ID. If an open job has an equal
	// Filter, it returns that job.
	AddJob(ctx context.Context, job Job) (Job, error)

	// Jobs reads up to limit jobs, the newest first.
	Jobs(ctx context.Context, limit int) ([]Job, error)

	// CancelJob ends an open job. ErrNotFound: there is no job of that ID. ErrInvalidState:
	// it has ended. ErrInvalid: by is empty.
	CancelJob(ctx context.Context, id JobID, by string) error

	// WorkJob applies Job.Events to the next page of the oldest open job, up to limit dead
	// letters, advances the job, and returns it with the changes, all in one commit. If no
	// job is open, or other workers have them all, it returns a zero Job.
	WorkJob(ctx context.Context, limit int) (Job, []Change, error)

	// Stats counts the intents and workers.
	Stats(ctx context.Context) (Stats, error)

	// Sweep deletes up to limit intents that were done or canceled longer than ttl ago, with
	// their journals and dead letters, and returns their number. It deletes nothing else, and
	// waits for no lock.
	Sweep(ctx context.Context, ttl time.Duration, limit int) (int, error)
}

// Outbox enqueues and cancels intents within a transaction of the caller. They take effect when
// the transaction commits. Call Engine.Wake after the commit, so that they are sent at once. An
// Outbox does not know the Engine's gateways: see ReasonNoGateway.
type Outbox interface {
	// Enqueue is Engine.Enqueue, within the transaction.
	Enqueue(ctx context.Context, in Intent) (Receipt, error)

	// Cancel is Engine.Cancel, within the transaction.
	Cancel(ctx context.Context, id idempotency.ID) error
}

// Within returns the Outbox that applies its events with apply.
func Within(apply func(context.Context, Event) (Result, error)) Outbox { return within(apply) }

type within func(context.Context, Event) (Result, error)

// Enqueue implements Outbox.
func (apply within) Enqueue(ctx context.Context, in Intent) (Receipt, error) {
	result, err := apply(ctx, Event{Kind: EventEnqueue, Intent: in})
	if err != nil {
		return Receipt{}, err
	}
	return result.Receipt(), nil
}

// Cancel implements Outbox.
func (apply within) Cancel(ctx context.Context, id idempotency.ID) error {
	_, err := apply(ctx, Event{Kind: EventCancel, Intent: Intent{ID: id}})
	return err
}

// Result is the result of an event.
type Result struct {
	Change

	// Err is the error of Decide.
	Err error
}

// Receipt returns the result of an EventEnqueue.
func (r *Result) Receipt() Receipt {
	return Receipt{ID: r.Record.ID, State: r.Record.State, Existing: r.Err == nil && r.Step != StepInsert, Revised: r.Revised}
}

// Claim is what a worker asks for.
type Claim struct {
	// Worker is its name, new for each of its lives.
	Worker string

	// Lease is the time for which the worker is alive without a heartbeat. It must be
	// positive.
	Lease time.Duration

	// Limit is the maximum number of intents. It must be positive.
	Limit int

	// Gateways are the gateways of the worker, by name, with what it may take of each. An
	// intent of another gateway is buried.
	Gateways map[string]Allowance

	// InFlight is the number of intents of each queue that the worker holds already.
	InFlight map[QueueKey]int

	// Waiting are queues that wait because the provider asked to, in addition to its holds in the
	// store. Of them, only status queries are claimed: see Permits. Without a Scope it is the whole
	// gateway.
	Waiting map[QueueKey]bool

	// Alone claims one Suspect and nothing else. Without it, no Suspect is claimed.
	Alone bool

	// ID claims this intent and no other, if it is due and its gateway is not held. No
	// Allowance limits it.
	ID *idempotency.ID
}

// Claimed is the result of a Claim.
type Claimed struct {
	// Now is the database's time.
	Now time.Time

	// Lease is the worker's lease from Now on, at least nine tenths of Claim.Lease. Zero means all
	// of it.
	Lease time.Duration

	// Held are the gateways that persons hold: nothing of them was claimed.
	Held []string

	// Waiting are the provider's holds that are in effect.
	Waiting []Hold

	// Suspect means that a Suspect is due and was not claimed, because the claim was not for one
	// Alone.
	Suspect bool

	// Changes are the intents, in the order of FairOrder. The worker holds those with a
	// StartedAttempt. The others were buried.
	Changes []Change
}

// Stats are the numbers of intents and workers in a store.
type Stats struct {
	// Now is the time of the count.
	Now time.Time

	// States is the number of intents in each state. An intent of a dead worker counts as unknown,
	// also before Reap.
	States map[State]int

	// Due is the number of intents that could be claimed now, and Oldest the time since which the
	// first of them is due. Zero means that none is.
	Due    int
	Oldest time.Time

	// DeadInDoubt is the number of dead intents of which the provider may have done the work.
	DeadInDoubt int

	// Workers is the number of workers that are alive.
	Workers int
}

// Count is a number of intents in one state, of one gateway and scope.
type Count struct {
	State          State
	Gateway, Scope string
	N              int
}

// Compare orders counts by state, gateway and scope.
func (c Count) Compare(other Count) int {
	return cmp.Or(cmp.Compare(c.State, other.State), cmp.Compare(c.Gateway, other.Gateway), cmp.Compare(c.Scope, other.Scope))
}

// Listener is a Store that learns of commits of other processes.
type Listener interface {
	// Listen calls wake once it listens and after commits that make intents due, until ctx
	// ends or the connection fails, and returns the error. An errors.ErrUnsupported means
	// that it can never listen.
	Listen(ctx context.Context, wake func()) error
}

// Validate returns an ErrInvalid that says what is wrong with the claim.
func (c *Claim) Validate() error {
	if err := validWorker(c.Worker); err != nil {
		return err
	}
	if c.Lease <= 0 || c.Lease > maxWait || c.Limit <= 0 {
		return invalidf("Claim: Lease is %v and Limit %d, want positive values", c.Lease, c.Limit)
	}
	for name, a := range c.Gateways {
		if a.Limit < 0 || a.PerScope <= 0 {
			return invalidf("Claim.Gateways[%q]: Limit is %d and PerScope %d, want at least 0 and 1", name, a.Limit, a.PerScope)
		}
	}
	if c.ID != nil {
		return ValidID(*c.ID)
	}
	return nil
}

// Event returns the event of claiming a record, for Decide.
func (c *Claim) Event(r *Record) Event {
	e := Event{Kind: EventClaim, Intent: Intent{ID: r.ID}, Worker: c.Worker}
	if a, ok := c.Gateways[r.Gateway]; ok {
		e.Terms = &a.Terms
	}
	return e
}

// MayTakeAlone reports whether the record is a Suspect that the claim may take if it is for one
// Alone. A store also checks that no person holds the gateway.
func (c *Claim) MayTakeAlone(r *Record, now time.Time) bool {
	due := r.State.Claimable() && !now.Before(r.NextAt)
	allowed := c.ID != nil || c.Allowance(r.Gateway).Limit > 0
	return r.Suspect() && due && allowed && c.Permits(r)
}

// ValidateHeartbeat returns an ErrInvalid that says what is wrong with the arguments of
// Heartbeat.
func ValidateHeartbeat(worker string, lease time.Duration) error {
	if lease < 0 || lease > maxWait {
		return invalidf("Heartbeat: lease is %v, want 0 to %v", lease, maxWait)
	}
	return validWorker(worker)
}

// ValidEvent returns an ErrInvalid if Apply does not apply events of this kind. An invalid
// event of another kind is the Err of its Result.
func ValidEvent(e *Event) error {
	switch e.Kind {
	case EventEnqueue, EventFinish, EventRedrive, EventResolve, EventCancel, EventErase:
		return nil
	default:
		return invalidf("Apply: Event.Kind is %v, want an event of Apply", e.Kind)
	}
}

func compareIDs(a idempotency.ID, n int64, b idempotency.ID, m int64) int {
	return cmp.Or(cmp.Compare(a.Scope, b.Scope), cmp.Compare(a.Operation, b.Operation), cmp.Compare(a.Key, b.Key), cmp.Compare(n, m))
}
