package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"log/slog"
	"net/http"
	"os"
	"time"

	"github.com/resilienthttp/resilienthttp/idempotency"
)

// service is the payment service.
type service struct {
	ledger ledger
	bank   *teller // nil where charges are booked in the ledger
}

// handler is all that it takes.
func (s *service) handler() http.Handler {
	book := s.joined
	if s.bank != nil {
		book = s.detached
	}
	charges := idempotency.NewHandler(s.ledger.records(), account, http.HandlerFunc(book))
	charges.Operation = func(*http.Request) string { return chargeOperation }
	charges.Joined = s.bank == nil
	charges.Settle = func(status int) idempotency.Status {
		if status == http.StatusBadGateway {
			return idempotency.Unknown
		}
		return 0
	}
	charges.Lease = leaseOfCharge         // the next process need not wait long for what the last one left
	charges.Wait = 200 * time.Millisecond // a client that lost patience gets the answer that it left behind
	charges.Trace = idempotency.LogTrace(slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})))
	mux := http.NewServeMux()
	mux.Handle("POST /charges", charges)
	mux.HandleFunc("GET /health", func(http.ResponseWriter, *http.Request) {})
	return mux
}

// chargeOperation is the operation of the records: a constant, so that the route may
// be renamed.
const chargeOperation = "charge"

const leaseOfCharge = 600 * time.Millisecond

// account is whose request it is. A real one has authenticated it before.
func account(r *http.Request) (string, error) {
	if id := r.Header.Get("X-Account"); id != "" {
		return id, nil
	}
	return "", errors.New("no account")
}

// readOrder is false when there was none, which it has answered then.
func readOrder(w http.ResponseWriter, r *http.Request) (o order, ok bool) {
	if err := json.NewDecoder(r.Body).Decode(&o); err != nil || !o.valid() {
		http.Error(w, "that is no order", http.StatusBadRequest)
		return o, false
	}
	return o, true
}

func writeReceipt(w http.ResponseWriter, c charge) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(c) //nolint:errchkjson // strings and a number; the error is that of a client that has gone
}

// serveCommand makes the program a process of the service.
const serveCommand = "serve"

func serve(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet(serveCommand, flag.ContinueOnError)
	socket := flags.String("listen", "", "the Unix socket")
	database := flags.String("db", sqlite, "where the records are")
	dsn := flags.String("dsn", "", "the file, or PostgreSQL's connection string")
	bankSocket := flags.String("bank", "", "the bank's Unix socket; without it charges are booked beside the records")
	chaos := chaos{patience: attemptTimeout}
	chaos.flags(flags)
	if err := flags.Parse(args); err != nil {
		return err
	}
	ledger, err := openLedger(ctx, *database, *dsn)
	if err != nil {
		return err
	}
	defer ledger.close()
	s := &service{ledger: ledger}
	if *bankSocket != "" {
		s.bank = newTeller(*bankSocket)
	}
	return listen(ctx, *socket, chaos.around(s.handler()))
}
