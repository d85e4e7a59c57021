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
