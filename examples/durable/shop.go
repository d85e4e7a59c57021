package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/durable"
	"github.com/resilienthttp/resilienthttp/examples/internal/bank"
	"github.com/resilienthttp/resilienthttp/examples/internal/chaos"
	"github.com/resilienthttp/resilienthttp/examples/internal/process"
	"github.com/resilienthttp/resilienthttp/idempotency"
)

// shop takes orders, and charges for them.
type shop struct {
	books  books
	engine *durable.Engine
}

// The modes: what the bank can do for those who do not know what became of a charge.
const (
	keys = "keys" // it honours idempotency keys
	asks = "asks" // it can be asked
)

// The gateway and the operation of the charges.
const (
	gateway   = "psp"
	operation = "charge"
)

// lease is short, so that one need not wait long for what a dead process has left.
const lease = time.Second

// settles is how long after its end a booking may yet be made: a stopped process sends
// when it wakes up, and the bank may take its time.
const settles = 2 * time.Second

func newEngine(store durable.Store, psp durable.Gateway) *durable.Engine {
	return &durable.Engine{
		Store: store, Gateways: map[string]durable.Gateway{gateway: psp},
		// As durable.CardDeclines has it, in another time: what it lets wait for an hour
		// comes again after 100 ms, and there is no end, for the test is to see it all.
		Policy: durable.Declines{
			Schedule: durable.Schedule{Backoff: resilienthttp.FullJitter(100*time.Millisecond, time.Second), MaxAttempts: -1, MaxAge: -1},
			ByCode: map[string]durable.Rule{
				bank.Again: {After: []time.Duration{100 * time.Millisecond}},
				bank.Call:  {Never: true},
			},
		},
		Concurrency: 24, PerTenant: 6, VisibilityDelay: settles, LeaseDuration: lease, PollInterval: 200 * time.Millisecond, DrainTimeout: lease,
		Trace: durable.LogTrace(slog.New(slog.NewTextHandler(os.Stderr, nil))),
	}
}

func newGateway(mode, socket string, timeout time.Duration) durable.Gateway {
	psp := newPSP(newClient(socket, timeout))
	if mode == asks {
		return askablePSP{psp}
	}
	return psp
}

// intentOf is the charge for an order, whose tenant is the first word of its reference.
func intentOf(o bank.Order) (durable.Intent, error) {
	payload, err := json.Marshal(o)
	return durable.Intent{ID: idOf(o), Gateway: gateway, Payload: payload}, err
}

func idOf(o bank.Order) idempotency.ID {
	tenant, _, _ := strings.Cut(o.Reference, ":")
	return idempotency.ID{Scope: tenant, Operation: operation, Key: o.Reference}
}

var errGivenUp = errors.New("the customer has given it up")

// take writes an order and its charge: both are there, or neither.
func (s *shop) take(ctx context.Context, o bank.Order, givenUp bool) error {
	charge, err := intentOf(o)
	if err != nil {
		return err
	}
	err = s.books.take(ctx, o, func(outbox durable.Outbox) error {
		if _, err := outbox.Enqueue(ctx, charge); err != nil {
			return err
		}
		if givenUp {
			return errGivenUp
		}
		return nil
	})
	if err == nil {
		s.engine.Wake()
	}
	return err
}

func (s *shop) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /orders", func(w http.ResponseWriter, r *http.Request) {
		o, ok := bank.ReadOrder(w, r)
		if !ok {
			return
		}
		switch err := s.take(r.Context(), o, r.URL.Query().Get("give") == "up"); {
		case errors.Is(err, errGivenUp):
			http.Error(w, err.Error(), http.StatusGone)
		case err != nil:
			http.Error(w, "the books are not available", http.StatusServiceUnavailable)
		default:
			w.WriteHeader(http.StatusCreated)
		}
	})
	mux.HandleFunc("GET /health", func(http.ResponseWriter, *http.Request) {})
	return mux
}

// shopCommand makes the program a process of the shop: it takes orders, and works.
const shopCommand = "shop"

func serve(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet(shopCommand, flag.ContinueOnError)
	socket := flags.String("listen", "", "the Unix socket")
	database := flags.String("db", chaos.SQLite, "where the books are")
	dsn := flags.String("dsn", "", "the file, or PostgreSQL's connection string")
	bankSocket := flags.String("bank", "", "the bank's Unix socket")
	timeout := flags.Duration("timeout", bankTimeout, "what the bank is given for an answer")
	mode := flags.String("mode", keys, "what the bank can do")
	answers := chaos.Answers{Patience: clientTimeout}
	answers.Flags(flags)
	if err := flags.Parse(args); err != nil {
		return err
	}
	b, err := openBooks(ctx, *database, *dsn)
	if err != nil {
		return err
	}
	defer b.close()
	s := &shop{b, newEngine(b.store(), newGateway(*mode, *bankSocket, *timeout))}
	working, stop := context.WithCancel(ctx)
	var work sync.WaitGroup
	work.Go(func() { err = s.engine.Run(working) })
	listened := process.Listen(ctx, *socket, answers.Around(s.handler()))
	stop()
	work.Wait()
	return errors.Join(listened, err)
}
