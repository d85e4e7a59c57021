package idempotency

import (
	"context"
	"errors"
	"fmt"
	"github.com/resilienthttp/resilienthttp/idempotency/driver"
	"sync"
	"time"
)

// Execution is what a handler, or the work given to Do, can learn of itself with
// FromContext.
type Execution struct {
	// Lease is its title to the record. Give the Generation to systems that fence.
	driver.Lease

	// Resumed: an execution before this one died, or ended without a result, and its
	// terms said Resume. Look for what it left.
	Resumed bool
}

// FromContext returns the execution whose context this is. false: there is none.
func FromContext(ctx context.Context) (Execution, bool) {
	if e, ok := executionOf(ctx); ok {
		return Execution{Lease: e.lease, Resumed: e.resumed}, true
	}
	return Execution{}, false
}

// Tx returns the store's transaction, in which the writes of joined work are
// committed together with its record, or not at all. T is the driver's type:
// pgx.Tx, or *sql.Tx.
//
//	tx, err := idempotency.Tx[*sql.Tx](ctx)
//
// It is open since before the work began, and excludes all others from the
// operation. It is committed when the work ends well: a handler with 2xx or 3xx,
// the work of Do with nil. Otherwise it is rolled back; a refusal is stored without
// it, unless Keep was called. The work must not end it by itself; savepoints are
// its own affair.
//
// The error is ErrNoTransaction when ctx is no execution's, when the terms are not
// Joined, when the execution is over, or when the transaction is no T.
func Tx[T any](ctx context.Context) (T, error) {
	var none T
	e, ok := executionOf(ctx)
	if !ok {
		return none, fmt.Errorf("%w: this is not the context of an execution", ErrNoTransaction)
	}
	value, err := e.transaction()
	if err != nil {
		return none, err
	}
	tx, ok := value.(T)
	if !ok {
		return none, fmt.Errorf("%w: the store's is a %T", ErrNoTransaction, value)
	}
	return tx, nil
}

// Keep has what joined work wrote through Tx committed also when it ends in a
// refusal: a 4xx that is final, or Final; for the 402 whose declined charge is a
// row. Without it a refusal is stored and the writes are undone, as they are where
// the work fails. Outside of joined work, and after it, it does nothing.
func CommitOnFailure(ctx context.Context) {
	if e, ok := executionOf(ctx); ok {
		e.note(func() { e.kept = true })
	}
}

// What executions say.
var (
	// ErrNoTransaction: there is no transaction for the work to join.
	ErrNoTransaction = errors.New("idempotency: no transaction")

	// ErrOverrun is the cause (context.Cause) of an execution's context when it
	// has taken longer than Terms.Limit.
	ErrTimeLimit = errors.New("idempotency: execution overran its limit")

	errEnded = errors.New("idempotency: execution ended")

	// errUndone: the transaction was rolled back, and the operation is free.
	errUndone = errors.New("idempotency: the transaction was not committed")
)

type executionKey struct{}

func executionOf(ctx context.Context) (*execution, bool) {
	e, ok := ctx.Value(executionKey{}).(*execution)
	return e, ok
}

// execution is one execution of an operation, from its reservation to its end.
type execution struct {
	*executor
	ownership
	lease   driver.Lease
	resumed bool
	began   time.Time

	// ctx is the work's.
	ctx    context.Context
	cancel context.CancelCauseFunc
	stop   context.CancelFunc // frees the deadline of ctx

	mu        sync.Mutex
	kept      bool
	reference string // see Refer
	over      bool   // the work has ended

	unkept error // why the result of work that has taken effect cannot be stored
}

// title is how an execution has the operation to itself: by a lease when it is
// detached, by an open transaction when it is joined.
type ownership interface {
	// value is what Tx returns.
	value() (any, error)

	// complete stores the outcome. nil: it is durable. ErrLeaseLost: somebody else
	// has the operation. errUndone: nothing has happened, and it may be executed
	// again. ErrUnknown: joined work has committed by itself, and the record says
	// Unknown. Any other error: nobody knows; once the lease is over, or the
	// transaction, whoever asks again finds out. refused: the outcome is a refusal,
	// whose writes are undone unless they are to be kept.
	complete(outcome driver.Outcome, refused bool) error

	// release gives the operation back, with nothing done.
	release() error
}

// begin starts the context of the work. The title comes with it.
func (r *executor) begin(parent context.Context, record *driver.Record, asked time.Time) *execution {
	e := &execution{executor: r, lease: record.Lease(), began: asked, stop: func() {}}
	e.ctx, e.cancel = e.workContext(parent)
	return e
}

// workContext ends at the caller's deadline or the limit, whichever is first, and
// with the caller, unless the runner goes on without him.
func (e *execution) workContext(parent context.Context) (context.Context, context.CancelCauseFunc) {
	deadline, limited := parent.Deadline()
	if e.survives {
		parent = context.WithoutCancel(parent)
	}
	ctx := context.WithValue(parent, executionKey{}, e)
	overrun := e.overrun()
	switch {
	case !overrun.IsZero() && (!limited || overrun.Before(deadline)):
		ctx, e.stop = context.WithDeadlineCause(ctx, overrun, ErrTimeLimit)
	case limited && e.survives:
		ctx, e.stop = context.WithDeadline(ctx, deadline)
	}
	return context.WithCancelCause(ctx)
}

// overrun is when the limit is over; zero: never.
func (e *execution) overrun() time.Time {
	if e.terms.Timeout <= 0 {
		return time.Time{}
	}
	return e.began.Add(e.terms.Timeout)
}

func (e *execution) transaction() (any, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.over {
		return nil, fmt.Errorf("%w: it is over", ErrNoTransaction)
	}
	return e.value()
}

// note keeps what the work says of its end. What it leaves behind says nothing any
// more, for the end may be half done.
func (e *execution) note(set func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.over {
		set()
	}
}

// finish ends the work: what it leaves behind gets no transaction any more. It
// reports whether the context had ended before: then an answer that claims that
// nothing was done is often only the handler's way of saying that it was cut off.
func (e *execution) finish() (interrupted bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.over = true
	return e.ctx.Err() != nil
}

// settle ends the execution with the outcome that its work gave, or releases it.
// See title.
func (e *execution) settle(outcome driver.Outcome, refused bool) error {
	defer e.close()
	if outcome.Status == FailedRetryable {
		return e.release()
	}
	if time.Since(e.began) > e.terms.TTL/10 {
		outcome.TTL = e.terms.TTL
	}
	return e.complete(outcome, refused)
}

// abandon ends an execution whose work panicked. It does what is done after a crash,
// without waiting for the end of the lease.
func (e *execution) abandon() (Status, error) {
	e.finish()
	status := e.ambiguous()
	err := e.settle(driver.Outcome{Status: status}, false)
	if errors.Is(err, ErrUnknown) {
		status = Unknown
	}
	return status, err
}

// close ends the context.
func (e *execution) close() {
	e.cancel(errEnded)
	e.stop()
}
