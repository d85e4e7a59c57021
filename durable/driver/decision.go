package driver

import "time"

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
