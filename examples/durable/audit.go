package main

import (
	"context"
	"errors"

	"github.com/resilienthttp/resilienthttp/durable"
	"github.com/resilienthttp/resilienthttp/examples/internal/bank"
)

// audit compares the shop's ledger with that of the bank.
type audit struct {
	once, declined, canceled               int // correct: booked, not covered, canceled
	doubled, lost, unknown, wrong, strange int

	sends, queries, unknownSends, keys int // numbers of attempts and keys
	decided, stale                     int // decisions of the operator with and without effect
}

// passed reports whether each order was charged once, declined or canceled.
func (a *audit) passed(orders int) bool {
	return a.once+a.declined+a.canceled == orders && a.doubled+a.lost+a.unknown+a.wrong+a.strange == 0
}

// read audits all orders.
func (a *audit) read(ctx context.Context, s *scenario, l ledger, bankLedger string) error {
	taken, err := l.orders(ctx)
	if err != nil {
		return err
	}
	booked, err := bank.Bookings(bankLedger)
	if err != nil {
		return err
	}
	records := make(map[string]durable.Record)
	for i := range s.payments {
		id := idOf(s.order(i))
		record, err := l.store().Find(ctx, id)
		if errors.Is(err, durable.ErrNotFound) {
			continue
		}
		if err != nil {
			return err
		}
		records[id.Key] = record
		attempts, err := l.store().Attempts(ctx, id)
		if err != nil {
			return err
		}
		a.count(&record, attempts)
	}
	a.compare(s, taken, records, booked)
	return nil
}

func (a *audit) count(record *durable.Record, attempts []durable.Attempt) {
	a.keys += record.Epoch - 1
	for i := range attempts {
		switch attempt := &attempts[i]; {
		case attempt.Kind == durable.KindResolve:
		case attempt.Kind == durable.KindQuery:
			a.queries++
		case attempt.Class == durable.ClassUnknown:
			a.unknownSends++
			fallthrough
		default:
			a.sends++
		}
	}
}

// compare checks each order of the clients.
func (a *audit) compare(s *scenario, taken []bank.Order, records map[string]durable.Record, booked []bank.Charge) {
	orders := make(map[string]bank.Order)
	for _, o := range taken {
		orders[o.Reference] = o
	}
	charges := make(map[string][]bank.Charge)
	for _, c := range booked {
		charges[c.Reference] = append(charges[c.Reference], c)
	}
	for i := range s.payments {
		want := s.order(i)
		found := charges[want.Reference]
		delete(charges, want.Reference)
		o, ordered := orders[want.Reference]
		record, known := records[want.Reference]
		switch {
		case canceledOrder(i) && (ordered || known || len(found) > 0):
			a.strange++
		case canceledOrder(i):
			a.canceled++
		case !ordered || o != want || !known:
			a.lost++
		default:
			a.judge(&record, want, found)
		}
	}
	a.strange += len(charges)
}

// judge checks an order that was taken.
func (a *audit) judge(record *durable.Record, want bank.Order, found []bank.Charge) {
	final := record.State.Final() || record.State == durable.StateDead && !record.InDoubt
	switch {
	case len(found) > 1:
		a.doubled++
	case !final:
		a.unknown++
	case len(found) == 0 && want.Covered():
		a.lost++
	case !agrees(record, want, found):
		a.wrong++
	case want.Covered():
		a.once++
	default:
		a.declined++
	}
}

// agrees reports whether the state of the shop and the bank is the same, and correct.
func agrees(record *durable.Record, want bank.Order, found []bank.Charge) bool {
	if !want.Covered() {
		return len(found) == 0 && record.State == durable.StateDead && record.Reason == durable.ReasonDeclined && record.Code == bank.Never
	}
	return len(found) == 1 && found[0].Order == want && record.State == durable.StateDone && record.Reference == found[0].ID
}
