// Durable is a shop with charges that survive crashes. It writes an order and the intent to charge it in
// one transaction. Package durable then sends the charge to a payment provider, and repeats it with the same
// key until the result is known.
//
// Run it from the root of the repository, with examples/payments as the provider:
//
//	go run ./examples/payments -db payments.db &
//	go run ./examples/durable -db shop.db -provider http://127.0.0.1:8080/charges
//	curl -i -d '{"reference":"invoice-1","amount":4200}' http://127.0.0.1:8081/orders
//	curl http://127.0.0.1:8081/orders/invoice-1
//
// Stop the provider, or kill the shop, and start them again: the provider books each order once. crashtest
// does this with a shop like this one. http://127.0.0.1:8081/dead has the charges that need a person.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/durable"
	"github.com/resilienthttp/resilienthttp/durable/console"
	"github.com/resilienthttp/resilienthttp/durable/sqlitestore"
	"github.com/resilienthttp/resilienthttp/idempotency"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:8081", "address of the shop")
	database := flag.String("db", "shop.db", "file of the database")
	provider := flag.String("provider", "http://127.0.0.1:8080/charges", "URL of the payment provider")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	listener, err := net.Listen("tcp", *listen)
	if err == nil {
		err = run(ctx, listener, *database, *provider)
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "durable:", err)
		os.Exit(1)
	}
}

// run takes orders and sends their charges until ctx ends.
func run(ctx context.Context, listener net.Listener, database, provider string) error {
	store, err := sqlitestore.Open(ctx, database)
	if err != nil {
		return err
	}
	defer func() { _ = store.Close() }()
	s, err := newShop(ctx, store, provider)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	server := &http.Server{Handler: s.handler(), ReadHeaderTimeout: 5 * time.Second}
	var work sync.WaitGroup
	var sent, stopped error
	work.Go(func() {
		sent = s.engine.Run(ctx)
		cancel()
	})
	work.Go(func() {
		<-ctx.Done()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		stopped = server.Shutdown(ctx) // requests in progress are finished
	})
	err = server.Serve(listener)
	if errors.Is(err, http.ErrServerClosed) {
		err = nil
	}
	cancel()
	work.Wait()
	return errors.Join(err, sent, stopped)
}

type shop struct {
	store  *sqlitestore.Store
	engine *durable.Engine
}

// newShop creates the table of the orders in the database of the store.
func newShop(ctx context.Context, store *sqlitestore.Store, provider string) (*shop, error) {
	const schema = `CREATE TABLE IF NOT EXISTS orders (reference TEXT PRIMARY KEY, amount INTEGER NOT NULL)`
	if _, err := store.DB().ExecContext(ctx, schema); err != nil {
		return nil, fmt.Errorf("create the table of the orders: %w", err)
	}
	return &shop{store, &durable.Engine{
		Store:    store,
		Gateways: map[string]durable.Gateway{"provider": newGateway(provider)},
		Policy:   durable.CardDeclines(),
		Trace:    durable.LogTrace(slog.Default()),
	}}, nil
}

// newGateway returns the Gateway to a provider that honours idempotency keys. durable.HTTP adds the key,
// and classifies the statuses.
func newGateway(provider string) durable.Gateway {
	return durable.HTTP{
		Client: resilienthttp.NewClient(),
		NewRequest: func(s *durable.Send) (*http.Request, error) {
			req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, provider, bytes.NewReader(s.Payload))
			if err == nil {
				req.Header.Set("Content-Type", "application/json")
				req.SetBasicAuth("shop", "")
			}
			return req, err
		},
		Read: func(_ *http.Response, body []byte) durable.Outcome {
			var answer struct{ ID, Code string }
			err := json.Unmarshal(body, &answer)
			return durable.Outcome{Reference: answer.ID, Code: answer.Code, Err: err}
		},
	}
}

func (s *shop) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /orders", s.order)
	mux.HandleFunc("GET /orders/{reference}", s.show)
	mux.Handle("/dead", &console.Handler{Engine: s.engine, By: func(*http.Request) string { return "the operator" }})
	return mux
}

// Order is the body of a request.
type Order struct {
	Reference string `json:"reference"`
	Amount    int64  `json:"amount"` // in cents
}

func idOf(reference string) idempotency.ID {
	return idempotency.ID{Scope: "shop", Operation: "charge", Key: reference}
}

// order takes an order. A customer that gets no response may send it again.
func (s *shop) order(w http.ResponseWriter, r *http.Request) {
	var o Order
	if err := json.NewDecoder(r.Body).Decode(&o); err != nil || o.Reference == "" || o.Amount <= 0 {
		http.Error(w, "want a reference and an amount above 0", http.StatusBadRequest)
		return
	}
	switch err := s.take(r.Context(), o); {
	case errors.Is(err, durable.ErrMismatch):
		http.Error(w, "another order has this reference", http.StatusConflict)
	case err != nil:
		http.Error(w, "the database is not available", http.StatusServiceUnavailable)
	default:
		s.engine.Wake()
		w.WriteHeader(http.StatusAccepted)
	}
}

// take writes an order and the intent to charge it in one transaction.
func (s *shop) take(ctx context.Context, o Order) error {
	payload, err := json.Marshal(o)
	if err != nil {
		return err
	}
	tx, err := s.store.DB().BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // no effect after Commit
	const insert = `INSERT INTO orders (reference, amount) VALUES (?, ?) ON CONFLICT DO NOTHING`
	if _, err := tx.ExecContext(ctx, insert, o.Reference, o.Amount); err != nil {
		return err
	}
	charge := durable.Intent{ID: idOf(o.Reference), Gateway: "provider", Payload: payload}
	if _, err := s.store.WithTx(tx).Enqueue(ctx, charge); err != nil {
		return err
	}
	return tx.Commit()
}

// show writes the state of an order's charge.
func (s *shop) show(w http.ResponseWriter, r *http.Request) {
	switch record, err := s.engine.Find(r.Context(), idOf(r.PathValue("reference"))); {
	case errors.Is(err, durable.ErrNotFound):
		http.NotFound(w, r)
	case err != nil:
		http.Error(w, "the database is not available", http.StatusServiceUnavailable)
	default:
		fmt.Fprintln(w, record.State, record.Reference, record.Code)
	}
}
