package resilienthttp

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/neterr"
)

// The reasons for which a call ends without a response. They are found with
// errors.Is on what http.Client.Do or Transport.RoundTrip returned, and are the
// Reason of the *Error in it.
var (
	// ErrBreakerOpen means that the circuit breaker of the scope rejected the next
	// attempt. Error.Attempts has those before it, and Error.NotBefore is the time of the
	// next call.
	ErrBreakerOpen = neterr.New("circuit breaker is open")

	// ErrRateLimited means that the attempt could not be sent within RateLimit.MaxWait,
	// because of the fixed limit, of an exhausted quota, or because rejections block the
	// scope. Error.Attempts has the attempts before it, and Error.NotBefore is the time of
	// the next call.
	ErrRateLimited = neterr.New("rate limited")

	// ErrDeadline says that the call's deadline has passed, or that the next
	// wait would have passed it, in which case the wait was not begun. It
	// matches context.DeadlineExceeded, and its Timeout method reports true.
	ErrDeadline error = &timeoutError{"deadline of the call leaves no time"}

	// ErrAttemptTimeout means that no response headers came within Policy.AttemptTimeout,
	// Policy.AdaptiveTimeout, or 15 minutes if the call has neither AttemptTimeout nor a deadline.
	// It matches context.DeadlineExceeded, and its Timeout method reports true.
	ErrAttemptTimeout error = &timeoutError{"attempt timed out"}

	// ErrReadTimeout says that a response body was silent for longer than
	// Policy.ReadTimeout. Reads from the body return it, not RoundTrip. Its
	// Timeout method reports true.
	ErrReadTimeout error = &timeoutError{"response body timed out"}
)

// Why no further attempt followed a failure: with the reasons above, the values
// of Attempt.StopReason. When the last attempt ended in an error, they are found in
// the *Error with errors.Is as well.
var (
	// ErrMaxAttempts means that no attempt is left: Policy.MaxAttempts were made, the
	// default Backoff has no further wait, or the server sent nothing for 15 minutes.
	ErrMaxAttempts = neterr.New("no attempts left")

	// ErrBudgetExhausted means that the retry budget of the scope has too few tokens.
	ErrBudgetExhausted = neterr.New("retry budget exhausted")

	// ErrNotReplayable says that the request has a body and no GetBody, so it
	// can be sent once only; or that GetBody has failed. Its error is found in the
	// *Error where the last attempt ended in one, and is not told beside a response.
	ErrNotReplayable = neterr.New("request body cannot be replayed")

	// ErrNotIdempotent says that repeating could have done the work twice: the
	// method is neither safe nor idempotent (RFC 9110 section 9.2), there is no
	// idempotency key, and the request may have been processed.
	ErrNotIdempotent = neterr.New("request is not idempotent")

	// ErrRetryAfter says that the server asked for a longer wait than
	// Policy.MaxRetryAfter. Attempt.RetryWait holds what it asked.
	ErrRetryAfter = neterr.New("server asks to wait longer than allowed")

	// ErrSingleAttempt says that another layer owns the retries of this call:
	// SingleAttempt, an X-Retry-Owner header that Deadline.Handler found, an outer
	// Transport in the same process, or an SDK whose request says so: amz-sdk-request
	// with a maximum above 1, or a count in it, in x-stainless-retry-count or in
	// x-goog-api-client by which this is a repeat; a client that is known to retry; or
	// the same request again, within a minute of its failure. A request that could not be repeated
	// anyway says that instead: ErrNotIdempotent, ErrNotReplayable, ErrMaxAttempts.
	ErrSingleAttempt = neterr.New("another layer owns retries")
)

// timeoutError is a sentinel that is a timeout to everyone who asks in one of
// the ways that net, net/http and context have taught.
type timeoutError struct{ text string }

func (t *timeoutError) Error() string { return t.text }

// Timeout reports true: url.Error.Timeout asks for it.
func (t *timeoutError) Timeout() bool { return true }

