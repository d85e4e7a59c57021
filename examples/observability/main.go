// Observability asks three questions of a shop that charges its customers through a bank
// and writes to them through a mail service: why did that call take ten seconds, which
// hosts are refused now, and how full is the quota?
//
// Run it from the root of the repository; it needs nothing but Go, and about ten seconds:
//
//	go run ./examples/observability
//	go run ./examples/observability -once -window 3s
//
// The bank lets through 20 requests in ten seconds, and says so; the mail service is down.
// The shop charges 21 customers. The program shows what became of the last one in the log,
// in the call's span as OpenTelemetry's stdout exporter writes it, and on the state page.
// Then it goes on trading, so that there is something to see: open the page that it names.
// Ctrl-C ends it.
//
// What to read: telemetry.go is all that an application needs to be seen. shop.go is the
// application, bank.go what it calls: servers of package faulttest, in memory.
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
	flag.DurationVar(&p.window, "window", 10*time.Second, "of the bank's quota: how long the last customer waits, about")
	address := flag.String("address", "127.0.0.1:0", "where the page is served")
	flag.BoolVar(&p.once, "once", false, "end after the answers")
	flag.BoolVar(&p.metrics, "metrics", false, "write all metrics, too, at the end")
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
	listen  func() (net.Listener, error) // for the page
	client  *http.Client                 // which reaches it
	once    bool
	metrics bool
}

// run trades, says what was seen, and goes on trading until ctx ends.
func (p program) run(ctx context.Context) error {
	w := newWatch()
	outside := openOutside(w, p.window)
	defer outside.close()
	shop := newShop(w, outside)
	defer shop.client.CloseIdleConnections()

	listener, err := p.listen()
	if err != nil {
		return err
	}
	server := &http.Server{Handler: w.page(shop.transport), ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = server.Serve(listener) }()
	defer func() { _ = server.Close() }()
	page := "http://" + listener.Addr().String() + "/"

	fmt.Fprintf(p.out, "The page is at %s. Charging 21 customers, through a quota of 20 in %v…\n", page, p.window)
	took, err := shop.trade(ctx)
	if err != nil {
		return err
	}
	if err := w.answer(ctx, p.out, p.client, page, took); err != nil {
		return err
	}
	if !p.once {
		fmt.Fprintf(p.out, "\nThe shop goes on. Look at %s?refresh=2, and end it with Ctrl-C.\n", page)
		shop.goOn(ctx, p.window)
	}
	if p.metrics {
		err = w.writeMetrics(context.WithoutCancel(ctx), p.out)
	}
	return errors.Join(err, w.close(context.WithoutCancel(ctx)))
}
