package driver

import "time"

// Step is what a store must do to a record so that a claim is answered.
type Step uint8

// The steps.
const (
	// Leave: nothing is written.
	Leave Step = iota

	// Insert: there is no record; write a new one, of generation 1.
	Insert

	// Take: the record passes to the claimant, under the next generation.
	Take

	// Abandon: the record becomes Unknown, under the next generation and without
	// an owner, so that the dead execution, should it live after all, cannot
	// write any more.
	StepMarkUnknown
)

// Decide is the state machine of Reserve and Begin, for those who write stores:
// given the record (nil: none), a claim and the database's time, what is to be
// done, and the decision once it is done. A store does the step only if the record
// is still the one that was judged (same status, owner, generation and lease), and
// else reads and decides again. Begin does what Insert and Take ask for at the end
// of its transaction, and then in the same manner.
//
// It looks at nothing else and changes nothing.
func Decide(r *Record, c *Claim, now time.Time) (Step, Reservation) {
	switch {
	case r == nil:
		return Insert, Reservation{Decision: Acquired}
	case r.Expired(now):
		return Take, Reservation{Decision: Acquired}
	case r.Fingerprint != c.Fingerprint:
		return Leave, Reservation{Decision: Mismatch}
	}
	switch r.Status {
	case Completed, FailedFinal, CompletedUnreplayable:
		return Leave, Reservation{Decision: Done}
	case FailedRetryable:
		return Take, Reservation{Decision: Acquired, Resumed: r.Takeover == Resume}
	case InProgress:
		switch {
		case r.Lapsed(now):
			return takeOver(r)
		case r.Owner == c.Owner: // the answer to this very claim was lost, and it is made again
			return Leave, Reservation{Decision: Acquired}
		}
		return Leave, Reservation{Decision: DecisionInProgress}
	default: // Unknown, and what a newer version may have written.
		return Leave, Reservation{Decision: DecisionUnknown}
	}
}

// takeOver is by the dead execution's own terms: nobody else knows what it did.
func takeOver(r *Record) (Step, Reservation) {
	if r.Takeover.Repeats() {
		return Take, Reservation{Decision: Acquired, Resumed: r.Takeover == Resume}
	}
	return StepMarkUnknown, Reservation{Decision: DecisionUnknown, LeaseExpired: true}
}

// Lapsed reports whether the record is that of an execution that died: in
// progress, and its lease is over.
func (r *Record) Lapsed(now time.Time) bool {
	return r.Status == InProgress && !now.Before(r.LeaseExpires)
}

// Expired reports whether the record is to be treated as if it were not there.
// One that is Unknown never is, nor one that is in progress and alive, or that
// will be Unknown when somebody looks at it.
func (r *Record) Expired(now time.Time) bool {
	if now.Before(r.Expires) || r.Status == Unknown {
		return false
	}
	return r.Status != InProgress || r.Lapsed(now) && r.Takeover.Repeats()
}
