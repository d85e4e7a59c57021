// Durable is a shop whose charges are not lost, whatever dies: an order and its charge are
// written in one transaction, and package durable sees to it that the charge is made, once.
//
// Run it from the root of the repository:
//
//	go run ./examples/durable                   one order, and kill -9 in the middle of its charge
//	go run ./examples/durable -db postgres      on a PostgreSQL server of its own; or -dsn …
//	go run ./examples/durable -import file.csv  a sheet of invoices, and what became of each
//	go run ./examples/durable -chaos            2,000 orders while everything dies
//	go run ./examples/durable … -page 127.0.0.1:8080    and look there
//
// -import reads the columns invoice and amount, and writes status, reference, code and text
// behind them. Mend what was refused or invalid, run it again, and only that is sent. Its
// books stand beside the file. See testdata/invoices.csv; its bank refuses round amounts,
// lets those of 13 cents wait, and loses its answer to those of 7 cents.
//
// -chaos has three processes of the shop take 2,000 orders and charge for them, kills one at
// 50 random moments (SIGKILL; another one starts), stops one for longer than others wait for it at
// 5 (SIGSTOP, then SIGCONT), and PostgreSQL's whole server at 5 (kill -9 of all of it; its
// database has synchronous_commit off, so that what is not asked to be durable is lost).
// The bank, a process of its own, loses 5 % of its answers after the work, works on 5 % of
// what it is asked when nobody waits for it any more, says 503 to 3 %, and declines 10 % so
// that they may come again later, and 3 % until a person sends them again. For a minute it
// cannot be reached. A person looks at dead and unknown payments, reads the bank's ledger, and
// decides seconds later, by the Engine and by the console's forms. If a payment has changed
// in the meantime, the decision must have no effect. One customer of 25 gives the order up in
// the middle. With
// -faults still more goes wrong: see examples/payments. There are two modes, and each is
// run:
//
//	keys   the bank honours idempotency keys, and can do nothing else for us
//	asks   it knows no keys, and books twice what it is asked twice, but it can be asked
//	       what it has booked
//
// At last the bank's ledger is read by itself. Each order that a client was told of must
// have been charged for exactly once, or refused, if the account does not cover it; the
// shop must know which; and what was given up must have left no trace. If this is not so
// the program ends with status 1. The last line of each run sums it up.
//
// What to read: shop.go is the shop, books.go its two databases, psp.go its Gateway to the
// bank; demo.go and import.go what it is good for; run.go the test of it all, with
// internal/chaos for what goes wrong, and audit.go.
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

// command is one of the processes when its first argument says so.
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

// options are what the program was asked to do.
type options struct {
	scenario

	dsn       string // "": a database of our own
	sheet     string // to be imported
	chaos     bool
	scenarios []scenario
}

// parse makes a scenario for each database and mode that is asked for.
func parse(args []string) (*options, error) {
	o := &options{scenario: scenario{Plan: chaos.Plan{Kills: 50, Stops: 5, Crashes: 5, Strikes: 5}}}
	var databases, modes, log string
	flags := flag.NewFlagSet("durable", flag.ContinueOnError)
	flags.StringVar(&databases, "db", "", "where the books are: "+chaos.SQLite+" or "+chaos.Postgres+"; with -chaos also both, and by default those that the faults befall")
	flags.StringVar(&o.dsn, "dsn", "", "a PostgreSQL server that is there, whose tables are made; not for -chaos, which kills its own")
	flags.StringVar(&o.sheet, "import", "", "the sheet of invoices to import")
	flags.StringVar(&o.page, "page", "", "address on which to show where the payments stand, 127.0.0.1:8080 say")
	flags.StringVar(&log, "log", "", "the file that gets the processes' logs")
	flags.BoolVar(&o.chaos, "chaos", false, "let everything die")
	flags.IntVar(&o.payments, "payments", 2000, "how many orders there are, with -chaos")
	flags.DurationVar(&o.outage, "outage", time.Minute, "how long the bank is unreachable, with -chaos")
	flags.IntVar(&o.processes, "processes", 3, "how many processes the shop is, with -chaos")
	flags.StringVar(&modes, "mode", keys+","+asks, "what the bank can do, with -chaos")
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

// fit puts the defaults in, and says what does not go together.
func (o *options) fit(flags *flag.FlagSet, databases, modes *string) error {
	switch {
	case flags.NArg() > 0:
		return fmt.Errorf("what is %q?", flags.Arg(0))
	case o.chaos && (o.dsn != "" || o.sheet != ""):
		return errors.New("-chaos has books of its own")
	case *databases == "" && o.dsn != "":
		*databases = chaos.Postgres
	case *databases == "" && o.chaos && len(o.Faults) == 0:
		*databases = chaos.SQLite + "," + chaos.Postgres
	case *databases == "":
		*databases = o.Befallen()
	case o.dsn != "" && *databases != chaos.Postgres:
		return errors.New("-dsn is that of a PostgreSQL server")
	}
	if o.sheet != "" && o.dsn == "" && *databases != chaos.SQLite {
		return errors.New("what is imported is to be there the next time: -import wants SQLite, or a -dsn")
	}
	if !o.chaos {
		*modes = keys
		if words := chaos.Words(*databases); len(words) != 1 {
			return fmt.Errorf("%d databases, where one is wanted", len(words))
		}
	}
	return nil
}

// database is where the books are, until stop is called: in a file, on the server that was
// named, or on one of our own.
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

// demoOrder is a new one where there may be others.
func (o *options) demoOrder() bank.Order {
	order := bank.Order{Reference: "acme:invoice-1", Amount: 12901}
	if o.dsn != "" {
		order.Reference += "-" + crand.Text()[:8]
	}
	return order
}

// shown has work be seen on the pages, if there are any, and stay there until ctx ends.
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
	fmt.Fprintln(out, "The pages stay until this is interrupted.")
	<-ctx.Done()
	return nil
}

// runAll runs each, also if one of them fails.
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
