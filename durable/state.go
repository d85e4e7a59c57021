package durable

// State is the state of an intent. Its numbers are stored and never change.
//
//	pending  -> sending             claim: journal, then send
//	waiting  -> sending             claim
//	sending  -> done                succeeded
//	sending  -> waiting             failed, or declined and to be repeated
//	sending  -> dead                declined, exhausted, or past the deadline
//	sending  -> unknown             timeout, reset, 5xx, or a dead worker
//	unknown  -> sending             claim, under the same key while it protects
//	unknown  -> querying            claim, after that
//	unknown  -> dead                claim, if neither is possible: unresolved
//	querying -> done, waiting, dead, unknown
//	pending, waiting -> dead        claim, past the deadline
//	dead     -> waiting, unknown    redrive
//	dead     -> waiting             enqueued again with another payload
//	dead, unknown -> done, waiting  resolve (a dead one that was not done stays dead)
//	pending, waiting -> canceled   cancel
//	dead     -> canceled           erase
//
// There are no other transitions: see Decide.
type State uint8

// The states of an intent.
const (
	// StatePending means that the intent was never sent.
	StatePending State = iota

	// StateWaiting means that the work was not done. The intent is sent again when it is due.
	StateWaiting

	// StateSending means that a worker sends the intent.
	StateSending

	// StateQuerying means that a worker queries the provider for the result.
	StateQuerying

	// StateUnknown means that the intent was sent and the result is unknown.
	StateUnknown

	// StateDone means that the work was done.
	StateDone

	// StateDead means that the intent is not sent any more until a person decides.
	StateDead

	// StateCanceled means that the intent was canceled before it was done.
	StateCanceled
)

// String returns the name in lower case, as in metrics and logs.
func (s State) String() string {
	return nameOf(s, "pending", "waiting", "sending", "querying", "unknown", "done", "dead", "canceled")
}

// Claimable reports whether workers claim the intent when it is due: it is pending, waiting or
// unknown.
func (s State) Claimable() bool { return s == StatePending || s == StateWaiting || s == StateUnknown }

// Held reports whether a worker holds the intent.
func (s State) Held() bool { return s == StateSending || s == StateQuerying }

// Final reports whether no transition leads out of the state.
func (s State) Final() bool { return s == StateDone || s == StateCanceled }
