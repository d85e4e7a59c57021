package resilienthttp

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/circuit"
	"github.com/resilienthttp/resilienthttp/internal/neterr"
)

// fate is how an attempt ended, as far as the status or the error do not say it.
type fate uint8

const (
	fateAnswered fate = iota // with a response
	fateError                // with an error of Base's
	fateTimeout              // by the attempt timeout
	fateDeadline             // by the call's deadline
	fateCanceled             // by the caller
	fateLost                 // another copy was quicker
)

// outcome holds Base to its contract: one of response and error.
func (a *attempt) outcome(resp *http.Response, err error) (*http.Response, error) {
	if resp != nil && err == nil && (a.plan.timer != nil || a.beside) {
		if cause := a.ended(); cause == ErrAttemptTimeout || cause == errLost {
			err = cause // it came in the same instant; its body can no longer be read
		}
	}
	if err != nil && resp != nil {
		if resp.Body != nil {
			_ = resp.Body.Close()
		}
		resp = nil
	}
	if err == nil && resp == nil {
		err = errBrokenBase
	}
	return resp, err
}

// translate finds out who ended the attempt: its own timeout, the call's
// deadline, the caller, the other copy, or the network. Base may say each of
// them in words of its own; the error returned says it in ours, too.
func (a *attempt) translate(err error, now time.Time) (fate, error) {
	c := a.call
	gone := c.callerGone()
	switch cause := a.ended(); {
	case cause == errLost:
		return fateLost, neterr.With(errLost, err)
	case cause == ErrAttemptTimeout:
		if gone == nil && errors.Is(err, context.Canceled) {
			// A context derived from the attempt's calls its end a cancellation.
			// Nobody has cancelled anything: only the text is of use.
			err = neterr.New(neterr.SafeText(err))
		}
		return fateTimeout, neterr.With(ErrAttemptTimeout, err)
	case errors.Is(gone, context.DeadlineExceeded):
		return fateDeadline, neterr.With(gone, err)
	case gone != nil:
		return fateCanceled, neterr.With(gone, err)
	case a.deadline.IsZero() || now.Before(a.deadline) || !neterr.TimedOut(err):
		if neterr.SchemeMismatch(err) {
			// http.Client does so only where it gets the bare error of net/http.
			err = neterr.With(http.ErrSchemeMismatch, err)
		}
		return fateError, err
	}
	// Base has seen the deadline pass before its timer fired.
	if a.deadline.Equal(c.deadline) {
		return fateDeadline, neterr.With(context.DeadlineExceeded, err)
	}
	return fateTimeout, neterr.With(ErrAttemptTimeout, err)
}

// breakerOutcome is what the attempt says about the health of the scope.
func (a *attempt) breakerOutcome() circuit.Outcome {
	switch a.fate {
	case fateAnswered:
		switch status := a.record.Response.StatusCode; {
		case status >= http.StatusInternalServerError:
			return circuit.Failure
		case status == http.StatusTooManyRequests:
			return circuit.Responded
		default:
			return circuit.Success
		}
	case fateError:
		if err := a.record.Err; neterr.Malformed(err) || neterr.FromIntermediary(err) || refused(err) != nil || errors.Is(err, errBrokenBase) {
			return circuit.None // never met the server
		}
		return circuit.Failure
	case fateTimeout:
		if a.endedEarly() {
			return circuit.None // it might have been answered yet
		}
		return circuit.Failure
	case fateDeadline:
		return circuit.Timeout
	default:
		return circuit.None
	}
}

// failed reports whether the circuit breaker counts the attempt as a failure.
func (a *attempt) failed() bool {
	outcome := a.breakerOutcome()
	return outcome == circuit.Failure || outcome == circuit.Timeout
}

// neverSent reports whether no byte of the attempt left, provably.
func (a *attempt) neverSent() bool {
	return a.fate != fateAnswered && (a.reach.Load() == reachedDial || provesUnsent(a.record.Err))
}

// provesUnsent reports whether the error of an attempt shows that no byte of it left,
// to a Transport inside among others.
func provesUnsent(err error) bool {
	if inner, ok := errors.AsType[*Error](err); ok && inner.NotSent() {
		return true
	}
	return neterr.NotSent(err)
}
