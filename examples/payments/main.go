// Payments is both halves of the promise at once: a payment service on
// idempotency.Handler, called through a resilienthttp.Transport, while everything
// between the client and the disk breaks again and again.
//
// Run it from the root of the repository:
//
//	go run ./examples/payments                  with SQLite, in two minutes
//	go run ./examples/payments -db postgres     with a private PostgreSQL server
//	go run ./examples/payments -faults wire,backends,postmaster,disk,pgbouncer
//	go run ./examples/payments -charges 100 -kills 5 -stops 1 -mode detached
//	go run ./examples/payments -page 127.0.0.1:8080    and look there meanwhile
//
// It starts the service as three processes behind one address, lets 16 workers make
// 2,000 charges, and meanwhile kills one of the processes at 50 random moments
// (SIGKILL; another one starts), and stops one for longer than its lease at 10
// (SIGSTOP, then SIGCONT). The service itself loses 5 % of its answers after the
// commit (the connection is reset) and delays 5 % past the client's timeout. Each
// of -faults strikes 10 times more:
//
//	wire        a proxy before the services, and one before PostgreSQL, cuts and
//	            resets connections, delays what they carry, or holds it back for
//	            longer than a lease, and then delivers it, or never
//	backends    PostgreSQL's processes for connections get kill -9, after which the
//	            server starts anew by itself, or pg_terminate_backend
//	postmaster  the whole PostgreSQL server gets kill -9, or is shut down, and starts
//	            anew; its database has synchronous_commit off, so that what the store
//	            does not ask to be durable is not
//	disk        SQLite's files cannot grow: the kernel refuses it, in the middle of
//	            a write (RLIMIT_FSIZE, set from outside). That needs no privileges,
//	            and is to SQLite what a full disk is, but for the number: EFBIG
//	            instead of ENOSPC. (Linux)
//	pgbouncer   the services reach PostgreSQL through PgBouncer, which pools
//	            transactions, and gets kill -9
//
// There are two modes, and each is run:
//
//	joined      a charge is booked in the store's own database, in the transaction of
//	            its record
//	detached    a charge is booked by a bank, a process of its own that keeps its own
//	            ledger. It knows nothing of keys: what it is asked twice it books
//	            twice. It loses 5 % of its answers after the booking, delays 5 %, and
//	            books 3 % when the service has lost patience. What is Unknown
//	            afterwards a reconciler settles, by asking the bank; then the clients
//	            ask again.
//
// At last the ledger is read by itself. Each charge must be there exactly once, and
// its client must hold the receipt that the ledger has; or not at all, if the account
// does not cover it, which its client must have been told; and no record may be
// Unknown. If this is not so the program ends with status 1.
//
// What to read: service.go is the server, its business in joined.go and detached.go;
// reconcile.go settles what is Unknown; client.go is the client. ledger.go has the
// two databases, internal/bank the bank. internal/chaos is what goes wrong, run.go the
// test of it all.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/resilienthttp/resilienthttp/examples/internal/bank"
	"github.com/resilienthttp/resilienthttp/examples/internal/chaos"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := command(ctx, os.Args[1:])
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "payments:", err)
		os.Exit(1)
	}
}

// command is one of the processes when its first argument says so, and else the test
// of them.
func command(ctx context.Context, args []string) error {
	if len(args) > 0 {
		switch args[0] {
		case serveCommand:
			return serve(ctx, args[1:])
		case bank.Command:
			return bank.Serve(ctx, args[1:], bankTimeout)
		}
	}
	scenarios, err := parse(args)
	if err != nil {
		return err
	}
	return runAll(ctx, scenarios)
}

// parse makes a scenario for each database and mode that is asked for.
func parse(args []string) ([]scenario, error) {
	s := scenario{Plan: chaos.Plan{Kills: 50, Stops: 10, Strikes: 10}}
	var databases, modes, log string
	flags := flag.NewFlagSet("payments", flag.ContinueOnError)
	flags.IntVar(&s.charges, "charges", 2000, "how many charges to make")
	s.Plan.Flags(flags)
	flags.IntVar(&s.processes, "processes", 3, "how many processes the service is")
	flags.IntVar(&s.workers, "workers", 16, "how many goroutines charge")
	flags.StringVar(&databases, "db", "", "where the records are: "+chaos.SQLite+", "+chaos.Postgres+", or both; what the faults befall by default")
	flags.StringVar(&modes, "mode", joined+","+detached, "how it is charged")
	flags.StringVar(&log, "log", "", "the file that gets the services' logs")
	flags.StringVar(&s.page, "page", "", "address on which to show what the client knows, 127.0.0.1:8080 say")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	if log != "" {
		var err error
		if s.log, err = os.Create(log); err != nil {
			return nil, err
		}
	}
	if flags.NArg() > 0 {
		return nil, fmt.Errorf("what is %q?", flags.Arg(0))
	}
	if databases == "" {
		databases = s.Befallen()
	}
	var all []scenario
	for _, s.Database = range chaos.Words(databases) {
		for _, s.mode = range chaos.Words(modes) {
			if err := s.validate(); err != nil {
				return nil, err
			}
			all = append(all, s)
		}
	}
	return all, nil
}

// runAll runs each, also if one of them fails.
func runAll(ctx context.Context, scenarios []scenario) error {
	var failed error
	for _, s := range scenarios {
		result, err := s.run(ctx, os.Stdout)
		if err == nil {
			result.print(os.Stdout)
			err = result.verdict()
		}
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("%s, %s: %w", s.Database, s.mode, err))
		}
	}
	return failed
}
