package quota

import (
	"net/http"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/ratelimitheader"
)

// Answer is what came of a request.
type Answer struct {
	Status int  // 0: there was none
	Unsent bool // and the request has certainly never left

	Quota      ratelimitheader.State
	AsksToWait bool // by a Retry-After
	RetryAfter time.Duration
}

// refused reports whether the request was refused because of a quota, so that
// nobody has worked on it.
func (a *Answer) refused() bool {
	return a.Status == http.StatusTooManyRequests ||
		a.Status == http.StatusForbidden && (a.AsksToWait || a.Quota.Exhausted)
}

// served reports whether it was let through.
func (a *Answer) served() bool {
	return a.Status != 0 && a.Status < http.StatusInternalServerError && !a.refused()
}

// proof is what a refusal proves.
func (a *Answer) proof() proof {
	for i := range a.Quota.Axes {
		if a.Quota.Axes[i].Remaining == 0 {
			return knownReset
		}
	}
	if a.Quota.Exhausted {
		return proven
	}
	return noProof
}

// on is what it says of the axis; nil: nothing.
func (a *Answer) on(axis string) *ratelimitheader.Axis {
	for i := range a.Quota.Axes {
		if a.Quota.Axes[i].Name == axis {
			return &a.Quota.Axes[i]
		}
	}
	return nil
}
