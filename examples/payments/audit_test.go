package main

import (
	"testing"

	"github.com/resilienthttp/resilienthttp/examples/internal/bank"
	"github.com/stretchr/testify/assert"
)

// An audit that finds nothing wrong with anything would prove nothing.
func TestAuditFindsWhatIsWrong(t *testing.T) {
	const last = 20 // it is not covered, and neither is the first
	s := scenario{charges: last + 1}
	booked := func(i int) bank.Charge { return bank.Charge{ID: string(rune('a' + i)), Order: s.order(i)} }
	for _, row := range []struct {
		name   string
		breaks func(known []outcome, ledger map[int][]bank.Charge)
		want   audit
	}{
		{"nothing", func([]outcome, map[int][]bank.Charge) {}, audit{}},
		{"doubled", func(_ []outcome, ledger map[int][]bank.Charge) {
			ledger[1] = append(ledger[1], bank.Charge{ID: "again", Order: s.order(1)})
		}, audit{once: -1, doubled: 1, wrong: 1}},
		{"lost", func(_ []outcome, ledger map[int][]bank.Charge) { delete(ledger, 2) }, audit{once: -1, lost: 1, wrong: 1}},
		{"lost, and never said to be there", func(known []outcome, ledger map[int][]bank.Charge) {
			delete(ledger, 2)
			known[2] = outcome{err: assert.AnError}
		}, audit{once: -1, lost: 1, unanswered: 1}},
		{"another receipt", func(known []outcome, _ map[int][]bank.Charge) { known[3].receipt.ID = "another" }, audit{wrong: 1}},
		{"another amount", func(_ []outcome, ledger map[int][]bank.Charge) { ledger[3][0].Amount++ }, audit{wrong: 1}},
		{"unknown for good", func(known []outcome, _ map[int][]bank.Charge) { known[4] = outcome{unknown: true} }, audit{unanswered: 1}},
		{"refused, and booked all the same", func(_ []outcome, ledger map[int][]bank.Charge) {
			ledger[last] = []bank.Charge{booked(last)}
		}, audit{once: 1, refused: -1, wrong: 1}},
		{"not covered, and booked", func(known []outcome, ledger map[int][]bank.Charge) {
			ledger[last] = []bank.Charge{booked(last)}
			known[last] = outcome{receipt: booked(last)}
		}, audit{once: 1, refused: -1, wrong: 1}},
		{"refused without need", func(known []outcome, ledger map[int][]bank.Charge) {
			delete(ledger, 5)
			known[5] = outcome{refused: true}
		}, audit{once: -1, lost: 1, wrong: 1}},
		{"never ordered", func(_ []outcome, ledger map[int][]bank.Charge) {
			ledger[99] = []bank.Charge{{ID: "s", Order: bank.Order{Reference: "nobody's", Amount: 1}}}
		}, audit{strange: 1}},
	} {
		t.Run(row.name, func(t *testing.T) {
			known := make([]outcome, s.charges)
			ledger := map[int][]bank.Charge{}
			for i := range known {
				if !s.order(i).Covered() {
					known[i] = outcome{refused: true}
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
			want.refused += 2
			got := newAudit(&s, known, all)
			assert.Equal(t, want, got)
			assert.Equal(t, row.want == audit{}, got.kept(s.charges))
			r := &result{scenario: s, outcomes: known, audit: got}
			assert.Equal(t, row.want == audit{}, r.verdict() == nil)
			r.unknown = 1
			assert.Error(t, r.verdict(), "a record that is left Unknown")
			r.unknown, r.impatient = 0, 1
			assert.Error(t, r.verdict(), "a client that has waited for nothing")
		})
	}
}
