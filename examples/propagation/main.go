// Propagation shows a chain of three services with one deadline and one layer that retries. The
// caller calls edge, edge calls orders, and orders calls stock. Stock is down.
//
//		go run ./examples/propagation
//
//	  - Each layer makes three attempts. So stock gets 3 × 3 × 3 = 27 requests. In the second
//	    column the caller's Transport has OwnsRetries, and stock gets 3.
//	  - The remaining time of each service is the caller's, without the time that the services
//	    before it have used, and without a margin for the network.
//	  - If stock hangs, all services stop at the caller's deadline. They have no timeouts of their
//	    own.
//
// If this is not so, the program exits with status 1.
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
	workTime = 10 * time.Millisecond // of each service, before it calls the next one
	margin   = 5 * time.Millisecond  // for the network
	hang     = time.Minute           // of stock, without a deadline
	grace    = hang / 2              // for stopping after the deadline, on a busy machine
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
	allRetry, err := call(ctx, hang, false, stockDown)
	if err != nil {
		return err
	}
	owner, err := call(ctx, hang, true, stockDown)
	if err != nil {
		return err
	}
	fmt.Fprintln(out, "stock is down           each layer retries      the caller owns retries")
	fmt.Fprintln(out, "                     requests    ms left     requests    ms left")
	for i := range allRetry {
		e, o := allRetry[i], owner[i]
		fmt.Fprintf(out, "%-20s %8d %10d %12d %10d\n", e.name, e.calls, e.left.Milliseconds(), o.calls, o.left.Milliseconds())
	}

	hangs := func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done(): // the deadline of the header
		case <-time.After(hang):
		}
		w.WriteHeader(http.StatusGatewayTimeout)
	}
	timeout := 300 * time.Millisecond
	hanging, err := call(ctx, timeout, true, hangs)
	for err == nil && hanging[len(hanging)-1].calls == 0 && timeout < hang/4 { // on a busy machine the call does not reach stock in time
		timeout *= 2
		hanging, err = call(ctx, timeout, true, hangs)
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "\nstock hangs, and the caller has a deadline of %d ms\n", timeout.Milliseconds())
	for _, t := range hanging {
		fmt.Fprintf(out, "%-20s stops after %4d ms\n", t.name, t.ended.Milliseconds())
	}
	return errors.Join(
		check("each layer retries", allRetry, 3, 9, 27),
		check("the caller owns retries", owner, 3, 3, 3),
		checkStops(hanging, timeout),
	)
}

// check returns an error unless each service got that number of requests, and less remaining
// time than the one before it.
func check(name string, tiers []tierStats, calls ...int) error {
	for i, want := range calls {
		above, t := tiers[i], tiers[i+1]
		if t.calls != want {
			return fmt.Errorf("%s: %s got %d requests, want %d", name, t.name, t.calls, want)
		}
		if t.left <= 0 || t.left >= above.left {
			return fmt.Errorf("%s: %s has %v left, %s before it has %v", name, t.name, t.left, above.name, above.left)
		}
	}
	return nil
}

// checkStops returns an error unless all services stopped at the deadline, or within grace after it.
func checkStops(tiers []tierStats, timeout time.Duration) error {
	for _, t := range tiers {
		if t.ended == 0 || t.ended > timeout+grace {
			return fmt.Errorf("%s stopped %v after the start of the call, which had %v", t.name, t.ended, timeout)
		}
	}
	return nil
}

// call makes one call to the first of three services, and returns the statistics of the caller and
// the services.
func call(ctx context.Context, timeout time.Duration, ownsRetries bool, bottom http.HandlerFunc) ([]tierStats, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
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
	next := ""
	for _, t := range []*tier{stock, orders, edge} { // the last one first
		if t.work == nil {
			t.work = forward(newClient(false), next)
		}
		server, url, err := serve(t)
		if err != nil {
			return nil, err
		}
		servers = append(servers, server)
		next = url
	}

	caller := tierStats{name: "the caller", calls: 1, left: timeout}
	status, err := get(ctx, newClient(ownsRetries), next)
	if err == nil && status < http.StatusInternalServerError {
		return nil, fmt.Errorf("the call succeeded with status %d, want a failure", status)
	}
	caller.ended = time.Since(start)

	// The services have time to stop after the deadline.
	shutdown, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	for _, server := range servers {
		_ = server.Shutdown(shutdown) // checkStops finds a service that has not stopped
	}
	return []tierStats{caller, edge.stats(), orders.stats(), stock.stats()}, nil
}

// newClient returns the client of a service or of the caller.
func newClient(ownsRetries bool) *http.Client {
	return &http.Client{Transport: &resilienthttp.Transport{
		OwnsRetries:    ownsRetries,
		Policy:         resilienthttp.Policy{MaxAttempts: attempts, Backoff: resilienthttp.Constant(time.Millisecond)},
		DeadlineHeader: resilienthttp.DeadlineHeader{Margin: margin},
		// With the defaults, budget and breaker would end the retries before 27 requests. They
		// are off, so that the difference is only OwnsRetries.
		Budget:  &resilienthttp.Budget{Ratio: -1},
		Breaker: &resilienthttp.Breaker{FailureRatio: -1},
	}}
}

// serve starts a service and returns its URL. DeadlineHandler reads the deadline of each request;
// a service needs nothing else.
func serve(t *tier) (*http.Server, string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, "", err
	}
	server := &http.Server{Handler: resilienthttp.DeadlineHandler{Next: t}, ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = server.Serve(listener) }() // returns http.ErrServerClosed
	return server, "http://" + listener.Addr().String(), nil
}
