package main

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/resilienthttp/resilienthttp/durable"
	"github.com/resilienthttp/resilienthttp/examples/internal/bank"
)

// An audit that finds nothing wrong with anything would prove nothing.
func TestAuditFindsWhatIsWrong(t *testing.T) {
	const last = 20 // it is not covered, and neither is the first
	s := &scenario{payments: 26}
	booked := func(i int, id string) bank.Charge { return bank.Charge{ID: id, Order: s.order(i)} }
	name := func(i int) string { return s.order(i).Reference }
	type world struct {
		taken   []bank.Order
		records map[string]durable.Record
		ledger  map[int][]bank.Charge
	}
	with := func(w *world, i int, change func(*durable.Record)) {
		r := w.records[name(i)]
		change(&r)
		w.records[name(i)] = r
	}
	for _, row := range []struct {
		name   string
		breaks func(w *world)
		want   audit
	}{
		{"nothing", func(*world) {}, audit{}},
		{"doubled", func(w *world) { w.ledger[1] = append(w.ledger[1], booked(1, "again")) }, audit{once: -1, doubled: 1}},
		{"lost by the bank", func(w *world) { delete(w.ledger, 2) }, audit{once: -1, lost: 1}},
		{"lost by the shop", func(w *world) { delete(w.records, name(2)) }, audit{once: -1, lost: 1}},
		{"an order that was lost", func(w *world) { w.taken = w.taken[:len(w.taken)-1] }, audit{once: -1, lost: 1}},
		{"unknown", func(w *world) {
			with(w, 3, func(r *durable.Record) { r.State = durable.StateUnknown })
		}, audit{once: -1, unknown: 1}},
		{"dead in doubt", func(w *world) {
			with(w, 3, func(r *durable.Record) { r.State, r.InDoubt = durable.StateDead, true })
		}, audit{once: -1, unknown: 1}},
		{"not over", func(w *world) {
			with(w, 3, func(r *durable.Record) { r.State = durable.StateWaiting })
		}, audit{once: -1, unknown: 1}},
		{"another reference", func(w *world) {
			with(w, 4, func(r *durable.Record) { r.Reference = "another" })
		}, audit{once: -1, wrong: 1}},
		{"another amount", func(w *world) { w.ledger[4][0].Amount++ }, audit{once: -1, wrong: 1}},
		{"dead, and booked", func(w *world) {
			with(w, 5, func(r *durable.Record) { r.State = durable.StateDead })
		}, audit{once: -1, wrong: 1}},
		{"not covered, and booked", func(w *world) { w.ledger[last] = []bank.Charge{booked(last, "x")} }, audit{refused: -1, wrong: 1}},
		{"not covered, and done", func(w *world) {
			with(w, last, func(r *durable.Record) { r.State = durable.StateDone })
		}, audit{refused: -1, wrong: 1}},
		{"given up, and charged", func(w *world) { w.ledger[24] = []bank.Charge{booked(24, "x")} }, audit{undone: -1, strange: 1}},
		{"given up, and enqueued", func(w *world) { w.records[name(24)] = durable.Record{} }, audit{undone: -1, strange: 1}},
		{"given up, and taken", func(w *world) { w.taken = append(w.taken, s.order(24)) }, audit{undone: -1, strange: 1}},
		{"never ordered", func(w *world) {
			w.ledger[99] = []bank.Charge{{ID: "s", Order: bank.Order{Reference: "nobody's", Amount: 1}}}
		}, audit{strange: 1}},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := &world{records: map[string]durable.Record{}, ledger: map[int][]bank.Charge{}}
			for i := range s.payments {
				o := s.order(i)
				switch {
				case givenUp(i):
					continue
				case o.Covered():
					c := booked(i, o.Reference+"'s")
					w.ledger[i] = []bank.Charge{c}
					w.records[o.Reference] = durable.Record{State: durable.StateDone, Reference: c.ID}
				default:
					w.records[o.Reference] = durable.Record{State: durable.StateDead, Reason: durable.ReasonDeclined, Code: bank.Never}
				}
				w.taken = append(w.taken, o)
			}
			row.breaks(w)
			var all []bank.Charge
			for _, found := range w.ledger {
				all = append(all, found...)
			}
			want := row.want
			want.once += 23
			want.refused += 2
			want.undone++
			r := &result{scenario: *s}
			r.compare(s, w.taken, w.records, all)
			assert.Equal(t, want, r.audit)
			assert.Equal(t, row.want == audit{}, r.kept(s.payments))
			assert.Equal(t, row.want == audit{}, r.verdict() == nil)
		})
	}
}
