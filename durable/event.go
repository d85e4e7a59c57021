package durable

import (
	"cmp"
	"time"

	"github.com/resilienthttp/resilienthttp/idempotency"
)

// EventKind is the kind of an Event.
type EventKind uint8

// The kinds of events. Store.Claim and Store.Reap make claims and expirations, Store.Apply
// applies the others.
const (
	// EventEnqueue enqueues the Intent.
	EventEnqueue EventKind = iota + 1

	// EventClaim claims the intent for a worker: Worker, Terms.
	EventClaim

	// EventFinish ends an attempt: Worker, Generation, Terms, Outcome, Decision; Held and
	// Interrupted are optional.
	EventFinish

	// EventLeaseExpired takes the intent from a dead worker: Worker.
	EventLeaseExpired

	// EventRedrive sends a dead intent again: Generation and DeadLetterID are those that the
	// person saw (Generation 0: any), After is the time until it is due; By and Note.
	EventRedrive

	// EventResolve is a person's decision: Generation and DeadLetterID as above, Outcome, By,
	// Note.
	EventResolve

	// EventCancel cancels the intent.
	EventCancel

	// EventErase removes its payload, result, error texts and notes: By.
	EventErase
)

// String returns the name in lower case.
func (k EventKind) String() string {
	return nameOf(k, "", "enqueue", "claim", "finish", "lease_expired", "redrive", "resolve", "cancel", "erase")
}

// nameOf returns the name of a value.
func nameOf[T ~uint8](value T, names ...string) string {
	if int(value) < len(names) && names[value] != "" {
		return names[value]
	}
	return "invalid"
}

// Event is what happens to one intent. Its Kind says which fields have a meaning.
type Event struct {
	Kind EventKind

	// Intent is the whole of it for EventEnqueue, for others its ID.
	Intent Intent

	Worker       string
	Generation   int64
	DeadLetterID int64
	Terms        *Terms // nil: the engine has no gateway of that name
	Outcome      Outcome
	Decision     Decision
	After        time.Duration
	By, Note     string

	// Interrupted means that the worker stopped before the attempt was over. The intent is due at
	// once, and if nothing was sent, the attempt does not count.
	Interrupted bool

	// Held is the record as Claim returned it. While Worker and Generation are unchanged, a
	// store need not read the record again. nil: it must.
	Held *Record
}

// ID returns the ID of the intent.
func (e *Event) ID() idempotency.ID { return e.Intent.ID }

// Validate returns an ErrInvalid that says what is wrong with the event.
func (e *Event) Validate() error {
	if e.Kind == EventEnqueue {
		return e.Intent.Validate()
	}
	if err := ValidID(e.Intent.ID); err != nil {
		return err
	}
	switch e.Kind {
	case EventClaim, EventLeaseExpired, EventFinish:
		return validWorker(e.Worker)
	case EventResolve:
		if e.By == "" {
			return invalidf("resolve: By is empty")
		}
		if e.Outcome.Class == ClassUnknown || e.Outcome.Class > ClassNotFound {
			return invalidf("resolve: Outcome.Class is %v, want succeeded, declined, failed or not_found", e.Outcome.Class)
		}
		// A person's input is not cut without a word, as a provider's is.
		return cmp.Or(validateName("resolve: Outcome.Code", e.Outcome.Code), validateName("resolve: Outcome.Reference", e.Outcome.Reference))
	case EventErase:
		if e.By == "" {
			return invalidf("erase: By is empty")
		}
	case EventRedrive, EventCancel:
	default:
		return invalidf("Event.Kind is %d, want 1 to %d", e.Kind, EventErase)
	}
	return nil
}

func validWorker(name string) error {
	if name == "" {
		return invalidf("Worker is empty")
	}
	return validateName("worker", name)
}

// Terms are the properties of a Gateway that Decide enforces, whatever a Policy says.
type Terms struct {
	// KeyTTL is how long a key protects, from its first use. 0 or less: keys protect nothing.
	KeyTTL time.Duration

	// VisibilityDelay is how long after a send it may still take effect unseen.
	VisibilityDelay time.Duration

	// CanQuery means that the provider can be queried.
	CanQuery bool
}

// maxWait is the maximum time until an intent is due.
const maxWait = 30 * 24 * time.Hour

// The reasons of dead letters. A Policy may give others.
const (
	// ReasonDeclined means that the provider declined.
	ReasonDeclined = "declined"

	// ReasonExhausted means that the Policy's limit was reached.
	ReasonExhausted = "exhausted"

	// ReasonDeadline means that the Deadline passed and the work was not done.
	ReasonDeadline = "deadline"

	// ReasonUnresolved means that the result is unknown, that the key protects no more, and
	// that the provider cannot be queried.
	ReasonUnresolved = "unresolved"

	// ReasonLeaseExpired means that the leases of twelve workers in a row expired while they held the
	// intent, and that no send in between ended. Sending it may kill the process.
	ReasonLeaseExpired = "lease expired"

	// ReasonNoGateway means that the Engine that claimed the intent has no gateway of its name.
	ReasonNoGateway = "no such gateway"
)
