package main

import (
	"errors"
	"net/http"

	"github.com/resilienthttp/resilienthttp/examples/internal/bank"
)

// nonTransactional sends an order to the bank. Its status determines the record: 402
// is final, 503 frees the key, and after 502 the outcome is unknown until the
// reconciler has asked the bank.
func (s *service) nonTransactional(w http.ResponseWriter, r *http.Request) {
	o, ok := bank.ReadOrder(w, r)
	if !ok {
		return
	}
	c, err := s.bank.book(r.Context(), o)
	switch {
	case err == nil:
		bank.WriteReceipt(w, c)
	case errors.Is(err, errNotCovered):
		http.Error(w, "the account does not cover the amount", http.StatusPaymentRequired)
	case errors.Is(err, errBusy):
		http.Error(w, "the bank is busy and has booked nothing", http.StatusServiceUnavailable)
	default:
		http.Error(w, "the bank may have booked the order", http.StatusBadGateway)
	}
}
