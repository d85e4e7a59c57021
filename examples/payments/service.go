package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"flag"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/resilienthttp/resilienthttp/idempotency"
)

// serveCommand makes the program the service.
const serveCommand = "serve"

// order is what a client asks: POST /charges.
type order struct {
	Reference string `json:"reference"`
	Amount    int64  `json:"amount"` // in cents
}

// charge is an order that has been booked. Each booking has an id of its own, so
// that a second one cannot pass for the first.
type charge struct {
	ID string `json:"id"`
	order
}

// service is the payment service: what is to be done once, and the handler that
// sees to it.
type service struct {
	ledger ledger
}

// handler is all that it takes.
func (s *service) handler() http.Handler {
	charges := idempotency.NewHandler(s.ledger.records(), account, http.HandlerFunc(s.charge))
	charges.Joined = true                 // charge books through idempotency.Tx, and does nothing else
	charges.Lease = leaseOfCharge         // the next process need not wait long for what the last one left
	charges.Wait = 200 * time.Millisecond // a client that lost patience gets the answer that it left behind
	charges.Trace = idempotency.LogTrace(slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})))
	mux := http.NewServeMux()
	mux.Handle(chargeOperation, charges)
	mux.HandleFunc("GET /health", func(http.ResponseWriter, *http.Request) {})
	return mux
}

// chargeOperation is the route, and therefore the operation of its records.
const chargeOperation = "POST /charges"

const leaseOfCharge = 600 * time.Millisecond

// account is whose request it is. A real one has authenticated it before.
func account(r *http.Request) (string, error) {
	if id := r.Header.Get("X-Account"); id != "" {
		return id, nil
	}
	return "", errors.New("no account")
}

// charge books an order. It has no idea of repetitions: its booking is committed
// together with the record of its answer, or not at all.
func (s *service) charge(w http.ResponseWriter, r *http.Request) {
	var o order
	if err := json.NewDecoder(r.Body).Decode(&o); err != nil || o.Reference == "" || o.Amount <= 0 {
		http.Error(w, "that is no order", http.StatusBadRequest)
		return
	}
	c := charge{ID: "ch_" + rand.Text(), order: o}
	if err := s.ledger.book(r.Context(), c); err != nil {
		http.Error(w, "the ledger is not available", http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(c) //nolint:errchkjson // strings and a number; the error is that of a client that has gone
}

// serve is the process that is killed.
func serve(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet(serveCommand, flag.ContinueOnError)
	address := flags.String("listen", "", "host:port")
	database := flags.String("db", sqlite, "where the ledger is")
	dsn := flags.String("dsn", "", "the file, or PostgreSQL's connection string")
	chaos := chaos{}
	flags.Float64Var(&chaos.lose, "lose", 0, "share of answers that are lost after the commit")
	flags.Float64Var(&chaos.late, "late", 0, "share of answers that come too late")
	if err := flags.Parse(args); err != nil {
		return err
	}
	ledger, err := openLedger(ctx, *database, *dsn)
	if err != nil {
		return err
	}
	defer ledger.close()
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", *address)
	if err != nil {
		return err
	}
	s := &service{ledger: ledger}
	server := &http.Server{Handler: chaos.around(s.handler()), ReadHeaderTimeout: 5 * time.Second}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
