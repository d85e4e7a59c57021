// Observability shows what a shop's calls do in three places: in the log, in spans and on a state page.
//
// Run it from the root of the repository. It needs Go only. Ctrl-C ends it:
//
//	go run ./examples/observability
//
// The shop charges customers through a bank that allows 20 requests in ten seconds and advertises that. It sends letters
// through a mail service that is down. Why did the last charge take ten seconds? Which hosts are rejected now? How much of
// the quota is used? The log and the spans of slow calls are written to the standard output, and the first line has the
// address of the page.
//
// The servers are in memory. instrument is what an application needs for spans; docs/telemetry.md has the metrics.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/exporters/stdout/stdouttrace"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/faulttest"
	"github.com/resilienthttp/resilienthttp/internal/sleep"
	"github.com/resilienthttp/resilienthttp/resilientotel"
	"github.com/resilienthttp/resilienthttp/statepage"
)

func main() {
	address := flag.String("address", "127.0.0.1:0", "address of the page")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	listener, err := net.Listen("tcp", *address)
	if err == nil {
		err = run(ctx, os.Stdout, listener, 10*time.Second)
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "observability:", err)
		os.Exit(1)
	}
}

const customers = 20 // the limit of the bank's quota in a window

// run trades until ctx ends. The listener is the page's.
func run(ctx context.Context, out io.Writer, listener net.Listener, window time.Duration) error {
	work := faulttest.Reply{Status: http.StatusCreated, Delay: 5 * time.Millisecond}
	bank := &faulttest.Server{InMemory: true, Host: "bank.example", Script: &faulttest.Quota{
		Limit: customers, Window: window, Dialect: faulttest.OpenAI, RetryAfterFormat: faulttest.Millis, Next: work,
	}}
	bank.Start(nil)
	defer bank.Close()
	mail := &faulttest.Server{Network: bank, Host: "mail.example", Script: faulttest.Status(http.StatusBadGateway)}
	mail.Start(nil)
	defer mail.Close()

	transport := &resilienthttp.Transport{
		Base: bank.Transport(), // it reaches both servers
		// So that no probe changes the page while you read it.
		Breaker: &resilienthttp.Breaker{Cooldown: 30 * time.Second, MaxCooldown: 30 * time.Second},
		Trace:   resilienthttp.LogTrace(slog.New(slog.NewTextHandler(out, nil))),
	}
	spans, err := instrument(out)
	if err != nil {
		return err
	}
	s := &shop{bank: bank.URL, mail: mail.URL, client: &http.Client{Transport: spans.Wrap(transport)}}
	defer spans.Unregister()
	defer s.client.CloseIdleConnections()

	page := &statepage.Handler{Title: "the shop", Transports: map[string]*resilienthttp.Transport{"shop": transport}}
	server := &http.Server{Handler: page, ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = server.Serve(listener) }()
	defer func() { _ = server.Close() }()

	fmt.Fprintf(out, "The state page is at http://%s/?refresh=2. The shop charges 21 customers, with a quota of 20 per %v.\n", listener.Addr(), window)
	for ctx.Err() == nil {
		took, err := s.trade(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		}
		fmt.Fprintf(out, "The last charge took %v. The shop has a pause.\n", took.Round(100*time.Millisecond))
		_ = sleep.Context(ctx, window)
	}
	return nil
}

// instrument returns what makes spans. Those of slow calls are written to out.
func instrument(out io.Writer) (*resilientotel.Instrumentation, error) {
	exporter, err := stdouttrace.New(stdouttrace.WithWriter(out))
	if err != nil {
		return nil, err
	}
	traces := sdktrace.NewTracerProvider(sdktrace.WithResource(resource.Empty()), sdktrace.WithSyncer(slowCalls{exporter}))
	return &resilientotel.Instrumentation{TracerProvider: traces, Propagator: propagation.TraceContext{}}, nil
}

// slow is the duration from which a call is exported.
const slow = 500 * time.Millisecond

// slowCalls exports the spans of slow calls only.
type slowCalls struct{ sdktrace.SpanExporter }

func (s slowCalls) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	for _, span := range spans {
		if strings.HasPrefix(span.Name(), "call ") && span.EndTime().Sub(span.StartTime()) >= slow {
			if err := s.SpanExporter.ExportSpans(ctx, []sdktrace.ReadOnlySpan{span}); err != nil {
				return err
			}
		}
	}
	return nil
}

// shop is the application.
type shop struct {
	bank, mail string
	client     *http.Client
	charged    atomic.Int64
}

// trade sends letters that fail, and charges one customer more than the quota allows. It returns the duration of that charge.
func (s *shop) trade(ctx context.Context) (took time.Duration, err error) {
	for range customers {
		_ = s.post(resilienthttp.WithSingleAttempt(ctx), s.mail+"/letters", "Thank you!")
	}
	failures := make([]error, customers)
	var all sync.WaitGroup
	for i := range failures {
		all.Go(func() { failures[i] = s.charge(ctx) })
	}
	all.Wait()
	start := time.Now()
	err = s.charge(ctx)
	return time.Since(start), errors.Join(errors.Join(failures...), err)
}

func (s *shop) charge(ctx context.Context) error {
	reference := fmt.Sprintf("shop:invoice:%05d", s.charged.Add(1))
	return s.post(resilienthttp.WithIdempotencyKey(ctx, reference), s.bank+"/v1/charges", fmt.Sprintf(`{"reference":%q}`, reference))
}

func (s *shop) post(ctx context.Context, url, body string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err = io.Copy(io.Discard, resp.Body); err == nil && resp.StatusCode != http.StatusCreated {
		err = errors.New(resp.Status)
	}
	return err
}
