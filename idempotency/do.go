package idempotency

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"github.com/resilienthttp/resilienthttp/idempotency/driver"
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

	Options

	// Trace is a set of hooks, nil for none.
	Trace *Trace

	once     sync.Once
	executor *executor
	settings error
}

// What Do says when there is no result.
var (
	// ErrInProgress: another execution is at it. Ask again later.
	ErrInProgress = errors.New("idempotency: in progress elsewhere")

	// ErrMismatch: the key was used with another fingerprint.
	ErrMismatch = errors.New("idempotency: key used for something else")

	// ErrUnreplayable: it was done, and its result was not kept.
	ErrUnreplayable = errors.New("idempotency: done before, result not kept")
)

// FinalError is a failure that repeating would not change. It is stored, and given
// again to those who ask again; then Err has only the text of the first.
type PermanentError struct{ Err error }

// Final marks err as final, for work to return. Final(nil) is nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &PermanentError{Err: err}
}

// Error is the text of Err.
func (e *PermanentError) Error() string {
	if e.Err == nil {
		return "idempotency: failed for good"
	}
	return e.Err.Error()
}

// Unwrap returns Err.
func (e *PermanentError) Unwrap() error { return e.Err }

// Harmless marks err as that of work which has had no effect, for detached work to
// return: the operation may be executed again. Without the mark a failure of
// detached work means that nobody knows (unless the terms' Takeover allows a
// repetition), for a request to the bank that timed out fails like one that was
// never sent. Harmless(nil) is nil. Joined work needs no mark.
func Retryable(err error) error {
	if err == nil {
		return nil
	}
	return &retryableError{err}
}

type retryableError struct{ error }

// Unwrap returns the error that was marked.
func (e *retryableError) Unwrap() error { return e.error }

// Do does work once for id. What it returns is work's own result, or the first
// one's. Work's context ends with ctx, with the lease, and at Terms.Limit.
//
// Work ends with nil or Final: stored, and never done again. With Harmless: it took
// no effect, and may be done again. With an error that wraps ErrUnknown, nobody
// knows: the record becomes Unknown. With any other error joined work is rolled
// back, and may be done again; of detached work nobody knows then, and Do returns an
// ErrUnknown that wraps it, unless Terms.Takeover says that it may be done again.
// When it panics or the process dies, the same holds.
//
// Do's own errors are ErrInProgress, ErrMismatch, ErrUnknown, ErrUnreplayable;
// ErrLeaseLost when another execution took over meanwhile, whose result counts;
// ErrInvalid; and those of the store, after which the same call may be made again.
func (x *Executor) Do(
	ctx context.Context, id ID, fingerprint Fingerprint, work func(context.Context) (Result, error),
) (Result, error) {
	x.once.Do(func() { x.executor, x.settings = newExecutor(x.Store, x.Options, x.Trace) })
	t := &turn{x.executor.traceEvent(Event{ID: id})}
	switch {
	case x.settings != nil:
		return t.fail(Misconfigured, x.settings)
	case work == nil:
		return t.fail(Misconfigured, fmt.Errorf("%w: there is no work", ErrInvalid))
	case ctx.Err() != nil:
		return t.fail(Invalid, context.Cause(ctx))
	}
	claim := x.executor.terms.claim(id, fingerprint)
	e, reservation, err := x.executor.start(ctx, &claim)
	t.event.Generation = reservation.Record.Generation
	switch {
	case errors.Is(err, ErrInvalid):
		return t.fail(Invalid, err)
	case err != nil:
		return t.fail(unclaimed(ctx, err), err)
	case e == nil:
		return t.answer(&reservation)
	}
	t.event.Owner = claim.Owner
	result, failure := t.run(e, work)
	return t.settle(e, result, failure)
}

// turn is one message on its way through Do.
type turn struct{ traceEvent }

// answer is for a message that is not to be executed.
func (t *turn) answer(reservation *driver.Reservation) (Result, error) {
	record := &reservation.Record
	switch reservation.Decision {
	case driver.Done:
		return t.replay(record)
	case driver.DecisionInProgress:
		return t.fail(InProgress, ErrInProgress)
	case driver.Mismatch:
		return t.fail(Mismatched, ErrMismatch)
	default:
		if reservation.LeaseExpired {
			t.emit(Unknown, errDied)
		}
		return t.fail(OutcomeUnknown, ErrUnknown)
	}
}

func (t *turn) replay(record *driver.Record) (Result, error) {
	switch record.Status {
	case driver.CompletedUnreplayable:
		return t.fail(Unreplayable, ErrUnreplayable)
	case FailedFinal:
		return t.fail(Replayed, Permanent(errors.New(string(record.Result.Body))))
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
		t.emit(status, err)
		t.done(Panicked, 0, err)
	}()
	result, failure = work(e.ctx)
	returned = true
	return result, failure
}

// settle ends the execution as the work's error says.
func (t *turn) settle(e *execution, result Result, failure error) (Result, error) {
	e.finish()
	status, failure := t.judge(e, failure)
	result.Reference = cmp.Or(result.Reference, e.referred())
	stored := result
	if final, ok := errors.AsType[*PermanentError](failure); ok && status == FailedFinal {
		stored = Result{Body: []byte(final.Error())}
	}
	err := e.settle(driver.Outcome{Status: status, Result: stored}, status == FailedFinal)
	if status == Unknown && err == nil {
		t.emit(Unknown, failure)
	}
	if err := t.end(status, failure, err); err != nil {
		return Result{}, err
	}
	return result, nil
}

// judge is what the work's error says of its effect, and the error that its caller
// gets.
func (t *turn) judge(e *execution, failure error) (Status, error) {
	_, final := errors.AsType[*PermanentError](failure)
	_, harmless := errors.AsType[*retryableError](failure)
	switch {
	case failure == nil && e.unkept != nil:
		return driver.CompletedUnreplayable, e.unkept
	case failure == nil:
		return Completed, nil
	case errors.Is(failure, ErrUnknown):
		return Unknown, failure
	case final:
		return FailedFinal, failure
	case harmless:
		return FailedRetryable, failure
	}
	status := e.ambiguous()
	if status == Unknown {
		failure = fmt.Errorf("%w: %w", ErrUnknown, failure)
	}
	return status, failure
}

// end reports how the record was ended, and what Do returns.
func (t *turn) end(status Status, failure, err error) error {
	d := Executed
	switch {
	case err == nil && status == Unknown:
		d = OutcomeUnknown
	case err == nil && !status.Finished():
		d = Released
	case err == nil:
	case errors.Is(err, ErrUnknown):
		t.emit(Unknown, err)
		d = OutcomeUnknown
	case errors.Is(err, ErrLeaseLost):
		d = LeaseLost
	default:
		t.emit(status, err)
		d = StoreFailed
	}
	if err == nil {
		t.done(d, 0, failure)
		return failure
	}
	t.done(d, 0, err)
	return errors.Join(err, failure)
}

func (t *turn) fail(d Disposition, err error) (Result, error) {
	t.done(d, 0, err)
	return Result{}, err
}