// Is makes the sentinels match context.DeadlineExceeded.
func (t *timeoutError) Is(target error) bool { return target == context.DeadlineExceeded }

// Error is the one error type that RoundTrip returns. http.Client wraps it in a
// *url.Error; errors.As finds it there. Only http.Client.Timeout, when it
// fires, replaces it by an error of net/http's own: a context with a deadline
// says more.
//
// An Error is not modified after it was returned and may be shared.
type Error struct {
	// Reason is the sentinel that says why the call ended. It is nil when Err
	// says it all: the caller cancelled, or an attempt failed for good.
	Reason error

	// Err is the cause: what the last attempt or the context said. It is nil
	// when a gate refused the first attempt.
	Err error

	// Attempts are the attempts that were made, in the order of their starts,
	// hedges among them. It is empty when nothing was sent.
	Attempts []Attempt

	// NotBefore is when a further call has a chance, after ErrBreakerOpen and
	// ErrRateLimited. It is zero when nothing is known. All who are refused are
	// told the same time: come back with some jitter.
	NotBefore time.Time
}

// Error says why the call ended, what the last attempt met and how many there
// were. It contains no URL path or query, no header value and no body. Of an error of an
// unknown type it shows the type only: Err has its text.
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

// Unwrap gives the reason, the cause, and what stopped and ended the last
// attempt, so that errors.Is and errors.As find each of them.
func (e *Error) Unwrap() []error {
	errs := make([]error, 0, 4)
	if e.Reason != nil {
		errs = append(errs, e.Reason)
	}
	if e.Err != nil {
		errs = append(errs, e.Err)
	}
	for i := range e.Attempts { // one at most has it; a hedge may stand behind that
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

// Unsent reports whether nothing was sent, provably: a gate refused the first attempt,
// the caller was gone before it, or each attempt failed before a byte of the request
// left (the name was not resolved, the connection not made, the TLS handshake not
// finished). Then the call can be made again without a thought for a key. False proves
// nothing.
func (e *Error) NotSent() bool {
	for i := range e.Attempts {
		if a := &e.Attempts[i]; !a.unsent && (a.Response != nil || a.Err == nil || !provesUnsent(a.Err)) {
			return false
		}
	}
	return len(e.Attempts) > 0 || e.Err == nil || errors.Is(e.Err, ErrRateLimited) || provesUnsent(e.Err) ||
		errors.Is(e.Err, context.Canceled) || errors.Is(e.Err, context.DeadlineExceeded)
}

// bodilessError is that of a GetBody: why what had failed was not asked again.
type bodilessError struct{ err error }

func (b *bodilessError) Error() string { return "GetBody: " + neterr.SafeText(b.err) }
func (b *bodilessError) Unwrap() error { return b.err }

// why is the reason of the call's end alone, or else its cause.
func (e *Error) why() string {
	if e.Reason != nil {
		return e.Reason.Error()
	}
	return neterr.SafeText(e.Err)
}

// byGate reports whether a gate has ended the call: an attempt that was to be sent was
// not.
func (e *Error) byGate() bool {
	switch e.Reason {
	case ErrBreakerOpen, ErrRateLimited:
		return true
	case ErrDeadline:
		return e.Err == ErrRateLimited // which is how a turn after the deadline is refused
	}
	return false
}

// Timeout reports whether the call ended because time ran out, so that
// url.Error.Timeout stays true for timeouts. A refusal is not a timeout.
func (e *Error) Timeout() bool {
	for _, err := range [...]error{e.Reason, e.Err} {
		var timeout interface{ Timeout() bool }
		if errors.As(err, &timeout) {
			return timeout.Timeout()
		}
	}
	return false
}

// notEarlier is the time to a whole millisecond, as it is printed, and never before it:
// who reads it and comes then is not early.
func notEarlier(t time.Time) time.Time {
	return t.Add(time.Millisecond - 1).Truncate(time.Millisecond).UTC()
}
