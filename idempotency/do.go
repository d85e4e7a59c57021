package idempotency

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/resilienthttp/resilienthttp/internal/sleep"
)

// Do executes work once for an operation and key, and returns its result again for
// each duplicate: for consumers of queues, for jobs and imports. The key is a message
// id, or a business key such as "comp1:invoice:001". fingerprint tells two messages
// with the same key apart; "" means that the key is enough. See NewFingerprint.
//
// Do is Executor.Do with at most one Options, or the default ones, but it does not call
// Store.Check. With a store within your own transaction (WithTx of sqlitestore and
// pgstore), commit after nil and after a PermanentError, and roll back otherwise.
func Do(
	ctx context.Context, store Store, scope, operation, key string, fingerprint Fingerprint,
	work func(context.Context) (Result, error), options ...Options,
) (Result, error) {
	x := Executor{Store: store, unchecked: true}
	switch len(options) {
	case 0:
	case 1:
		x.Options = options[0]
	default:
		return Result{}, fmt.Errorf("%w: Do: %d Options, want at most one", ErrInvalid, len(options))
	}
	return x.Do(ctx, ID{Scope: scope, Operation: operation, Key: key}, fingerprint, work)
}

// Executor executes work once for each operation and key. Store is required. The
// fields are read at the first use and must not change after it. An Executor is safe
// for concurrent use.
type Executor struct {
	// Store keeps the records.
	Store Store

	Options

	// Trace is a set of hooks. nil means none.
	Trace *Trace

	unchecked bool // does not check the store
	once      sync.Once
	executor  *executor
	settings  error
}

// The errors of Do if there is no result.
var (
	// ErrInProgress means that another execution is in progress. Ask again later.
	ErrInProgress = errors.New("idempotency: in progress")

	// ErrMismatch means that the key was used with another fingerprint.
	ErrMismatch = errors.New("idempotency: key was used with another fingerprint")

	// ErrUnreplayable means that the operation took effect, and that its result is not
	// stored.
	ErrUnreplayable = errors.New("idempotency: result is not stored")
)

// PermanentError is a failure that a repetition would not change. An error of Do is a
// PermanentError only if it is stored, so each duplicate gets it, with only the text of
// its cause. After a failed store or a lost lease the error is not one: the next Do with
// the key may return something else.
type PermanentError struct{ cause error }

// Permanent marks err as a permanent failure, for work to return. Permanent(nil) is
// nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &PermanentError{err}
}

// Error returns the text of the cause.
func (e *PermanentError) Error() string {
	if e.cause == nil {
		return "idempotency: permanent failure"
	}
	return e.cause.Error()
}

// Unwrap returns the error that was given to Permanent.
func (e *PermanentError) Unwrap() error { return e.cause }

// Retryable marks err as the failure of work that had no effect, for
// non-transactional work to return: the operation may be executed again. Without the
// mark, the effect of failed work is unknown, because a request that timed out fails
// like one that was never sent. Retryable(nil) is nil. Transactional work needs no
// mark.
func Retryable(err error) error {
	if err == nil {
		return nil
	}
	return &retryableError{err}
}

// unstoredError is a failure that is not stored. It hides the PermanentError in it.
type unstoredError struct{ error }

// Is finds the causes.
func (e unstoredError) Is(target error) bool { return errors.Is(e.error, target) }

// As finds the causes, and no PermanentError.
func (e unstoredError) As(target any) bool {
	_, hidden := target.(**PermanentError)
	return !hidden && errors.As(e.error, target)
}

type retryableError struct{ error }

// Unwrap returns the error that was marked.
func (e *retryableError) Unwrap() error { return e.error }

// Do executes work once for id. It returns work's result, or the stored result of the
// first execution. The work's context ends with ctx, with the lease, and after
// Options.Timeout. docs/server-idempotency.md says what each error of the work means.
//
// Transactional work that fails with a serialization failure or a deadlock (SQLSTATE
// 40001, 40P01) was rolled back and runs again at once, up to three times in all.
//
// The errors are ErrInProgress, ErrMismatch, ErrUnknown, ErrUnreplayable, ErrLeaseLost,
// ErrInvalid, and those of the work and the store.
func (x *Executor) Do(
	ctx context.Context, id ID, fingerprint Fingerprint, work func(context.Context) (Result, error),
) (Result, error) {
	x.once.Do(x.configure)
	m := &message{traceEvent: x.executor.traceEvent(Event{Lease: Lease{ID: id}})}
	var result Result
	var err error
	switch {
	case x.settings != nil:
		err = m.ends(Misconfigured, x.settings)
	case work == nil:
		err = m.ends(Misconfigured, fmt.Errorf("%w: work is nil", ErrInvalid))
	case ctx.Err() != nil:
		err = m.ends(Invalid, context.Cause(ctx))
	default:
		result, err = m.execute(ctx, x.executor, fingerprint, work)
		for try := 2; m.conflict && try <= conflictTries && sleep.Jittered(ctx, minPause<<try) == nil; try++ {
			result, err = m.execute(ctx, x.executor, fingerprint, work)
		}
	}
	m.done(m.event.Disposition, 0, m.event.Err)
	return result, err
}

