package main

import (
	"crypto/rand"
	"net/http"
)

// joined books an order in the ledger. It has no idea of repetitions: its booking is
// committed together with the record of its answer, or not at all.
func (s *service) joined(w http.ResponseWriter, r *http.Request) {
	o, ok := readOrder(w, r)
	if !ok {
		return
	}
	c := charge{ID: "ch_" + rand.Text(), order: o}
	if err := s.ledger.book(r.Context(), c); err != nil {
		http.Error(w, "the ledger is not available", http.StatusServiceUnavailable)
		return
	}
	if !o.covered() {
		// The refusal is stored, and the booking undone.
		http.Error(w, "the account does not cover it", http.StatusPaymentRequired)
		return
	}
	writeReceipt(w, c)
}
