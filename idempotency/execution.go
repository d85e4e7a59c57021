package idempotency

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Execution is one execution of an operation. FromContext returns it.
type Execution struct {
	// Lease identifies the operation and the execution. Pass its Generation as a
	// fencing token to systems that accept one.
	Lease

	// Resumed means that an execution before this one died or ended without a result,
	// and that its Takeover was Resume. Look for what it left.
	Resumed bool
}

// FromContext returns the execution of a handler's or work's context, and whether
// there is one.
func FromContext(ctx context.Context) (Execution, bool) {
	if e, ok := executionOf(ctx); ok {
		return Execution{Lease: e.lease, Resumed: e.resumed}, true
	}
	return Execution{}, false
}

// Tx returns the transaction of transactional work. T is the driver's type, pgx.Tx
// or *sql.Tx:
//
//	tx, err := idempotency.Tx[*sql.Tx](ctx)
//
// The transaction commits with the record if the work succeeds, and is rolled back
// otherwise. The work must not end it; it may use savepoints.
//
// The error is ErrNoTransaction if ctx is not the context of a running transactional
// execution, or if the transaction is not a T.
func Tx[T any](ctx context.Context) (T, error) {
	var none T
	e, ok := executionOf(ctx)
	if !ok {
		return none, fmt.Errorf("%w: the context is not that of an execution", ErrNoTransaction)
	}
	value, err := e.transaction()
	if err != nil {
		return none, err
	}
	tx, ok := value.(T)
	if !ok {
		return none, fmt.Errorf("%w: the store's transaction is a %T", ErrNoTransaction, value)
	}
	return tx, nil
}

// CommitOnFailure makes transactional work commit its writes also if it ends with a
// final failure: a 4xx that is stored, or Permanent. Use it if the work writes a row for
// a declined charge and then answers 402. Without it, the failure is stored and the
// writes are rolled back. Outside of transactional work it does nothing.
func CommitOnFailure(ctx context.Context) {
	if e, ok := executionOf(ctx); ok {
		e.set(func() { e.commitOnFailure = true })
	}
}

var (
	// ErrNoTransaction means that there is no transaction of the requested type.
	ErrNoTransaction = errors.New("idempotency: no transaction")

	// ErrTimeLimit is the cause (context.Cause) of the end of an execution's context
	// after Options.Timeout.
	ErrTimeLimit = errors.New("idempotency: execution exceeded its time limit")

	errEnded = errors.New("idempotency: execution ended")

	// errRolledBack means that nothing was done, and that the operation may be
	// executed again.
	errRolledBack = errors.New("idempotency: the transaction was not committed")
)

type executionKey struct{}

func executionOf(ctx context.Context) (*execution, bool) {
	e, ok := ctx.Value(executionKey{}).(*execution)
	return e, ok
}

// execution is one execution of an operation, from its claim to its end.
type execution struct {
	*executor
	ownership
	lease   Lease
	resumed bool
	began   time.Time

	// ctx is the context of the work.
	ctx    context.Context
	cancel context.CancelCauseFunc
	stop   context.CancelFunc // frees the deadline of ctx

	mu              sync.Mutex
	commitOnFailure bool
	reference       string // see SetReference
	over            bool   // the work has ended

	notStored error // why the result of work that took effect cannot be stored
}

// ownership is how an execution excludes others: by a lease, or by an open
// transaction.
type ownership interface {
	// value is what Tx returns.
	value() (any, error)

	// complete stores the outcome. nil means that it is durable. ErrLeaseLost means
	// that another execution has the operation; errRolledBack that nothing was done;
	// ErrUnknown that the work committed without the record, which is Unknown now.
	// After another error the result is unknown until the lease or the transaction
	// ends. final means that the outcome is a failure: the writes are rolled back unless
	// CommitOnFailure was called.
	complete(outcome Outcome, final bool) error

	// release ends an execution that had no effect. limit bounds it; 0 means as long as
	// the lease.
	release(limit time.Duration) error
}

// newExecution starts the context of the work. The caller sets the ownership.
func (x *executor) newExecution(parent context.Context, reservation *Reservation, asked time.Time) *execution {
	e := &execution{executor: x, lease: reservation.Record.Lease(), resumed: reservation.Resumed, began: asked, stop: func() {}}
	e.ctx, e.cancel = e.workContext(parent)
	return e
}

// workContext ends at the time limit, and with the caller, unless the work survives it.
// Transactional work also ends at the caller's deadline, because it is rolled back then.
// The effect of other work would be unknown.
func (e *execution) workContext(parent context.Context) (context.Context, context.CancelCauseFunc) {
	deadline, limited := parent.Deadline()
	if e.survives {
		parent = context.WithoutCancel(parent)
		limited = limited && e.transactor != nil
	}
	ctx := context.WithValue(parent, executionKey{}, e)
	limit := e.timeLimit()
	switch {
	case !limit.IsZero() && (!limited || limit.Before(deadline)):
		ctx, e.stop = context.WithDeadlineCause(ctx, limit, ErrTimeLimit)
	case limited && e.survives:
		ctx, e.stop = context.WithDeadline(ctx, deadline)
	}
	return context.WithCancelCause(ctx)
}

// timeLimit is when the Timeout is over. The zero time means never.
func (e *execution) timeLimit() time.Time {
	if e.options.Timeout <= 0 {
		return time.Time{}
	}
	return e.began.Add(e.options.Timeout)
}

func (e *execution) transaction() (any, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.over {
		return nil, fmt.Errorf("%w: the execution has ended", ErrNoTransaction)
	}
	return e.value()
}

// set changes a property of the execution, unless the work has ended.
func (e *execution) set(change func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.over {
		change()
	}
}

// finish ends the work: goroutines that it left behind get no transaction. It reports
// whether the context had ended before. A response that says that nothing was done
// often only means then that the handler was cut off.
func (e *execution) finish() (interrupted bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.over = true
	return e.ctx.Err() != nil
}

// record ends the execution with the outcome of its work. See ownership for its
// errors.
func (e *execution) record(outcome Outcome, final bool) error {
	defer e.close()
	if outcome.Status == FailedRetryable {
		return e.release(0)
	}
	if time.Since(e.began) > e.options.TTL/10 {
		outcome.TTL = e.options.TTL
	}
	return e.complete(outcome, final)
}

// guard does the work of an execution. If it panics, the execution ends as after a crash, but
// without waiting for the end of the lease, before the panic goes on to the caller.
func (t *traceEvent) guard(e *execution, work func()) {
	began, returned := time.Now(), false
	defer func() {
		t.event.work = time.Since(began)
		if returned {
			return
		}
		e.finish()
		status := e.ambiguous()
		err := e.record(Outcome{Status: status}, false)
		if errors.Is(err, ErrUnknown) {
			status = Unknown
		}
		err = errors.Join(errPanicked, err)
		t.emit(status, err)
		t.done(Panicked, 0, err)
	}()
	work()
	returned = true
}

// close ends the context.
func (e *execution) close() {
	e.cancel(errEnded)
	e.stop()
}
