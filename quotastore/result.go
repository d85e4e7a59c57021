package quotastore

import "time"

// Ticket is the answer to a Take. Times are lengths from the moment of the answer,
// so that nobody's clock matters; they are rounded up, and never too short.
type Result struct {
	// OK says that the units were taken, or given back.
	OK bool

	// Taken is how many: between what was asked for at least and at most; 0 for a
	// refusal, and negative for what was given back.
	Allowed int

	// Remaining is what is left: whole units, at least 0.
	Remaining int

	// Reset is how long it takes until everything is there again, if nobody takes any
	// more; 0 if it is.
	ResetAfter time.Duration

	// RetryAfter is how long it takes until what was refused is there, if nobody else
	// takes it first; 0 if OK.
	RetryAfter time.Duration
}
