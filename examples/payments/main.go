// Payments is both halves of the promise at once: a payment service on
// idempotency.Handler, called through a resilienthttp.Transport, while its process
// is killed again and again.
//
// Run it from the root of the repository:
//
//	go run ./examples/payments                  with SQLite, in about a minute
//	go run ./examples/payments -db postgres     with a private PostgreSQL server
//	go run ./examples/payments -charges 100 -kills 5
//	go run ./examples/payments -page 127.0.0.1:8080    and look there meanwhile
//
// It starts the service as a process of its own, lets 16 workers make 2,000
// charges, and sends that process SIGKILL at 50 random moments, starting another
// one each time. The service itself loses 5 % of its answers after the commit (the
// connection is reset) and delays 5 % past the client's timeout.
//
// Then it looks into the ledger: each charge must be there exactly once, and its
// client must hold the receipt that the ledger has. If this is not so the program
// ends with status 1.
//
// What to read: service.go is the server, charge its business; client.go the
// client. ledger.go has the two databases, chaos.go what goes wrong, run.go the
// test of it all.
//
// With -db postgres it uses the server that RESILIENTHTTP_POSTGRES_DSN names, or
// starts one from the installed binaries in a temporary directory.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := command(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "payments:", err)
		os.Exit(1)
	}
}

// command is the service when its first argument says so, and else the test of it.
func command(ctx context.Context, args []string) error {
	if len(args) > 0 && args[0] == serveCommand {
		return serve(ctx, args[1:])
	}
	s := scenario{}
	flags := flag.NewFlagSet("payments", flag.ExitOnError)
	flags.IntVar(&s.charges, "charges", 2000, "how many charges to make")
	flags.IntVar(&s.kills, "kills", 50, "how often the service is killed")
	flags.IntVar(&s.workers, "workers", 16, "how many goroutines charge")
	flags.StringVar(&s.database, "db", sqlite, "where the ledger is: "+sqlite+" or "+postgres)
	flags.StringVar(&s.page, "page", "", "address on which to show what the client knows, 127.0.0.1:8080 say")
	flags.Uint64Var(&s.seed, "seed", 1, "of the moments of the kills; the order of requests stays random")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if s.charges < 1 || s.kills < 0 || s.workers < 1 || flags.NArg() > 0 || s.database != sqlite && s.database != postgres {
		flags.Usage()
		os.Exit(2)
	}
	result, err := s.run(ctx, os.Stdout)
	if err != nil {
		return err
	}
	result.print(os.Stdout)
	return result.verdict()
}
