package main

import (
	"testing"

	"github.com/resilienthttp/resilienthttp/examples/internal/bank"
	"github.com/stretchr/testify/assert"
)

// The audit finds each kind of error.
func TestAudit_findsErrors(t *testing.T) {
	const last = 20 // declined, like the first
	s := scenario{charges: last + 1}
	booked := func(i int) bank.Charge { return bank.Charge{ID: string(rune('a' + i)), Order: s.order(i)} }
	for _, row := range []struct {
		name   string
		breaks func(known []outcome, ledger map[int][]bank.Charge)
		want   audit
	}{
		{"no error", func([]outcome, map[int][]bank.Charge) {}, audit{}},
		{"doubled", func(_ []outcome, ledger map[int][]bank.Charge) {
			ledger[1] = append(ledger[1], bank.Charge{ID: "again", Order: s.order(1)})
		}, audit{once: -1, doubled: 1, wrong: 1}},
		{"lost", func(_ []outcome, ledger map[int][]bank.Charge) { delete(ledger, 2) }, audit{once: -1, lost: 1, wrong: 1}},
		{"lost, and the client has no outcome", func(known []outcome, ledger map[int][]bank.Charge) {
			delete(ledger, 2)
			known[2] = outcome{err: assert.AnError}
		}, audit{once: -1, lost: 1, unanswered: 1}},
		{"another receipt", func(known []outcome, _ map[int][]bank.Charge) { known[3].receipt.ID = "another" }, audit{wrong: 1}},
		{"another amount", func(_ []outcome, ledger map[int][]bank.Charge) { ledger[3][0].Amount++ }, audit{wrong: 1}},
		{"unknown at the end", func(known []outcome, _ map[int][]bank.Charge) { known[4] = outcome{unknown: true} }, audit{unanswered: 1}},
		{"declined, and booked", func(_ []outcome, ledger map[int][]bank.Charge) {
			ledger[last] = []bank.Charge{booked(last)}
		}, audit{once: 1, declined: -1, wrong: 1}},
		{"not covered, booked, and the client has a receipt", func(known []outcome, ledger map[int][]bank.Charge) {
			ledger[last] = []bank.Charge{booked(last)}
			known[last] = outcome{receipt: booked(last)}
		}, audit{once: 1, declined: -1, wrong: 1}},
		{"declined, but covered", func(known []outcome, ledger map[int][]bank.Charge) {
			delete(ledger, 5)
			known[5] = outcome{declined: true}
		}, audit{once: -1, lost: 1, wrong: 1}},
		{"booked without an order", func(_ []outcome, ledger map[int][]bank.Charge) {
			ledger[99] = []bank.Charge{{ID: "s", Order: bank.Order{Reference: "unknown", Amount: 1}}}
		}, audit{strange: 1}},
	} {
		t.Run(row.name, func(t *testing.T) {
			known := make([]outcome, s.charges)
			ledger := map[int][]bank.Charge{}
			for i := range known {
				if !s.order(i).Covered() {
					known[i] = outcome{declined: true}
					continue
				}
				ledger[i] = []bank.Charge{booked(i)}
				known[i] = outcome{receipt: booked(i)}
			}
			row.breaks(known, ledger)
			var all []bank.Charge
			for _, found := range ledger {
				all = append(all, found...)
			}
			want := row.want
			want.once += s.charges - 2
			want.declined += 2
			got := newAudit(&s, known, all)
			assert.Equal(t, want, got)
			assert.Equal(t, row.want == audit{}, got.passed(s.charges))
			r := &result{scenario: s, outcomes: known, audit: got}
			assert.Equal(t, row.want == audit{}, r.verdict() == nil)
			r.unknown = 1
			assert.Error(t, r.verdict(), "an unknown outcome at the end")
			r.unknown, r.timedOut = 0, 1
			assert.Error(t, r.verdict(), "a client that timed out")
		})
	}
}
