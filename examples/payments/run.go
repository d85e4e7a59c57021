package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
)

// run lets the workers charge while everything breaks, settles what is left, and
// audits the ledger.
func (s scenario) run(ctx context.Context, out io.Writer) (_ *result, err error) {
	at, err := s.build(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, at.close()) }()
	ledger, err := at.ledger(ctx)
	if err != nil {
		return nil, err
	}
	defer ledger.close()
	c := newClient("http://" + at.front.Addr())
	defer c.http.CloseIdleConnections()
	if s.page != "" {
		stop, err := c.showPage(ctx, s.page, ledger.records(), out)
		if err != nil {
			return nil, err
		}
		defer stop()
	}

	r := newResult(s, c, ledger.records())
	began := time.Now()
	if err := r.charge(ctx, at, out); err != nil {
		return nil, err
	}
	r.took = time.Since(began)
	booked, err := at.booked(ctx)
	r.audit = newAudit(&s, r.outcomes, booked)
	return r, err
}

// charge charges until every client knows what became of its order. After it no
// process of the service is left.
func (r *result) charge(ctx context.Context, at *site, out io.Writer) error {
	settling := &reconciler{store: r.records}
	if at.bank != nil {
		settling.bank = newTeller(at.bank.socket)
	}
	beside := settling.start(ctx)
	err := (&storm{at: at, result: r}).rage(ctx, out)
	beside()
	if err != nil {
		return err
	}
	for range 20 {
		if err := at.quiesce(ctx); err != nil {
			return err
		}
		settled, err := settling.settle(ctx, true)
		if err != nil {
			return fmt.Errorf("reconciling: %w", err)
		}
		r.booked, r.none = settling.booked, settling.none
		asked, err := r.askAgain(ctx, at)
		if err != nil || settled+asked == 0 {
			return errors.Join(err, r.countUnknown(ctx))
		}
	}
	return errors.New("reconciling does not come to an end")
}

// countUnknown counts what is left.
func (r *result) countUnknown(ctx context.Context) error {
	for _, err := range r.records.Unknown(ctx, "") {
		if err != nil {
			return err
		}
		r.unknown++
	}
	return nil
}

// askAgain lets the clients that do not know ask again, and says how many those were.
func (r *result) askAgain(ctx context.Context, at *site) (int, error) {
	var ask []int
	for i, o := range r.outcomes {
		if !o.settled() {
			ask = append(ask, i)
		}
	}
	if len(ask) == 0 {
		return 0, nil
	}
	if err := at.startServices(ctx); err != nil {
		return 0, err
	}
	var clients sync.WaitGroup
	for _, i := range ask {
		clients.Go(func() { r.outcomes[i] = r.client.charge(ctx, r.order(i)) })
	}
	clients.Wait()
	return len(ask), nil
}
