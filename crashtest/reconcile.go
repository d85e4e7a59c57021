package main

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/resilienthttp/resilienthttp/crashtest/internal/bank"
	"github.com/resilienthttp/resilienthttp/idempotency"
)

// reconciler asks the bank for the unknown outcomes and completes their records.
type reconciler struct {
	store idempotency.Store
	bank  *bankClient // nil: all charges are in the store's database

	booked, none int // records that it has completed, and released
}

// reconcile returns the number of records that are not Unknown any more. If the bank
// has a booking, the operation took effect. If it has none, it may still book the
// order while an execution runs. ended reports whether none does: then the key is free.
func (r *reconciler) reconcile(ctx context.Context, ended bool) (n int, err error) {
	if r.bank == nil {
		return 0, nil
	}
	before := r.booked + r.none
	for record, err := range r.store.Unknown(ctx, "") {
		if err == nil {
			err = r.reconcileOne(ctx, record.Lease(), ended)
		}
		if err != nil && !errors.Is(err, idempotency.ErrLeaseLost) { // or the execution has completed it
			return 0, err
		}
	}
	return r.booked + r.none - before, nil
}

func (r *reconciler) reconcileOne(ctx context.Context, lease idempotency.Lease, ended bool) error {
	found, err := r.bank.bookings(ctx, lease.Key)
	switch {
	case err != nil:
		return err
	case len(found) > 0:
		err = r.store.Complete(ctx, lease, idempotency.Outcome{
			Status: idempotency.Completed, Result: receipt(found[0]), TTL: 24 * time.Hour,
		})
		if err == nil {
			r.booked++
		}
		return err
	case ended:
		if err = r.store.Release(ctx, lease); err == nil {
			r.none++
		}
		return err
	default:
		return nil
	}
}

// receipt returns the response that the service would have sent.
func receipt(c bank.Charge) idempotency.Result {
	body, _ := json.Marshal(c) //nolint:errchkjson // strings and a number
	return idempotency.Result{
		Code: http.StatusCreated, Header: http.Header{"Content-Type": {"application/json"}}, Body: append(body, '\n'),
	}
}
