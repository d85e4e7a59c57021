package durable

import (
	"time"
)

// Policy decides what follows an attempt without success. It must be safe for concurrent use.
// The state machine ignores what is not permitted: see Decision. After a panic the zero
// Schedule decides.
type Policy interface {
	// Next returns the decision. now is the database's time. It must not change or keep h.
	Next(h *History, now time.Time) Decision
}

// History is what a Policy knows about an intent.
type History struct {
	// Intent is what was sent.
	Intent Intent

	// Outcome is that of the attempt. Its NotBefore is by the database's clock.
	Outcome Outcome

	// WasQuery means that the attempt was a status query.
	WasQuery bool

	// InDoubt means that the result is unknown, of this attempt or of one before it. Otherwise
	// the work was not done.
	InDoubt bool

	// CanQuery means that the Gateway is a Finder.
	CanQuery bool

	// Attempts is the number of sends since Since. Tries is the number of all attempts, with
	// status queries and those that sent nothing.
	Attempts, Tries int

	// Declines is the number of declines since Since.
	Declines int

	// Wait is the planned wait before this attempt. Zero before the first.
	Wait time.Duration

	// Since is the time at which the intent was due first, after it was enqueued, revised or
	// redriven, or later: see Schedule.MaxAge. First is the time of the first send under the present key.
	Since, First time.Time
}
