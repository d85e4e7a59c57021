package idempotency

import (
	"context"
	"errors"
	"time"
)

// runner is what Handler and Executor have in common: they reserve, execute and
// end operations on the same terms.
type runner struct {
	store Store
	terms Terms
	trace *Trace

	// detached work goes on when the caller goes away: what has begun is brought to
	// its end, for the caller will ask again.
	detached bool
}

func newRunner(store Store, terms Terms, trace *Trace) (*runner, error) {
	terms, err := terms.resolved(store)
	return &runner{store: store, terms: terms, trace: trace}, err
}

// reserve claims an operation. While another execution is at it, it waits as long
// as the terms and ctx allow. The time is when the claim that was granted was
// asked for.
//
// A claim whose answer was lost may have been granted. It is repeated, and found
// again by its owner; otherwise it would lie there as an execution that died.
func (r *runner) reserve(ctx context.Context, claim *Claim) (Reservation, time.Time, error) {
	patience := time.Now().Add(r.terms.Wait)
	for pause := firstPause; ; pause = min(2*pause, longestWait) {
		asked := time.Now()
		reservation, err := r.reserveOnce(ctx, claim)
		if err != nil && !errors.Is(err, ErrInvalid) {
			// If the first was granted after all, the lease runs since then.
			reservation, err = r.reserveOnce(ctx, claim)
		}
		if err != nil || reservation.Decision != Busy || !asked.Add(pause).Before(patience) || !sleep(ctx, pause) {
			return reservation, asked, err
		}
	}
}

// reserveOnce does not end with the caller: it would leave in doubt whether the
// claim was granted. Two of them fit into a lease, so that the second finds what
// the first was granted still alive.
func (r *runner) reserveOnce(ctx context.Context, claim *Claim) (Reservation, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), min(r.terms.Lease/3, storePatience))
	defer cancel()
	return r.store.Reserve(ctx, *claim)
}
