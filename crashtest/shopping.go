package main

import (
	"context"
	"errors"
	"math/rand/v2"
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
	journals := make(map[string][]durable.Attempt)
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
		journals[want.Reference] = attempts
	}
	s.auditSuspects(journals)
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

// person simulates an operator that decides about dead and unknown intents, seconds after reading
// them. The decisions are correct for the state that was read. Many intents have changed meanwhile,
// and then the decision must have no effect.
type person struct {
	engine     *durable.Engine
	bankLedger string

	// late is the time after which no send that was shown can still reach the bank.
	late time.Duration

	decisions []decision
	decided   int // decisions that had an effect
	stale     int // decisions that came too late
}

// decision is the decision about an intent in the state that was read.
type decision struct {
	record  durable.Record
	redrive bool      // false: resolve
	due     time.Time // the time of the decision
}

const maxDecisions = 200

// work reads intents and decides.
func (p *person) work(ctx context.Context) {
	p.look(ctx)
	p.decide(ctx)
}

// end makes the remaining decisions, and redrives intents with the code Call, until none is left.
func (p *person) end(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, timeLimit)
	defer cancel()
	for {
		p.decide(ctx)
		if err := p.waitForEngines(ctx); err != nil {
			return err
		}
		left := 0
		for letter, err := range p.engine.Dead(ctx, durable.Filter{Code: bank.Call}) {
			if err != nil {
				return err
			}
			left++
			if record, err := p.engine.Find(ctx, letter.ID); err == nil && record.State == durable.StateDead {
				_ = p.engine.RedriveOne(ctx, record.Seen(), durable.Redrive{By: "operator"}) // retried in the next round
			}
		}
		if left == 0 && len(p.decisions) == 0 {
			return nil
		}
		if err := sleep.Context(ctx, 10*pollInterval); err != nil {
			return err
		}
	}
}

// waitForEngines waits until all intents are done or dead. The audit counts those that are not after timeLimit.
func (p *person) waitForEngines(ctx context.Context) (err error) {
	for start := time.Now(); time.Since(start) < timeLimit && ctx.Err() == nil; _ = sleep.Context(ctx, pollInterval) {
		var stats durable.Stats
		if stats, err = p.engine.Stats(ctx); err != nil {
			continue
		}
		left := 0
		for state, n := range stats.States {
			if state.Claimable() || state.Held() {
				left += n
			}
		}
		if left == 0 {
			return nil
		}
	}
	return errors.Join(err, ctx.Err())
}

// look reads some of the dead and unknown intents and schedules decisions.
func (p *person) look(ctx context.Context) {
	filter := durable.Filter{States: []durable.State{durable.StateDead, durable.StateUnknown}, NewestFirst: true}
	for record, err := range p.engine.Intents(ctx, filter) {
		if err != nil || len(p.decisions) >= maxDecisions {
			return
		}
		if rand.IntN(8) > 0 {
			continue
		}
		for range 1 + rand.IntN(2) { // the page may be open in two browsers
			s := decision{record: record, due: time.Now().Add(p.late + rand.N(p.late/2))}
			if record.State == durable.StateDead && !record.InDoubt && rand.IntN(4) > 0 {
				s.redrive, s.due = true, time.Now().Add(rand.N(p.late))
			}
			p.decisions = append(p.decisions, s)
		}
	}
}

// decide makes the decisions that are due. It repeats those that fail because of the database.
func (p *person) decide(ctx context.Context) {
	now := time.Now()
	booked, err := bank.Bookings(p.bankLedger)
	if err != nil {
		return
	}
	ids := make(map[string]string)
	for _, c := range booked {
		ids[c.Reference] = c.ID
	}
	left := p.decisions[:0]
	for _, s := range p.decisions {
		if s.due.After(now) {
			left = append(left, s)
			continue
		}
		switch err := p.act(ctx, &s, ids[s.record.ID.Key]); {
		case err == nil:
			p.decided++
		case errors.Is(err, durable.ErrStale), errors.Is(err, durable.ErrInvalidState):
			p.stale++
		default:
			left = append(left, s)
		}
	}
	p.decisions = left
}

// act redrives an intent, or resolves it with the booking, if there is one.
func (p *person) act(ctx context.Context, s *decision, booking string) error {
	outcome := durable.Outcome{Class: durable.ClassDeclined, Code: s.record.Code}
	if booking != "" {
		outcome = durable.Outcome{Class: durable.ClassSucceeded, Reference: booking}
	}
	if s.redrive {
		return p.engine.RedriveOne(ctx, s.record.Seen(), durable.Redrive{By: "operator"})
	}
	return p.engine.Resolve(ctx, s.record.Seen(), outcome, "operator")
}
