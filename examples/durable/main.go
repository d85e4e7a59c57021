// Durable is a shop with charges that survive crashes. It writes an order and the intent to charge it in
// one transaction. Package durable then makes the charge exactly once.
//
// Run it from the root of the repository:
//
//	go run ./examples/durable                   one order, and kill -9 during its charge
//	go run ./examples/durable -db postgres      with a private PostgreSQL server, or -dsn …
//	go run ./examples/durable -import file.csv  a sheet of invoices, and the result of each
//	go run ./examples/durable -chaos            2,000 orders during faults
//	go run ./examples/durable … -page 127.0.0.1:8080    with a state page and the console
//
// -import reads the columns invoice and amount, and writes status, reference, code and text.
// Correct declined and invalid rows, and run it again: only these are sent. Its databases are
// beside the file. See testdata/invoices.csv. The bank declines round amounts, declines amounts
// with 13 cents for an hour, and loses its response to amounts with 7 cents.
//
// -chaos runs three processes of the shop, which take 2,000 orders and charge them. At 50 random
// moments one gets SIGKILL, and another one starts. At 5 moments one is suspended for longer than
// its lease (SIGSTOP, SIGCONT), and at 5 PostgreSQL gets kill -9. Its database has
// synchronous_commit off, so the store must ask for durable commits.
//
// The bank is another process. It loses 5 % of its responses, executes 5 % after the client's
// timeout, and responds with 503 to 3 %. It declines 10 % for a time, and 3 % until a person redrives
// them. It has an outage of one minute. -faults adds faults: see examples/payments.
//
// A simulated person handles dead and unknown payments, seconds after reading the bank's ledger,
// through the Engine and the console's forms. If a payment has changed in the meantime, the decision
// must have no effect. One of 25 customers cancels the order during its transaction.
//
// It runs two modes:
//
//	keys   the bank honours idempotency keys
//	asks   the bank books a repeated request twice, and can be queried for its bookings
//
// At the end the bank's ledger is read directly. Each order must be charged exactly once, or
// declined if the account does not cover it. The shop must know the result. Canceled orders must
// have left nothing. Otherwise the program exits with status 1. The last line of each run is a
// summary.
//
// shop.go is the shop, ledger.go its two databases, psp.go its Gateway to the bank. demo.go and
// import.go are the first two commands. run.go is the test with faults (internal/chaos), and
// audit.go its audit.
package main

import (
	"context"
	crand "crypto/rand"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/resilienthttp/resilienthttp/durable"
	"github.com/resilienthttp/resilienthttp/examples/internal/bank"
	"github.com/resilienthttp/resilienthttp/examples/internal/chaos"
	"github.com/resilienthttp/resilienthttp/internal/dbtest/postgrestest"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := command(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "durable:", err)
		os.Exit(1)
	}
}

// command is a process of the shop or the bank if the first argument is its name.
func command(ctx context.Context, args []string, out io.Writer) error {
	if len(args) > 0 {
		switch args[0] {
		case shopCommand:
			return serve(ctx, args[1:])
		case bank.Command:
			return bank.Serve(ctx, args[1:], bankTimeout)
		}
	}
	o, err := parse(args)
	switch {
	case err != nil:
		return err
	case o.chaos:
		return runAll(ctx, o.scenarios, out)
	case o.sheet != "":
		return runImport(ctx, o, out)
	default:
		return runDemo(ctx, o, out)
	}
}

// options are the options of the command line.
type options struct {
	scenario

	dsn       string // "": a private database
	sheet     string // the file to import
	chaos     bool
	scenarios []scenario
}

