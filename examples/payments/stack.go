package main

import (
	"context"
	"errors"

	"github.com/resilienthttp/resilienthttp/examples/internal/bank"
	"github.com/resilienthttp/resilienthttp/examples/internal/chaos"
	"github.com/resilienthttp/resilienthttp/examples/internal/process"
)

// stack is the processes, proxies and databases of a scenario.
type stack struct {
	chaos.Stack

	bank *process.Process // nil: transactional
}

// build starts everything.
func (s scenario) build(ctx context.Context) (_ *stack, err error) {
	at := &stack{Stack: chaos.Stack{Plan: s.Plan, Lease: leaseOfCharge, Log: s.log}}
	defer func() {
		if err != nil {
			err = errors.Join(err, at.close())
		}
	}()
	if err := at.Build(ctx); err != nil {
		return nil, err
	}
	// The tables are made once, without the proxies.
	ledger, err := at.ledger(ctx)
	if err != nil {
		return nil, err
	}
	ledger.close()
	if err := at.DisableDurableCommits(ctx); err != nil {
		return nil, err
	}
	args := []string{"-db", s.Database, "-dsn", at.ServiceDSN(), "-lose", "0.05", "-late", "0.05"}
	if s.mode == nonTransactional {
		at.bank = process.New(at.Path("bank"), s.log, bank.Command, "-ledger", at.bankLedger(),
			"-busy", "0.05", "-lose", "0.05", "-late", "0.05", "-slow", "0.03")
		if err := at.bank.Start(ctx); err != nil {
			return nil, err
		}
		args = append(args, "-bank", at.bank.Socket)
	}
	if err := at.Serve(ctx, s.processes, serveCommand, args...); err != nil {
		return nil, err
	}
	return at, nil
}

// ledger opens the database without proxies and PgBouncer.
func (at *stack) ledger(ctx context.Context) (ledger, error) {
	return openLedger(ctx, at.Database, at.OwnDSN())
}

// booked returns all charges from the ledger's own file or table.
func (at *stack) booked(ctx context.Context) ([]bank.Charge, error) {
	if at.bank != nil {
		return bank.Bookings(at.bankLedger())
	}
	ledger, err := at.ledger(ctx)
	if err != nil {
		return nil, err
	}
	defer ledger.close()
	return ledger.all(ctx)
}

func (at *stack) bankLedger() string { return at.Path("bank.jsonl") }

// quiesce ends the services, and lets the bank complete its requests. After it no
// execution runs.
func (at *stack) quiesce(ctx context.Context) error {
	at.StopServices()
	if at.bank == nil {
		return nil
	}
	at.bank.Drain()
	return at.bank.Start(ctx)
}

// close ends everything.
func (at *stack) close() error {
	at.StopServices()
	if at.bank != nil {
		at.bank.Stop()
	}
	return at.Close()
}
