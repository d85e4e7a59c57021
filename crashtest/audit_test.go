package main

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/resilienthttp/resilienthttp/crashtest/internal/bank"
	"github.com/resilienthttp/resilienthttp/crashtest/internal/chaos"
	"github.com/resilienthttp/resilienthttp/durable"
)

// The audit finds each kind of error.
func TestAudit_findsErrors(t *testing.T) {
	t.Parallel()
	const last = 20 // order 20 is not covered, and neither is order 0; order 24 is canceled
	s := scenario{app: durableApp, orders: 26}
	charge := func(i int, id string) bank.Charge { return bank.Charge{ID: id, Order: s.order(i)} }
	type ledger map[int][]bank.Charge
	for _, row := range []struct {
		name   string
		breaks func(known []outcome, ledger ledger)
		want   audit
	}{
		{"no error: passed", func([]outcome, ledger) {}, audit{}},
		{"second booking: doubled", func(_ []outcome, l ledger) { l[1] = append(l[1], charge(1, "again")) }, audit{once: -1, doubled: 1}},
		{"no booking: lost", func(_ []outcome, l ledger) { delete(l, 2) }, audit{once: -1, lost: 1}},
		{"no booking and no outcome: unknown", func(known []outcome, l ledger) {
			delete(l, 2)
			known[2] = outcome{err: assert.AnError}
		}, audit{once: -1, unknown: 1}},
		{"the order or its intent is missing: lost", func(known []outcome, _ ledger) { known[2].state = missing }, audit{once: -1, lost: 1}},
		{"neither order nor intent: lost", func(known []outcome, l ledger) {
			delete(l, 2)
			known[2] = outcome{state: canceled}
		}, audit{once: -1, lost: 1}},
		{"no outcome: unknown", func(known []outcome, _ ledger) { known[3] = outcome{} }, audit{once: -1, unknown: 1}},
		{"another receipt: wrong", func(known []outcome, _ ledger) { known[3].receipt.ID = "another" }, audit{once: -1, wrong: 1}},
		{"another amount: wrong", func(_ []outcome, l ledger) { l[4][0].Amount++ }, audit{once: -1, wrong: 1}},
		{"another amount, also in the receipt: wrong", func(known []outcome, l ledger) {
			l[4][0].Amount++
			known[4].receipt.Amount++
		}, audit{once: -1, wrong: 1}},
		{"failed and booked: wrong", func(known []outcome, _ ledger) { known[5].state = failed }, audit{once: -1, wrong: 1}},
		{"declined and booked: wrong", func(known []outcome, _ ledger) { known[5].state = declined }, audit{once: -1, wrong: 1}},
		{"declined, but covered: lost", func(known []outcome, l ledger) {
			delete(l, 5)
			known[5] = outcome{state: declined}
		}, audit{once: -1, lost: 1}},
		{"not covered and booked: wrong", func(_ []outcome, l ledger) { l[last] = []bank.Charge{charge(last, "x")} }, audit{declined: -1, wrong: 1}},
		{"not covered, booked, and there is a receipt: wrong", func(known []outcome, l ledger) {
			l[last] = []bank.Charge{charge(last, "x")}
			known[last] = outcome{state: booked, receipt: charge(last, "x")}
		}, audit{declined: -1, wrong: 1}},
		{"not covered, and failed for another reason: wrong", func(known []outcome, _ ledger) { known[last].state = failed }, audit{declined: -1, wrong: 1}},
		{"canceled and charged: strange", func(_ []outcome, l ledger) { l[24] = []bank.Charge{charge(24, "x")} }, audit{canceled: -1, strange: 1}},
		{"canceled, and the order or the intent exists: strange", func(known []outcome, _ ledger) { known[24].state = missing }, audit{canceled: -1, strange: 1}},
		{"booked without an order: strange", func(_ []outcome, l ledger) {
			l[99] = []bank.Charge{{ID: "s", Order: bank.Order{Reference: "unknown", Amount: 1}}}
		}, audit{strange: 1}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			known, found := make([]outcome, s.orders), ledger{}
			for i := range known {
				switch {
				case s.canceled(i):
					known[i].state = canceled
				case !s.order(i).Covered():
					known[i].state = declined
				default:
					c := charge(i, "id of "+s.order(i).Reference)
					found[i] = []bank.Charge{c}
					known[i] = outcome{state: booked, receipt: c}
				}
			}
			row.breaks(known, found)
			var all []bank.Charge
			for _, charges := range found {
				all = append(all, charges...)
			}
			want := row.want
			want.once += 23
			want.declined += 2
			want.canceled++
			r := &run{scenario: s, audit: newAudit(&s, known, all)}
			assert.Equal(t, want, r.audit)
			assert.Equal(t, row.want == audit{}, r.verdict() == nil)
			r.wrongf("an unknown outcome at the end")
			assert.Error(t, r.verdict())
		})
	}
}

