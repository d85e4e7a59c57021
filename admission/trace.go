package admission

import (
	"net/http"
	"time"

	"github.com/resilienthttp/resilienthttp"
)

// Event is a decision of a Shedder or a Quota.
type Event struct {
	// Request is the request; nil for Quota.Take.
	Request *http.Request

	// Quota is the name of the Quota; "" for a Shedder.
	Quota string

	// Key is the result of Quota.Key or Shedder.Key. It may be a secret.
	Key string

	// Priority is the priority that a Shedder used.
	Priority resilienthttp.Priority

	// Reason is why the request was rejected; ReasonNone if it was not.
	Reason Reason

	// Status is the status of the rejection; 0 if there was none.
	Status int

	// Queued is the time in the queue.
	Queued time.Duration

	// RetryAfter is the wait that the rejection asks for; zero means none.
	RetryAfter time.Duration

	// Err is the error of Key, of the Store or of Validate; nil for most.
	Err error
}

// Trace is a set of hooks. Each may be nil. They run synchronously in the goroutine of the
// request and never under a lock. They must be safe for concurrent use and must not keep the
// pointer.
type Trace struct {
	// Admitted is called before the handler.
	Admitted func(*Event)

	// Rejected is called before a rejection is sent.
	Rejected func(*Event)

	// StoreFailed is called when the Store of a Quota was late or failed. It is not called for
	// the requests during the fallback.
	StoreFailed func(*Event)
}

func (t *Trace) admitted(e *Event) {
	if t != nil && t.Admitted != nil {
		t.Admitted(e)
	}
}

func (t *Trace) rejected(e *Event) {
	if t != nil && t.Rejected != nil {
		t.Rejected(e)
	}
}

func (t *Trace) storeFailed(e *Event) {
	if t != nil && t.StoreFailed != nil {
		t.StoreFailed(e)
	}
}
