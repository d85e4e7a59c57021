package idempotency

import (
	"net/http"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/outcome"
	"github.com/resilienthttp/resilienthttp/internal/retryafter"
)

// ClassifyStatus is the default of Handler.Classify. It returns how a status code
// ends an execution:
//
//	2xx, 3xx                 Completed: stored and replayed
//	401, 408, 425, 429, 503  FailedRetryable: nothing was done, the key is free
//	other 4xx                FailedFinal: stored and replayed
//	499, other 5xx           Unknown: the operation may or may not have taken effect
//
// (Gateways use 499 for a request that was cut off.) Transactional work, and work
// that Options.Takeover repeats, is executed again instead of being Unknown. A Handler
// without Classify also frees the key after a 409 or 423 with Retry-After, which asks for
// the same request again.
func ClassifyStatus(code int) Status {
	const clientClosedRequest = 499
	switch code {
	case http.StatusUnauthorized, http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests,
		http.StatusServiceUnavailable:
		return FailedRetryable
	}
	switch {
	case code < http.StatusBadRequest:
		return Completed
	case code < http.StatusInternalServerError && code != clientClosedRequest:
		return FailedFinal
	default:
		return Unknown
	}
}

// ClassifyForwarded is a Handler.ClassifyResponse for a handler that passes on the
// response of another server, such as a proxy. It differs from ClassifyStatus where the
// response of another server proves less:
//
//	409, 423 with Retry-After  Unknown: another request with the key may be in progress
//	408, 503                   Unknown: a proxy may have lost the server's response
//	not executed, as it says   FailedRetryable: the response has Request-Executed: ?0, or a
//	                           field of Envoy that says the same (see docs/retries.md)
//
// Pass the key on and set Options.Takeover to Reexecute if the other server honours keys:
// the next request then asks it again.
//
// The status and the header are those of the last attempt only. If the handler's Transport makes
// several attempts, the handler must not pass on a response that hides an earlier attempt in doubt:
// it asks resilienthttp.InDoubt, and replies 502. See docs/server-idempotency.md.
func ClassifyForwarded(status int, h http.Header) Status {
	switch work := outcome.OfResponse(status, h).Work; {
	case work == outcome.NotExecuted:
		return FailedRetryable
	case work == outcome.InDoubt,
		status == http.StatusConflict,
		status == http.StatusLocked && retryAfter(h):
		return Unknown
	default:
		return ClassifyStatus(status)
	}
}

// retryAfter reports whether a response says when to come again.
func retryAfter(h http.Header) bool {
	_, asked := retryafter.Parse(h, time.Now())
	return asked
}
