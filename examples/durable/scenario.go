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

// scenario is how many orders there are, what the bank can do, and what goes wrong.
type scenario struct {
	chaos.Plan

	payments  int
	outage    time.Duration // of the bank
	processes int
	mode      string
	page      string    // the address of the pages; "": there are none
	log       io.Writer // of the processes; nil: nobody reads it
}

func (s *scenario) validate() error {
	switch {
	case s.payments < 1 || s.processes < 1:
		return errors.New("there must be payments and processes")
	case s.outage < 0:
		return fmt.Errorf("an outage of %v", s.outage)
	case s.mode != keys && s.mode != asks:
		return fmt.Errorf("there is no mode %q", s.mode)
	}
	return s.Validate()
}

// order is the i-th, of one of ten tenants.
func (s *scenario) order(i int) bank.Order {
	return bank.Order{Reference: fmt.Sprintf("comp%d:invoice:%06d", i%10, i), Amount: int64(100 + i)}
}

// givenUp: its customer gives it up at the last moment. One of 25 does.
func givenUp(i int) bool { return i%25 == 24 }

// site is the shop's processes, the database, and the bank.
type site struct {
	chaos.Site

	bank *process.Process
}

// build starts everything.
func (s *scenario) build(ctx context.Context) (_ *site, err error) {
	at := &site{Site: chaos.Site{Plan: s.Plan, Lease: s.pause(), Log: s.log}}
	defer func() {
		if err != nil {
			err = errors.Join(err, at.close())
		}
	}()
	if err := at.Build(ctx); err != nil {
		return nil, err
	}
	// The tables are made once, and past the wires.
	b, err := openBooks(ctx, at.Database, at.OwnDSN())
	if err != nil {
		return nil, err
	}
	b.close()
	if err := at.Forget(ctx); err != nil {
		return nil, err
	}
	at.bank = process.New(at.Path("bank"), s.log, bank.Command, "-ledger", at.ledger(), fmt.Sprintf("-keys=%t", s.mode == keys),
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

// pause is what a stop of a process is longer than, and at most twice as long. Where keys
// protect, nothing is too long, and what was stopped finds that others have done its work.
// Where they do not, it may send when it wakes up, which must be before anybody believes
// that nothing was booked.
func (s *scenario) pause() time.Duration {
	if s.mode == keys {
		return lease + settles
	}
	return lease
}

func (at *site) ledger() string { return at.Path("bank.jsonl") }

// close ends everything.
func (at *site) close() error {
	at.StopServices()
	if at.bank != nil {
		at.bank.Stop()
	}
	return at.Close()
}
