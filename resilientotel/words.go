package resilientotel

import (
	"context"
	"errors"
	"net/http"
	"strconv"

	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/internal/neterr"
)

// What came of a call: the attribute "outcome" of its metrics, and "resilienthttp.outcome"
// of its span.
const (
	outcomeSuccess  = "success"   // the answer is one
	outcomeRejected = "rejected"  // the answer is a failure for good: most 4xx
	outcomeFailed   = "failed"    // the answer is a failure that may pass, or there is none
	outcomeRefused  = "refused"   // by a gate
	outcomeTimedOut = "timed_out" // the time of the call was over, or too short for the next wait
	outcomeCanceled = "canceled"  // by the caller
)

// outcomeOf is what came of a call.
func outcomeOf(c *resilienthttp.Call) string {
	switch {
	case c.Response != nil:
		return outcomeOfAnswer(c)
	case gateOf(c) != "":
		return outcomeRefused
	case errors.Is(c.Err, resilienthttp.ErrDeadline):
		return outcomeTimedOut
	case canceled(c.Err):
		return outcomeCanceled
	}
	return outcomeFailed
}

func outcomeOfAnswer(c *resilienthttp.Call) string {
	for i := range c.Attempts {
		if a := &c.Attempts[i]; a.Response == c.Response {
			switch a.Verdict {
			case resilienthttp.VerdictSuccess:
				return outcomeSuccess
			case resilienthttp.VerdictPermanent:
				return outcomeRejected
			default:
				return outcomeFailed
			}
		}
	}
	return outcomeSuccess
}

func canceled(err error) bool { return errors.Is(err, context.Canceled) }

// gateOf is the gate that has refused a call in the end; "": none has.
func gateOf(c *resilienthttp.Call) string {
	failed, ok := errors.AsType[*resilienthttp.Error](c.Err)
	switch {
	case !ok:
	case failed.Err == nil && is(failed.Reason, resilienthttp.ErrBreakerOpen):
		return "breaker"
	case failed.Err == nil && is(failed.Reason, resilienthttp.ErrRateLimited),
		is(failed.Reason, resilienthttp.ErrDeadline) && is(failed.Err, resilienthttp.ErrRateLimited): // a turn that came too late
		return "rate_limit"
	}
	return ""
}

// sentinelName is the name of what ends calls, in snake case.
func sentinelName(err error) string {
	switch {
	case err == nil:
		return ""
	case is(err, resilienthttp.ErrBreakerOpen):
		return "breaker_open"
	case is(err, resilienthttp.ErrRateLimited):
		return "rate_limited"
	case is(err, resilienthttp.ErrDeadline):
		return "deadline"
	case is(err, resilienthttp.ErrAttemptTimeout):
		return "attempt_timeout"
	case is(err, resilienthttp.ErrReadTimeout):
		return "read_timeout"
	case is(err, resilienthttp.ErrMaxAttempts):
		return "max_attempts"
	case is(err, resilienthttp.ErrBudgetExhausted):
		return "budget_exhausted"
	case is(err, resilienthttp.ErrNotReplayable):
		return "not_replayable"
	case is(err, resilienthttp.ErrNotIdempotent):
		return "not_idempotent"
	case is(err, resilienthttp.ErrRetryAfter):
		return "retry_after"
	case is(err, resilienthttp.ErrSingleAttempt):
		return "single_attempt"
	}
	return other
}

// is reports whether an error of ours is the very one: errors.Is would find it inside of
// another's, too.
func is(err, sentinel error) bool { return err == sentinel } //nolint:errorlint // that is the point

// errorType is the error.type of a call: a status from 400 on, or why there is no answer;
// "" for one that is well.
func errorType(c *resilienthttp.Call) string {
	if c.Response != nil {
		return statusType(c.Response.StatusCode)
	}
	failed, ok := errors.AsType[*resilienthttp.Error](c.Err)
	switch {
	case !ok:
		return kindOf(c.Err)
	case failed.Err == nil || is(failed.Reason, resilienthttp.ErrDeadline):
		return sentinelName(failed.Reason)
	}
	return kindOf(failed.Err) // its Reason may be why it was not repeated
}

// statusType is what an answer's status is called where it is an error.
func statusType(status int) string {
	if status < http.StatusBadRequest {
		return ""
	}
	return statusName(status)
}

func statusName(status int) string {
	if status < 100 || status > 999 {
		return other
	}
	return strconv.Itoa(status)
}

// kindOf is one of a few words for an error of an attempt.
func kindOf(err error) string {
	switch {
	case errors.Is(err, resilienthttp.ErrAttemptTimeout):
		return "attempt_timeout"
	case errors.Is(err, resilienthttp.ErrBreakerOpen): // of a Transport inside
		return "breaker_open"
	case errors.Is(err, resilienthttp.ErrRateLimited):
		return "rate_limited"
	case canceled(err):
		return "canceled"
	case neterr.Malformed(err):
		return "malformed_request"
	case neterr.UnknownHost(err):
		return "no_such_host"
	case neterr.Untrusted(err):
		return "untrusted"
	case neterr.TimedOut(err):
		return "timeout"
	case neterr.NotSent(err):
		return "not_connected"
	}
	return other
}

// reasonOfRetry is why an attempt was repeated: the status or the kind of error with which
// the one before has failed; "slow" where it was still under way.
func reasonOfRetry(failed, retry *resilienthttp.Attempt) string {
	if retry.Concurrent {
		return "slow"
	}
	return failureOf(failed)
}

// failureOf is the status or the kind of error with which an attempt has failed.
func failureOf(a *resilienthttp.Attempt) string {
	if a.Response != nil {
		return statusName(a.Response.StatusCode)
	}
	return kindOf(a.Err)
}

// methodName is a method that is known to semantic conventions, or "_OTHER".
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

// serverAttributes are the host of a request, and its port if that is not the scheme's.
func serverAttributes(to []attribute.KeyValue, r *http.Request) []attribute.KeyValue {
	if r.URL == nil {
		return to
	}
	to = append(to, semconv.ServerAddress(r.URL.Hostname()))
	if port, err := strconv.Atoi(r.URL.Port()); err == nil {
		to = append(to, semconv.ServerPort(port))
	}
	return to
}
