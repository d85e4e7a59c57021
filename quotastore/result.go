package quotastore

import "time"

// Result is the result of a Take. Its durations start at the moment of the decision,
// so clocks of different machines do not matter. They are rounded up.
type Result struct {
	// OK reports whether the units were taken, or returned.
	OK bool

	// Allowed is the number of units that were taken. It is 0 for a rejection, and
	// negative for units that were returned.
	Allowed int

	// Remaining is the number of whole units that are left, at least 0.
	Remaining int

	// ResetAfter is the time until the whole quota is available, if nothing more is
	// taken. It is 0 if the whole quota is available now.
	ResetAfter time.Duration

	// RetryAfter is the time until the rejected units are available, if nothing else
	// takes them first. It is 0 if OK.
	RetryAfter time.Duration
}
