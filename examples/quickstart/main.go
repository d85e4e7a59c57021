// Quickstart compares two applications that charge 500 customers through a faulty payment API. One has a
// resilienthttp.Transport with its zero value, and repeats a call that failed later, with the same key: the bank has so many
// faults that the retry budget ends some calls. The other has a for loop with three attempts.
//
// Run it from the root of the repository. It needs only Go, and takes about fifteen seconds.
// The first build takes a minute, because it downloads and compiles SQLite:
//
//	go run ./examples/quickstart
//	go run ./examples/quickstart -charges 100 -workers 5 -v
//	go run ./examples/quickstart -charges 5000 -page
//
// It starts two equal banks on loopback sockets. Each bank
//
//   - loses 10 % of its responses after the charge,
//   - responds to 5 % of the requests with 503 and Retry-After,
//   - holds 2 % for 0.4 s, which is longer than the timeout of the loop,
//   - has a quota (X-RateLimit-…, 429), and
//   - resets all connections for three seconds in the middle.
//
// Then it reads the banks' ledgers and prints a table. No customer may be charged twice, none may
// be missing, and each customer must have the receipt of its charge. If the Transport's column
// differs, the program exits with status 1.
//
// Files: resilient.go is the client with the Transport, and the code around it. naive.go is the
// other client. bank.go is the server, a script of package faulttest. load.go has the workers,
// report.go the audit, page.go the
// state page.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/signal"
	"sync"
	"time"

	"github.com/resilienthttp/resilienthttp"
)

func main() {
	s := scenario{outage: 3 * time.Second}
	flag.IntVar(&s.charges, "charges", 500, "number of charges")
	flag.IntVar(&s.workers, "workers", 20, "number of concurrent workers of each client")
	flag.Uint64Var(&s.seed, "seed", 1, "seed of the faults; the order of the requests is random")
	flag.BoolVar(&s.page, "page", false, "serve the state page of the Transport while it runs")
	verbose := flag.Bool("v", false, "log each attempt of the Transport to stderr")
	flag.Parse()
	if s.charges < 1 || s.workers < 1 || flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	if *verbose {
		s.log = resilienthttp.LogTrace(slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug})))
	}

	fmt.Printf("Two applications charge %d customers through a faulty bank: one has a resilienthttp.Transport and repeats failed calls, one a for loop.\n", s.charges)
	fmt.Println("The bank loses responses, is overloaded, is slow, has a quota, and has an outage of 3 s. This takes about 15 s.")
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	result, err := s.run(ctx, os.Stdout)
	stop()
	if err == nil {
		result.print(os.Stdout)
		err = result.verdict()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "quickstart:", err)
		os.Exit(1)
	}
}

// scenario has the parameters of a run.
type scenario struct {
	charges, workers int
	seed             uint64
	outage           time.Duration
	page             bool                 // serve the state page
	log              *resilienthttp.Trace // logs the Transport's attempts; nil: no log
}

// run sends the same orders to two equal banks at the same time, and audits them.
func (s scenario) run(ctx context.Context, out io.Writer) (*comparison, error) {
	orders := s.orders()
	faults := faultPlan{
		seed: s.seed,
		lost: 0.10, overloaded: 0.05, held: 0.02,
		holdFor:     400 * time.Millisecond,
		outageAfter: s.charges / 3, outage: s.outage,
	}
	ourBank, err := openBank(ctx, faults)
	if err != nil {
		return nil, err
	}
	defer ourBank.stop()
	theirBank, err := openBank(ctx, faults)
	if err != nil {
		return nil, err
	}
	defer theirBank.stop()

	ours, theirs := newResilient(ourBank.URL+"/v1/charges", s.log), newNaive(theirBank.URL+"/v1/charges")
	if s.page {
		stop, err := servePage(ctx, out, ours)
		if err != nil {
			return nil, err
		}
		defer stop()
	}
	watch := watchProgress(out, s.charges)
	var c comparison
	var both sync.WaitGroup
	both.Go(func() { c.ours = load(ctx, ours, orders, s.workers, &watch.ours) })
	both.Go(func() { c.theirs = load(ctx, theirs, orders, s.workers, &watch.theirs) })
	both.Wait()
	watch.stop()
	if ctx.Err() != nil {
		return nil, errors.New("interrupted")
	}

	// A held request may still be in progress, although its client has canceled it. So the
	// ledgers are complete only after the banks are closed.
	if err := errors.Join(c.ours.close(ctx, ourBank, orders), c.theirs.close(ctx, theirBank, orders)); err != nil {
		return nil, err
	}
	c.ours.openings, c.ours.calledAgain = ours.openings.Load(), ours.calledAgain.Load()
	return &c, nil
}

// orders returns one order for each customer.
func (s scenario) orders() []order {
	random := rand.New(rand.NewPCG(s.seed, 0))
	orders := make([]order, s.charges)
	for i := range orders {
		orders[i] = order{
			Reference: fmt.Sprintf("shop:invoice:%05d", i+1),
			Amount:    100 + random.Int64N(100_00),
			Currency:  "EUR",
		}
	}
	return orders
}
