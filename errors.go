package resilienthttp

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/neterr"
)

// The reasons for which a call ends without a response. errors.Is finds them in the error of
// http.Client.Do and Transport.RoundTrip. They are values of Error.Reason. See docs/errors.md.
var (
	// ErrBreakerOpen means that the circuit breaker of the scope rejected an attempt, or that the attempt waited for
	// it as long as it may (Breaker.MaxWait). Error.NotBefore is the time for the next call.
	ErrBreakerOpen = newReason("breaker_open", "circuit breaker is open")

	// ErrRateLimited means that the attempt could not be sent within RateLimit.MaxWait, because
	// of RateLimit.Limit or MaxInFlight, an exhausted quota, or a blocked scope. Error.NotBefore is
	// the time for the next call; zero means unknown.
	ErrRateLimited = newReason("rate_limited", "rate limited")

	// ErrDeadline means that the call's deadline has passed, or would pass during the next wait.
	// It matches context.DeadlineExceeded, and its Timeout method reports true.
	ErrDeadline = newTimeout("deadline", "deadline of the call leaves no time")

	// ErrAttemptTimeout means that no response headers arrived within Policy.AttemptTimeout, or
	// 15 minutes without AttemptTimeout and deadline. It matches context.DeadlineExceeded, and its
	// Timeout method reports true.
	ErrAttemptTimeout = newTimeout("attempt_timeout", "attempt timed out")

	// ErrReadTimeout means that a Read of a response body blocked for longer than
	// Policy.ReadTimeout. Only Read returns it. Its Timeout method reports true.
	ErrReadTimeout = newTimeout("read_timeout", "response body timed out")
)

// The reasons for which a failed attempt is not retried. Together with the reasons above, they are
// the values of Attempt.StopReason. If the last attempt ended in an error, errors.Is finds them in
// the *Error too.
var (
	// ErrMaxAttempts means that no attempt is left: Policy.MaxAttempts were made, the default
	// Backoff has no further wait, or the server sent nothing for 15 minutes.
	ErrMaxAttempts = newReason("max_attempts", "no retries left")

	// ErrBudgetExhausted means that the retry budget of the scope has too few tokens, and that the call must not wait for
	// them, or has waited without a result.
	ErrBudgetExhausted = newReason("budget_exhausted", "retry budget exhausted")

	// ErrNotReplayable means that the request has a body and no GetBody, or that GetBody failed.
	// The *Error of the call contains GetBody's error too.
	ErrNotReplayable = newReason("not_replayable", "request body cannot be replayed")

	// ErrNotIdempotent means that a retry could do the work twice. The method is not idempotent
	// (RFC 9110 section 9.2), there is no idempotency key, Policy.Idempotent does not permit it, and
	// the server may have processed the request.
	ErrNotIdempotent = newReason("not_idempotent", "request is not idempotent")

	// ErrRetryAfter means that the server asks for a longer wait than Policy.MaxRetryAfter.
	// Attempt.RetryWait is the wait.
	ErrRetryAfter = newReason("retry_after", "server asks to wait longer than allowed")

	// ErrSingleAttempt means that another layer owns the retries of the call: WithSingleAttempt, an
	// outer Transport, or a caller that sent X-Retry-Owner to a DeadlineHandler. It can also be a
	// client that reports its retries, that is known to retry, or that sends a failed request
	// again within ten seconds. See docs/sdks.md.
	ErrSingleAttempt = newReason("single_attempt", "the caller or another layer owns retries")
)

// newReason returns a sentinel error. Its name is the value of metrics and logs.
func newReason(name, text string) error { return neterr.Named(name, text) }

// newTimeout returns a sentinel error that is a timeout for net, net/http and context.
func newTimeout(name, text string) error { return neterr.Timeout(name, text) }

// ErrorType returns the value of OpenTelemetry's attribute error.type for an error, for example
// timeout, connection_refused, breaker_open or _OTHER; "" for nil. Of an *Error it uses Err, or
// Reason if Err is nil. Metrics, spans, logs and State have the same values. See docs/errors.md.
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

// Error is the error type of RoundTrip. http.Client wraps it in a *url.Error; use errors.As. If
// http.Client.Timeout fires, net/http returns an error of its own: prefer a context with a
// deadline. An Error is not modified after it is returned.
type Error struct {
	// Reason is the sentinel error for the end of the call. It is nil if the caller canceled or
	// the failure is permanent.
	Reason error

	// Err is the cause: the error of the last attempt or of the context. It is nil if the breaker
	// or the rate limit rejected the first attempt.
	Err error

	// Attempts are the attempts in the order of their starts, with hedges. It is empty if nothing
	// was sent.
	Attempts []Attempt

	// NotBefore is the earliest time for another call, if a gate rejects calls until then or a response
	// has asked for a wait. Zero means unknown. All rejected calls get the same time, so add jitter.
	NotBefore time.Time

	call   *call          // for Explain; nil: the call did not begin
	parts  []string       // of the call's requests, which Error must not show
	before *http.Response // the redirect that led to the call; nil: none
	quota  *QuotaStatus   // the exhausted quota that rejected the call; nil: none
	hold   string         // how long the circuit has held calls; "": unknown
}

