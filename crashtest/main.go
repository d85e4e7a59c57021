// Crashtest breaks two services, during load, and then reads the ledger.
//
// Run it from the root of the repository:
//
//	go run ./crashtest                                      all apps, modes and databases
//	go run ./crashtest -app payments -db sqlite -kills 50   some of them
//	go run ./crashtest -faults wire,backends,postmaster
//	go run ./crashtest -faults pgbouncer -db postgres
//
// It starts three processes of a service behind one address. 16 clients send 2,000 orders through a
// resilienthttp.Transport. At 50 random moments a process gets SIGKILL, and another one starts. At 5
// moments one is suspended for longer than its lease (SIGSTOP, SIGCONT). The service loses 5 % of its
// responses after the commit. PostgreSQL has synchronous_commit off, so that the stores must ask for
// durable commits. Each of -faults strikes 5 times, if it exists for the database:
//
//	wire        a proxy in front of the services, and one in front of PostgreSQL, cuts
//	            and resets connections, delays data, or holds it back for longer than
//	            a lease and then delivers or drops it
//	backends    PostgreSQL's connection processes get kill -9, after which the server
//	            restarts by itself, or pg_terminate_backend
//	postmaster  the PostgreSQL server gets kill -9 or is shut down, and restarts
//	pgbouncer   the services reach PostgreSQL through PgBouncer, which pools
//	            transactions and gets kill -9
//	clock       the database's clock is set forward and back by up to 20 minutes,
//	            and the bank is slower; for durable, with -kills 0 -stops 0
//
// # The apps and their modes
//
// payments is an idempotency.Handler. It also delays 5 % of its responses past the client's timeout. One
// of ten clients cancels soon, and asks again after the faults.
//
//	transactional      a charge is booked in the store's own database, in the
//	                   transaction of its record
//	non-transactional  a charge is booked by a bank, a process with a ledger of its own.
//	                   It does not know keys: a second request is a second booking. It
//	                   loses 5 % of its responses after the booking, delays 5 %, books
//	                   3 % after the service's timeout, and responds with 503 to 5 %. A
//	                   reconciler asks the bank for unknown outcomes; then the clients
//	                   ask again.
//
// durable is a shop that writes an order and the intent to charge it in one transaction. Package durable
// makes the charge. The bank loses 5 % of its responses, executes 5 % after the client's timeout, and
// responds with 503 to 3 %. It declines 10 % for a time, and 3 % until a person redrives them. It has an
// outage of one minute. A simulated person handles dead and unknown intents, seconds after reading them,
// through the Engine and the console's forms. If an intent has changed in the meantime, the decision must
// have no effect. One of 25 customers cancels the order during its transaction.
//
// With kills, one order is poison: its first four sends kill the process. From the third lost lease on, nothing else may be in flight
// with it. In PostgreSQL each tenant has a schema with its orders, and with tables of package durable's names, and the shop's transactions
// have the search_path of their tenant.
//
//	keys   the bank honours idempotency keys
//	asks   the bank books a repeated request twice, and can be queried for its bookings
//
// # The audit
//
// At the end the ledger is read directly. Each order must be booked exactly once, and the client or the
// shop must have its receipt. An order that the account does not cover must be declined and not booked.
// Canceled orders must have left nothing. No outcome may be unknown. Otherwise the status is 1. The last
// line of each run is a summary.
//
// service.go is the process of a service: payments.go or shop.go, with ledger.go and bankclient.go.
// run.go is a run, with the load of charges.go or shopping.go, and audit.go its audit. internal/chaos has
// the faults, internal/bank the bank.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/resilienthttp/resilienthttp/crashtest/internal/bank"
	"github.com/resilienthttp/resilienthttp/crashtest/internal/chaos"
	"github.com/resilienthttp/resilienthttp/crashtest/internal/process"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := command(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "crashtest:", err)
		os.Exit(1)
	}
}

// command is a process of a service or the bank if the first argument is its name, and otherwise the test.
func command(ctx context.Context, args []string, out io.Writer) error {
	if len(args) > 0 {
		switch args[0] {
		case serveCommand:
			return process.Run(ctx, args, serve)
		case bank.Command:
			return process.Run(ctx, args, bank.Serve)
		}
	}
	scenarios, err := parse(args)
	if err != nil {
		return err
	}
	var failed error
	for _, s := range scenarios { // all of them, also after a failure
		r, err := s.run(ctx, out)
		if err == nil {
			r.print(out)
			err = r.verdict()
		}
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("%s: %w", s.name(), err))
		}
	}
	return failed
}

// parse returns a scenario for each app, database and mode.
func parse(args []string) ([]scenario, error) {
	var s scenario
	var apps, databases, modes, log string
	flags := flag.NewFlagSet("crashtest", flag.ContinueOnError)
	flags.StringVar(&apps, "app", paymentsApp+","+durableApp, "list of apps")
	flags.StringVar(&databases, "db", chaos.SQLite+","+chaos.Postgres, "list of databases")
	flags.StringVar(&modes, "mode", "", "list of modes (default all that the apps have)")
	flags.IntVar(&s.orders, "orders", 2000, "number of orders")
	flags.IntVar(&s.workers, "workers", 16, "number of concurrent clients")
	flags.IntVar(&s.processes, "processes", 3, "number of processes of the service")
	flags.DurationVar(&s.outage, "outage", time.Minute, "outage of the bank in durable")
	flags.StringVar(&log, "log", "", "file for the logs of the processes")
	s.Plan.Flags(flags)
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	if flags.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if log != "" {
		file, err := os.Create(log)
		if err != nil {
			return nil, err
		}
		s.log = file
	}
	return s.scenarios(chaos.Words(apps), chaos.Words(databases), chaos.Words(modes))
}
