package quota

import "time"

// Refusal is why a request has no turn.
type Refusal struct {
	Reason    Reason
	NotBefore time.Time // when it could have had one, as it looks now; zero: unknown
}

// Reason is why a request is refused.
type Reason uint8

// The reasons.
const (
	TooLong      Reason = iota // its turn comes later than it may wait
	PastDeadline               // its turn comes too late for its deadline
	Gone                       // its context is done
	moved                      // its quota is another one: it asks there
)