// Error returns the reason, the cause and the number of the last attempt. A call that was canceled before its first attempt has
// the text of its cause alone, as with a bare client. So has a call of one attempt that failed permanently. The cause is shown as its author wrote it, but what quotes the request
// or a response is cut: of URLs all but the host, what is between quotation marks, and each path, query and header value of
// the request. The text may still quote what the client cannot know, such as a body. For logs that others read, use SafeText.
func (e *Error) Error() string {
	if e.Reason == nil && e.Err == context.Canceled && len(e.Attempts) == 0 { //nolint:errorlint // the very error
		return e.Err.Error() // before anything was sent, as with a bare client
	}
	if e.call == nil { // a program made it, or the call did not begin: the request is unknown
		return e.SafeText()
	}
	cause := func(err error) string { return joined(neterr.Text(err, e.parts), neterr.Clue(err)) }
	if e.Reason == nil && len(e.Attempts) == 1 && e.endedWith(&e.Attempts[0]) {
		return cause(e.Err)
	}
	return e.text(cause)
}

// endedWith reports whether the cause is the error of an attempt.
func (e *Error) endedWith(a *Attempt) bool { return a.Err != nil && errors.Is(e.Err, a.Err) }

// SafeText returns the reason, the cause and the number of the last attempt, without any URL path or query, header value
// or body. It shows the constant texts of net/http and crypto/tls. Of an error of another package it has only the type. LogTrace,
// State, Explain and package resilientotel have this text.
func (e *Error) SafeText() string { return e.text(neterr.SafeText) }

// text describes the error, with the texts that of returns for causes.
func (e *Error) text(of func(error) string) string {
	var b strings.Builder
	b.WriteString("resilienthttp: " + e.why(of))
	if n := len(e.Attempts); n > 0 {
		last := &e.Attempts[n-1]
		b.WriteString(" (attempt " + strconv.Itoa(last.Number))
		switch {
		case last.Response != nil:
			b.WriteString(" ended with status " + strconv.Itoa(last.Response.StatusCode))
		case last.Err != nil && !e.endedWith(last):
			b.WriteString(" ended with " + of(last.Err))
		}
		b.WriteString(")")
	}
	if !e.NotBefore.IsZero() {
		b.WriteString("; not before " + notEarlier(e.NotBefore).Format(deadlineFormat))
	}
	return b.String()
}

func joined(text, clue string) string {
	if clue == "" {
		return text
	}
	return text + ": " + clue
}

// keepParts notes what Error must not show. It reads the requests now, because the caller may change its own later.
func (e *Error) keepParts(c *call) {
	if e.Err == nil && len(e.Attempts) == 0 {
		return
	}
	for i := range e.Attempts {
		if a := &e.Attempts[i]; a.Err != nil { // Base has returned, so it no longer uses the request
			e.parts = append(e.parts, neterr.Parts(a.Request.URL, a.Request.Header)...)
		}
	}
	if e.parts == nil {
		e.parts = neterr.Parts(c.request.URL, c.header)
	}
	e.parts = neterr.LongestFirst(e.parts)
}

// Unwrap returns the reason, the cause, the StopReason, and the error of the last attempt.
func (e *Error) Unwrap() []error {
	errs := append(make([]error, 0, 4), e.Reason, e.Err)
	for i := range e.Attempts { // at most one has a StopReason; a hedge may follow it
		errs = append(errs, e.Attempts[i].StopReason)
	}
	if n := len(e.Attempts); n > 0 {
		last := &e.Attempts[n-1]
		if last.Err != nil && !e.endedWith(last) { // not twice: errors.Is walks all branches
			errs = append(errs, last.Err)
		}
	}
	return slices.DeleteFunc(errs, func(err error) bool { return err == nil })
}

// summary returns the safe text of the reason and of the cause.
func (e *Error) summary() string { return e.why(neterr.SafeText) }

// why returns the text of the reason, and the text that of returns for the cause. An exhausted quota is a cause.
func (e *Error) why(of func(error) string) string {
	switch {
	case e.quota != nil:
		return e.Reason.Error() + ": " + quotaSaid(e.quota)
	case e.hold != "":
		return e.Reason.Error() + ": " + e.hold
	case e.Reason != nil && e.Err != nil:
		cause := e.Err
		if b, ok := cause.(*neterr.ReasonedError); ok && b.Reason == e.Reason { //nolint:errorlint // the text must not be repeated
			cause = b.Cause
		}
		return e.Reason.Error() + ": " + of(cause)
	case e.Reason != nil:
		return e.Reason.Error()
	case e.Err != nil:
		return of(e.Err)
	}
	return "call failed"
}

// byGate reports whether the breaker or the rate limit ended the call.
func (e *Error) byGate() bool {
	switch e.Reason {
	case ErrBreakerOpen, ErrRateLimited:
		return true
	case ErrDeadline:
		return e.Err == ErrRateLimited // the permit would come after the deadline
	}
	return false
}

// Timeout reports whether the call ended because of a timeout or deadline. A rejection is not a
// timeout.
func (e *Error) Timeout() bool {
	for _, err := range [...]error{e.Reason, e.Err} {
		var timeout interface{ Timeout() bool }
		if errors.As(err, &timeout) {
			return timeout.Timeout()
		}
	}
	return false
}

// Temporary reports what the error of a bare client reports, which is deprecated: url.Error.Temporary calls it. A timeout of
// the call or of an attempt is temporary, as is the end of a context's deadline. A rejection is not.
func (e *Error) Temporary() bool {
	return errors.Is(e.Reason, context.DeadlineExceeded) || neterr.Temporary(e.Err)
}

// notEarlier rounds a time up to the precision of texts.
func notEarlier(t time.Time) time.Time {
	return t.Add(precision - 1).Truncate(precision).UTC()
}
