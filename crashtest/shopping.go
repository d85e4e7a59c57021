package main

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/resilienthttp/resilienthttp/crashtest/internal/bank"
	"github.com/resilienthttp/resilienthttp/crashtest/internal/chaos"
	"github.com/resilienthttp/resilienthttp/crashtest/internal/process"
	"github.com/resilienthttp/resilienthttp/durable"
	"github.com/resilienthttp/resilienthttp/internal/sleep"
)

// shopping is the load of the shop.
type shopping struct {
	*run
	person     *person
	outageOver chan struct{}
}

const pollInterval = 20 * time.Millisecond

func newShopping(r *run) *shopping {
	operator := &person{
		engine: &durable.Engine{Store: r.ledger.intents}, bankLedger: r.at.bankLedger(),
		late: 2*r.pause() + visibilityDelay + time.Second, // a suspended process sends nothing later
	}
	return &shopping{r, operator, make(chan struct{})}
}

// begin lets the person decide during the faults.
func (s *shopping) begin(ctx context.Context) (stop func()) {
	return chaos.Repeat(ctx, 10*pollInterval, s.person.work)
}

// ask sends one order. The bank's outage starts after the first third of the orders. The last third
// waits for its end.
func (s *shopping) ask(ctx context.Context, i int) {
	switch {
	case i == s.orders/3:
		if err := s.endure(ctx); err != nil {
			s.wrongf("outage of the bank: %w", err)
		}
		close(s.outageOver)
	case i > 2*s.orders/3:
		<-s.outageOver
	}
	s.outcomes[i] = s.send(ctx, i)
}

// endure makes the bank unreachable, and returns after the outage.
func (s *shopping) endure(ctx context.Context) error {
	client := &http.Client{Transport: &http.Transport{DialContext: process.Dial(s.at.bank.Socket), DisableKeepAlives: true}}
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, "http://bank/outage?for="+s.outage.String(), http.NoBody)
	if err != nil {
		return err
	}
	status, _, body, err := fetch(client, req)
	switch {
	case err != nil:
		return err
	case status != http.StatusOK:
		return &statusError{status, string(body)}
	}
	return sleep.Context(ctx, s.outage)
}

// settle waits until all intents are done or dead.
func (s *shopping) settle(ctx context.Context) error { return s.person.end(ctx) }

// read reads the outcome of each order from the shop: first its order, then its intent.
func (s *shopping) read(ctx context.Context) ([]bank.Charge, error) {
	taken := make(map[string]bank.Charge)
	orders, err := s.ledger.all(ctx)
	if err != nil {
		return nil, err
	}
	for _, o := range orders {
		taken[o.Reference] = o
	}
	var count counts
	for i := range s.orders {
		want := s.order(i)
		record, err := s.ledger.intents.Find(ctx, idOf(want))
		enqueued := !errors.Is(err, durable.ErrNotFound)
		if err != nil && enqueued {
			return nil, err
		}
		attempts, err := s.ledger.intents.Attempts(ctx, idOf(want))
		if err != nil && enqueued {
			return nil, err
		}
		s.outcomes[i] = outcomeOf(want, taken, &record, enqueued)
		count.add(&record, attempts)
	}
	s.add("sends", count.sends)
	s.add("sends with unknown result", count.unknownSends)
	s.add("status queries", count.queries)
	s.add("further keys after declines", count.keys)
	s.add("decisions of the operator", s.person.decided)
	s.add("decisions that came too late", s.person.stale)
	return bank.Bookings(s.at.bankLedger())
}

// outcomeOf returns the outcome of an order, as the shop knows it.
func outcomeOf(want bank.Order, taken map[string]bank.Charge, record *durable.Record, enqueued bool) outcome {
	order, ordered := taken[want.Reference]
	switch {
	case !ordered && !enqueued:
		return outcome{state: canceled}
	case !ordered || !enqueued || order.Order != want:
		return outcome{state: missing}
	case !record.State.Final() && (record.State != durable.StateDead || record.InDoubt):
		return outcome{state: unknown}
	case record.State == durable.StateDone:
		return outcome{state: booked, receipt: bank.Charge{ID: record.Reference, Order: want}}
	case record.State == durable.StateDead && record.Reason == durable.ReasonDeclined && record.Code == bank.Never:
		return outcome{state: declined}
	default:
		return outcome{state: failed}
	}
}

// counts are numbers of attempts and keys.
type counts struct{ sends, queries, unknownSends, keys int }

func (c *counts) add(record *durable.Record, attempts []durable.Attempt) {
	c.keys += max(0, record.Epoch-1)
	for i := range attempts {
		switch attempt := &attempts[i]; {
		case attempt.Kind == durable.KindResolve:
		case attempt.Kind == durable.KindQuery:
			c.queries++
		case attempt.Class == durable.ClassUnknown:
			c.unknownSends++
			fallthrough
		default:
			c.sends++
		}
	}
}
