package quota

import (
	"net/http"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/ratelimitheader"
)

// Answer is what came of a request.
type Response struct {
	Status int  // 0: there was none
	Unsent bool // and the request has certainly never left

	Quota      ratelimitheader.State
	AsksToWait bool // by a Retry-After
	RetryAfter time.Duration
}

// rejected reports whether the request was rejected because of a limit, so that the server
// has done no work.
func (a *Response) rejected() bool {
	return a.Status == http.StatusTooManyRequests ||
		a.Status == http.StatusForbidden && (a.AsksToWait || a.Quota.Exhausted)
}

// served reports whether the limits let the request through.
func (a *Response) served() bool {
	return a.Status != 0 && a.Status < http.StatusInternalServerError && !a.rejected()
}

// exhausts reports whether a rejection shows that the dimension is exhausted. A request
// takes more than one of a costed dimension: it may be rejected with something left.
func (a *Response) exhausts(d *ratelimitheader.Dimension) bool {
	return d.Remaining == 0 || d.Costed && d.Limit > 0 && d.Remaining < d.Limit/costedEmpty && !a.Quota.Exhausted
}

// costedEmpty is the part of a costed dimension below which a rejection means that it is
// exhausted.
const costedEmpty = 10
