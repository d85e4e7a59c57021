package idempotency

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Execution is what a handler, or the work given to Do, can learn of itself with
// FromContext.
type Execution struct {
	// Lease is its title to the record. Give the Generation to systems that fence.
	Lease

	// Resumed: an execution before this one died in the middle, and the terms say
	// Resume. Look for what it left.
	Resumed bool
}

// FromContext returns the execution whose context this is. false: there is none.
func FromContext(ctx context.Context) (Execution, bool) {
	if e, ok := ctx.Value(executionKey{}).(*execution); ok {
		return Execution{Lease: e.lease, Resumed: e.resumed}, true
	}
	return Execution{}, false
}

// Tx returns the store's transaction, in which the work's writes are committed
// together with the record's end, or not at all. T is the driver's type: pgx.Tx,
// or *sql.Tx.
//
//	tx, err := idempotency.Tx[*sql.Tx](ctx)
//
// It begins at the first call, and is committed when the work ends with a result
// that is stored: a handler with 2xx, 3xx, or 4xx that is final; the work of Do
// with nil or Final. Otherwise it is rolled back. The work must not commit it or
// roll it back by itself, see Discard; savepoints are its own affair. While it is
// open nobody can take the operation over.
//
// The error is ErrNoTransaction when ctx is no execution's, when the store has no
// transactions, or others than T; ErrLeaseLost when the operation was taken over;
// else the database's.
func Tx[T any](ctx context.Context) (T, error) {
	var none T
	e, ok := ctx.Value(executionKey{}).(*execution)
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

// Discard undoes what was written through Tx. The result of the execution is
// stored all the same, without it: for work that finds in the middle that it must
// refuse. After it Tx returns ErrNoTransaction. Where no transaction is open it
// does nothing.
func Discard(ctx context.Context) error {
	if e, ok := ctx.Value(executionKey{}).(*execution); ok {
		return e.discard()
	}
	return nil
}

// What executions say.
var (
	// ErrNoTransaction: there is no transaction for the work to join.
	ErrNoTransaction = errors.New("idempotency: no transaction")

	// ErrOverrun is the cause (context.Cause) of an execution's context when it
	// has taken longer than Terms.Limit.
	ErrOverrun = errors.New("idempotency: execution overran its limit")

	errEnded = errors.New("idempotency: execution ended")

	// errUndone: the transaction was rolled back, and the operation released.
	errUndone = errors.New("idempotency: the transaction was not committed")
)

type executionKey struct{}

// execution is one execution of an operation, from its reservation to its end.
type execution struct {
	*runner
	lease   Lease
	resumed bool
	held    bool
	began   time.Time

	// ctx is the work's.
	ctx    context.Context
	cancel context.CancelCauseFunc

	// alive ends with the execution. Renewals and the end itself run in it.
	alive context.Context
	end   context.CancelFunc
	stop  context.CancelFunc // frees the deadline of ctx

	// changing is held while a transaction begins or is discarded: the database
	// may take its time, and the heartbeat goes on meanwhile.
	changing sync.Mutex

	mu        sync.Mutex
	heartbeat *time.Timer
	until     time.Time // the lease holds at least until then: counted from before the last renewal was sent
	overrun   time.Time // no renewal after it; zero: no limit
	over      bool      // the work has ended, or the lease is lost
	lost      bool      // the latter
	tx        Transaction
	discarded bool
}

// begin starts keeping the lease of a reservation that was asked for at asked.
func (r *runner) begin(parent context.Context, reservation *Reservation, asked time.Time) *execution {
	e := &execution{
		runner: r, lease: reservation.Record.Lease(), resumed: reservation.Resumed, held: reservation.Held,
		began: asked, until: asked.Add(r.terms.Lease), stop: func() {},
	}
	if r.terms.Limit > 0 {
		e.overrun = asked.Add(r.terms.Limit)
	}
	e.alive, e.end = context.WithCancel(context.WithoutCancel(parent))
	e.ctx, e.cancel = e.workContext(parent)
	if !e.held {
		e.mu.Lock()
		e.heartbeat = time.AfterFunc(time.Until(asked.Add(r.terms.Lease/3)), e.renew)
		e.mu.Unlock()
	}
	return e
}

// workContext ends at the caller's deadline or the limit, whichever is first, and
// with the caller, unless the runner is detached.
func (e *execution) workContext(parent context.Context) (context.Context, context.CancelCauseFunc) {
	deadline, limited := parent.Deadline()
	if e.detached {
		parent = context.WithoutCancel(parent)
	}
	ctx := context.WithValue(parent, executionKey{}, e)
	switch {
	case !e.overrun.IsZero() && (!limited || e.overrun.Before(deadline)):
		ctx, e.stop = context.WithDeadlineCause(ctx, e.overrun, ErrOverrun)
	case limited && e.detached:
		ctx, e.stop = context.WithDeadline(ctx, deadline)
	}
	return context.WithCancelCause(ctx)
}

// renew is a heartbeat. It runs in the timer's own goroutine.
func (e *execution) renew() {
	e.mu.Lock()
	until, quiet := e.until, e.over || e.tx != nil // an open transaction holds the claim by itself
	e.mu.Unlock()
	asked := time.Now()
	switch {
	case quiet:
	case !asked.Before(until) && e.overran(asked):
		e.lose(ErrOverrun)
	case !asked.Before(until):
		e.lose(context.DeadlineExceeded)
	case e.overran(asked):
		e.rearm(until, until)
	default:
		e.sendRenewal(asked, until)
	}
}

func (e *execution) overran(now time.Time) bool { return !e.overrun.IsZero() && !now.Before(e.overrun) }

// sendRenewal renews the lease in the store. When the store cannot be asked, or a
// connection hangs, it is asked again until the lease is over.
func (e *execution) sendRenewal(asked, until time.Time) {
	ctx, cancel := context.WithDeadline(e.alive, earlier(until, asked.Add(e.terms.Lease/3)))
	defer cancel()
	switch err := e.store.Renew(ctx, e.lease, e.terms.Lease); {
	case err == nil:
		e.rearm(asked.Add(e.terms.Lease), asked.Add(e.terms.Lease/3))
	case errors.Is(err, ErrLeaseLost):
		e.lose(err)
	case e.rearm(until, time.Now().Add(e.terms.Lease/10)):
		e.traceRenewal(e.lease, err)
	}
}

// rearm sets the next heartbeat, unless none is needed any more.
func (e *execution) rearm(until, next time.Time) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if until.After(e.until) {
		e.until = until
	}
	if e.over || e.tx != nil {
		return false
	}
	e.heartbeat.Reset(time.Until(earlier(next, e.until)))
	return true
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// lose ends the work, for it does not hold the operation any more.
func (e *execution) lose(why error) {
	e.mu.Lock()
	lost := !e.over && e.tx == nil
	e.over, e.lost = e.over || lost, e.lost || lost
	e.mu.Unlock()
	if lost {
		e.cancel(ErrLeaseLost)
		e.traceRenewal(e.lease, fmt.Errorf("%w: %w", ErrLeaseLost, why))
	}
}

// transaction begins the transaction of the work, or returns the one that is
// open.
func (e *execution) transaction() (any, error) {
	e.changing.Lock()
	defer e.changing.Unlock()
	if tx, err := e.current(); tx != nil || err != nil {
		return tx, err
	}
	store, ok := e.store.(Transactor)
	if !ok {
		return nil, fmt.Errorf("%w: %T has none", ErrNoTransaction, e.store)
	}
	var limit time.Duration
	if !e.overrun.IsZero() {
		limit = max(time.Until(e.overrun), time.Millisecond)
	}
	tx, err := store.Begin(e.ctx, e.lease, limit)
	if err == nil && e.adopt(tx) {
		return tx.Value(), nil
	}
	if err == nil {
		_ = e.rollback(tx) // it came too late
	}
	if _, ended := e.current(); ended != nil {
		return nil, ended
	}
	return nil, err
}

// current is the value of the open transaction, nil if there may be one but is
// none.
func (e *execution) current() (any, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.lost: // not by the context's cause, which may have been another before
		return nil, ErrLeaseLost
	case e.over || e.discarded:
		return nil, fmt.Errorf("%w: it is over", ErrNoTransaction)
	case e.tx != nil:
		return e.tx.Value(), nil
	default:
		return nil, nil //nolint:nilnil // neither
	}
}

// adopt makes tx the work's. false: the execution has ended meanwhile.
func (e *execution) adopt(tx Transaction) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.over {
		e.tx = tx
	}
	return !e.over
}

// discard rolls back. Nothing but the lease holds the claim after it, and that
// has not been renewed in the meantime.
func (e *execution) discard() error {
	e.changing.Lock()
	defer e.changing.Unlock()
	e.mu.Lock()
	tx, open := e.tx, e.tx != nil && !e.over
	if open {
		e.tx, e.discarded = nil, true
		e.until = time.Now().Add(e.terms.Lease)
	}
	e.mu.Unlock()
	if !open {
		return nil
	}
	err := e.rollback(tx)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.heartbeat != nil && !e.over {
		e.heartbeat.Reset(0)
	}
	return err
}
