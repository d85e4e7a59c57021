package resilienthttp

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/neterr"
)

// The reasons for which a call ends without a response. errors.Is finds them in the error of
// http.Client.Do and Transport.RoundTrip, and they are the Reason of its *Error.
var (
	// ErrBreakerOpen means that the circuit breaker of the scope rejected the next
	// attempt. Error.Attempts has those before it, and Error.NotBefore is the time of the
	// next call.
	ErrBreakerOpen = neterr.Named("breaker_open", "circuit breaker is open")

	// ErrRateLimited means that the attempt could not be sent within RateLimit.MaxWait,
	// because of the fixed limit, of an exhausted quota, or because rejections block the
	// scope. Error.Attempts has the attempts before it, and Error.NotBefore is the time of
	// the next call.
	ErrRateLimited = neterr.Named("rate_limited", "rate limited")

	// ErrDeadline means that the call's deadline has passed, or that the next wait would pass
	// it and was not begun. It matches context.DeadlineExceeded, and its Timeout method
	// reports true.
	ErrDeadline = neterr.Timeout("deadline", "deadline of the call leaves no time")

	// ErrAttemptTimeout means that no response headers came within Policy.AttemptTimeout,
	// Policy.AdaptiveTimeout, or 15 minutes if the call has neither AttemptTimeout nor a
	// deadline.
	// It matches context.DeadlineExceeded, and its Timeout method reports true.
	ErrAttemptTimeout = neterr.Timeout("attempt_timeout", "attempt timed out")

	// ErrReadTimeout means that a Read of a response body blocked for longer than
	// Policy.ReadTimeout. Reads return it, not RoundTrip. Its Timeout method reports true.
	ErrReadTimeout = neterr.Timeout("read_timeout", "response body timed out")
)

// The reasons for which a failed attempt is not retried: with the reasons above, the values of
// Attempt.StopReason. If the last attempt ended in an error, errors.Is finds them in the
// *Error too.
var (
	// ErrMaxAttempts means that no attempt is left: Policy.MaxAttempts were made, the
	// default Backoff has no further wait, or the server sent nothing for 15 minutes.
	ErrMaxAttempts = neterr.Named("max_attempts", "no attempts left")

	// ErrBudgetExhausted means that the retry budget of the scope has too few tokens.
	ErrBudgetExhausted = neterr.Named("budget_exhausted", "retry budget exhausted")

	// ErrNotReplayable means that the request has a body and no GetBody, or that GetBody has
	// failed. If the last attempt ended in an error, the *Error has GetBody's error too.
	ErrNotReplayable = neterr.Named("not_replayable", "request body cannot be replayed")

	// ErrNotIdempotent means that a retry could do the work twice: the method is neither safe
	// nor idempotent (RFC 9110 section 9.2), there is no idempotency key, and the server may
	// have processed the request.
	ErrNotIdempotent = neterr.Named("not_idempotent", "request is not idempotent")

	// ErrRetryAfter means that the server asks for a longer wait than Policy.MaxRetryAfter.
	// Attempt.RetryWait has the wait.
	ErrRetryAfter = neterr.Named("retry_after", "server asks to wait longer than allowed")

	// ErrSingleAttempt means that another layer owns the retries of the call: SingleAttempt,
	// X-Retry-Owner received by Deadline.Handler, an outer Transport, an SDK that reports its
	// retries, a client that is known to retry, or the same request again within a minute of
	// its failure. See docs/under-your-sdk.md. A request that could not be repeated anyway has
	// ErrNotIdempotent, ErrNotReplayable or ErrMaxAttempts instead.
	ErrSingleAttempt = neterr.Named("single_attempt", "another layer owns retries")
)

// ErrorType returns the value of the attribute error.type of OpenTelemetry for the error of an
// attempt or of a call: timeout, canceled, connection_refused, connection_reset, eof, dns, tls,
// proxy, breaker_open, rate_limited, read_timeout or _OTHER; "" for nil. The type of an *Error is
// that of its Err, or that of its Reason if nothing was sent. Metrics, spans, logs and State use
// the same words.
func ErrorType(err error) string {
	failed, ok := errors.AsType[*Error](err)
	switch {
	case !ok:
		return neterr.Kind(err)
	case failed.Err != nil:
		return ErrorType(failed.Err)
	case failed.Reason != nil:
		return neterr.Kind(failed.Reason)
	}
	return neterr.Other
}

// Error is the one error type of RoundTrip. http.Client wraps it in a *url.Error, in which
// errors.As finds it. When http.Client.Timeout fires, net/http replaces it by an error of its
// own: prefer a context with a deadline. An Error is not modified after it was returned.
type Error struct {
	// Reason is the sentinel for the end of the call. It is nil if Err says everything: the
	// caller canceled, or the failure is permanent.
	Reason error

	// Err is the cause: the error of the last attempt or of the context. It is nil if a gate
	// rejected the first attempt.
	Err error

	// Attempts are the attempts in the order of their starts, with hedges. It is empty if
	// nothing was sent.
	Attempts []Attempt

	// NotBefore is the earliest time for another call, after ErrBreakerOpen and
	// ErrRateLimited. Zero means unknown. All rejected calls get the same time, so add jitter.
	NotBefore time.Time
}

