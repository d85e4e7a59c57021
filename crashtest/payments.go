package main

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/resilienthttp/resilienthttp/crashtest/internal/bank"
	"github.com/resilienthttp/resilienthttp/idempotency"
)

// service is the payment service: an idempotency.Handler before its work.
type service struct {
	ledger *ledger
	bank   *bankClient // nil: charges are booked in the ledger
	lease  time.Duration
	trace  *idempotency.Trace
}

func newService(l *ledger, mode, bankSocket string, log *slog.Logger) *service {
	s := &service{ledger: l, lease: leaseOfCharge, trace: idempotency.LogTrace(log)}
	if mode == nonTransactional {
		s.bank = newBankClient(bankSocket, keylessBank())
	}
	return s
}

func (s *service) order() http.Handler {
	book := s.transactional
	if s.bank != nil {
		book = s.nonTransactional
	}
	charges := idempotency.NewHandler(s.ledger.records, account, http.HandlerFunc(book))
	charges.Operation = func(*http.Request) string { return operation }
	charges.Transactional = s.bank == nil
	charges.Lease = s.lease
	charges.DuplicateWait = 200 * time.Millisecond // a client that timed out gets the first response
	charges.Trace = s.trace
	return charges
}

// operation is the operation of the records and intents.
const operation = "charge"

// leaseOfCharge is short, so that the next process soon takes over the work of a dead one.
const leaseOfCharge = 600 * time.Millisecond

// account returns the account of a request: all clients have the same.
func account(*http.Request) (string, error) { return "clients", nil }

// work finds executions that died if their clients do not retry.
func (s *service) work(ctx context.Context) error {
	sweeper := &idempotency.Sweeper{Store: s.ledger.records, Trace: s.trace, Every: leaseOfCharge}
	if err := sweeper.Run(ctx); ctx.Err() == nil {
		return err
	}
	return nil
}

// transactional books an order in the ledger. It has no code for retries: the booking
// and the record of the response are committed together, or neither is.
func (s *service) transactional(w http.ResponseWriter, r *http.Request) {
	o, ok := bank.ReadOrder(w, r)
	if !ok {
		return
	}
	c := bank.Charge{ID: "ch_" + rand.Text(), Order: o}
	if err := s.ledger.book(r.Context(), c); err != nil {
		http.Error(w, "the ledger is not available", http.StatusServiceUnavailable)
		return
	}
	if !o.Covered() {
		// The response is stored, and the booking is undone.
		http.Error(w, notCovered, http.StatusPaymentRequired)
		return
	}
	bank.WriteReceipt(w, c)
}

const notCovered = "the account does not cover the amount"

// nonTransactional sends an order to the bank. Its status determines the record: 402
// is final, 503 frees the key, and after 502 the outcome is unknown until the
// reconciler has asked the bank.
func (s *service) nonTransactional(w http.ResponseWriter, r *http.Request) {
	o, ok := bank.ReadOrder(w, r)
	if !ok {
		return
	}
	c, err := s.bank.book(r.Context(), o)
	_, declines := errors.AsType[*declinedError](err)
	switch {
	case err == nil:
		bank.WriteReceipt(w, c)
	case declines:
		http.Error(w, notCovered, http.StatusPaymentRequired)
	case errors.Is(err, errBusy):
		http.Error(w, "the bank is busy and has booked nothing", http.StatusServiceUnavailable)
	default:
		http.Error(w, "the bank may have booked the order", http.StatusBadGateway)
	}
}
