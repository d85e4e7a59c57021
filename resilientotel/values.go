package resilientotel

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"strconv"

	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/internal/neterr"
)

// outcomeOf returns the resilienthttp.outcome of a call.
func outcomeOf(c *resilienthttp.Call) string {
	switch {
	case c.Response != nil:
		return outcomeOfResponse(c)
	case gateOf(c) != "":
		return outcomeRejected
	case errors.Is(c.Err, resilienthttp.ErrDeadline):
		return outcomeTimeout
	case errors.Is(c.Err, context.Canceled):
		return outcomeCanceled
	}
	return outcomeFailed
}

func outcomeOfResponse(c *resilienthttp.Call) string {
	switch verdictOf(c) {
	case resilienthttp.VerdictSuccess:
		return outcomeSuccess
	case resilienthttp.VerdictPermanent:
		return outcomePermanent
	default:
		return outcomeFailed
	}
}

// verdictOf returns the verdict of a call's response.
func verdictOf(c *resilienthttp.Call) resilienthttp.Verdict {
	for i := range c.Attempts {
		if a := &c.Attempts[i]; a.Response == c.Response {
			return a.Verdict
		}
	}
	return resilienthttp.VerdictSuccess
}

// gateOf returns the gate that rejected the call, or "".
func gateOf(c *resilienthttp.Call) string {
	failed, ok := errors.AsType[*resilienthttp.Error](c.Err)
	switch {
	case !ok:
	case failed.Err == nil && is(failed.Reason, resilienthttp.ErrBreakerOpen):
		return gateBreaker
	case failed.Err == nil && is(failed.Reason, resilienthttp.ErrRateLimited),
		is(failed.Reason, resilienthttp.ErrDeadline) && is(failed.Err, resilienthttp.ErrRateLimited): // the permit would come too late
		return gateRateLimit
	}
	return ""
}

// is reports whether err is the sentinel itself. errors.Is also finds the sentinel of a
// Transport inside Base.
func is(err, sentinel error) bool { return err == sentinel } //nolint:errorlint // see above

// stopReason returns the resilienthttp.stop_reason for an Attempt.StopReason.
func stopReason(err error) string { return cmp.Or(neterr.Name(err), other) }

// errorTypeOf returns the error.type of a call, or "" for a call without an error.
func errorTypeOf(c *resilienthttp.Call) string {
	if c.Response != nil {
		return errorTypeOfResponse(c.Response.StatusCode, verdictOf(c))
	}
	return resilienthttp.ErrorType(c.Err)
}

// errorTypeOfResponse returns the error.type of a response. A failure below 400, such as an event of a stream, has its verdict.
func errorTypeOfResponse(status int, verdict resilienthttp.Verdict) string {
	if status < http.StatusBadRequest && verdict > resilienthttp.VerdictSuccess {
		return verdict.String()
	}
	return errorTypeOfStatus(status)
}

// errorTypeOfStatus returns the status code as error.type, or "" for one below 400.
func errorTypeOfStatus(status int) string {
	switch {
	case status < http.StatusBadRequest:
		return ""
	case status > 599:
		return other
	}
	return strconv.Itoa(status)
}

// retryReason returns the resilienthttp.retry.reason of a retry: the status code or the
// error.type of the attempt that failed before it.
func retryReason(failed, retry *resilienthttp.Attempt) string {
	if retry.Concurrent {
		return reasonSlowAttempt
	}
	return failureOf(failed)
}

func failureOf(a *resilienthttp.Attempt) string {
	if a.Response != nil {
		return errorTypeOfResponse(a.Response.StatusCode, a.Verdict)
	}
	return resilienthttp.ErrorType(a.Err)
}

// methodName returns the http.request.method of a request: a known method, or "_OTHER".
func methodName(method string) string {
	switch method {
	case "":
		return http.MethodGet
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
		http.MethodConnect, http.MethodOptions, http.MethodTrace, "QUERY":
		return method
	}
	return other
}

// queueCause returns the resilienthttp.wait.cause of a wait in the queue.
func queueCause(a *resilienthttp.Attempt) string {
	switch {
	case a.Held:
		return waitCircuit
	case a.FixedLimit:
		return waitFixedLimit
	}
	return waitQuota
}

func stateName(s resilienthttp.BreakerState) string {
	switch s {
	case resilienthttp.StateClosed:
		return "closed"
	case resilienthttp.StateHalfOpen:
		return "half_open"
	case resilienthttp.StateOpen:
		return "open"
	}
	return other
}

// scopeAttributes returns the attributes of a scope, and of a priority that is not "".
func scopeAttributes(scope, priority string) []attribute.KeyValue {
	return with([]attribute.KeyValue{keyScope.String(scope)}, keyPriority, priority)
}

// with adds an attribute, unless its value is "".
func with(attributes []attribute.KeyValue, key attribute.Key, value string) []attribute.KeyValue {
	if value == "" {
		return attributes
	}
	return append(attributes, key.String(value))
}

func priorityName(p resilienthttp.Priority) string {
	switch p {
	case resilienthttp.PriorityBatch, resilienthttp.PriorityDefault, resilienthttp.PriorityCritical:
		return p.String()
	}
	return other
}

// serverAttributes returns the attributes of the host of a request, and of its port if it is
// not the scheme's.
func serverAttributes(r *http.Request) []attribute.KeyValue {
	if r.URL == nil {
		return nil
	}
	attributes := []attribute.KeyValue{semconv.ServerAddress(r.URL.Hostname())}
	if port, err := strconv.Atoi(r.URL.Port()); err == nil {
		attributes = append(attributes, semconv.ServerPort(port))
	}
	return attributes
}
