package durable

import "time"

// Action is the kind of a Decision.
type Action uint8

// The actions.
const (
	// Retry sends the intent again. If the result is unknown, it is sent under the same key
	// while that protects; after that, the provider is queried, or the intent is dead.
	Retry Action = iota

	// Query queries the provider. If the Gateway is no Finder, or if the result is not in
	// doubt, it is Retry.
	Query

	// Bury makes a dead letter of the intent.
	Bury
)

// Decision is what a Policy wants next.
type Decision struct {
	// Action is the next step.
	Action Action

	// At is the time, by the clock of Policy.Next. A past time means one to two seconds from
	// now. The maximum is 30 days from now. A send is never earlier than the outcome's
	// NotBefore.
	At time.Time

	// NewKey uses a new key for the next send. It is ignored while the result is in doubt.
	// After a decline the key is new anyway.
	NewKey bool

	// Reason is the reason of the dead letter, at most 512 bytes. "" means the class of the
	// outcome.
	Reason string
}