// conflictTries is how often work is executed if its transaction conflicts with others.
const conflictTries = 3

func (x *Executor) configure() {
	x.executor, x.settings = newExecutor(x.Store, x.Options, x.Trace)
	if !x.unchecked {
		x.executor.checkStore()
	}
}

// message is one call of Do.
type message struct {
	traceEvent

	// conflict means that the work was rolled back because of a conflict with another
	// transaction.
	conflict bool
}

// ends sets what was done with the message, and returns err.
func (m *message) ends(d Disposition, err error) error {
	m.event.Disposition, m.event.Err = d, err
	return err
}

// execute claims the operation and does the work, or finds the result of the first
// execution.
func (m *message) execute(
	ctx context.Context, x *executor, fingerprint Fingerprint, work func(context.Context) (Result, error),
) (Result, error) {
	claim := x.options.claim(m.event.ID, fingerprint)
	e, reservation, err := x.start(ctx, &claim)
	m.event.Generation = reservation.Record.Generation
	m.conflict, m.event.Owner = false, ""
	switch {
	case errors.Is(err, ErrInvalid):
		return Result{}, m.ends(Invalid, err)
	case err != nil:
		return Result{}, m.ends(unclaimed(ctx, err), err)
	case e == nil:
		return m.answer(&reservation)
	}
	m.event.Owner = claim.Owner
	var result Result
	var failure error
	m.guard(e, func() { result, failure = work(e.ctx) })
	e.finish()
	status, failure := classifyError(e, failure)
	result.Reference = cmp.Or(result.Reference, e.referenced())
	toStore := result
	if permanent, ok := errors.AsType[*PermanentError](failure); ok && status == FailedFinal {
		toStore = Result{Body: []byte(permanent.Error())}
	}
	err = e.record(Outcome{Status: status, Result: toStore}, status == FailedFinal)
	m.conflict = e.transactor != nil && !e.inCallerTx() &&
		(err == nil && status == FailedRetryable && isConflict(failure) || errors.Is(err, errRolledBack) && isConflict(err))
	if err := m.conclude(status, failure, err); err != nil {
		return Result{}, err
	}
	return result, nil
}

// isConflict reports whether err is a serialization failure or a deadlock of a SQL
// database.
func isConflict(err error) bool {
	var state interface{ SQLState() string }
	return errors.As(err, &state) && (state.SQLState() == "40001" || state.SQLState() == "40P01")
}

// answer is for a message that is not executed.
func (m *message) answer(reservation *Reservation) (Result, error) {
	record := &reservation.Record
	switch reservation.Decision {
	case DecisionDone:
		return m.replay(record)
	case DecisionInProgress:
		return Result{}, m.ends(InProgress, ErrInProgress)
	case DecisionMismatch:
		return Result{}, m.ends(Mismatched, ErrMismatch)
	default:
		if reservation.LeaseExpired {
			m.emit(Unknown, errLeaseExpired)
		}
		return Result{}, m.ends(OutcomeUnknown, ErrUnknown)
	}
}

func (m *message) replay(record *Record) (Result, error) {
	switch record.Status {
	case CompletedUnreplayable:
		return Result{}, m.ends(Unreplayable, ErrUnreplayable)
	case FailedFinal:
		return Result{}, m.ends(Replayed, Permanent(errors.New(string(record.Result.Body))))
	default:
		return record.Result, m.ends(Replayed, nil)
	}
}

// classifyError returns the status that the work's error means, and the error for
// its caller.
func classifyError(e *execution, failure error) (Status, error) {
	_, isPermanent := errors.AsType[*PermanentError](failure)
	_, isRetryable := errors.AsType[*retryableError](failure)
	switch {
	case failure == nil && e.notStored != nil:
		return CompletedUnreplayable, e.notStored
	case failure == nil:
		return Completed, nil
	case errors.Is(failure, ErrUnknown):
		return Unknown, failure
	case isPermanent:
		return FailedFinal, failure
	case isRetryable:
		return FailedRetryable, failure
	}
	status := e.ambiguous()
	if status == Unknown {
		failure = fmt.Errorf("%w: %w", ErrUnknown, failure)
	}
	return status, failure
}

// conclude returns the error of Do for work that ended with status and failure. err is
// the error of its record.
func (m *message) conclude(status Status, failure, err error) error {
	if _, ok := errors.AsType[*PermanentError](failure); ok && (err != nil || status != FailedFinal) {
		failure = unstoredError{failure}
	}
	if err == nil {
		m.emit(status, failure)
		switch {
		case status == Unknown:
			return m.ends(OutcomeUnknown, failure)
		case !status.Finished():
			return m.ends(Released, failure)
		default:
			return m.ends(Executed, failure)
		}
	}
	d := StoreFailed
	switch {
	case errors.Is(err, ErrUnknown):
		status, d = Unknown, OutcomeUnknown
	case errors.Is(err, ErrLeaseLost):
		d = LeaseLost
	}
	m.emit(status, err)
	return m.ends(d, errors.Join(err, failure))
}
