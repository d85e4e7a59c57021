package durable

import (
	"encoding/binary"
	"time"

	"github.com/resilienthttp/resilienthttp/idempotency"
	"github.com/resilienthttp/resilienthttp/internal/idempotencykey"
)

// Record is the stored state of an intent. Its times are the store's, in UTC and whole
// microseconds.
type Record struct {
	// Intent is the intent without NotBefore and without its own Fingerprint.
	Intent

	// Fingerprint is FingerprintOf the intent.
	Fingerprint idempotency.Fingerprint

	// State is the state.
	State State

	// Epoch is the version of the key, from 1: see IdempotencyKey.
	Epoch int

	// Generation is the fencing token: the number of claims and of persons' decisions.
	Generation int64

	// Worker holds the intent. It is empty unless State.Held.
	Worker string

	// NextAt is the time at which the intent is due, if State.Claimable or State.Held.
	NextAt time.Time

	// Attempts is the number of sends since RetryWindowStart, without those that sent nothing.
	Attempts int

	// Declines is the number of declines since RetryWindowStart.
	Declines int

	// Claims is the number of claims since RetryWindowStart: sends and status queries.
	Claims int

	// LostLeases is the number of leases that expired while a worker held the intent, since a send of
	// it ended with an outcome: see Suspect.
	LostLeases int

	// InDoubt means that a send of this epoch may have done the work. It is true in the states
	// unknown and querying, and possible in sending and dead.
	InDoubt bool

	// QueryNext means that the next attempt is a status query.
	QueryNext bool

	// Class, Code, Reference and Result are those of the last outcome. Reference and Result are
	// stored with a success only. Code is "lease_expired 2" if the lease of its worker expired,
	// for the second time in a row.
	Class     Class
	Code      string
	Reference string
	Result    []byte

	// Reason is the reason of the dead letter.
	Reason string

	// DeadLetterID is the number of the open dead letter. Zero means that the intent is not dead.
	DeadLetterID int64

	// FirstSentAt is the time of the first send under the present key. Zero means none.
	FirstSentAt time.Time

	// LastSentAt is the end of the last send or, while InDoubt, of the last send that may have
	// done the work. Zero means none.
	LastSentAt time.Time

	// ClaimedAt is the time of the last claim.
	ClaimedAt time.Time

	// RetryWindowStart is the time at which the intent was due first, after it was enqueued,
	// revised or redriven. Its attempts and its age count from there. If the intent is claimed later
	// than it was due by more than its age, RetryWindowStart is later by as much.
	RetryWindowStart time.Time

	// CreatedAt and UpdatedAt are the times of the first Enqueue and of the last change.
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

// Kind is what an attempt was. Its numbers are stored and never change.
type Kind uint8

// The kinds of attempts.
const (
	// KindSend is a send.
	KindSend Kind = iota + 1

	// KindQuery is a status query.
	KindQuery

	// KindResolve is the decision of a person.
	KindResolve

	// KindErase means that a person erased the intent. It has no outcome.
	KindErase
)

// String returns the name in lower case.
func (k Kind) String() string { return nameOf(k, "", "send", "query", "resolve", "erase") }

// Attempt is an entry of an intent's journal. It is committed before the first byte of a send
// leaves.
type Attempt struct {
	// Generation is that of the claim.
	Generation int64

	// Kind is what the attempt was.
	Kind Kind

	// Epoch and Key are the version of the key and the key.
	Epoch int
	Key   string

	// Worker is the worker, or the person that resolved or erased the intent.
	Worker string

	// SentAt is the time of the claim, and FinishedAt the time at which the outcome was stored.
	// Zero means that it is not stored.
	SentAt, FinishedAt time.Time

	// Class, Code, Status, Reference and Error are those of the outcome.
	Class     Class
	Code      string
	Status    int
	Reference string
	Error     string
}

// SameEnd reports whether both attempts have the same outcome.
func (a *Attempt) SameEnd(b *Attempt) bool {
	return a.FinishedAt.Equal(b.FinishedAt) && a.Class == b.Class && a.Code == b.Code && a.Status == b.Status &&
		a.Reference == b.Reference && a.Error == b.Error
}

// Scheduled reports whether the intent was not due yet when it was changed last, or is a
// Suspect. Stores keep such intents apart from those that are due, so that a claim walks over
// the tenants that are due and over no others.
func (r *Record) Scheduled() bool {
	return r.State.Claimable() && (r.NextAt.After(r.UpdatedAt) || r.Suspect())
}

// Due reports whether the time of a claimable intent has come. An intent that was due once stays
// due, also if the clock was set back.
func (r *Record) Due(now time.Time) bool {
	return !now.Before(r.NextAt) || !r.NextAt.After(r.UpdatedAt)
}

// followClock moves the times of a record that was changed in the future: the clock was set back
// since. The age of its key and the rest of its wait are now what they were at that change, and not
// longer by as much as the clock was set. A caller's NotBefore is by the calendar, and stays. It
// returns how far the clock was set back, less the time since the change.
func (r *Record) followClock(now time.Time) (back time.Duration) {
	back = r.UpdatedAt.Sub(now)
	if back <= 0 {
		return 0
	}
	times := []*time.Time{&r.FirstSentAt, &r.LastSentAt, &r.ClaimedAt, &r.UpdatedAt}
	if r.State != StatePending || !r.Scheduled() {
		times = append(times, &r.NextAt, &r.RetryWindowStart)
	}
	for _, at := range times {
		if !at.IsZero() {
			*at = at.Add(-back)
		}
	}
	return back
}

// Suspect reports whether sending the intent may kill the process: it lost its worker again
// and again, and no send in between ended. It is claimed alone, so that nothing is lost with it.
func (r *Record) Suspect() bool { return r.LostLeases >= suspectAfter }

// IdempotencyKey returns the key under which an intent is sent in an epoch. It is the same in
// all processes. It is a hash of 40 characters, so that the keys of two tenants never collide
// and nothing can be read from it. Square accepts no more than 45.
func IdempotencyKey(id idempotency.ID, epoch int) string {
	return idempotencykey.Derived(binary.AppendVarint(nil, int64(epoch)), id.Scope, id.Operation, id.Key)
}

// protects reports whether the key protects a send at now. The send may arrive as late as the
// visibility delay, so the key is not used in the last part of its life.
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

// Seen returns the state of the record as a person sees it now.
func (r *Record) Seen() Seen {
	return Seen{ID: r.ID, Letter: int(r.DeadLetterID), Generation: r.Generation}
}

// Event returns the event of a decision about what was seen.
func (s Seen) Event(kind EventKind) Event {
	return Event{Kind: kind, Intent: Intent{ID: s.ID}, Generation: s.Generation, DeadLetterID: int64(s.Letter)}
}

// Validate returns an ErrInvalid if Generation is not that of a Record.
func (s Seen) Validate() error {
	if s.Generation <= 0 {
		return invalidf("Seen.Generation is %d, want that of a Record", s.Generation)
	}
	return nil
}

// DeclineCountsFrom returns the time from which a decline of the intent counts, if the provider
// declined it while it was in doubt: a send before may take effect until then. It is zero for
// other intents.
func (r *Record) DeclineCountsFrom(terms *Terms) time.Time {
	if !r.InDoubt || r.Class != ClassDeclined || terms == nil {
		return time.Time{}
	}
	return r.LastSentAt.Add(terms.VisibilityDelay)
}

// expired reports whether the deadline has passed.
func (r *Record) expired(now time.Time) bool {
	return !r.Deadline.IsZero() && !now.Before(r.Deadline)
}

// stamp returns the time as stores keep it.
func stamp(t time.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return t.UTC().Truncate(time.Microsecond)
}
