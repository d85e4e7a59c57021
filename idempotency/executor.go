package idempotency

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/sleep"
)

// Time limits of store operations.
const (
	// storeTimeout bounds an operation that no lease bounds.
	storeTimeout = 5 * time.Second

	// findTimeout bounds the read after a claim that failed.
	findTimeout = time.Second

	// shutdownGrace is the time that the store has to answer a claim after the
	// client has left.
	shutdownGrace = 500 * time.Millisecond

	// minPause and maxPause are the waits between repeated operations.
	minPause = 10 * time.Millisecond
	maxPause = 250 * time.Millisecond
)

// executor is the common part of Handler and Executor: it claims, executes and ends
// operations.
type executor struct {
	store   Store
	options Options
	trace   *Trace
	check   *storeCheck // nil: the store is not checked

	// transactor is the store if the work is transactional, otherwise nil.
	transactor Transactor

	// survives means that the work goes on after its caller has left, because the
	// caller will ask again.
	survives bool
}

func newExecutor(store Store, options Options, trace *Trace) (*executor, error) {
	options, err := options.resolved(store)
	x := &executor{store: store, options: options, trace: trace}
	if t, ok := store.(Transactor); ok && (options.Transactional || t.InCallerTx()) {
		x.transactor = t
	}
	return x, err
}

// checkStore makes the first claim check the store, unless that would need a connection
// beside the caller's transaction.
func (x *executor) checkStore() {
	if !x.inCallerTx() {
		x.check = &storeCheck{turn: make(chan struct{}, 1)}
		x.check.turn <- struct{}{}
	}
}

// start claims an operation and begins its execution if the claim is granted. If the
// caller's deadline has passed by then, or the time of the execution or its lease is over, it
// is not begun. After an error nothing was executed for this claim, but another execution may be in
// progress: the Decision says so.
func (x *executor) start(ctx context.Context, claim *Claim) (*execution, Reservation, error) {
	if x.check != nil {
		if err := x.check.passed(ctx, x.store); err != nil {
			return nil, Reservation{}, err
		}
	}
	e, reservation, err := x.wait(ctx, claim)
	if e == nil {
		return nil, reservation, err
	}
	over := e.ctx
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		over = ctx // work that survives its caller is not begun either
	}
	if over.Err() != nil {
		defer e.close()
		return nil, reservation, errors.Join(context.Cause(over), e.release(shutdownGrace))
	}
	return e, reservation, err
}

// wait claims an operation. While another execution is in progress, it repeats the
// claim for DuplicateWait. It holds no connection between the claims.
func (x *executor) wait(ctx context.Context, claim *Claim) (*execution, Reservation, error) {
	deadline := time.Now().Add(x.options.DuplicateWait)
	for pause := minPause; ; pause = min(2*pause, maxPause) {
		asked := time.Now()
		e, reservation, err := x.claim(ctx, claim, asked)
		if err != nil && pause > minPause {
			reservation.Decision = DecisionInProgress // the answer before
		}
		if err != nil || reservation.Decision != DecisionInProgress || !asked.Add(pause).Before(deadline) ||
			sleep.Jittered(ctx, pause) != nil {
			return e, reservation, err
		}
	}
}

func (x *executor) claim(ctx context.Context, claim *Claim, asked time.Time) (*execution, Reservation, error) {
	waiting, cancel := ctx, func() {}
	claimOnce := x.reserve
	if x.transactor != nil {
		claimOnce = func(ctx context.Context, claim *Claim, asked time.Time) (*execution, Reservation, error) {
			return x.begin(ctx, waiting, claim, asked)
		}
		if !x.inCallerTx() {
			waiting, cancel = bounded(ctx, x.options.Lease)
		}
	}
	defer cancel()
	e, reservation, err := claimOnce(ctx, claim, asked)
	if !isRetryable(err) || x.inCallerTx() {
		return e, reservation, err
	}
	if x.transactor == nil || waiting.Err() == nil {
		// The error may be that of a dead connection. If the first claim was granted,
		// the second one finds it by its owner. Its lease runs since then.
		e, reservation, err = claimOnce(ctx, claim, asked)
		// The first claim may have made the record Unknown.
		reservation.LeaseExpired = reservation.LeaseExpired || reservation.Decision == DecisionUnknown
	}
	if isRetryable(err) {
		reservation, err = x.find(ctx, claim, err)
	}
	return e, reservation, err
}

func (x *executor) inCallerTx() bool { return x.transactor != nil && x.transactor.InCallerTx() }

