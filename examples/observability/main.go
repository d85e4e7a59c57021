// Observability answers three questions about a shop that charges its customers through a bank
// and sends letters through a mail service. Why did a call take ten seconds? Which hosts are
// rejected now? How much of the quota is used?
//
// Run it from the root of the repository. It needs Go only, and takes about ten seconds:
//
//	go run ./examples/observability
//	go run ./examples/observability -once -window 3s
//
// The bank allows 20 requests in ten seconds and advertises that. The mail service is down. The
// shop charges 21 customers. The program shows the last charge in the log, in the call's span
// from OpenTelemetry's stdout exporter, and on the state page. Then it continues, so that you
// can open the page. Ctrl-C ends it.
//
// telemetry.go is what an application needs for observability. shop.go is the application.
// bank.go has the servers that it calls, which are in memory and of package faulttest.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"time"
)

func main() {
	p := program{out: os.Stdout, client: new(http.Client)}
	flag.DurationVar(&p.window, "window", 10*time.Second, "window of the bank's quota: about the wait of the last customer")
	address := flag.String("address", "127.0.0.1:0", "address of the page")
	flag.BoolVar(&p.once, "once", false, "end after the answers")
	flag.BoolVar(&p.metrics, "metrics", false, "also write all metrics at the end")
	flag.Parse()
	if p.window <= 0 || flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	p.listen = func() (net.Listener, error) { return net.Listen("tcp", *address) }
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := p.run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "observability:", err)
		os.Exit(1)
	}
}

type program struct {
	out     io.Writer
	window  time.Duration
	listen  func() (net.Listener, error) // of the page
	client  *http.Client                 // for requests to the page
	once    bool
	metrics bool
}

// run trades, writes the answers, and continues to trade until ctx ends.
func (p program) run(ctx context.Context) error {
	w := newWatch()
	servers := startServers(w, p.window)
	defer servers.close()
	shop := newShop(w, servers)
	defer shop.client.CloseIdleConnections()

	listener, err := p.listen()
	if err != nil {
		return err
	}
	server := &http.Server{Handler: w.page(shop.transport), ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = server.Serve(listener) }()
	defer func() { _ = server.Close() }()
	page := "http://" + listener.Addr().String() + "/"

	fmt.Fprintf(p.out, "The state page is at %s. The shop charges 21 customers, with a quota of 20 per %v.\n", page, p.window)
	took, err := shop.trade(ctx)
	if err != nil {
		return err
	}
	if err := w.answer(ctx, p.out, p.client, page, took); err != nil {
		return err
	}
	if !p.once {
		fmt.Fprintf(p.out, "\nThe shop continues. Open %s?refresh=2 in a browser. Ctrl-C ends the program.\n", page)
		shop.keepTrading(ctx, p.window)
	}
	if p.metrics {
		err = w.writeMetrics(context.WithoutCancel(ctx), p.out)
	}
	return errors.Join(err, w.close(context.WithoutCancel(ctx)))
}
