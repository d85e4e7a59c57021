package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/resilienthttp/resilienthttp/crashtest/internal/bank"
	"github.com/resilienthttp/resilienthttp/crashtest/internal/chaos"
	"github.com/resilienthttp/resilienthttp/crashtest/internal/process"
)

// The apps.
const (
	paymentsApp = "payments"
	durableApp  = "durable"
)

// The modes.
const (
	transactional    = "transactional"     // payments: booked in the store's database
	nonTransactional = "non-transactional" // payments: booked by the bank
	keys             = "keys"              // durable: the bank honours idempotency keys
	asks             = "asks"              // durable: the bank's bookings can be queried
)

// modes are the modes of each app.
var modes = map[string][]string{paymentsApp: {transactional, nonTransactional}, durableApp: {keys, asks}}

// scenario is the app, the mode, the load and the faults of a run.
type scenario struct {
	chaos.Plan

	app, mode                  string
	orders, workers, processes int
	outage                     time.Duration // of the bank, in durable
	log                        io.Writer     // for the logs of the processes; nil: none
}

func (s *scenario) validate() error {
	switch {
	case s.orders < 1 || s.workers < 1 || s.processes < 1:
		return errors.New("orders, workers and processes must be positive")
	case s.outage < 0:
		return fmt.Errorf("outage is %v, must not be negative", s.outage)
	case slices.Contains(s.Faults, chaos.Clock) && (s.app != durableApp || s.Kills+s.Stops > 0):
		// A process that starts after the clock was set cannot know it, and a lease ends early for one that is suspended.
		return fmt.Errorf("the fault %s is for the app %s with -kills 0 -stops 0", chaos.Clock, durableApp)
	}
	return s.Validate()
}

// scenarios returns s for each of the apps and databases, in those of the modes that the app has. No modes
// means all.
func (s scenario) scenarios(apps, databases, only []string) (all []scenario, err error) {
	for _, mode := range only {
		if !slices.Contains(slices.Concat(modes[paymentsApp], modes[durableApp]), mode) {
			return nil, fmt.Errorf("unknown mode %q", mode)
		}
	}
	for _, s.app = range apps {
		if modes[s.app] == nil {
			return nil, fmt.Errorf("unknown app %q (want %s or %s)", s.app, paymentsApp, durableApp)
		}
		for _, s.Database = range databases {
			for _, s.mode = range modes[s.app] {
				if len(only) > 0 && !slices.Contains(only, s.mode) {
					continue
				}
				if err := s.validate(); err != nil {
					return nil, err
				}
				all = append(all, s)
			}
		}
	}
	if len(all) == 0 {
		return nil, errors.New("no scenario: the apps do not have these modes")
	}
	return all, nil
}

func (s *scenario) name() string { return strings.Join([]string{s.app, s.Database, s.mode}, " ") }

// order returns the order with number i, of one of ten tenants.
func (s *scenario) order(i int) bank.Order {
	return bank.Order{Reference: fmt.Sprintf("comp%d:invoice:%06d", i%10, i), Amount: int64(100 + i)}
}

// canceled reports whether the customer cancels order i during its transaction.
func (s *scenario) canceled(i int) bool { return s.app == durableApp && i%25 == 24 }

// poison returns the number of the order that kills each process that sends it, or -1. It is one of many that are sent at that time.
func (s *scenario) poison() int {
	if s.app != durableApp || s.Kills == 0 {
		return -1
	}
	for i := s.orders / 4; ; i++ {
		if s.order(i).Covered() && !s.canceled(i) {
			return i
		}
	}
}

// stack is the processes, proxies and databases of a scenario.
type stack struct {
	chaos.Stack

	bank *process.Process // nil: transactional
}

// build starts everything.
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
	l, err := openLedger(ctx, s.app, at.Database, at.OwnDSN())
	if err != nil {
		return nil, err
	}
	if s.app == durableApp && s.Database == chaos.Postgres {
		err = l.createTenants(ctx)
	}
	l.close()
	if err != nil {
		return nil, err
	}
	if err := at.DisableDurableCommits(ctx); err != nil {
		return nil, err
	}
	config := serviceConfig{App: s.app, Mode: s.mode, Database: s.Database, DSN: at.ServiceDSN()}
	config.Responses = chaos.Responses{Lose: 0.05, Timeout: attemptTimeout}
	if s.app == paymentsApp {
		config.Responses.Late = 0.05
	}
	if i := s.poison(); i >= 0 {
		config.Poison = s.order(i).Reference
	}
	if s.mode != transactional {
		at.bank = process.New(at.Path("bank"), s.log, bank.Command, s.bankOptions(at.bankLedger()))
		if err := at.bank.Start(ctx); err != nil {
			return nil, err
		}
		config.Bank = at.bank.Socket
	}
	err = at.Serve(ctx, s.processes, serveCommand, config)
	return at, err
}

func (s *scenario) bankOptions(ledger string) bank.Options {
	responses := chaos.Responses{Lose: 0.05, Timeout: bankTimeout}
	if s.mode == nonTransactional {
		responses.Late, responses.Slow = 0.05, 0.03
		return bank.Options{Ledger: ledger, Busy: 0.05, Responses: responses}
	}
	responses.Slow = 0.05
	if slices.Contains(s.Faults, chaos.Clock) {
		responses.Slow = 0.3 // many are booked shortly after the bank was asked for them
	}
	return bank.Options{Ledger: ledger, Busy: 0.03, Declines: 0.1, Calls: 0.03, Keys: s.mode == keys, Responses: responses}
}

// pause is the minimum time for which a process is suspended; the maximum is twice as long. With
// keys it may have any length. Without keys, a process may send after it resumes. This must be
// before the engine decides that nothing was booked.
func (s *scenario) pause() time.Duration {
	switch s.mode {
	case keys:
		return leaseOfIntent + visibilityDelay
	case asks:
		return leaseOfIntent
	default:
		return leaseOfCharge
	}
}

func (at *stack) bankLedger() string { return at.Path("bank.jsonl") }

// quiesce ends the services, and lets the bank complete its requests. After it no execution runs.
func (at *stack) quiesce() {
	at.StopServices()
	if at.bank != nil {
		at.bank.Drain()
	}
}

// close ends everything.
func (at *stack) close() error {
	at.StopServices()
	if at.bank != nil {
		at.bank.Stop()
	}
	return at.Close()
}
