package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/resilienthttp/resilienthttp/idempotency"
)

// run lets the workers charge while everything breaks, settles what is left, and
// audits the ledger.
func (s scenario) run(ctx context.Context, out io.Writer) (_ *result, err error) {
	at, err := s.build(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, at.close()) }()
	began := time.Now()
	c := newClient("http://" + at.front.Addr())
	defer c.http.CloseIdleConnections()
	r := newResult(s, c)
	if s.mode == detached {
		err = r.detached(ctx, at, out)
	} else {
		err = (&storm{at: at, result: r}).rage(ctx, out)
	}
	if err != nil {
		return nil, err
	}
	r.took = time.Since(began)
	if err := at.quiesce(ctx); err != nil {
		return nil, err
	}
	booked, err := at.booked(ctx)
	if err != nil {
		return nil, err
	}
	r.audit = newAudit(&s, r.outcomes, booked)
	ledger, err := at.ledger(ctx)
	if err != nil {
		return nil, err
	}
	defer ledger.close()
	left, err := r.unknownRecords(ctx, ledger.records())
	r.unknown = len(left)
	return r, err
}

// detached reconciles during the storm, as far as it can be, and after it, until
// nothing is Unknown.
func (r *result) detached(ctx context.Context, at *site, out io.Writer) error {
	ledger, err := at.ledger(ctx)
	if err != nil {
		return err
	}
	defer ledger.close()
	settling := &reconciler{store: ledger.records(), bank: newTeller(at.bank.socket)}

	storming, over := context.WithCancel(ctx)
	var beside sync.WaitGroup
	beside.Go(func() {
		for storming.Err() == nil {
			if records, err := r.unknownRecords(storming, settling.store); err == nil {
				_ = settling.settle(storming, false, records) // the database may be away
			}
			rest(storming, leaseOfCharge)
		}
	})
	err = (&storm{at: at, result: r}).rage(ctx, out)
	over()
	beside.Wait()
	if err != nil {
		return err
	}
	for range 20 {
		if done, err := r.settleAll(ctx, at, settling); done || err != nil {
			r.booked, r.none = settling.booked, settling.none
			return err
		}
	}
	return errors.New("reconciling does not come to an end")
}

// settleAll settles what is Unknown, and lets the clients ask again. true: there was
// nothing to do.
func (r *result) settleAll(ctx context.Context, at *site, settling *reconciler) (bool, error) {
	if err := at.quiesce(ctx); err != nil {
		return false, err
	}
	records, err := r.unknownRecords(ctx, settling.store)
	if err != nil {
		return false, err
	}
	if err := settling.settle(ctx, true, records); err != nil {
		return false, fmt.Errorf("reconciling: %w", err)
	}
	var ask []int
	for i, o := range r.outcomes {
		if !o.settled() {
			ask = append(ask, i)
		}
	}
	if len(records) == 0 && len(ask) == 0 {
		return true, nil
	}
	if err := at.startServices(ctx); err != nil {
		return false, err
	}
	var clients sync.WaitGroup
	for _, i := range ask {
		clients.Go(func() { r.outcomes[i] = r.client.charge(ctx, r.order(i)) })
	}
	clients.Wait()
	return false, nil
}

func (r *result) unknownRecords(ctx context.Context, store idempotency.Store) ([]idempotency.Record, error) {
	var records []idempotency.Record
	for i := range r.charges {
		record, err := store.Load(ctx, idempotency.ID{Scope: accountOfClient, Operation: chargeOperation, Key: r.order(i).Reference})
		if errors.Is(err, idempotency.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if record.Status == idempotency.Unknown {
			records = append(records, record)
		}
	}
	return records, nil
}
