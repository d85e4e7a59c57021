package main

import (
	"errors"
	"github.com/resilienthttp/resilienthttp/examples/internal/bank"
	"net/http"
)

// detached lets the bank book an order. What the status says decides what becomes of
// the record: 402 is final, after 503 the order may be executed again, and after 502
// nobody knows, so that somebody has to find out: see reconciler.
func (s *service) detached(w http.ResponseWriter, r *http.Request) {
	o, ok := bank.ReadOrder(w, r)
	if !ok {
		return
	}
	c, err := s.bank.book(r.Context(), o)
	switch {
	case err == nil:
		bank.WriteReceipt(w, c)
	case errors.Is(err, errNotCovered):
		http.Error(w, "the account does not cover it", http.StatusPaymentRequired)
	case errors.Is(err, errBusy):
		http.Error(w, "the bank is busy, and has done nothing", http.StatusServiceUnavailable)
	default:
		http.Error(w, "the bank may have booked it", http.StatusBadGateway)
	}
}
