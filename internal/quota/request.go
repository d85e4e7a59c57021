package quota

import (
	"time"

	"github.com/resilienthttp/resilienthttp/internal/ratelimitheader"
	"github.com/resilienthttp/resilienthttp/internal/waitqueue"
)

// Request describes a request.
type Request struct {
	Credential   uint64 // Limiter.Hash of the credential; 0: none
	Key          string // the user's name of the quotas; those of two keys are independent
	Method, Path string // a server may have a bucket for each

	// Cost estimates what the request takes from quotas that do not count requests. 0 means unknown.
	Cost int64
	// Deadline is the time by which the response must arrive; zero means none.
	Deadline time.Time
	// MaxWait replaces that of the Limiter for this request. 0 means that of the Limiter.
	MaxWait time.Duration
	// MaxBlock is the longest wait while rejections block the scope. If it is 0 or less, MaxWait
	// applies.
	MaxBlock time.Duration
	// NoWait is true for a hedge. It is sent at once or not at all, and not while less than half
	// of a quota is left.
	NoWait bool
	// AtOnce is true for a request that can go elsewhere. It is sent at once or not at all.
	AtOnce bool
	// Around is the slot of the attempt of which the request is a part, or nil.
	Around *Slot
	// Waiter is called for each wait. nil means none.
	Waiter waitqueue.Waiter
}

// Response is the result of a request.
type Response struct {
	Status  int  // 0: no response
	NotSent bool // no byte of the request was written, for certain

	Quota      ratelimitheader.State
	AsksToWait bool // it has Retry-After
	RetryAfter time.Duration
}

// Shows reports whether the response shows a quota or is a rejection.
func (a *Response) Shows() bool {
	return a.rejected() || len(a.Quota.Dimensions) > 0 || a.Quota.Bucket != ""
}
