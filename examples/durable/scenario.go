package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/resilienthttp/resilienthttp/examples/internal/bank"
	"github.com/resilienthttp/resilienthttp/examples/internal/chaos"
	"github.com/resilienthttp/resilienthttp/examples/internal/process"
)

// scenario has the load, the mode of the bank, and the faults of a run.
type scenario struct {
	chaos.Plan

	payments  int
	outage    time.Duration // of the bank
	processes int
	mode      string
	page      string    // address of the pages; "": none
	log       io.Writer // for the logs of the processes; nil: none
}

func (s *scenario) validate() error {
	switch {
	case s.payments < 1 || s.processes < 1:
		return errors.New("payments and processes must be positive")
	case s.outage < 0:
		return fmt.Errorf("outage is %v, must not be negative", s.outage)
	case s.mode != keys && s.mode != asks:
		return fmt.Errorf("unknown mode %q", s.mode)
	}
	return s.Validate()
}

// order returns the order with number i, of one of ten tenants.
func (s *scenario) order(i int) bank.Order {
	return bank.Order{Reference: fmt.Sprintf("comp%d:invoice:%06d", i%10, i), Amount: int64(100 + i)}
}

// canceledOrder reports whether the customer cancels the order. One of 25 does.
func canceledOrder(i int) bool { return i%25 == 24 }

// stack has the processes of the shop, the database, and the bank.
type stack struct {
	chaos.Stack

	bank *process.Process
}

// build starts the stack.
func (s *scenario) build(ctx context.Context) (_ *stack, err error) {
	at := &stack{Stack: chaos.Stack{Plan: s.Plan, Lease: s.pause(), Log: s.log}}
	defer func() {
		if err != nil {
			err = errors.Join(err, at.close())
		}
	}()
	if err := at.Build(ctx); err != nil {
		return nil, err
	}
	// The tables are created once, without the proxies.
	b, err := openLedger(ctx, at.Database, at.OwnDSN())
	if err != nil {
		return nil, err
	}
	b.close()
	if err := at.DisableDurableCommits(ctx); err != nil {
		return nil, err
	}
	at.bank = process.New(at.Path("bank"), s.log, bank.Command, "-ledger", at.bankLedger(), fmt.Sprintf("-keys=%t", s.mode == keys),
		"-busy", "0.03", "-declines", "0.1", "-calls", "0.03", "-lose", "0.05", "-slow", "0.05")
	if err := at.bank.Start(ctx); err != nil {
		return nil, err
	}
	err = at.Serve(ctx, s.processes, shopCommand,
		"-db", s.Database, "-dsn", at.ServiceDSN(), "-mode", s.mode, "-bank", at.bank.Socket, "-lose", "0.05")
	if err != nil {
		return nil, err
	}
	return at, nil
}

// pause is the minimum time for which a process is suspended; the maximum is twice as long. With
// keys it may have any length. Without keys, a process may send after it resumes. This must be
// before the engine decides that nothing was booked.
func (s *scenario) pause() time.Duration {
	if s.mode == keys {
		return lease + visibilityDelay
	}
	return lease
}

func (at *stack) bankLedger() string { return at.Path("bank.jsonl") }

// close stops all processes.
func (at *stack) close() error {
	at.StopServices()
	if at.bank != nil {
		at.bank.Stop()
	}
	return at.Close()
}
