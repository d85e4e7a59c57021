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

// shop takes orders and charges them.
type shop struct {
	ledger ledger
	engine *durable.Engine
}

// The modes of the bank.
const (
	keys = "keys" // it honours idempotency keys
	asks = "asks" // its bookings can be queried
)

// The gateway and the operation of the charges.
const (
	gateway   = "psp"
	operation = "charge"
)

// lease is short, so that the intents of a dead process are taken over soon.
const lease = time.Second

// visibilityDelay is the time after an attempt in which a booking may still appear: a suspended
// process sends when it resumes, and the bank may be slow.
const visibilityDelay = 2 * time.Second

func newEngine(store durable.Store, psp durable.Gateway) *durable.Engine {
	return &durable.Engine{
		Store: store, Gateways: map[string]durable.Gateway{gateway: psp},
		// As durable.CardDeclines, but with 100 ms instead of an hour, and without a maximum
		// age, so that the test ends with each order done or declined.
		Policy: durable.Declines{
			Schedule: durable.Schedule{Backoff: resilienthttp.FullJitter(100*time.Millisecond, time.Second), MaxAttempts: -1, MaxAge: -1},
			ByCode: map[string]durable.Rule{
				bank.Again: {After: []time.Duration{100 * time.Millisecond}},
				bank.Call:  {Never: true},
			},
		},
		Concurrency: 24, PerTenant: 6, VisibilityDelay: visibilityDelay, LeaseDuration: lease, PollInterval: 200 * time.Millisecond, DrainTimeout: lease,
		Trace: durable.LogTrace(slog.New(slog.NewTextHandler(os.Stderr, nil))),
	}
}

func newGateway(mode, socket string, timeout time.Duration) durable.Gateway {
	psp := newPSP(newClient(socket, timeout))
	if mode == asks {
		return queryablePSP{psp}
	}
	return psp
}

// intentOf returns the intent to charge an order. The tenant is the first part of its reference.
func intentOf(o bank.Order) (durable.Intent, error) {
	payload, err := json.Marshal(o)
	return durable.Intent{ID: idOf(o), Gateway: gateway, Payload: payload}, err
}

func idOf(o bank.Order) idempotency.ID {
	tenant, _, _ := strings.Cut(o.Reference, ":")
	return idempotency.ID{Scope: tenant, Operation: operation, Key: o.Reference}
}

var errCanceled = errors.New("canceled by the customer")

// take writes an order and its intent in one transaction.
func (s *shop) take(ctx context.Context, o bank.Order, canceledOrder bool) error {
	charge, err := intentOf(o)
	if err != nil {
		return err
	}
	err = s.ledger.take(ctx, o, func(outbox durable.Outbox) error {
		if _, err := outbox.Enqueue(ctx, charge); err != nil {
			return err
		}
		if canceledOrder {
			return errCanceled
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
		switch err := s.take(r.Context(), o, r.URL.Query().Get("cancel") == "true"); {
		case errors.Is(err, errCanceled):
			http.Error(w, err.Error(), http.StatusGone)
		case err != nil:
			http.Error(w, "ledger not available", http.StatusServiceUnavailable)
		default:
			w.WriteHeader(http.StatusCreated)
		}
	})
	mux.HandleFunc("GET /health", func(http.ResponseWriter, *http.Request) {})
	return mux
}

// shopCommand is the first argument of a process of the shop.
const shopCommand = "shop"

func serve(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet(shopCommand, flag.ContinueOnError)
	socket := flags.String("listen", "", "Unix socket")
	database := flags.String("db", chaos.SQLite, "database")
	dsn := flags.String("dsn", "", "file, or connection string of PostgreSQL")
	bankSocket := flags.String("bank", "", "Unix socket of the bank")
	timeout := flags.Duration("timeout", bankTimeout, "timeout of the bank")
	mode := flags.String("mode", keys, "mode of the bank")
	responses := chaos.Responses{Timeout: clientTimeout}
	responses.Flags(flags)
	if err := flags.Parse(args); err != nil {
		return err
	}
	b, err := openLedger(ctx, *database, *dsn)
	if err != nil {
		return err
	}
	defer b.close()
	s := &shop{b, newEngine(b.store(), newGateway(*mode, *bankSocket, *timeout))}
	working, stop := context.WithCancel(ctx)
	var work sync.WaitGroup
	work.Go(func() { err = s.engine.Run(working) })
	listened := process.Listen(ctx, *socket, responses.Handler(s.handler()))
	stop()
	work.Wait()
	return errors.Join(listened, err)
}
