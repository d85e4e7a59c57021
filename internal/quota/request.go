package quota

import (
	"time"

	"github.com/resilienthttp/resilienthttp/internal/scope"
)

// Request is what a Limiter has to know of a request that is to be sent.
type Request struct {
	Scope      scope.Key
	Credential uint64 // Limiter.Hash of what tells whose quota it is; 0: nothing does
	Method     string // with the path, it tells in which of a server's buckets it is
	Path       string

	// Deadline is by when it must have been answered; zero: there is none.
	Deadline time.Time
	// MaxClosed is the longest that it waits where refusals have closed the scope;
	// not positive: no matter how long.
	MaxClosed time.Duration
	// NoWait is true for one that goes at once or not at all.
	NoWait bool
	// Waiter, if not nil, is told of each wait for a turn.
	Waiter Waiter
}

// Waiter is told that a request stands in line. No lock is held.
type Waiter interface {
	// WaitBegins is called when it begins, with when its turn is to be expected by
	// what is known; own says that it is for the static ceiling, and not for what a
	// server says.
	WaitBegins(turn time.Time, own bool)
	// WaitEnds is called when it is over, whatever came of it.
	WaitEnds()
}
