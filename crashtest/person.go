package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/resilienthttp/resilienthttp/crashtest/internal/bank"
	"github.com/resilienthttp/resilienthttp/durable"
	"github.com/resilienthttp/resilienthttp/internal/sleep"
)

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
