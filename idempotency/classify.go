package idempotency

import "net/http"

// ClassifyStatus is the default of Handler.Classify. It returns how a status code
// ends an execution:
//
//	2xx, 3xx                 Completed: stored and replayed
//	401, 408, 425, 429, 503  FailedRetryable: nothing was done, the key is free
//	other 4xx                FailedFinal: stored and replayed
//	499, other 5xx           Unknown: the operation may or may not have taken effect
//
// (Gateways use 499 for a request that was cut off.) Transactional work, and work
// that Options.Takeover repeats, is executed again instead of being Unknown.
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