// isRetryable reports whether a failed claim is repeated. After ErrStoreBusy it is
// not, because that would double the wait.
func isRetryable(err error) bool {
	return err != nil && !errors.Is(err, ErrInvalid) && !errors.Is(err, ErrStoreBusy)
}

// find answers a claim that failed with err by reading: a store that cannot write
// still answers duplicates. If the claim was granted after all, find releases it,
// because nothing was executed. Decide needs no time for these records.
//
// If another execution is in progress, as far as is known, the answer has that Decision beside the error.
func (x *executor) find(ctx context.Context, claim *Claim, err error) (Reservation, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), findTimeout)
	defer cancel()
	record, failed := x.store.Load(ctx, claim.ID)
	if failed != nil {
		return Reservation{}, err
	}
	_, reservation := Decide(&record, claim, time.Time{})
	switch {
	case reservation.Decision == DecisionInProgress:
		return reservation, err
	case reservation.Decision != DecisionAcquired:
		reservation.Record = record
		return reservation, nil
	case record.Owner == claim.Owner:
		_ = x.store.Release(ctx, record.Lease()) // otherwise the lease ends it
	}
	return Reservation{}, err
}

// begin claims an operation for transactional work. waiting bounds the claim.
func (x *executor) begin(
	ctx, waiting context.Context, claim *Claim, asked time.Time,
) (*execution, Reservation, error) {
	reservation, tx, err := x.transactor.Begin(waiting, *claim, max(x.options.Timeout, 0))
	if err != nil || reservation.Decision != DecisionAcquired {
		return nil, reservation, err
	}
	e := x.newExecution(ctx, &reservation, asked)
	e.ownership = &transactional{execution: e, claimed: claim, tx: tx}
	return e, reservation, nil
}

// reserve claims an operation under a lease.
func (x *executor) reserve(ctx context.Context, claim *Claim, asked time.Time) (*execution, Reservation, error) {
	waiting, cancel := x.claimContext(ctx)
	defer cancel()
	reservation, err := x.store.Reserve(waiting, *claim)
	if err != nil || reservation.Decision != DecisionAcquired {
		return nil, reservation, err
	}
	e := x.hold(ctx, &reservation, asked)
	return e, reservation, nil
}

// claimContext outlives its caller by shutdownGrace, because a claim that is cut off
// may have been granted. Two claims fit into a lease, so that the second one finds
// what the first one was granted.
func (x *executor) claimContext(ctx context.Context) (context.Context, context.CancelFunc) {
	longest := min(x.options.Lease/3, storeTimeout)
	alive, release := context.WithoutCancel(ctx), func() {}
	if deadline, ok := ctx.Deadline(); ok {
		alive, release = context.WithDeadline(alive, deadline.Add(shutdownGrace))
	}
	alive, cancel := bounded(alive, longest)
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(min(longest, shutdownGrace), cancel) })
	return alive, func() { stop(); cancel(); release() }
}

// bounded ends ctx after d without a deadline: stores wait for a part of the time until
// the caller's deadline.
func bounded(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	timer := time.AfterFunc(d, cancel)
	return ctx, func() { timer.Stop(); cancel() }
}

// checkPause is the time between two checks of a store that fails them.
const checkPause = time.Second

// storeCheck calls Store.Check before the first claim, and until it succeeds at most
// once in checkPause.
type storeCheck struct {
	ok   atomic.Bool
	turn chan struct{} // holds one value while no check runs

	// The last check, guarded by turn.
	ended time.Time
	err   error
}

// passed returns nil if the store can be used. Callers that come during a check wait
// for it. They share its error, but ErrStoreBusy, which says nothing about the store's
// tables, only if they have waited for as long as a claim does, or nearly: the check may
// have been that of a caller with little time.
func (c *storeCheck) passed(ctx context.Context, store Store) error {
	if c.ok.Load() {
		return nil
	}
	came := time.Now()
	select {
	case <-c.turn:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { c.turn <- struct{}{} }()
	shared := time.Since(c.ended) < checkPause
	if errors.Is(c.err, ErrStoreBusy) {
		shared = c.ended.After(came) && time.Since(came) >= checkPause/2
	}
	if c.ok.Load() || c.err != nil && shared {
		return c.err
	}
	checking, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	err := store.Check(checking)
	switch {
	case err != nil && ctx.Err() != nil: // this caller has left; the next one checks
		return context.Cause(ctx)
	case err != nil && !errors.Is(err, ErrStoreBusy):
		err = fmt.Errorf("idempotency: check the store: %w", err)
	}
	c.err, c.ended = err, time.Now()
	c.ok.Store(err == nil)
	return err
}
