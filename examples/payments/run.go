package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/resilienthttp/resilienthttp/examples/internal/chaos"
)

// run sends the orders during the faults, reconciles the unknown outcomes, and audits
// the ledger.
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
	c := newClient("http://" + at.Front.Addr())
	defer c.http.CloseIdleConnections()
	if s.page != "" {
		stop, err := c.showPage(ctx, s.page, ledger.records(), out)
		if err != nil {
			return nil, err
		}
		defer stop()
	}

	r := newResult(s, c, ledger.records())
	start := time.Now()
	if err := r.charge(ctx, at, out); err != nil {
		return nil, err
	}
	r.took = time.Since(start)
	booked, err := at.booked(ctx)
	r.audit = newAudit(&s, r.outcomes, r.readOnly.ordered(booked))
	return r, err
}

// charge sends the orders until each client has an outcome. After it no process of
// the service runs.
func (r *result) charge(ctx context.Context, at *stack, out io.Writer) error {
	reconciling := &reconciler{store: r.records}
	if at.bank != nil {
		reconciling.bank = newBankClient(at.bank.Socket)
	}
	stop := reconciling.start(ctx)
	at.BeforeReadOnly, at.WhileReadOnly = r.readOnly.wait, r.readOnly.run
	storm := &chaos.Storm{At: &at.Stack, Workers: r.workers, Items: r.charges}
	err := storm.Run(ctx, out, r.ask)
	r.struck = storm.Struck
	stop()
	if err != nil {
		return err
	}
	for range 20 {
		if err := at.quiesce(ctx); err != nil {
			return err
		}
		reconciled, err := reconciling.reconcile(ctx, true)
		if err != nil {
			return fmt.Errorf("reconcile: %w", err)
		}
		r.booked, r.none = reconciling.booked, reconciling.none
		asked, err := r.askAgain(ctx, at)
		if err != nil || reconciled+asked == 0 {
			return errors.Join(err, r.countUnknown(ctx))
		}
	}
	return errors.New("reconcile: outcomes are still unknown after 20 rounds")
}

// ask sends one order. One of ten clients cancels soon, and asks again only after the
// faults. The others wait for an outcome, at most for chargeTimeout.
func (r *result) ask(ctx context.Context, i int) {
	if i%10 == 9 {
		ctx, cancel := context.WithTimeout(ctx, rand.N(100*time.Millisecond))
		defer cancel()
		r.outcomes[i] = r.client.charge(ctx, r.order(i))
		return
	}
	start := time.Now()
	known := r.client.charge(ctx, r.order(i))
	r.outcomes[i] = known
	r.readOnly.add(r.order(i), known)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.longest = max(r.longest, time.Since(start))
	if known.err != nil {
		r.timedOut++
	}
}

// countUnknown counts the outcomes that are still unknown.
func (r *result) countUnknown(ctx context.Context) error {
	for _, err := range r.records.Unknown(ctx, "") {
		if err != nil {
			return err
		}
		r.unknown++
	}
	return nil
}

// askAgain sends the orders without an outcome again, and returns their number.
func (r *result) askAgain(ctx context.Context, at *stack) (int, error) {
	var ask []int
	for i, o := range r.outcomes {
		if !o.known() {
			ask = append(ask, i)
		}
	}
	if len(ask) == 0 {
		return 0, nil
	}
	if err := at.StartServices(ctx); err != nil {
		return 0, err
	}
	var clients sync.WaitGroup
	for _, i := range ask {
		clients.Go(func() { r.outcomes[i] = r.client.charge(ctx, r.order(i)) })
	}
	clients.Wait()
	return len(ask), nil
}
