package durable

import (
	"cmp"
	"slices"
	"time"

	"github.com/resilienthttp/resilienthttp/idempotency"
)

// DeadLetter is an intent that is not sent any more, and the reason. It stays after a person
// has redriven or resolved it.
type DeadLetter struct {
	// ID is that of the intent.
	ID idempotency.ID

	// Number distinguishes the dead letters of an intent. It is the generation in which the
	// intent died.
	Number int64

	// Gateway, Batch and Row are those of the intent.
	Gateway string
	Batch   string
	Row     int

	// Reason is ReasonDeclined or another, or a Policy's reason.
	Reason string

	// Class and Code are those of the last outcome.
	Class Class
	Code  string

	// InDoubt means that the result is unknown: the work may have been done.
	InDoubt bool

	// Attempts is the number of sends.
	Attempts int

	// DeadAt is the time of death, and RedrivenAt the time at which it was redriven, resolved or
	// revised. Zero means that the dead letter is open.
	DeadAt, RedrivenAt time.Time

	// By and Note are the person that did so, and the reason. They may be empty.
	By, Note string
}

// Filter selects intents (Engine.Intents) or dead letters (Engine.Dead). The zero value
// selects all intents, and all dead letters that are not resolved.
type Filter struct {
	// States are the states of the intents. Empty means all. Dead letters ignore it.
	States []State

	// NewestFirst reverses the order: the default is oldest first.
	NewestFirst bool

	// Scope, Operation, Key, Gateway, Batch, Code and Reason must be equal if they are not
	// empty.
	Scope, Operation, Key string
	Gateway, Batch        string
	Code, Reason          string

	// From and Until bound CreatedAt of intents and DeadAt of dead letters: not before From, and
	// before Until. Zero means no bound.
	From, Until time.Time

	// IncludeResolved selects dead letters that were redriven or resolved too.
	IncludeResolved bool
}

// Validate returns an ErrInvalid if the filter has a state, a text or a time that no intent can have.
func (f *Filter) Validate() error {
	for _, state := range f.States {
		if state > StateCanceled {
			return invalidf("Filter.States: state is %d, want 0 to %d", state, StateCanceled)
		}
	}
	for _, text := range [...]string{f.Scope, f.Operation, f.Key, f.Gateway, f.Batch, f.Code, f.Reason} {
		if err := validateName("filter", text); err != nil {
			return err
		}
	}
	return cmp.Or(validTime(f.From), validTime(f.Until))
}

// Matches reports whether the filter selects the dead letter.
func (f *Filter) Matches(l *DeadLetter) bool {
	return (f.IncludeResolved || l.RedrivenAt.IsZero()) && f.matches(&l.ID, l.Gateway, l.Batch, l.Code, l.Reason, l.DeadAt)
}

// MatchesIntent reports whether the filter selects the intent.
func (f *Filter) MatchesIntent(r *Record) bool {
	return (len(f.States) == 0 || slices.Contains(f.States, r.State)) && f.matches(&r.ID, r.Gateway, r.Batch, r.Code, r.Reason, r.CreatedAt)
}

func (f *Filter) matches(id *idempotency.ID, gateway, batch, code, reason string, at time.Time) bool {
	for _, pair := range [...][2]string{
		{f.Scope, id.Scope}, {f.Operation, id.Operation}, {f.Key, id.Key},
		{f.Gateway, gateway}, {f.Batch, batch}, {f.Code, code}, {f.Reason, reason},
	} {
		if pair[0] != "" && pair[0] != pair[1] {
			return false
		}
	}
	return (f.From.IsZero() || !at.Before(f.From)) && (f.Until.IsZero() || at.Before(f.Until))
}

// Compare orders dead letters as they are listed: by DeadAt, then by scope, operation and key,
// byte by byte, then by Number.
func (l *DeadLetter) Compare(other *DeadLetter) int {
	if c := l.DeadAt.Compare(other.DeadAt); c != 0 {
		return c
	}
	return compareIDs(l.ID, l.Number, other.ID, other.Number)
}
