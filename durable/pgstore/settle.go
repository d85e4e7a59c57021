package pgstore

import (
	"context"
	"slices"
	"time"

	"github.com/resilienthttp/resilienthttp/durable"
	"github.com/resilienthttp/resilienthttp/durable/internal/sqlquery"
	"github.com/resilienthttp/resilienthttp/internal/pgkit"
)

// settles reports whether the events only end attempts, each with its record (Event.Held).
func settles(events []durable.Event) bool {
	return !slices.ContainsFunc(events, func(e durable.Event) bool {
		return e.Kind != durable.EventFinish || e.Held == nil || e.Held.ID != e.Intent.ID
	})
}

// settlement ends attempts without reading their intents: if generation and worker are
// unchanged, so is the record. The others are applied like all events.
type settlement struct {
	is     *texts
	events []durable.Event

	results []durable.Result
	places  map[name]int // the index in results of each intent that is written
	stored  map[name]bool
	rest    []int
	now     time.Time
}

func (s *Store) settle(ctx context.Context, events []durable.Event) ([]durable.Result, error) {
	var b *settlement
	err := s.db.transact(ctx, func(t *ownTransaction) error {
		b = &settlement{is: s.db.is, events: events} // anew for each try
		if err := t.Send(ctx, clockInto(&b.now)); err != nil {
			return err
		}
		return t.Commit(ctx, b.decide()...)
	})
	if err != nil {
		return nil, err
	}
	return b.finish(ctx, s)
}

// decide calls Decide, and returns what to write.
func (b *settlement) decide() []*pgkit.Statement {
	var (
		rows   []*row
		graves []letter
	)
	b.results = make([]durable.Result, len(b.events))
	b.places, b.stored = make(map[name]int, len(b.events)), make(map[name]bool, len(b.events))
	for i := range b.events {
		e := &b.events[i]
		r := &row{Record: *e.Held, id: nameOf(&e.Held.ID), holder: e.Worker}
		_, twice := b.places[r.id]
		change, err := durable.Decide(&r.Record, e, b.now)
		if twice || err != nil {
			b.rest = append(b.rest, i)
			continue
		}
		b.results[i].Change = change
		b.places[r.id] = i
		r.Record, r.attempt = change.Record, change.FinishedAttempt
		if r.State == durable.StateDone {
			r.result = sqlquery.Blob(r.Result)
		}
		rows = append(rows, r)
		if change.DeadLettered != nil {
			graves = append(graves, letter{change.DeadLettered, r.id})
		}
	}
	slices.SortFunc(rows, func(a, b *row) int { return compareNames(a.id, b.id) })
	all := of(b.is, settle, settled, rows)
	for _, each := range all {
		each.Scan = b.store
	}
	return append(all, of(b.is, openSettled, opened, graves)...)
}

func (b *settlement) store(from pgkit.Row) error {
	var id name
	err := from.Scan(&id)
	b.stored[id] = true
	return err
}

// finish returns the results, also of what was not stored.
func (b *settlement) finish(ctx context.Context, s *Store) ([]durable.Result, error) {
	for id, i := range b.places {
		if !b.stored[id] {
			b.rest = append(b.rest, i)
		}
	}
	if len(b.rest) == 0 {
		return b.results, nil
	}
	slices.Sort(b.rest)
	events := make([]durable.Event, len(b.rest))
	for i, place := range b.rest {
		events[i] = b.events[place]
	}
	results, err := s.apply(ctx, events)
	if err != nil {
		return nil, err
	}
	for i, place := range b.rest {
		b.results[place] = results[i]
	}
	return b.results, nil
}
