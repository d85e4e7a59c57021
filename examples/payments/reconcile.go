package main

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/resilienthttp/resilienthttp/idempotency"
)

// reconciler finds out what became of the operations of which nobody knows, and
// settles their records.
type reconciler struct {
	store idempotency.Store
	bank  *teller

	booked, none int // how many it has settled, and how
}

// settle settles what is Unknown, as far as it can be settled. What the bank has
// booked took effect. What it has not booked it may still book, until the execution
// cannot be at it any more: only if that is over, the operation is free again.
func (r *reconciler) settle(ctx context.Context, over bool, records []idempotency.Record) error {
	for _, record := range records {
		found, err := r.bank.bookings(ctx, record.Key)
		switch {
		case err != nil:
			return err
		case len(found) > 0:
			err = r.store.Complete(ctx, record.Lease(), idempotency.Outcome{
				Status: idempotency.Completed, Result: receipt(found[0]), TTL: idempotency.Day,
			})
		case over:
			err = r.store.Release(ctx, record.Lease())
		default:
			continue
		}
		switch {
		case errors.Is(err, idempotency.ErrLeaseLost): // somebody else has settled it
		case err != nil:
			return err
		case len(found) > 0:
			r.booked++
		default:
			r.none++
		}
	}
	return nil
}

// receipt is the response that the service would have given.
func receipt(c charge) idempotency.Result {
	body, _ := json.Marshal(c) //nolint:errchkjson // strings and a number
	return idempotency.Result{
		Code: http.StatusCreated, Header: http.Header{"Content-Type": {"application/json"}}, Body: append(body, '\n'),
	}
}
