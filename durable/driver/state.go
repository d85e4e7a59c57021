package driver

// State is where an intent stands. Its numbers are stored, and never change.
//
//	pending  -> sending             claim: journal, then send
//	waiting  -> sending             claim
//	sending  -> done                succeeded
//	sending  -> waiting             surely not done, and it may pass
//	sending  -> dead                refused for good, exhausted, past its deadline
//	sending  -> unknown             timeout, reset, 5xx, dead worker
//
//	unknown  -> sending             claim, the same key, while it protects
//	unknown  -> asking              claim, when it does not
//	unknown  -> dead                claim, when neither is possible: unresolved
//	asking   -> done, waiting, dead, unknown
//	pending, waiting -> dead        claim, past its deadline
//	dead     -> waiting, unknown    redrive
//	dead     -> waiting             enqueued again, mended
//	dead, unknown -> done, waiting  resolve (a dead one that was not done stays dead)
//	pending, waiting -> cancelled   cancel
//	dead     -> cancelled           erase (not one whose result is in doubt)
//
// Nothing else happens to an intent: see Decide.
type State uint8

// The states of an intent.
const (
	// StatePending: it was never sent.
	StatePending State = iota

	// StateWaiting: it is surely not done, and is sent again when it is due.
	StateWaiting

	// StateSending: a worker sends it.
	StateSending

	// StateQuerying: a worker asks what became of it.
	StateQuerying

	// StateUnknown: it was sent, and nobody knows whether it was done.
	StateUnknown

	// StateDone: it is done.
	StateDone

	// StateDead: it is not sent any more, and waits for a person.
	StateDead

	// StateCancelled: it was withdrawn before it was done.
	StateCancelled
)

// states is how many there are.
const states = int(StateCancelled) + 1

// String is the name in lower case, as in metrics and logs.
func (s State) String() string {
	if int(s) >= states {
		return "invalid"
	}
	return [states]string{"pending", "waiting", "sending", "querying", "unknown", "done", "dead", "cancelled"}[s]
}

// Claimable reports whether the intent is claimed when it is due: it is pending,
// waiting or unknown.
func (s State) Claimable() bool { return s == StatePending || s == StateWaiting || s == StateUnknown }

// Held reports whether a worker is at it.
func (s State) Held() bool { return s == StateSending || s == StateQuerying }

// Final reports whether the intent is over: it can only be erased.
func (s State) Final() bool { return s == StateDone || s == StateCancelled }
