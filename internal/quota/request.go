package quota

import (
	"time"

	"github.com/resilienthttp/resilienthttp/internal/scope"
	"github.com/resilienthttp/resilienthttp/internal/waitqueue"
)

// Request is what a Limiter has to know of a request that is to be sent.
type Request struct {
	Scope      scope.Key
	Credential uint64 // Limiter.Hash of what tells whose quota it is; 0: nothing does
	Method     string // with the path, it tells in which of a server's buckets it is
	Path       string

	// Deadline is by when it must have been answered; zero: there is none.
	Deadline time.Time
	// MaxBlock is the longest that it waits where refusals have closed the scope;
	// not positive: no matter how long.
	MaxBlock time.Duration
	// NoWait is true for one that goes at once or not at all: a hedge. It is rejected while
	// a quota is short.
	NoWait bool
	// Waiter, if not nil, is told of each wait for a turn.
	Waiter Waiter
}

// Waiter is called when a request begins to wait, and when the wait ends.
type Waiter = waitqueue.Waiter

// Refusal is why a request gets no permit.
type Rejection = waitqueue.Rejection

// Reason is why a request is rejected.
type Reason = waitqueue.Reason

// The reasons.
const (
	MaxWaitExceeded  = waitqueue.MaxWaitExceeded
	DeadlineExceeded = waitqueue.DeadlineExceeded
	Canceled         = waitqueue.Canceled
)
