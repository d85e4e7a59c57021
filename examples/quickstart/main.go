// Quickstart charges 500 customers through a payment API that misbehaves as real
// ones do: with the zero value of resilienthttp.Transport, and beside it with the loop
// that people write instead.
//
// Run it from the root of the repository; it needs nothing but Go, and some fifteen
// seconds:
//
//	go run ./examples/quickstart
//	go run ./examples/quickstart -charges 100 -workers 5 -v
//
// It starts two equal banks on loopback sockets. Each loses 10 % of its answers
// after it has charged, is overloaded for 5 % of its requests (503 with
// Retry-After), holds 2 % for 0.4 s, which is longer than the loop waits, has a quota
// (X-RateLimit-…, and 429), and is gone for three seconds in the middle: every
// connection is reset before its request is looked at, as by a load balancer with
// nothing behind it.
//
// Then it looks into the banks' ledgers, since what a client believes proves
// nothing. Each row of its table says what there is to see. Nobody may be charged
// twice, nobody forgotten, and each customer must hold the receipt that the bank has
// booked: if this is not so in the Transport's column, the program ends with status 1.
//
// What to read: resilient.go is the client, and the few lines that an application
// needs around it. naive.go is the other client. bank.go is the server, a script
// of package faulttest, load.go the twenty workers, report.go the audit.
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
	s := scenario{darkFor: 3 * time.Second}
	flag.IntVar(&s.charges, "charges", 500, "how many charges to ask for")
	flag.IntVar(&s.workers, "workers", 20, "how many goroutines ask")
	flag.Uint64Var(&s.seed, "seed", 1, "of the faults; the order of requests stays random")
	verbose := flag.Bool("v", false, "log every attempt of the Transport to stderr")
	flag.Parse()
	if s.charges < 1 || s.workers < 1 || flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	if *verbose {
		s.log = resilienthttp.LogTrace(slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug})))
	}

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

// scenario is what happens: how much is asked, and of how bad a bank.
type scenario struct {
	charges, workers int
	seed             uint64
	darkFor          time.Duration
	log              *resilienthttp.Trace // of the Transport's attempts; nil: none
}

// run sends the same orders to two equal banks at the same time, and audits them.
func (s scenario) run(ctx context.Context, out io.Writer) (*comparison, error) {
	orders := s.orders()
	faults := faultPlan{
		seed: s.seed,
		lost: 0.10, overloaded: 0.05, held: 0.02,
		holdFor:   400 * time.Millisecond,
		darkAfter: s.charges / 3, darkFor: s.darkFor,
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

	// A held request may still be at work, although its caller has gone: the
	// ledgers are complete when the banks have closed.
	if err := errors.Join(c.ours.close(ctx, ourBank, orders), c.theirs.close(ctx, theirBank, orders)); err != nil {
		return nil, err
	}
	c.ours.openings, c.ours.askedAgain = ours.openings.Load(), ours.askedAgain.Load()
	return &c, nil
}

// orders are what the customers are to pay.
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
