package idempotency

import (
	"context"
	"errors"
	"time"

	"github.com/resilienthttp/resilienthttp/idempotency/driver"
	"github.com/resilienthttp/resilienthttp/internal/sleep"
)

// runner is what Handler and Executor have in common: they reserve, execute and
// end operations on the same terms.
type executor struct {
	store Store
	terms Options
	trace *Trace

	// transactor is the store if the work is joined, and else nil.
	transactor driver.Transactor

	// survives: the work goes on when the caller goes away. What has begun is brought
	// to its end, for the caller will ask again.
	survives bool
}

func newExecutor(store Store, terms Options, trace *Trace) (*executor, error) {
	terms, err := terms.resolved(store)
	r := &executor{store: store, terms: terms, trace: trace}
	if t, ok := store.(driver.Transactor); ok && (terms.Transactional || t.InCallerTx()) {
		r.transactor = t
	}
	return r, err
}

// start claims an operation, and begins its execution if the claim is granted. One
// whose time is over by then is not begun: its work could only say that it was cut
// off, and nobody would know whether that is all.
func (r *executor) start(ctx context.Context, claim *driver.Claim) (*execution, driver.Reservation, error) {
	e, reservation, err := r.wait(ctx, claim)
	if e != nil && e.ctx.Err() != nil {
		return nil, reservation, errors.Join(context.Cause(e.ctx), e.release())
	}
	return e, reservation, err
}

// wait claims an operation. While another execution is at it, it waits as long as
// the terms and ctx allow.
func (r *executor) wait(ctx context.Context, claim *driver.Claim) (*execution, driver.Reservation, error) {
	patience := time.Now().Add(r.terms.DuplicateWait)
	for wait := firstPause; ; wait = min(2*wait, longestWait) {
		asked := time.Now()
		e, reservation, err := r.attempt(ctx, claim, asked)
		if reservation.Decision != driver.DecisionInProgress || !asked.Add(wait).Before(patience) || sleep.Jittered(ctx, wait) != nil {
			return e, reservation, err
		}
	}
}

func (r *executor) attempt(ctx context.Context, claim *driver.Claim, asked time.Time) (*execution, driver.Reservation, error) {
	if r.transactor != nil {
		return r.beginJoined(ctx, claim, asked)
	}
	reservation, err := r.reserve(ctx, claim)
	if err != nil || reservation.Decision != driver.Acquired {
		return nil, reservation, err
	}
	e := r.hold(ctx, &reservation, asked)
	return e, reservation, nil
}

// beginJoined asks once more after an error, which may be that of a connection
// which the server has closed. What it may have begun there dies with it. A store that
// has waited is not asked to wait again. The wait for a connection is bounded as that
// for a lease is.
func (r *executor) beginJoined(ctx context.Context, claim *driver.Claim, asked time.Time) (*execution, driver.Reservation, error) {
	waiting, cancel := ctx, func() {}
	if !r.transactor.InCallerTx() {
		waiting, cancel = context.WithTimeout(ctx, r.terms.Lease)
	}
	defer cancel()
	limit := max(r.terms.Timeout, 0)
	reservation, tx, err := r.transactor.Begin(waiting, *claim, limit)
	if isRetryable(err) && !r.transactor.InCallerTx() && waiting.Err() == nil {
		reservation, tx, err = r.transactor.Begin(waiting, *claim, limit)
	}
	if err != nil || reservation.Decision != driver.Acquired {
		return nil, reservation, err
	}
	e := r.join(ctx, claim, &reservation, tx, asked)
	return e, reservation, nil
}

// reserve claims an operation for a lease. A claim whose answer was lost may have
// been granted. It is repeated, and found again by its owner; otherwise it would
// lie there as an execution that died.
func (r *executor) reserve(ctx context.Context, claim *driver.Claim) (driver.Reservation, error) {
	reservation, err := r.reserveOnce(ctx, claim)
	if isRetryable(err) {
		// If the first was granted after all, the lease runs since then.
		reservation, err = r.reserveOnce(ctx, claim)
	}
	return reservation, err
}

// reserveOnce outlives the caller by a moment: to be cut off would leave in doubt
// whether the claim was granted. Two of them fit into a lease, so that the second
// finds what the first was granted still alive.
func (r *executor) reserveOnce(ctx context.Context, claim *driver.Claim) (driver.Reservation, error) {
	longest := min(r.terms.Lease/3, storeTimeout)
	alive, cancel := context.WithTimeout(context.WithoutCancel(ctx), longest)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(min(longest, shutdownGrace), cancel) })
	defer stop()
	return r.store.Reserve(alive, *claim)
}

// worthAnother reports whether a claim that has failed is made once more. Where the
// store says that nothing was changed, there is nothing to be found again; and one that
// has waited as long as it may would only wait as long again.
func isRetryable(err error) bool {
	return err != nil && !errors.Is(err, ErrInvalid) && !errors.Is(err, driver.ErrStoreBusy)
}

// parting is how long the store has to answer a claim when its client has left.
const shutdownGrace = 500 * time.Millisecond