// The audit finds a suspect that was in flight with another intent of its process.
func TestAuditSuspects(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	const died = "the worker died, or sent no heartbeat for a lease"
	attempt := func(second int, worker, err string) durable.Attempt {
		return durable.Attempt{
			Kind: durable.KindSend, Worker: worker, Error: err,
			SentAt: start.Add(time.Duration(second) * time.Second), FinishedAt: start.Add(time.Duration(second+1) * time.Second),
		}
	}
	query := attempt(4, "e", "")
	query.Kind = durable.KindQuery
	lost := []durable.Attempt{attempt(0, "a", died), attempt(1, "b", died), attempt(2, "c", died)}
	for _, row := range []struct {
		name          string
		then, another []durable.Attempt
		wrong         bool
	}{
		{"alone", []durable.Attempt{attempt(6, "d", died)}, []durable.Attempt{attempt(0, "a", died), attempt(5, "d", ""), attempt(7, "d", "")}, false},
		{"beside another of its process", []durable.Attempt{attempt(6, "d", died)}, []durable.Attempt{attempt(6, "d", died)}, true},
		{"beside one of another process", []durable.Attempt{attempt(6, "d", died)}, []durable.Attempt{attempt(6, "x", "")}, false},
		{"a query does not end the row", []durable.Attempt{query, attempt(6, "d", died)}, []durable.Attempt{attempt(6, "d", "")}, true},
		{"a send that ended does", []durable.Attempt{attempt(4, "e", "timeout"), attempt(6, "d", died)}, []durable.Attempt{attempt(6, "d", "")}, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			s := &shopping{run: &run{scenario: scenario{app: durableApp}}}
			s.auditSuspects(map[string][]durable.Attempt{"suspect": append(slices.Clone(lost), row.then...), "another": row.another})
			assert.Equal(t, row.wrong, len(s.wrongs) > 0, s.wrongs)
		})
	}
	t.Run("the poison has killed too few", func(t *testing.T) {
		t.Parallel()
		s := &shopping{run: &run{scenario: scenario{app: durableApp, orders: 10, Plan: chaos.Plan{Kills: 1}}}}
		s.auditSuspects(map[string][]durable.Attempt{s.order(s.poison()).Reference: lost})
		assert.Len(t, s.wrongs, 1)
	})
}

// The outcome of an order in durable is that of its intent.
func TestOutcomeOf(t *testing.T) {
	t.Parallel()
	want := bank.Order{Reference: "comp1:invoice:1", Amount: 101}
	declinedRecord := durable.Record{State: durable.StateDead, Reason: durable.ReasonDeclined, Code: bank.Never}
	for _, row := range []struct {
		name   string
		order  bank.Order // in the shop's table; zero: none
		record durable.Record
		want   outcome
	}{
		{"done: booked", want, durable.Record{State: durable.StateDone, Reference: "bk_1"}, outcome{state: booked, receipt: bank.Charge{ID: "bk_1", Order: want}}},
		{"waiting: unknown", want, durable.Record{State: durable.StateWaiting}, outcome{}},
		{"unknown: unknown", want, durable.Record{State: durable.StateUnknown}, outcome{}},
		{"dead in doubt: unknown", want, durable.Record{State: durable.StateDead, InDoubt: true}, outcome{}},
		{"dead, insufficient funds: declined", want, declinedRecord, outcome{state: declined}},
		{"dead, another code: failed", want, durable.Record{State: durable.StateDead, Reason: durable.ReasonDeclined, Code: bank.Call}, outcome{state: failed}},
		{"no order: missing", bank.Order{}, durable.Record{State: durable.StateDone}, outcome{state: missing}},
		{"another amount: missing", bank.Order{Reference: want.Reference, Amount: 1}, durable.Record{State: durable.StateDone}, outcome{state: missing}},
		{"no intent: missing", want, durable.Record{}, outcome{state: missing}},
		{"neither: canceled", bank.Order{}, durable.Record{}, outcome{state: canceled}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			taken := map[string]bank.Charge{}
			if row.order.Valid() {
				taken[row.order.Reference] = bank.Charge{Order: row.order}
			}
			enqueued := row.record.State != durable.Record{}.State
			assert.Equal(t, row.want, outcomeOf(want, taken, &row.record, enqueued))
		})
	}
}