// Error returns why the call ended, how the last attempt ended, and its number. The text has
// no URL path or query, header value or body. Of an error of an unknown type it has the type
// only: Err has the text.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("resilienthttp: ")
	switch {
	case e.Reason != nil && e.Err != nil:
		cause := e.Err
		if b, ok := cause.(*neterr.ReasonedError); ok && b.Reason == e.Reason { //nolint:errorlint // not to say it twice
			cause = b.Cause
		}
		b.WriteString(e.Reason.Error() + ": " + neterr.SafeText(cause))
	case e.Reason != nil:
		b.WriteString(e.Reason.Error())
	case e.Err != nil:
		b.WriteString(neterr.SafeText(e.Err))
	default:
		b.WriteString("call failed")
	}
	if n := len(e.Attempts); n > 0 {
		last := &e.Attempts[n-1]
		b.WriteString(" (attempt " + strconv.Itoa(last.Number))
		switch {
		case last.Response != nil:
			b.WriteString(" ended with status " + strconv.Itoa(last.Response.StatusCode))
		case last.Err != nil && !errors.Is(e.Err, last.Err):
			b.WriteString(" ended with " + neterr.SafeText(last.Err))
		}
		b.WriteString(")")
	}
	if !e.NotBefore.IsZero() {
		b.WriteString("; not before " + notEarlier(e.NotBefore).Format(deadlineFormat))
	}
	return b.String()
}

// Unwrap returns the reason, the cause, the StopReason, and the error of the last attempt.
func (e *Error) Unwrap() []error {
	errs := make([]error, 0, 4)
	if e.Reason != nil {
		errs = append(errs, e.Reason)
	}
	if e.Err != nil {
		errs = append(errs, e.Err)
	}
	for i := range e.Attempts { // at most one has it, maybe before a hedge
		if stop := e.Attempts[i].StopReason; stop != nil {
			errs = append(errs, stop)
		}
	}
	if n := len(e.Attempts); n > 0 {
		last := &e.Attempts[n-1]
		if last.Err != nil && !errors.Is(e.Err, last.Err) { // not twice: errors.Is walks all branches
			errs = append(errs, last.Err)
		}
	}
	return errs
}

// NotSent reports whether it is proved that no byte of the request was written: a gate
// rejected the first attempt, the caller canceled before it, or each attempt failed before its
// connection was ready (DNS, dial, TLS handshake). The call can then be repeated without a
// key. False proves nothing.
func (e *Error) NotSent() bool {
	for i := range e.Attempts {
		if a := &e.Attempts[i]; !a.notSent && (a.Response != nil || a.Err == nil || !provesNotSent(a.Err)) {
			return false
		}
	}
	return len(e.Attempts) > 0 || e.Err == nil || errors.Is(e.Err, ErrRateLimited) || provesNotSent(e.Err) ||
		errors.Is(e.Err, context.Canceled) || errors.Is(e.Err, context.DeadlineExceeded)
}

func provesNotSent(err error) bool {
	if inner, ok := errors.AsType[*Error](err); ok && inner.NotSent() {
		return true
	}
	return neterr.NotSent(err)
}

// getBodyError is why a failure was not retried: GetBody has failed.
type getBodyError struct{ err error }

func (b *getBodyError) Error() string { return "GetBody: " + neterr.SafeText(b.err) }
func (b *getBodyError) Unwrap() error { return b.err }

// summary is the reason of the call's end alone, or else its cause.
func (e *Error) summary() string {
	if e.Reason != nil {
		return e.Reason.Error()
	}
	return neterr.SafeText(e.Err)
}

// byGate reports whether a gate rejected an attempt and so ended the call.
func (e *Error) byGate() bool {
	switch e.Reason {
	case ErrBreakerOpen, ErrRateLimited:
		return true
	case ErrDeadline:
		return e.Err == ErrRateLimited // the permit would come after the deadline
	}
	return false
}

// Timeout reports whether the call ended because of a timeout or deadline, for
// url.Error.Timeout. A rejection is not a timeout.
func (e *Error) Timeout() bool {
	for _, err := range [...]error{e.Reason, e.Err} {
		var timeout interface{ Timeout() bool }
		if errors.As(err, &timeout) {
			return timeout.Timeout()
		}
	}
	return false
}

// notEarlier rounds a time up to a millisecond, as it is printed.
func notEarlier(t time.Time) time.Time {
	return t.Add(time.Millisecond - 1).Truncate(time.Millisecond).UTC()
}
