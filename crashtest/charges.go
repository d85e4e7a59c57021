package main

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/resilienthttp/resilienthttp/crashtest/internal/bank"
	"github.com/resilienthttp/resilienthttp/crashtest/internal/chaos"
	"github.com/resilienthttp/resilienthttp/idempotency"
)

// charges is the load of the payment service.
type charges struct {
	*run
	reconciler
}

func newCharges(r *run) *charges {
	c := &charges{r, reconciler{store: r.ledger.records}}
	if r.at.bank != nil {
		c.bank = newBankClient(r.at.bank.Socket, keylessBank())
	}
	return c
}

// begin reconciles while the service runs.
func (c *charges) begin(ctx context.Context) (stop func()) {
	return chaos.Repeat(ctx, leaseOfCharge, func(ctx context.Context) {
		_, _ = c.reconcile(ctx, false) // The database may be down: it tries again.
	})
}

// ask sends one order. One of ten clients cancels soon, and asks again only after the faults. The others
// wait for an outcome.
func (c *charges) ask(ctx context.Context, i int) {
	if i%10 == 9 {
		ctx, cancel := context.WithTimeout(ctx, rand.N(100*time.Millisecond))
		defer cancel()
		c.outcomes[i] = c.client.order(ctx, c.order(i), false)
		return
	}
	c.outcomes[i] = c.send(ctx, i)
}

// settle reconciles the unknown outcomes, and sends the orders without an outcome again.
func (c *charges) settle(ctx context.Context) error {
	var err error
	for range 20 {
		c.at.quiesce()
		if c.at.bank != nil {
			if err := c.at.bank.Start(ctx); err != nil {
				return err
			}
		}
		var reconciled, asked int
		if reconciled, err = c.reconcile(ctx, true); err != nil {
			continue // on a busy machine the bank may answer late: the next round asks again
		}
		asked, err = c.askAgain(ctx)
		if err != nil || reconciled+asked == 0 {
			return err
		}
	}
	return errors.Join(errors.New("reconcile: outcomes are still unknown after 20 rounds"), err)
}

// askAgain sends the orders without an outcome again, and returns their number.
func (c *charges) askAgain(ctx context.Context) (int, error) {
	var ask []int
	for i, o := range c.outcomes {
		if o.state == unknown {
			ask = append(ask, i)
		}
	}
	if len(ask) == 0 {
		return 0, nil
	}
	if err := c.at.StartServices(ctx); err != nil {
		return 0, err
	}
	var clients sync.WaitGroup
	for _, i := range ask {
		clients.Go(func() { c.outcomes[i] = c.send(ctx, i) })
	}
	clients.Wait()
	return len(ask), nil
}

// read returns the ledger. No record may be unknown.
func (c *charges) read(ctx context.Context) ([]bank.Charge, error) {
	for record, err := range c.ledger.records.Unknown(ctx, "") {
		if err != nil {
			return nil, err
		}
		c.wrongf("the outcome of %s is unknown at the end", record.Key)
	}
	c.add("stored responses", int(c.client.replayed.Load()))
	c.add("became unknown, and the bank had booked them", c.booked)
	c.add("became unknown, and the bank had not booked them", c.none)
	if c.at.bank != nil {
		return bank.Bookings(c.at.bankLedger())
	}
	return c.ledger.all(ctx)
}

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
