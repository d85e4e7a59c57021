package admission

import (
	"net/http"
	"time"

	"github.com/resilienthttp/resilienthttp"
)

// Event is what a gate did with one request.
type Event struct {
	// Request is the request; nil for Quota.Take.
	Request *http.Request

	// Quota is the name of the Quota; "" for a Shedder.
	Quota string

	// Key is whose quota it was; "" for a Shedder. It may be a secret.
	Key string

	// Priority is what a Shedder took the request for.
	Priority resilienthttp.Priority

	// Reason is why it was refused; ReasonNone if it was not.
	Reason Reason

	// Status is the status that a refusal was answered with; 0 if there was none.
	Status int

	// Queued is how long it waited for a place.
	Queued time.Duration

	// RetryAfter is the wait that a refusal asks for; 0: none.
	RetryAfter time.Duration

	// Err is what went wrong; nil for most.
	Err error
}

// Trace is a set of hooks. Each may be nil. They run synchronously, in the goroutine
// of the request, never under a lock; they must be safe for concurrent use and must
// not keep the pointer.
type Trace struct {
	// Admitted is called before the handler is.
	Admitted func(*Event)

	// Rejected is called before a rejection is sent.
	Rejected func(*Event)

	// StoreFailed is called when a Quota's Store did not answer, or with an error: the
	// request is then decided by a bucket of this process, or refused if the Quota is
	// FailClosed. While a store is known to be slow it is not called for each request.
	StoreFailed func(*Event)
}

func (t *Trace) admitted(e *Event) {
	if t != nil && t.Admitted != nil {
		t.Admitted(e)
	}
}

func (t *Trace) refused(e *Event) {
	if t != nil && t.Rejected != nil {
		t.Rejected(e)
	}
}

func (t *Trace) storeFailed(e *Event) {
	if t != nil && t.StoreFailed != nil {
		t.StoreFailed(e)
	}
}
