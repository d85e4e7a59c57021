package main

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/resilienthttp/resilienthttp/examples/internal/bank"
	"github.com/resilienthttp/resilienthttp/idempotency"
	"github.com/resilienthttp/resilienthttp/idempotency/driver"
	"github.com/resilienthttp/resilienthttp/internal/sleep"
)

// reconciler finds out what became of the operations of which nobody knows, and
// settles their records.
type reconciler struct {
	store idempotency.Store
	bank  *teller // nil: there is nobody to ask, for everything is in the store's database

	booked, none int // how many it has settled, and how
}

// start settles beside the service what can be settled, until stop is called.
func (r *reconciler) start(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			_, _ = r.settle(ctx, false) // The database may be away: next time.
			_ = sleep.Context(ctx, leaseOfCharge)
		}
	}()
	return func() { cancel(); <-ended }
}

// settle settles what is Unknown, and says how many those were. What the bank has
// booked took effect. What it has not booked it may still book, until the execution
// cannot be at it any more: only if that is over, the operation is free again.
func (r *reconciler) settle(ctx context.Context, over bool) (settled int, err error) {
	if r.bank == nil {
		return 0, nil
	}
	before := r.booked + r.none
	for record, err := range r.store.Unknown(ctx, "") {
		if err == nil {
			err = r.settleOne(ctx, record.Lease(), over)
		}
		if err != nil && !errors.Is(err, idempotency.ErrLeaseLost) { // or somebody else has settled it
			return 0, err
		}
	}
	return r.booked + r.none - before, nil
}

func (r *reconciler) settleOne(ctx context.Context, lease driver.Lease, over bool) error {
	found, err := r.bank.bookings(ctx, lease.Key)
	switch {
	case err != nil:
		return err
	case len(found) > 0:
		err = r.store.Complete(ctx, lease, driver.Outcome{
			Status: idempotency.Completed, Result: receipt(found[0]), TTL: 24 * time.Hour,
		})
		if err == nil {
			r.booked++
		}
		return err
	case over:
		if err = r.store.Release(ctx, lease); err == nil {
			r.none++
		}
		return err
	default:
		return nil
	}
}

// receipt is the response that the service would have given.
func receipt(c bank.Charge) idempotency.Result {
	body, _ := json.Marshal(c) //nolint:errchkjson // strings and a number
	return idempotency.Result{
		Code: http.StatusCreated, Header: http.Header{"Content-Type": {"application/json"}}, Body: append(body, '\n'),
	}
}
