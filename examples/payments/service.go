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
	bank   *teller // nil where charges are booked in the ledger
	lease  time.Duration
	trace  *idempotency.Trace
}

// handler is all that it takes.
func (s *service) handler() http.Handler {
	book := s.joined
	if s.bank != nil {
		book = s.detached
	}
	charges := idempotency.NewHandler(s.ledger.records(), account, http.HandlerFunc(book))
	charges.Operation = func(*http.Request) string { return chargeOperation }
	charges.Transactional = s.bank == nil
	charges.Lease = s.lease
	charges.DuplicateWait = 200 * time.Millisecond // a client that lost patience gets the answer that it left behind
	charges.Trace = s.trace
	mux := http.NewServeMux()
	mux.Handle("POST /charges", charges)
	mux.HandleFunc("GET /unknown", s.unknown)
	mux.HandleFunc("GET /health", func(http.ResponseWriter, *http.Request) {})
	return mux
}

// chargeOperation is the operation of the records: a constant, so that the route may
// be renamed.
const chargeOperation = "charge"

// leaseOfCharge is short: the next process need not wait long for what the last one left.
const leaseOfCharge = 600 * time.Millisecond

// account is whose request it is. A real one has authenticated it before.
func account(r *http.Request) (string, error) {
	if id := r.Header.Get("X-Account"); id != "" {
		return id, nil
	}
	return "", errors.New("no account")
}

// unknown shows the operations of which nobody knows, for an operator to see.
func (s *service) unknown(w http.ResponseWriter, r *http.Request) {
	for record, err := range s.ledger.records().Unknown(r.Context(), "") {
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintf(w, "%s %s %s, since %s\n", record.Scope, record.Operation, record.Key, record.Updated.Format(time.RFC3339))
	}
}

// serveCommand makes the program a process of the service.
const serveCommand = "serve"

func serve(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet(serveCommand, flag.ContinueOnError)
	socket := flags.String("listen", "", "the Unix socket")
	database := flags.String("db", chaos.SQLite, "where the records are")
	dsn := flags.String("dsn", "", "the file, or PostgreSQL's connection string")
	bankSocket := flags.String("bank", "", "the bank's Unix socket; without it charges are booked beside the records")
	answers := chaos.Answers{Patience: attemptTimeout}
	answers.Flags(flags)
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
		s.bank = newTeller(*bankSocket)
	}
	// It finds the executions that died, and whose clients have gone away.
	sweeper := &idempotency.Sweeper{Store: ledger.records(), Trace: s.trace, Every: leaseOfCharge}
	go func() { _ = sweeper.Run(ctx) }()
	return process.Listen(ctx, *socket, answers.Around(s.handler()))
}
