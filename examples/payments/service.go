package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"time"

	"github.com/resilienthttp/resilienthttp/examples/internal/chaos"
	"github.com/resilienthttp/resilienthttp/examples/internal/process"
	"github.com/resilienthttp/resilienthttp/idempotency"
)

// service is the payment service.
type service struct {
	ledger ledger
	bank   *bankClient // nil: charges are booked in the ledger
	lease  time.Duration
	trace  *idempotency.Trace
}

// handler returns the service's handler.
func (s *service) handler() http.Handler {
	book := s.transactional
	if s.bank != nil {
		book = s.nonTransactional
	}
	charges := idempotency.NewHandler(s.ledger.records(), account, http.HandlerFunc(book))
	charges.Operation = func(*http.Request) string { return chargeOperation }
	charges.Transactional = s.bank == nil
	charges.Lease = s.lease
	charges.DuplicateWait = 200 * time.Millisecond // a client that timed out gets the first response
	charges.Trace = s.trace
	mux := http.NewServeMux()
	mux.Handle("POST /charges", charges)
	mux.HandleFunc("GET /unknown", s.unknown)
	mux.HandleFunc("GET /health", func(http.ResponseWriter, *http.Request) {})
	return mux
}

// chargeOperation is the operation of the records. It is a constant, so that the route
// may be renamed.
const chargeOperation = "charge"

// leaseOfCharge is short, so that the next process soon takes over the work of a dead one.
const leaseOfCharge = 600 * time.Millisecond

// account returns the account of a request. A real service authenticates it.
func account(r *http.Request) (string, error) {
	if id := r.Header.Get("X-Account"); id != "" {
		return id, nil
	}
	return "", errors.New("the request has no account")
}

// unknown lists the operations with an unknown outcome for an operator.
func (s *service) unknown(w http.ResponseWriter, r *http.Request) {
	for record, err := range s.ledger.records().Unknown(r.Context(), "") {
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintf(w, "%s %s %s, since %s\n", record.Scope, record.Operation, record.Key, record.Updated.Format(time.RFC3339))
	}
}

// serveCommand is the argument of a process of the service.
const serveCommand = "serve"

func serve(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet(serveCommand, flag.ContinueOnError)
	socket := flags.String("listen", "", "the Unix socket")
	database := flags.String("db", chaos.SQLite, "database of the records")
	dsn := flags.String("dsn", "", "the file, or PostgreSQL's connection string")
	bankSocket := flags.String("bank", "", "the bank's Unix socket; default: charges are booked beside the records")
	responses := chaos.Responses{Timeout: attemptTimeout}
	responses.Flags(flags)
	if err := flags.Parse(args); err != nil {
		return err
	}
	ledger, err := openLedger(ctx, *database, *dsn)
	if err != nil {
		return err
	}
	defer ledger.close()
	logger := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	s := &service{ledger: ledger, lease: leaseOfCharge, trace: idempotency.LogTrace(logger)}
	if *bankSocket != "" {
		s.bank = newBankClient(*bankSocket)
	}
	// It finds executions that died if their clients do not retry.
	sweeper := &idempotency.Sweeper{Store: ledger.records(), Trace: s.trace, Every: leaseOfCharge}
	go func() { _ = sweeper.Run(ctx) }()
	return process.Listen(ctx, *socket, responses.Handler(s.handler()))
}
