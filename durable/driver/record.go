package driver

import (
	"encoding/binary"
	"time"

	"github.com/resilienthttp/resilienthttp/idempotency"
	"github.com/resilienthttp/resilienthttp/internal/idempotencykey"
)

// Record is an intent as a store keeps it: a row of the table intent. Its times are
// the store's, in UTC and whole microseconds, except that NextAt and Deadline may
// be derived from what a process was told.
type Record struct {
	// Intent is what was enqueued. Its NotBefore is not kept.
	Intent

	// Fingerprint is the Intent's.
	Fingerprint idempotency.Fingerprint

	// State is where it stands.
	State State

	// Epoch counts the keys under which it is sent, from 1: see IdempotencyKey.
	Epoch int

	// Generation counts the claims, resolutions and erasures. It fences: what an earlier one
	// writes changes nothing.
	Generation int64

	// Worker holds the intent. Empty unless State.Held.
	Worker string

	// NextAt is when the intent is due, or was last. It has a meaning if
	// State.Claimable or State.Held.
	NextAt time.Time

	// Attempts counts the sends since Since, without those that provably sent
	// nothing.
	Attempts int

	// Declines counts the definite declines since RetryWindowStart.
	Declines int

	// Tries counts the claims since Since: sends, those that sent nothing, and questions.
	Claims int

	// Doubt: a send of this epoch may have done the work, and nobody knows. It is true
	// of all that are unknown or asking, and of some that are sending or dead.
	InDoubt bool

	// Ask: the next thing to do with an unknown intent is to ask and not to resend.
	QueryNext bool

	// Class, Code, Reference and Result are the last outcome's; Reference and Result
	// are kept with a success only. Code is "lost 2" when it was lost with its worker for
	// the second time running.
	Class     Class
	Code      string
	Reference string
	Result    []byte

	// Reason is why it is dead.
	Reason string

	// Letter is the number of its open letter, 0 if it is not dead.
	DeadLetterID int64

	// First is when the first send of this epoch was claimed: since then its key
	// protects. Zero: none was.
	FirstSentAt time.Time

	// Last is when the last send ended, or was given up with its worker; while in Doubt,
	// the last of those that may have done the work. Zero: none did.
	LastSentAt time.Time

	// Taken is when it was claimed last.
	ClaimedAt time.Time

	// Since is when it was enqueued, mended or redriven: its attempts and its age
	// count from here.
	RetryWindowStart time.Time

	// Created and Updated are when it was enqueued and changed last.
	CreatedAt, UpdatedAt time.Time
}

// Compare orders records as Store.Intents lists them: by CreatedAt, then by scope,
// operation and key, byte by byte.
func (r *Record) Compare(other *Record) int {
	if c := r.CreatedAt.Compare(other.CreatedAt); c != 0 {
		return c
	}
	return compareIDs(r.ID, 0, other.ID, 0)
}

// Kind is what an attempt was. Its numbers are stored, and never change.
type Kind uint8

// The kinds of attempts.
const (
	// KindSend: it was sent.
	KindSend Kind = iota + 1

	// KindQuery: the other side was asked what became of it.
	KindQuery

	// KindResolve: a person said what became of it.
	KindResolve

	// KindErase means that a person erased the intent. It has no outcome.
	KindErase
)

// String is the name in lower case.
func (k Kind) String() string {
	switch k {
	case KindSend:
		return "send"
	case KindQuery:
		return "query"
	case KindResolve:
		return "resolve"
	case KindErase:
		return "erase"
	default:
		return "invalid"
	}
}

// Attempt is a row of an intent's journal. That of a send is committed before its
// first byte leaves.
type Attempt struct {
	// Generation is the claim's, and the attempt's number in the journal.
	Generation int64

	// Kind is what it was.
	Kind Kind

	// Epoch and Key are what it was sent under.
	Epoch int
	Key   string

	// Worker is the worker, or the person who resolved or erased the intent.
	Worker string

	// SentAt is when it was claimed, FinishedAt when its outcome was stored; zero: it
	// was not yet.
	SentAt, FinishedAt time.Time

	// Class, Code, Status, Reference and Error are its outcome's.
	Class     Class
	Code      string
	Status    int
	Reference string
	Error     string
}

// SameEnd reports whether the attempts ended alike.
func (a *Attempt) SameEnd(b *Attempt) bool {
	return a.FinishedAt.Equal(b.FinishedAt) && a.Class == b.Class && a.Code == b.Code && a.Status == b.Status &&
		a.Reference == b.Reference && a.Error == b.Error
}

// Scheduled reports whether the intent was not due yet when it was changed last. Stores keep
// such intents apart from those that are due, so that a claim walks over the tenants that
// are due and over no others.
func (r *Record) Scheduled() bool { return r.State.Claimable() && r.NextAt.After(r.UpdatedAt) }

// IdempotencyKey is the idempotency key under which an intent is sent in an epoch, the same
// in all processes: 40 characters, which all that take keys accept (Square takes no
// more than 45). It is a hash, so that keys of two tenants never meet, and nobody
// reads a business key from it.
func IdempotencyKey(id idempotency.ID, epoch int) string {
	return idempotencykey.Derived(binary.AppendVarint(nil, int64(epoch)), id.Scope, id.Operation, id.Key)
}

// protects reports whether the epoch's key protects a resend at now. The resend may arrive
// as late as the visibility delay, so the key is not used in the last part of its life.
func (r *Record) protects(terms *Terms, now time.Time) bool {
	return terms.KeyTTL > 0 && !r.FirstSentAt.IsZero() && now.Before(r.FirstSentAt.Add(terms.KeyTTL-terms.VisibilityDelay))
}

// Seen is the state of an intent that a person saw before deciding about it. If the intent
// has changed since, the decision is rejected with ErrStale.
type Seen struct {
	// ID is the intent's.
	ID idempotency.ID

	// Letter is Record.DeadLetterID: the number of the open dead letter, 0 if there is none.
	Letter int

	// Generation is Record.Generation. It must be positive.
	Generation int64
}

// Seen returns what a person sees who looks at the record.
func (r *Record) Seen() Seen {
	return Seen{ID: r.ID, Letter: int(r.DeadLetterID), Generation: r.Generation}
}

// Event returns the event of a decision about what was seen.
func (s Seen) Event(kind EventKind) Event {
	return Event{Kind: kind, Intent: Intent{ID: s.ID}, Generation: s.Generation, DeadLetterID: int64(s.Letter)}
}

func (s Seen) Validate() error {
	if s.Generation <= 0 {
		return Invalidf("Seen.Generation is %d, want that of a Record", s.Generation)
	}
	return nil
}

// expired reports whether no send may begin any more.
func (r *Record) expired(now time.Time) bool {
	return !r.Deadline.IsZero() && !now.Before(r.Deadline)
}

// stamp is a time as stores keep it.
func stamp(t time.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return t.UTC().Truncate(time.Microsecond)
}
