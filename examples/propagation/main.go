// Propagation shows what three services in a row owe each other: one deadline, and
// one owner of the retries. The caller asks edge, edge asks orders, orders asks
// stock, each over HTTP on a loopback socket, and stock is down.
//
//	go run ./examples/propagation
//
// What to look at:
//
//   - Every tier makes three attempts, as every tier is told to do by somebody. At
//     the bottom that is 3 × 3 × 3 = 27 calls to a service that is down. In the
//     second column the caller's Transport has OwnsRetries, nothing else is
//     different, and stock gets 3.
//   - The milliseconds that are left are the caller's own, at every tier: less what
//     the tiers above have used, and a margin for the way.
//   - When stock hangs, everybody stops working for a caller who has gone, and
//     nobody has a timeout of his own.
//
// The program ends with status 1 if it is not so.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/resilienthttp/resilienthttp"
)

const (
	attempts = 3
	workTime = 10 * time.Millisecond // of each tier, before it asks the next
	margin   = 5 * time.Millisecond  // for the way there and back
	hang     = time.Minute           // of stock, if nobody stops it
	noticed  = hang / 2              // nobody who stops with the caller takes so long, on the busiest machine
)

func main() {
	if err := run(context.Background(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "propagation:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer) error {
	stockDown := func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "stock is down", http.StatusServiceUnavailable)
	}
	everybody, err := ask(ctx, hang, false, stockDown)
	if err != nil {
		return err
	}
	owner, err := ask(ctx, hang, true, stockDown)
	if err != nil {
		return err
	}
	fmt.Fprintln(out, "stock is down           everybody retries       the caller owns retries")
	fmt.Fprintln(out, "                        calls    ms left        calls    ms left")
	for i := range everybody {
		e, o := everybody[i], owner[i]
		fmt.Fprintf(out, "%-20s %8d %10d %12d %10d\n", e.name, e.calls, e.left.Milliseconds(), o.calls, o.left.Milliseconds())
	}

	hangs := func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done(): // the deadline, out of the header
		case <-time.After(hang):
		}
		w.WriteHeader(http.StatusGatewayTimeout)
	}
	patience := 300 * time.Millisecond
	hanging, err := ask(ctx, patience, true, hangs)
	for err == nil && hanging[len(hanging)-1].calls == 0 && patience < hang/4 { // a busy machine has not come so far
		patience *= 2
		hanging, err = ask(ctx, patience, true, hangs)
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "\nstock hangs, and the caller waits for %d ms\n", patience.Milliseconds())
	for _, t := range hanging {
		fmt.Fprintf(out, "%-20s stops after %4d ms\n", t.name, t.ended.Milliseconds())
	}
	return errors.Join(
		check("everybody retries", everybody, 3, 9, 27),
		check("the caller owns retries", owner, 3, 3, 3),
		checkStops(hanging, patience),
	)
}

// check tells whether each tier got as many calls, and less time than the one
// above.
func check(name string, tiers []sight, calls ...int) error {
	for i, want := range calls {
		above, t := tiers[i], tiers[i+1]
		if t.calls != want {
			return fmt.Errorf("%s: %d calls to %s, not %d", name, t.calls, t.name, want)
		}
		if t.left <= 0 || t.left >= above.left {
			return fmt.Errorf("%s: %s has %v left, and %s above it %v", name, t.name, t.left, above.name, above.left)
		}
	}
	return nil
}

// checkStops tells whether everybody stopped with the caller, give or take what a
// busy machine takes.
func checkStops(tiers []sight, patience time.Duration) error {
	for _, t := range tiers {
		if t.ended == 0 || t.ended > patience+noticed {
			return fmt.Errorf("%s was at work until %v after the call began, which had %v", t.name, t.ended, patience)
		}
	}
	return nil
}

// ask makes one call to the first of three services, and returns what each tier
// has seen of it: the caller, edge, orders, stock.
func ask(ctx context.Context, patience time.Duration, ownsRetries bool, bottom http.HandlerFunc) ([]sight, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	start := time.Now()
	stock := &tier{name: "stock", start: start, work: bottom}
	orders := &tier{name: "orders", start: start}
	edge := &tier{name: "edge", start: start}

	var servers []*http.Server
	defer func() {
		for _, server := range servers {
			_ = server.Close()
		}
	}()
	below := ""
	for _, t := range []*tier{stock, orders, edge} { // from the bottom up
		if t.work == nil {
			t.work = pass(newClient(false), below)
		}
		server, url, err := serve(t)
		if err != nil {
			return nil, err
		}
		servers = append(servers, server)
		below = url
	}

	caller := sight{name: "the caller", calls: 1, left: patience}
	status, err := get(ctx, newClient(ownsRetries), below)
	if err == nil && status < http.StatusInternalServerError {
		return nil, fmt.Errorf("the call has succeeded: %d", status)
	}
	caller.ended = time.Since(start)

	// Those who are still at work have time to notice that nobody waits.
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), noticed)
	defer cancel()
	for _, server := range servers {
		_ = server.Shutdown(grace) // whoever has not stopped by then is found by checkStops
	}
	return []sight{caller, edge.seen(), orders.seen(), stock.seen()}, nil
}

// newClient is the client of every tier, and of the caller.
func newClient(ownsRetries bool) *http.Client {
	return &http.Client{Transport: &resilienthttp.Transport{
		OwnsRetries: ownsRetries,
		Policy:      resilienthttp.Policy{MaxAttempts: attempts, Backoff: resilienthttp.Constant(time.Millisecond)},
		Deadline:    resilienthttp.Deadline{Margin: margin},
		// By default both would step in long before 27. They are off, so that
		// nothing but ownership makes the difference here.
		Budget:  &resilienthttp.Budget{Ratio: -1},
		Breaker: &resilienthttp.Breaker{FailureRatio: -1},
	}}
}

// serve starts a tier behind the receiving half of the deadline, and returns its
// URL too. That one handler is all that a service has to add.
func serve(t *tier) (*http.Server, string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, "", err
	}
	server := &http.Server{Handler: resilienthttp.Deadline{}.Handler(t), ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = server.Serve(listener) }() // ends with http.ErrServerClosed
	return server, "http://" + listener.Addr().String(), nil
}
