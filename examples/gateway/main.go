// Gateway is a small API with all of a server's gates on, and a fleet of clients that asks
// it for three times what it can do.
//
// Run it from the root of the repository; it needs nothing but Go, and about ten seconds:
//
//	go run ./examples/gateway
//	go run ./examples/gateway -overload 6 -length 5m -page 127.0.0.1:8080
//
// The API charges cards, 10 at a time of 25 ms each. A request's way is
//
//	auth → Deadline → Shedder → Quota → idempotency → handler
//
// The fleet, one Transport, is a shop of which 10 % of the calls are critical, 60 % default
// and 30 % batch. Two strangers on the free plan, which allows 20 charges in a second, are
// there too: a partner that obeys it, since it has a Transport as well, and a scraper with a
// bare http.Client that sends five times as much, looks at no answer, and calls
// itself critical.
//
// What to look at, second by second: goodput stays near what the handler can do, although
// three times as much comes. What is critical is served, then what is default; batch work
// starves, and soon the Transport does not even send it (held). The scraper is taken for what
// the API says that it is, default, and meets the 429s; the partner has none.
// Nobody is charged twice, however often his call was repeated. If somebody is, or
// if a client that obeys meets a 429, the program ends with status 1.
//
// What to read: gateway.go is the server, and all that it needs to have these gates.
// fleet.go is the clients, charges.go the handler, tally.go what is printed.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"

	"github.com/resilienthttp/resilienthttp/examples/internal/process"
)

func main() {
	p := program{out: os.Stdout, workers: 10, service: 25 * time.Millisecond}
	flag.DurationVar(&p.length, "length", 10*time.Second, "how long the clients ask")
	flag.Float64Var(&p.overload, "overload", 3, "how many times as much as the API can do the shop asks for")
	flag.StringVar(&p.page, "page", "", "address on which to show what the gates and the clients know, 127.0.0.1:8080 say")
	flag.Parse()
	if p.length <= 0 || p.overload <= 0 || p.overload > 100 || flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	result, err := p.run(ctx)
	stop()
	if err == nil {
		result.print(p.out, p.capacity())
		err = result.verdict()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "gateway:", err)
		os.Exit(1)
	}
}

type program struct {
	out      io.Writer
	workers  int // that the API has
	service  time.Duration
	length   time.Duration
	overload float64
	page     string
}

// capacity is how many charges the API can make in a second.
func (p program) capacity() float64 { return float64(p.workers) / p.service.Seconds() }

// run has the clients ask for the whole length, or until ctx ends.
func (p program) run(ctx context.Context) (*result, error) {
	charges := newCharges(p.workers, p.service)
	gate, err := newGateway(charges, int(p.capacity()))
	if err != nil {
		return nil, err
	}
	url, stop, err := process.Show(ctx, "127.0.0.1:0", gate.handler())
	if err != nil {
		return nil, err
	}
	defer stop()
	var t tally
	fleet := newFleet(url, &t)
	defer fleet.close()
	if p.page != "" {
		page, stop, err := process.Show(ctx, p.page, newPage(gate, fleet))
		if err != nil {
			return nil, err
		}
		defer stop()
		fmt.Fprintf(p.out, "what the gates and the clients know: %s/?refresh=2\n", page)
	}
	ctx, cancel := context.WithTimeout(ctx, p.length)
	defer cancel()
	begun := time.Now()
	goodput := make(chan float64, 1)
	go func() {
		served := t.watch(ctx, p.out, p.capacity())
		goodput <- float64(served) / time.Since(begun).Seconds()
	}()
	fleet.ask(ctx, p.overload*p.capacity(), p.capacity()/4)
	return &result{goodput: <-goodput, figures: t.read(), most: charges.most()}, nil
}
