package idempotency

import "time"

// Step is what a store must do to a record to answer a claim.
type Step uint8

// The steps.
const (
	// StepLeave writes nothing.
	StepLeave Step = iota

	// StepInsert writes a new record of generation 1.
	StepInsert

	// StepTake gives the record to the claim's execution, with the next generation.
	StepTake

	// StepMarkUnknown makes the record Unknown, with the next generation and without
	// an owner, so that the dead execution cannot write any more.
	StepMarkUnknown
)

// Decide is the state machine of Reserve and Begin. It returns the step for a record
// (nil: there is none), a claim and the database's time, and the result after the step. A
// store does the step only if the record still has the status, owner, generation and lease
// that Decide saw; otherwise it reads and decides again. Begin
// does StepInsert and StepTake when its transaction commits.
//
// Decide is a pure function.
func Decide(r *Record, c *Claim, now time.Time) (Step, Reservation) {
	switch {
	case r == nil:
		return StepInsert, Reservation{Decision: DecisionAcquired}
	case r.Expired(now):
		return StepTake, Reservation{Decision: DecisionAcquired}
	case c.Fingerprint != r.Fingerprint:
		return StepLeave, Reservation{Decision: DecisionMismatch}
	}
	switch r.Status {
	case Completed, FailedFinal, CompletedUnreplayable:
		return StepLeave, Reservation{Decision: DecisionDone}
	case FailedRetryable:
		return StepTake, Reservation{Decision: DecisionAcquired, Resumed: r.Takeover == Resume}
	case StatusInProgress:
		switch {
		case r.Lapsed(now) && r.Takeover.Repeats():
			return StepTake, Reservation{Decision: DecisionAcquired, Resumed: r.Takeover == Resume}
		case r.Lapsed(now):
			return StepMarkUnknown, Reservation{Decision: DecisionUnknown, LeaseExpired: true}
		case r.Owner == c.Owner: // the same claim, repeated because its answer was lost
			return StepLeave, Reservation{Decision: DecisionAcquired}
		}
		return StepLeave, Reservation{Decision: DecisionInProgress}
	default: // Unknown, or a status of a newer version.
		return StepLeave, Reservation{Decision: DecisionUnknown}
	}
}

// Lapsed reports whether the record's execution is dead: in progress with a lease
// that is over.
func (r *Record) Lapsed(now time.Time) bool {
	return r.Status == StatusInProgress && !now.Before(r.LeaseExpires)
}

// Expired reports whether the record counts as absent. A record that is Unknown
// never expires, nor one in progress that is alive or will become Unknown.
func (r *Record) Expired(now time.Time) bool {
	if now.Before(r.Expires) || r.Status == Unknown {
		return false
	}
	return r.Status != StatusInProgress || r.Lapsed(now) && r.Takeover.Repeats()
}

// Begun returns the record of an execution that begins at now. before is the
// record that it replaces, or nil.
func (c *Claim) Begun(before *Record, now time.Time) Record {
	r := Record{
		ID: c.ID, Fingerprint: c.Fingerprint, Status: StatusInProgress, Owner: c.Owner, Generation: 1, Takeover: c.Takeover,
		Started: now, Updated: now, LeaseExpires: now.Add(c.Lease), Expires: now.Add(c.TTL),
	}
	if before != nil {
		r.Generation = before.Generation + 1
	}
	return r
}
