package driver

import (
	"fmt"
	"time"

	"github.com/resilienthttp/resilienthttp/idempotency"
)

// EventKind is what happens to an intent.
type EventKind uint8

// The kinds of events. Claims and losses are made by Store.Claim and Store.Reap, the
// others are applied by Store.Apply.
const (
	// EventEnqueue brings it in. Intent.
	EventEnqueue EventKind = iota + 1

	// EventClaim takes it for a worker: Worker, Terms.
	EventClaim

	// EventFinish is how the attempt ended: Worker, Generation, Terms, Outcome,
	// Decision; and Held, perhaps.
	EventFinish

	// EventLeaseExpired takes it from a worker that is dead: Worker.
	EventLeaseExpired

	// EventRedrive brings it back from the dead: Generation and DeadLetterID are those that
	// the person saw, Generation 0 any; After is when from now it is due; By and Note.
	EventRedrive

	// EventResolve is a person's decision: Generation and DeadLetterID as above, Outcome,
	// By, Note.
	EventResolve

	// EventCancel withdraws it.
	EventCancel

	// EventErase removes its payload, result, error texts and notes: By.
	EventErase
)

// eventKinds is one more than the greatest.
const eventKinds = int(EventErase) + 1

// String is the name in lower case.
func (k EventKind) String() string {
	if k == 0 || int(k) >= eventKinds {
		return "invalid"
	}
	return [eventKinds]string{"", "enqueue", "claim", "finish", "lease_expired", "redrive", "resolve", "cancel", "erase"}[k]
}

// Event is something that happens to one intent. Which fields have a meaning is
// said at its Kind.
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

	// Held is the record as Claim has returned it, under this Worker and Generation: as
	// long as these are still the record's, nothing else has changed, and a store need not
	// read it again. nil: it must.
	Held *Record
}

// ID is the intent's.
func (e *Event) ID() idempotency.ID { return e.Intent.ID }

// Validate says what is wrong with the event. The error is an ErrInvalid.
func (e *Event) Validate() error {
	if e.Kind == EventEnqueue {
		return e.Intent.Validate()
	}
	if err := e.Intent.ID.Validate(); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	switch e.Kind {
	case EventClaim, EventLeaseExpired:
		return validWorker(e.Worker)
	case EventFinish:
		if e.Terms == nil {
			return fmt.Errorf("%w: an attempt ends without terms", ErrInvalid)
		}
		return validWorker(e.Worker)
	case EventRedrive:
		if e.After < 0 || e.After > MaxWait {
			return fmt.Errorf("%w: redriven %v from now", ErrInvalid, e.After)
		}
	case EventResolve:
		if e.By == "" {
			return fmt.Errorf("%w: nobody is said to have resolved it", ErrInvalid)
		}
		if e.Outcome.Class == ClassUnknown || int(e.Outcome.Class) >= classes {
			return fmt.Errorf("%w: nothing is resolved by the class %v", ErrInvalid, e.Outcome.Class)
		}
	case EventErase:
		if e.By == "" {
			return Invalidf("erase: By is empty")
		}
	case EventCancel:
	default:
		return fmt.Errorf("%w: no event has number %d", ErrInvalid, e.Kind)
	}
	return nil
}

func validWorker(name string) error {
	if name == "" {
		return fmt.Errorf("%w: no worker is named", ErrInvalid)
	}
	return ValidateName("worker", name)
}

// Terms is what Decide must know of a Gateway. It is enforced whatever a Policy says.
type Terms struct {
	// KeyTTL is how long a key protects, from the first send under it. 0 or less: keys
	// protect nothing.
	KeyTTL time.Duration

	// VisibilityDelay is how long after a send it may still be done unseen: until then a
	// Finder's NotFound proves nothing.
	VisibilityDelay time.Duration

	// Finds: it can be asked what became of an intent.
	CanQuery bool
}

// MaxWait bounds how far from now an intent is due. What is further off is a
// mistake, and would onLeaseExpired it.
const MaxWait = 30 * 24 * time.Hour

// The reasons of dead letters, beside those that a Policy gives.
const (
	// ReasonDeclined: it was refused for good.
	ReasonDeclined = "declined"

	// ReasonExhausted: a Policy found that it has been tried enough.
	ReasonExhausted = "exhausted"

	// ReasonDeadline: its Deadline has passed, and it was surely not done.
	ReasonDeadline = "deadline"

	// ReasonUnresolved: nobody knows whether it was done, its key protects no more, and
	// nobody can be asked.
	ReasonUnresolved = "unresolved"

	// ReasonNoGateway: the engine that claimed it has no gateway of that name.
	ReasonNoGateway = "no such gateway"
)
