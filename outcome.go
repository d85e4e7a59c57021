package resilienthttp

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/circuit"
	"github.com/resilienthttp/resilienthttp/internal/netfail"
)

// fate is how an attempt ended, as far as the status or the error do not say it.
type fate uint8

const (
	fateAnswered fate = iota // with a response
	fateError                // with an error of Base's
	fateTimeout              // by the attempt timeout
	fateDeadline             // by the call's deadline
	fateCanceled             // by the caller
	fateLost                 // the other copy of a hedged request was quicker
)

// errHedgeLost is the cause with which the slower of two copies is cancelled.
var errHedgeLost = errors.New("the other copy of the hedged request was answered first")

// outcome holds Base to its contract: one of response and error. cut says that the
// attempt may have been ended already.
func (a *attempt) outcome(resp *http.Response, err error, cut bool) (*http.Response, error) {
	if cut && resp != nil && err == nil {
		if cause := a.ended(); cause == ErrAttemptTimeout || cause == errHedgeLost {
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
	case cause == errHedgeLost:
		return fateLost, netfail.With(errHedgeLost, err)
	case cause == ErrAttemptTimeout:
		if gone == nil && errors.Is(err, context.Canceled) {
			// A context derived from the attempt's calls its end a cancellation.
			// Nobody has cancelled anything: only the text is of use.
			err = errors.New(netfail.Describe(err))
		}
		return fateTimeout, netfail.With(ErrAttemptTimeout, err)
	case errors.Is(gone, context.DeadlineExceeded):
		return fateDeadline, netfail.With(gone, err)
	case gone != nil:
		return fateCanceled, netfail.With(gone, err)
	case a.deadline.IsZero() || now.Before(a.deadline) || !netfail.TimedOut(err):
		if netfail.SchemeMismatch(err) {
			// http.Client does so only where it gets the bare error of net/http.
			err = netfail.With(http.ErrSchemeMismatch, err)
		}
		return fateError, err
	}
	// Base has seen the deadline pass before its timer fired.
	if a.deadline.Equal(c.deadline) {
		return fateDeadline, netfail.With(context.DeadlineExceeded, err)
	}
	return fateTimeout, netfail.With(ErrAttemptTimeout, err)
}

// breakerOutcome is what the attempt says about the health of the scope.
func (a *attempt) breakerOutcome() circuit.Outcome {
	switch a.fate {
	case fateAnswered:
		switch status := a.record.Response.StatusCode; {
		case status >= http.StatusInternalServerError:
			return circuit.Failure
		case status == http.StatusTooManyRequests:
			return circuit.Alive
		default:
			return circuit.Success
		}
	case fateError:
		if err := a.record.Err; netfail.Malformed(err) || netfail.Elsewhere(err) || refused(err) != nil || errors.Is(err, errBrokenBase) {
			return circuit.None // never met the server
		}
		return circuit.Failure
	case fateTimeout:
		return circuit.Failure
	case fateDeadline:
		return circuit.Silence
	default:
		return circuit.None
	}
}

// neverSent reports whether the attempt provably did not reach the server.
func (a *attempt) neverSent() bool {
	switch a.fate {
	case fateError:
		inner := refused(a.record.Err)
		return a.reach.Load() == reachedDial || netfail.NeverLeft(a.record.Err) || inner != nil && len(inner.Attempts) == 0
	case fateTimeout:
		return a.reach.Load() == reachedDial
	default:
		return false
	}
}
