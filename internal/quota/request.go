package quota

import (
	"net/http"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/ratelimitheader"
	"github.com/resilienthttp/resilienthttp/internal/waitqueue"
)

// Request describes a request.
type Request struct {
	Credential   uint64 // Limiter.Hash of the credential; 0: none
	Key          string // the user's name of the quotas; those of two keys are independent
	Method, Path string // a server may have a bucket for each

	// Deadline is the time by which the response must arrive; zero means none.
	Deadline time.Time
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
	Waiter Waiter
}

// Waiter is called when a request begins to wait, and when the wait ends.
type Waiter = waitqueue.Waiter

// Rejection is the result of a request that gets no permit.
type Rejection = waitqueue.Rejection

// Reason is the reason of a rejection.
type Reason = waitqueue.Reason

// The reasons.
const (
	MaxWaitExceeded  = waitqueue.MaxWaitExceeded
	DeadlineExceeded = waitqueue.DeadlineExceeded
	Canceled         = waitqueue.Canceled
)

// Response is the result of a request.
type Response struct {
	Status  int  // 0: no response
	NotSent bool // no byte of the request was written, for certain

	Quota      ratelimitheader.State
	AsksToWait bool // it has Retry-After
	RetryAfter time.Duration
}

// rejected reports whether a limit rejected the request, so that the server has done no work.
func (a *Response) rejected() bool {
	switch a.Status {
	case http.StatusTooManyRequests:
		return true
	case http.StatusForbidden:
		return a.AsksToWait || a.Quota.Exhausted
	case http.StatusServiceUnavailable:
		return a.Quota.Exhausted
	}
	return false
}

// served reports whether the limits admitted the request.
func (a *Response) served() bool {
	unclear := a.Status == http.StatusBadRequest && a.Quota.Exhausted
	return a.Status != 0 && a.Status < http.StatusInternalServerError && !unclear && !a.rejected()
}

// Shows reports whether the response shows a quota or is a rejection.
func (a *Response) Shows() bool {
	return a.rejected() || len(a.Quota.Dimensions) > 0 || a.Quota.Bucket != ""
}

// exhausts reports whether a rejection shows that the dimension is exhausted. A request may take
// several units of a costed dimension, so it may be rejected although something remains.
func (a *Response) exhausts(d *ratelimitheader.Dimension) bool {
	return d.Remaining == 0 || d.Costed && d.Limit > 0 && d.Remaining < d.Limit/costedEmpty && !a.Quota.Exhausted
}

// costedEmpty is the part of a costed dimension below which a rejection means that it is
// exhausted.
const costedEmpty = 10

// remaining returns the remaining count of the dimension in the response, or -1.
func (a *Response) remaining(name string) int64 {
	for i := range a.Quota.Dimensions {
		if a.Quota.Dimensions[i].Name == name {
			return a.Quota.Dimensions[i].Remaining
		}
	}
	return -1
}
