package main

import (
	"context"
	"errors"

	"github.com/resilienthttp/resilienthttp/durable"
	"github.com/resilienthttp/resilienthttp/examples/internal/bank"
)

// audit compares the shop's books with the bank's ledger, which is the truth.
type audit struct {
	once, refused, undone                  int // as it should be: booked, not covered, given up
	doubled, lost, unknown, wrong, strange int

	sends, questions, doubts, keys int // what it took
	decided, stale                 int // decisions of a person, and those that came too late
}

// kept: each of so many orders was charged for once, or refused, or never was one.
func (a *audit) kept(orders int) bool {
	return a.once+a.refused+a.undone == orders && a.doubled+a.lost+a.unknown+a.wrong+a.strange == 0
}

// read audits what there is.
func (a *audit) read(ctx context.Context, s *scenario, b books, ledger string) error {
	taken, err := b.orders(ctx)
	if err != nil {
		return err
	}
	booked, err := bank.Bookings(ledger)
	if err != nil {
		return err
	}
	records := make(map[string]durable.Record)
	for i := range s.payments {
		id := idOf(s.order(i))
		record, err := b.store().Find(ctx, id)
		if errors.Is(err, durable.ErrNotFound) {
			continue
		}
		if err != nil {
			return err
		}
		records[id.Key] = record
		attempts, err := b.store().Attempts(ctx, id)
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
			a.questions++
		case attempt.Class == durable.ClassUnknown:
			a.doubts++
			fallthrough
		default:
			a.sends++
		}
	}
}

// compare looks at each order that the clients were told of.
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
		case givenUp(i) && (ordered || known || len(found) > 0):
			a.strange++
		case givenUp(i):
			a.undone++
		case !ordered || o != want || !known:
			a.lost++
		default:
			a.judge(&record, want, found)
		}
	}
	a.strange += len(charges)
}

// judge looks at one that was taken.
func (a *audit) judge(record *durable.Record, want bank.Order, found []bank.Charge) {
	settled := record.State.Final() || record.State == durable.StateDead && !record.InDoubt
	switch {
	case len(found) > 1:
		a.doubled++
	case !settled:
		a.unknown++
	case len(found) == 0 && want.Covered():
		a.lost++
	case !agrees(record, want, found):
		a.wrong++
	case want.Covered():
		a.once++
	default:
		a.refused++
	}
}

// agrees: the shop knows what the bank has of the order, and that is right.
func agrees(record *durable.Record, want bank.Order, found []bank.Charge) bool {
	if !want.Covered() {
		return len(found) == 0 && record.State == durable.StateDead && record.Reason == durable.ReasonDeclined && record.Code == bank.Never
	}
	return len(found) == 1 && found[0].Order == want && record.State == durable.StateDone && record.Reference == found[0].ID
}
