package outcome

import (
	"net/http"
	"strings"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/field"
	"github.com/resilienthttp/resilienthttp/internal/neterr"
	"github.com/resilienthttp/resilienthttp/internal/ratelimitheader"
	"github.com/resilienthttp/resilienthttp/internal/retryafter"
)

// OfResponse returns the outcome of a response of which only the status and the header are known.
func OfResponse(status int, h http.Header) Outcome {
	var signs Signs
	if status >= http.StatusBadRequest {
		quota, _ := ratelimitheader.Parse(h, time.Time{})
		_, asks := retryafter.Parse(h, time.Time{})
		signs = SignsOf(h, asks, quota.Exhausted)
	}
	return Of(Status(status), signs)
}

// SignsOf returns the signs in the header of a failure. asks and exhausted are what its Retry-After and its quotas say.
func SignsOf(h http.Header, asks, exhausted bool) (signs Signs) {
	if asks {
		signs |= AsksToWait
	}
	if exhausted {
		signs |= Exhausted
	}
	if saysNotExecuted(h) {
		signs |= SaysNotExecuted
	}
	return signs | hint(h)
}

// saysNotExecuted reports whether a server, or what is in front of it, says that nothing of the request was executed: by our
// own field, or by a field of Envoy for a request that its circuit breaker or its rate limit rejected. Neither holds behind a proxy
// that repeats requests, because the field is about the last of them.
func saysNotExecuted(h http.Header) bool {
	return says(h, field.ExecutedHeader, field.NotExecuted) || says(h, "X-Envoy-Overloaded", "true") || says(h, "X-Envoy-Ratelimited", "true")
}

// says reports whether a field has one value, and which one. Several lines contradict each other, so they say nothing.
func says(h http.Header, name, value string) bool {
	lines := h[name]
	return len(lines) == 1 && strings.EqualFold(retryafter.Trim(lines[0]), value)
}

// hint reads the should-retry field of Stripe, or of OpenAI, Anthropic and others.
func hint(h http.Header) Signs {
	for _, name := range [...]string{"Stripe-Should-Retry", "X-Should-Retry"} {
		switch value := strings.TrimSpace(h.Get(name)); {
		case strings.EqualFold(value, "true"):
			return SaysRetry
		case strings.EqualFold(value, "false"):
			return SaysNoRetry
		}
	}
	return 0
}

// OfError returns what came back if an attempt has ended with an error of net/http or of a RoundTripper, and what else the
// error shows. Whether the request was sent depends on more than the error.
func OfError(err error) (came Came, signs Signs) {
	if neterr.NotProcessed(err) {
		signs = SaysNotExecuted
	}
	switch {
	case neterr.Malformed(err):
		return Invalid, signs
	case neterr.Permanent(err):
		return Intermediary, signs
	case neterr.FromIntermediary(err):
		return NoToken, signs
	case neterr.Untrusted(err), neterr.SchemeMismatch(err), neterr.UnknownHost(err):
		return Stranger, signs
	case neterr.Throttled(err):
		return Calm, signs
	case neterr.TimedOut(err):
		return NetworkTimeout, signs
	}
	return Broken, signs
}
