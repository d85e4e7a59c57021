// Payments is a payment service on idempotency.Handler, called through a
// resilienthttp.Transport, during faults of processes, networks, databases and disks.
//
// Run it from the root of the repository:
//
//	go run ./examples/payments                  with SQLite, in two minutes
//	go run ./examples/payments -db postgres     with a private PostgreSQL server
//	go run ./examples/payments -faults wire,backends,postmaster,disk,pgbouncer,readonly
//	go run ./examples/payments -charges 100 -kills 5 -stops 1 -mode non-transactional
//	go run ./examples/payments -page 127.0.0.1:8080    with a page of the client's state
//
// It starts three processes of the service behind one address. 16 workers make 2,000
// charges. At 50 random moments it kills a process (SIGKILL; another one starts), and
// at 10 it stops one for longer than its lease (SIGSTOP, SIGCONT). The service loses
// 5 % of its responses after the commit, and delays 5 % past the client's timeout.
// Each of -faults strikes 10 times:
//
//	wire        a proxy in front of the services, and one in front of PostgreSQL, cuts
//	            and resets connections, delays data, or holds it back for longer than
//	            a lease and then delivers or drops it
//	backends    PostgreSQL's connection processes get kill -9, after which the server
//	            restarts by itself, or pg_terminate_backend
//	postmaster  the PostgreSQL server gets kill -9 or is shut down, and restarts; its
//	            database has synchronous_commit off, so that the store must ask for
//	            durable commits
//	disk        SQLite's files cannot grow: the kernel fails a write (RLIMIT_FSIZE, set
//	            from outside), as on a full disk. (Linux)
//	pgbouncer   the services reach PostgreSQL through PgBouncer, which pools
//	            transactions and gets kill -9
//	readonly    the database can be read but not written: PostgreSQL gets
//	            default_transaction_read_only, and another process takes SQLite's write
//	            lock, which holds for root and for all processes. Duplicates must get
//	            their stored result then, and new keys 503
//
// It runs two modes:
//
//	transactional      a charge is booked in the store's own database, in the
//	                   transaction of its record
//	non-transactional  a charge is booked by a bank, a process with a ledger of its own.
//	                   It does not know keys: a second request is a second booking. It
//	                   loses 5 % of its responses after the booking, delays 5 %, and
//	                   books 3 % after the service's timeout. A reconciler asks the bank
//	                   for unknown outcomes; then the clients ask again.
//
// At the end the ledger is read directly. Each charge must be in it exactly once, and
// its client must have the receipt of the ledger. A declined charge must not be in it,
// and its client must know. No outcome may be unknown. Otherwise the status is 1.
//
// service.go is the server, with its work in transactional.go and nontransactional.go.
// reconcile.go resolves unknown outcomes. client.go is the client, ledger.go has the
// two databases, internal/bank the bank, internal/chaos the faults, and run.go the test.
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

// command is a process of the service or the bank if the first argument is its name,
// and otherwise the test.
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

// parse returns a scenario for each database and mode.
func parse(args []string) ([]scenario, error) {
	s := scenario{Plan: chaos.Plan{Kills: 50, Stops: 10, Strikes: 10}}
	var databases, modes, log string
	flags := flag.NewFlagSet("payments", flag.ContinueOnError)
	flags.IntVar(&s.charges, "charges", 2000, "number of charges")
	s.Plan.Flags(flags)
	flags.IntVar(&s.processes, "processes", 3, "number of processes of the service")
	flags.IntVar(&s.workers, "workers", 16, "number of concurrent clients")
	flags.StringVar(&databases, "db", "", "databases: "+chaos.SQLite+", "+chaos.Postgres+", or both; default: those of the faults")
	flags.StringVar(&modes, "mode", transactional+","+nonTransactional, "modes")
	flags.StringVar(&log, "log", "", "file for the services' logs")
	flags.StringVar(&s.page, "page", "", "address of a page with the client's state, such as 127.0.0.1:8080")
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
		return nil, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if databases == "" {
		databases = s.AffectedDatabases()
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

// runAll runs all scenarios, also after a failure.
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