// parse returns the options with a scenario for each database and mode.
func parse(args []string) (*options, error) {
	o := &options{scenario: scenario{Plan: chaos.Plan{Kills: 50, Stops: 5, Crashes: 5, Strikes: 5}}}
	var databases, modes, log string
	flags := flag.NewFlagSet("durable", flag.ContinueOnError)
	flags.StringVar(&databases, "db", "", "database: "+chaos.SQLite+" or "+chaos.Postgres+"; with -chaos also both; default: those of the faults")
	flags.StringVar(&o.dsn, "dsn", "", "existing PostgreSQL server, on which tables are created; not for -chaos")
	flags.StringVar(&o.sheet, "import", "", "sheet of invoices to import")
	flags.StringVar(&o.page, "page", "", "address of the state page and the console, such as 127.0.0.1:8080")
	flags.StringVar(&log, "log", "", "file for the logs of the processes")
	flags.BoolVar(&o.chaos, "chaos", false, "run orders during faults")
	flags.IntVar(&o.payments, "payments", 2000, "number of orders with -chaos")
	flags.DurationVar(&o.outage, "outage", time.Minute, "outage of the bank with -chaos")
	flags.IntVar(&o.processes, "processes", 3, "number of processes of the shop with -chaos")
	flags.StringVar(&modes, "mode", keys+","+asks, "modes of the bank with -chaos")
	o.Plan.Flags(flags)
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	if err := o.fit(flags, &databases, &modes); err != nil {
		return nil, err
	}
	if log != "" {
		var err error
		if o.log, err = os.Create(log); err != nil {
			return nil, err
		}
	}
	for _, o.Database = range chaos.Words(databases) {
		for _, o.mode = range chaos.Words(modes) {
			if err := o.validate(); err != nil {
				return nil, err
			}
			o.scenarios = append(o.scenarios, o.scenario)
		}
	}
	return o, nil
}

// fit sets defaults, and returns an error for options that exclude each other.
func (o *options) fit(flags *flag.FlagSet, databases, modes *string) error {
	switch {
	case flags.NArg() > 0:
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case o.chaos && (o.dsn != "" || o.sheet != ""):
		return errors.New("-chaos excludes -dsn and -import")
	case *databases == "" && o.dsn != "":
		*databases = chaos.Postgres
	case *databases == "" && o.chaos && len(o.Faults) == 0:
		*databases = chaos.SQLite + "," + chaos.Postgres
	case *databases == "":
		*databases = o.AffectedDatabases()
	case o.dsn != "" && *databases != chaos.Postgres:
		return errors.New("-dsn requires -db postgres")
	}
	if o.sheet != "" && o.dsn == "" && *databases != chaos.SQLite {
		return errors.New("-import requires SQLite or -dsn, because a private server is deleted")
	}
	if !o.chaos {
		*modes = keys
		if words := chaos.Words(*databases); len(words) != 1 {
			return fmt.Errorf("got %d databases, want one", len(words))
		}
	}
	return nil
}

// database returns the data source name: a file, the server of -dsn, or a private server, which stop
// stops.
func (o *options) database(ctx context.Context, file string) (dsn string, stop func() error, err error) {
	stop = func() error { return nil }
	switch {
	case o.Database == chaos.SQLite:
		return file, stop, nil
	case o.dsn != "":
		return o.dsn, stop, nil
	}
	server, err := postgrestest.Start(ctx, "")
	if err != nil {
		return "", nil, err
	}
	return server.DSN(), server.Stop, nil
}

// demoOrder returns an order. Its reference is unique on an existing server.
func (o *options) demoOrder() bank.Order {
	order := bank.Order{Reference: "acme:invoice-1", Amount: 12901}
	if o.dsn != "" {
		order.Reference += "-" + crand.Text()[:8]
	}
	return order
}

// shown calls work. With -page, it serves the pages until ctx ends.
func (o *options) shown(ctx context.Context, store durable.Store, out io.Writer, work func() error) error {
	if o.page == "" {
		return work()
	}
	stop, err := showPages(ctx, o.page, store, out)
	if err != nil {
		return err
	}
	defer stop()
	if err := work(); err != nil {
		return err
	}
	fmt.Fprintln(out, "The pages are available until Ctrl-C.")
	<-ctx.Done()
	return nil
}

// runAll runs all scenarios, also after a failure.
func runAll(ctx context.Context, scenarios []scenario, out io.Writer) error {
	var failed error
	for _, s := range scenarios {
		result, err := s.run(ctx, out)
		if err == nil {
			result.print(out)
			err = result.verdict()
		}
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("%s, %s: %w", s.Database, s.mode, err))
		}
	}
	return failed
}
