package main

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/resilienthttp/resilienthttp/durable"
	"github.com/resilienthttp/resilienthttp/examples/internal/bank"
)

// The audit finds each kind of error.
func TestAudit_findsErrors(t *testing.T) {
	const last = 20 // order 20 is not covered, and neither is order 0
	s := &scenario{payments: 26}
	booked := func(i int, id string) bank.Charge { return bank.Charge{ID: id, Order: s.order(i)} }
	name := func(i int) string { return s.order(i).Reference }
	type state struct {
		taken   []bank.Order
		records map[string]durable.Record
		ledger  map[int][]bank.Charge
	}
	with := func(w *state, i int, change func(*durable.Record)) {
		r := w.records[name(i)]
		change(&r)
		w.records[name(i)] = r
	}
	for _, row := range []struct {
		name   string
		breaks func(w *state)
		want   audit
	}{
		{"no error: passed", func(*state) {}, audit{}},
		{"second booking: doubled", func(w *state) { w.ledger[1] = append(w.ledger[1], booked(1, "again")) }, audit{once: -1, doubled: 1}},
		{"no booking: lost", func(w *state) { delete(w.ledger, 2) }, audit{once: -1, lost: 1}},
		{"no intent: lost", func(w *state) { delete(w.records, name(2)) }, audit{once: -1, lost: 1}},
		{"no order: lost", func(w *state) { w.taken = w.taken[:len(w.taken)-1] }, audit{once: -1, lost: 1}},
		{"unknown intent: unknown", func(w *state) {
			with(w, 3, func(r *durable.Record) { r.State = durable.StateUnknown })
		}, audit{once: -1, unknown: 1}},
		{"dead in doubt: unknown", func(w *state) {
			with(w, 3, func(r *durable.Record) { r.State, r.InDoubt = durable.StateDead, true })
		}, audit{once: -1, unknown: 1}},
		{"waiting intent: unknown", func(w *state) {
			with(w, 3, func(r *durable.Record) { r.State = durable.StateWaiting })
		}, audit{once: -1, unknown: 1}},
		{"other reference: wrong", func(w *state) {
			with(w, 4, func(r *durable.Record) { r.Reference = "another" })
		}, audit{once: -1, wrong: 1}},
		{"other amount: wrong", func(w *state) { w.ledger[4][0].Amount++ }, audit{once: -1, wrong: 1}},
		{"dead and booked: wrong", func(w *state) {
			with(w, 5, func(r *durable.Record) { r.State = durable.StateDead })
		}, audit{once: -1, wrong: 1}},
		{"not covered and booked: wrong", func(w *state) { w.ledger[last] = []bank.Charge{booked(last, "x")} }, audit{declined: -1, wrong: 1}},
		{"not covered and done: wrong", func(w *state) {
			with(w, last, func(r *durable.Record) { r.State = durable.StateDone })
		}, audit{declined: -1, wrong: 1}},
		{"canceled and charged: strange", func(w *state) { w.ledger[24] = []bank.Charge{booked(24, "x")} }, audit{canceled: -1, strange: 1}},
		{"canceled and enqueued: strange", func(w *state) { w.records[name(24)] = durable.Record{} }, audit{canceled: -1, strange: 1}},
		{"canceled and taken: strange", func(w *state) { w.taken = append(w.taken, s.order(24)) }, audit{canceled: -1, strange: 1}},
		{"charge without order: strange", func(w *state) {
			w.ledger[99] = []bank.Charge{{ID: "s", Order: bank.Order{Reference: "unknown", Amount: 1}}}
		}, audit{strange: 1}},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := &state{records: map[string]durable.Record{}, ledger: map[int][]bank.Charge{}}
			for i := range s.payments {
				o := s.order(i)
				switch {
				case canceledOrder(i):
					continue
				case o.Covered():
					c := booked(i, "id of "+o.Reference)
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
			want.declined += 2
			want.canceled++
			r := &result{scenario: *s}
			r.compare(s, w.taken, w.records, all)
			assert.Equal(t, want, r.audit)
			assert.Equal(t, row.want == audit{}, r.passed(s.payments))
			assert.Equal(t, row.want == audit{}, r.verdict() == nil)
		})
	}
}
