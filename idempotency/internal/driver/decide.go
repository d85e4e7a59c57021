package driver

import "time"

// Step is what a store must do to a record to answer a claim.
type Step uint8

// The steps.
const (
	// Leave writes nothing.
	Leave Step = iota

	// Insert writes a new record of generation 1.
	Insert

	// Take gives the record to the claim's execution, with the next generation.
	Take

	// StepMarkUnknown makes the record Unknown, with the next generation and without
	// an owner, so that the dead execution cannot write any more.
	StepMarkUnknown
)

// Decide is the state machine of Reserve and Begin. It returns the step for a record
// (nil: there is none), a claim and the database's time, and the result after the step. A
// store does the step only if the record still has the status, owner, generation and lease
// that Decide saw; otherwise it reads and decides again. Begin
// does Insert and Take when its transaction commits.
//
// Decide is a pure function.
func Decide(r *Record, c *Claim, now time.Time) (Step, Reservation) {
	switch {
	case r == nil:
		return Insert, Reservation{Decision: Acquired}
	case r.Expired(now):
		return Take, Reservation{Decision: Acquired}
	case c.Fingerprint != r.Fingerprint:
		return Leave, Reservation{Decision: Mismatch}
	}
	switch r.Status {
	case Completed, FailedFinal, CompletedUnreplayable:
		return Leave, Reservation{Decision: Done}
	case FailedRetryable:
		return Take, Reservation{Decision: Acquired, Resumed: r.Takeover == Resume}
	case InProgress:
		switch {
		case r.Lapsed(now) && r.Takeover.Repeats():
			return Take, Reservation{Decision: Acquired, Resumed: r.Takeover == Resume}
		case r.Lapsed(now):
			return StepMarkUnknown, Reservation{Decision: DecisionUnknown, LeaseExpired: true}
		case r.Owner == c.Owner: // the same claim, repeated because its answer was lost
			return Leave, Reservation{Decision: Acquired}
		}
		return Leave, Reservation{Decision: DecisionInProgress}
	default: // Unknown, or a status of a newer version.
		return Leave, Reservation{Decision: DecisionUnknown}
	}
}

// Lapsed reports whether the record's execution is dead: in progress with a lease
// that is over.
func (r *Record) Lapsed(now time.Time) bool {
	return r.Status == InProgress && !now.Before(r.LeaseExpires)
}

// Expired reports whether the record counts as absent. A record that is Unknown
// never expires, nor one in progress that is alive or will become Unknown.
func (r *Record) Expired(now time.Time) bool {
	if now.Before(r.Expires) || r.Status == Unknown {
		return false
	}
	return r.Status != InProgress || r.Lapsed(now) && r.Takeover.Repeats()
}
