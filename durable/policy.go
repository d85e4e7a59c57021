package durable

import (
	"time"
)

// Policy says what comes after an attempt that did not succeed. It is asked by many at
// once, and must be a function of its arguments and of chance. What must not be done is
// not done whatever it says: see Decision. When it panics the intent is dealt with by
// the zero Schedule.
type Policy interface {
	// Next decides. now is the database's time. A Policy may not change h nor keep it.
	Next(h *History, now time.Time) Decision
}

// History is what a Policy is told.
type History struct {
	// Intent is what was sent.
	Intent Intent

	// Outcome is how the attempt ended. Its NotBefore is by the database's clock.
	Outcome Outcome

	// Asked: the attempt was a question.
	WasQuery bool

	// Doubt: nobody knows whether the work was done, by this attempt or by one before it.
	// Without it, it surely was not.
	InDoubt bool

	// Finds: the Gateway can be asked what became of the work.
	CanQuery bool

	// Attempts counts the sends since Since, and Tries all attempts: those that provably
	// sent nothing, and questions, too.
	Attempts, Tries int

	// Declines counts the definite declines since Since.
	Declines int

	// Wait is how long was waited before this attempt, by plan; 0 before the first.
	Wait time.Duration

	// Since is when the intent was enqueued, mended or redriven; First when the first send
	// under the present key was claimed.
	Since, First time.Time
}

// Action is what a Policy wants done next.
type Action uint8

// The actions.
const (
	// Retry sends again. After an unknown outcome that is under the same key, while it
	// protects; when it does not the other side is asked, and where that cannot be done
	// the intent is dead.
	Retry Action = iota

	// Ask asks what became of an unknown outcome. Where that cannot be done, or there is
	// nothing to ask, it is Retry.
	Query

	// Bury makes the intent dead.
	Bury
)

// Decision is a Policy's word on what comes next.
type Decision struct {
	// Do is what to do.
	Action Action

	// At is when, by the clock that the Policy was told. One that is past is a second
	// or two from now, one that is too far off 30 days from now, and one that is earlier
	// than the other side's NotBefore is that.
	At time.Time

	// NewKey sends under a new key. It counts only where the work was surely not done;
	// after a refusal the key is new anyway.
	NewKey bool

	// Reason is why it is buried, at most 512 bytes. "": the class of the outcome.
	Reason string
}
