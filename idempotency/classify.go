package idempotency

import "net/http"

// Settle is the default of Handler.Settle: how a handler's status settles its
// execution.
//
//	2xx, 3xx                 Completed: stored and replayed
//	401, 408, 425, 429, 503  FailedRetryable: nothing was done, the key is free again
//	other 4xx                FailedFinal: stored and replayed
//	499, other 5xx           Unknown: nobody knows whether something was done
//
// (499 is how gateways call a request that was cut off.) A Handler whose work is
// joined, or may be repeated by Terms.Takeover, takes the last as a reason to execute
// it again.
func ClassifyStatus(code int) Status {
	switch code {
	case http.StatusUnauthorized, http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests,
		http.StatusServiceUnavailable:
		return FailedRetryable
	}
	switch {
	case code < http.StatusBadRequest:
		return Completed
	case code < http.StatusInternalServerError && code != statusCutOff:
		return FailedFinal
	default:
		return Unknown
	}
}

const statusCutOff = 499
