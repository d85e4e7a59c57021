package main

import (
	"crypto/rand"
	"net/http"

	"github.com/resilienthttp/resilienthttp/examples/internal/bank"
)

// transactional books an order in the ledger. It has no code for retries: the booking
// and the record of the response are committed together, or neither is.
func (s *service) transactional(w http.ResponseWriter, r *http.Request) {
	o, ok := bank.ReadOrder(w, r)
	if !ok {
		return
	}
	c := bank.Charge{ID: "ch_" + rand.Text(), Order: o}
	if err := s.ledger.book(r.Context(), c); err != nil {
		http.Error(w, ledgerUnavailable, http.StatusServiceUnavailable)
		return
	}
	if !o.Covered() {
		// The response is stored, and the booking is undone.
		http.Error(w, "the account does not cover the amount", http.StatusPaymentRequired)
		return
	}
	bank.WriteReceipt(w, c)
}

// ledgerUnavailable is the response of work that could not write.
const ledgerUnavailable = "the ledger is not available"
