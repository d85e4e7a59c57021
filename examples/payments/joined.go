package main

import (
	"crypto/rand"
	"github.com/resilienthttp/resilienthttp/examples/internal/bank"
	"net/http"
)

// joined books an order in the ledger. It has no idea of repetitions: its booking is
// committed together with the record of its answer, or not at all.
func (s *service) joined(w http.ResponseWriter, r *http.Request) {
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
		// The refusal is stored, and the booking undone.
		http.Error(w, "the account does not cover it", http.StatusPaymentRequired)
		return
	}
	bank.WriteReceipt(w, c)
}
