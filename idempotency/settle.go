package idempotency

import "net/http"

// Settle is the default of Handler.Settle: how a handler's status settles its
// execution.
//
//	2xx, 3xx                 Completed: stored and replayed
//	401, 408, 425, 429, 5xx  FailedRetryable: the key is free again
//	other 4xx                FailedFinal: stored and replayed
func Settle(code int) Status {
	switch {
	case code < http.StatusBadRequest:
		return Completed
	case code >= http.StatusInternalServerError:
		return FailedRetryable
	}
	switch code {
	case http.StatusUnauthorized, http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
		return FailedRetryable
	default:
		return FailedFinal
	}
}
