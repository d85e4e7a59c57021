package idempotency

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Do does work once for an operation and key, and gives its result again to those
// who ask again: for consumers of queues, jobs and imports. The key is a message's
// id, or a business key such as "comp1:invoice:001". fingerprint tells whether a
// message with the same key is the same message; "" means that the key suffices.
// See NewFingerprint.
//
// It is an Executor with the default terms: 24 hours, detached. For work whose
// effects are in the store's database, give it a store within the caller's own
// transaction (Within in sqlitestore and pgstore): an inbox row and its effect are
// committed together, by the caller: when Do returns nil or a FinalError, which is
// a result as well; after any other error the transaction is to be rolled back. Or
// take an Executor whose terms are Joined.
func Do(
	ctx context.Context, store Store, scope, operation, key string, fingerprint Fingerprint,
	work func(context.Context) (Result, error),
) (Result, error) {
	e := Executor{Store: store}
	return e.Do(ctx, ID{Scope: scope, Operation: operation, Key: key}, fingerprint, work)
}

// Executor does work once for each operation and key. Its fields are read at the
// first use and must not change after it. It is safe for concurrent use; the zero
// value lacks a Store.
type Executor struct {
	// Store keeps the records.
	Store Store

	Terms

	// Trace is a set of hooks, nil for none.
	Trace *Trace

	once     sync.Once
	runner   *runner
	settings error
}

// What Do says when there is no result.
var (
	// ErrInProgress: another execution is at it. Ask again later.
	ErrInProgress = errors.New("idempotency: in progress elsewhere")

	// ErrMismatch: the key was used with another fingerprint.
	ErrMismatch = errors.New("idempotency: key used for something else")

	// ErrUnknown: nobody knows whether the operation took effect. Work returns it,
	// or an error that wraps it, when it does not know; a reconciler settles it.
	ErrUnknown = errors.New("idempotency: effect unknown")

	// ErrUnreplayable: it was done, and its result was not kept.
	ErrUnreplayable = errors.New("idempotency: done before, result not kept")
)

// FinalError is a failure that repeating would not change. It is stored, and given
// again to those who ask again; then Err has only the text of the first.
type FinalError struct{ Err error }

// Final marks err as final, for work to return. Final(nil) is nil.
func Final(err error) error {
	if err == nil {
		return nil
	}
	return &FinalError{Err: err}
}

// Error is the text of Err.
func (e *FinalError) Error() string {
	if e.Err == nil {
		return "idempotency: failed for good"
	}
	return e.Err.Error()
}

// Unwrap returns Err.
func (e *FinalError) Unwrap() error { return e.Err }

// Do does work once for id. What it returns is work's own result, or the first
// one's. Work's context ends with ctx, with the lease, and at Terms.Limit.
//
// Work ends with nil or Final: stored, and never done again. With an error that
// wraps ErrUnknown: the record becomes Unknown. With any other error, which is
// returned as it is: it took no effect, and may be done again. When it panics or
// the process dies, Terms.Takeover says what follows.
//
// Do's own errors are ErrInProgress, ErrMismatch, ErrUnknown, ErrUnreplayable;
// ErrLeaseLost when another execution took over meanwhile, whose result counts;
// ErrInvalid; and those of the store, after which the same call may be made again.
func (x *Executor) Do(
	ctx context.Context, id ID, fingerprint Fingerprint, work func(context.Context) (Result, error),
) (Result, error) {
	x.once.Do(func() { x.runner, x.settings = newRunner(x.Store, x.Terms, x.Trace) })
	t := &turn{x.runner.report(Event{ID: id})}
	switch {
	case x.settings != nil:
		return t.fail(Misconfigured, x.settings)
	case work == nil:
		return t.fail(Misconfigured, fmt.Errorf("%w: there is no work", ErrInvalid))
	case ctx.Err() != nil:
		return t.fail(Refused, context.Cause(ctx))
	}
	claim := x.runner.terms.claim(id, fingerprint)
	reservation, asked, err := x.runner.reserve(ctx, &claim)
	t.event.Generation = reservation.Record.Generation
	switch {
	case errors.Is(err, ErrInvalid):
		return t.fail(Refused, err)
	case err != nil:
		return t.fail(StoreFailed, err)
	case reservation.Decision != Acquired:
		return t.answer(&reservation)
	}
	t.event.Owner = claim.Owner
	e := x.runner.begin(ctx, &reservation, asked)
	result, failure := t.run(e, work)
	return t.settle(e, result, failure)
}

// turn is one message on its way through Do.
type turn struct{ report }

// answer is for a message that is not to be executed.
func (t *turn) answer(reservation *Reservation) (Result, error) {
	record := &reservation.Record
	switch reservation.Decision {
	case Done:
		return t.replay(record)
	case Busy:
		return t.fail(Duplicate, ErrInProgress)
	case Mismatch:
		return t.fail(Mismatched, ErrMismatch)
	default:
		if reservation.Abandoned {
			t.tell(Unknown, errDied)
		}
		return t.fail(Doubtful, ErrUnknown)
	}
}

func (t *turn) replay(record *Record) (Result, error) {
	switch record.Status {
	case CompletedUnreplayable:
		return t.fail(Unreplayable, ErrUnreplayable)
	case FailedFinal:
		return t.fail(Replayed, Final(errors.New(string(record.Result.Body))))
	default:
		t.done(Replayed, 0, nil)
		return record.Result, nil
	}
}

// run does the work. A panic goes on to the caller after the record says so.
func (t *turn) run(e *execution, work func(context.Context) (Result, error)) (result Result, failure error) {
	began := time.Now()
	returned := false
	defer func() {
		t.event.Work = time.Since(began)
		if returned {
			return
		}
		status, err := e.abandon()
		err = errors.Join(errPanicked, err)
		t.tell(status, err)
		t.done(Panicked, 0, err)
	}()
	result, failure = work(e.ctx)
	returned = true
	return result, failure
}

// settle ends the execution as the work's error says.
func (t *turn) settle(e *execution, result Result, failure error) (Result, error) {
	var final *FinalError
	switch {
	case failure == nil:
		if err := t.end(Executed, nil, e.complete(Outcome{Status: Completed, Result: result})); err != nil {
			return Result{}, err
		}
		return result, nil
	case errors.Is(failure, ErrUnknown):
		err := e.complete(Outcome{Status: Unknown})
		t.tell(Unknown, errors.Join(failure, err))
		return Result{}, t.end(Doubtful, failure, err)
	case errors.As(failure, &final):
		result = Result{Body: []byte(final.Error())}
		return Result{}, t.end(Executed, failure, e.complete(Outcome{Status: FailedFinal, Result: result}))
	default:
		return Result{}, t.end(Released, failure, e.release())
	}
}

// end reports how the record was ended, and what Do returns.
func (t *turn) end(d Disposition, failure, err error) error {
	switch {
	case err == nil:
		t.done(d, 0, failure)
		return failure
	case errors.Is(err, ErrUnknown):
		t.tell(Unknown, err)
		t.done(Doubtful, 0, err)
	case errors.Is(err, ErrLeaseLost):
		t.done(Overtaken, 0, err)
	default:
		t.done(StoreFailed, 0, err)
	}
	return errors.Join(err, failure)
}

func (t *turn) fail(d Disposition, err error) (Result, error) {
	t.done(d, 0, err)
	return Result{}, err
}
