package pgstore

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/resilienthttp/resilienthttp/durable"
	"github.com/resilienthttp/resilienthttp/durable/internal/sqlquery"
	"github.com/resilienthttp/resilienthttp/internal/pgkit"
)

// Apply implements durable.Store. One intent is enqueued in one round trip, several in two.
// Outcomes take two round trips, other events at most three.
func (s *Store) Apply(ctx context.Context, events []durable.Event) (results []durable.Result, err error) {
	for i := range events {
		if err := durable.ValidEvent(&events[i]); err != nil {
			return nil, err
		}
	}
	if len(events) == 0 {
		return nil, ctx.Err()
	}
	if settles(events) {
		return s.settle(ctx, events)
	}
	results, err = s.apply(ctx, events)
	if err == nil && makesDue(events, results) {
		s.notify(ctx)
	}
	return results, err
}

func (s *Store) apply(ctx context.Context, events []durable.Event) (results []durable.Result, err error) {
	a := newApplication(s.db.is, events)
	if len(events) == 1 && len(a.fresh) == 1 {
		err := s.db.transact(ctx, func(t *ownTransaction) error { return t.Commit(ctx, a.insert()) })
		if err != nil {
			return nil, err
		}
		if c := a.fresh[a.names[0]]; c.inserted {
			result, err := a.result(c)
			return []durable.Result{result}, err
		}
	}
	err = s.db.transact(ctx, func(t *ownTransaction) error {
		var last []*pgkit.Statement
		results, last, err = newApplication(s.db.is, events).run(ctx, t) // anew for each try
		if err != nil {
			return err
		}
		return t.Commit(ctx, last...)
	})
	if err != nil {
		return nil, err
	}
	return results, nil
}

// application is a batch of events. It inserts new intents first, and then locks the existing
// ones, each in the order of the names, so that two batches do not deadlock.
type application struct {
	is       *texts
	notifies bool // the transaction, at its commit
	events   []durable.Event

	of    []name // the name of each event; zero: its ID is invalid
	names []name // all names, sorted, each once
	fresh map[name]*candidate
	rows  map[name]*row // the existing intents
	now   time.Time
}

// candidate is an intent that is enqueued, and usually new.
type candidate struct {
	event    int
	row      row
	inserted bool
}

// run returns the results, and the last statements, which write them.
func (a *application) run(ctx context.Context, t pgkit.Sender) ([]durable.Result, []*pgkit.Statement, error) {
	if err := a.load(ctx, t); err != nil {
		return nil, nil, err
	}
	var w writing
	results := make([]durable.Result, len(a.events))
	for i := range a.events {
		e, id := &a.events[i], a.of[i]
		if c := a.fresh[id]; c != nil && c.inserted && c.event == i {
			result, err := a.result(c)
			if err != nil {
				return nil, nil, err
			}
			results[i] = result
			c.row.Record = result.Record
			a.rows[id] = &c.row
			continue
		}
		if r := a.rows[id]; r != nil {
			results[i] = w.judge(r, e, a.now)
			continue
		}
		results[i].Change, results[i].Err = durable.Decide(nil, e, a.now)
	}
	return results, w.statements(a.is, a.notifies), nil
}

// errInserted cannot happen.
var errInserted = errors.New("pgstore: the inserted row differs from the decision")

// result is the decision about an inserted intent, at the time of the insert.
func (a *application) result(c *candidate) (result durable.Result, err error) {
	result.Change, result.Err = durable.Decide(nil, &a.events[c.event], c.row.CreatedAt)
	if result.Err != nil || result.Step != durable.StepInsert || !result.Record.NextAt.Equal(c.row.NextAt) {
		return result, errors.Join(errInserted, result.Err)
	}
	return result, nil
}

// newApplication lists the names, and the first event of each name that would insert it. An invalid ID
// has no name.
func newApplication(is *texts, events []durable.Event) *application {
	a := &application{
		is: is, events: events, of: make([]name, len(events)), names: make([]name, 0, len(events)),
		fresh: make(map[name]*candidate), rows: make(map[name]*row),
	}
	for i := range a.events {
		e := &a.events[i]
		id := e.ID()
		if id.Validate() != nil {
			continue
		}
		name := nameOf(&id)
		a.of[i] = name
		a.names = append(a.names, name)
		if e.Kind == durable.EventEnqueue && a.fresh[name] == nil && e.Validate() == nil {
			a.fresh[name] = propose(e, name, i)
		}
	}
	slices.SortFunc(a.names, compareNames)
	a.names = slices.Compact(a.names)
	return a
}

func propose(e *durable.Event, id name, event int) *candidate {
	c := &candidate{event: event, row: row{id: id, payload: sqlquery.Blob(e.Intent.Payload)}}
	c.row.Intent = e.Intent
	c.row.Fingerprint, c.row.Intent.Fingerprint = durable.FingerprintOf(&e.Intent), ""
	if deadline := e.Intent.Deadline; !deadline.IsZero() {
		c.row.Deadline, c.row.until = deadline.UTC().Truncate(time.Microsecond), durable.Ceil(deadline)
	}
	return c
}

// errRowVanished means that a conflicting intent was deleted each time before it was read.
var errRowVanished = errors.New("pgstore: a conflicting intent was deleted at each try")

// load inserts the new intents, locks the existing ones, and reads the time.
func (a *application) load(ctx context.Context, t pgkit.Sender) error {
	for range 3 { // a conflicting intent may be swept before it is locked
		if len(a.absent()) > 0 {
			if err := t.Send(ctx, a.insert()); err != nil {
				return err
			}
		}
		others := a.others()
		if len(others) == 0 && !a.now.IsZero() {
			return nil
		}
		if err := t.Send(ctx, a.lock(others), clockInto(&a.now)); err != nil {
			return err
		}
		if a.whole() {
			return nil
		}
	}
	return errRowVanished
}

// whole reports whether each candidate was inserted or found.
func (a *application) whole() bool {
	return !slices.ContainsFunc(a.absent(), func(r *row) bool {
		return r.until.IsZero() || a.now.Before(r.until)
	})
}

// absent are the candidates that were neither inserted nor found.
func (a *application) absent() []*row {
	var rows []*row
	for _, id := range a.names {
		if c := a.fresh[id]; c != nil && !c.inserted && a.rows[id] == nil {
			rows = append(rows, &c.row)
		}
	}
	return rows
}

// others are the names that were not inserted.
func (a *application) others() pgtype.FlatArray[name] {
	var names pgtype.FlatArray[name]
	for _, id := range a.names {
		if c := a.fresh[id]; c == nil || !c.inserted {
			names = append(names, id)
		}
	}
	return names
}

func clockInto(now *time.Time) *pgkit.Statement {
	return &pgkit.Statement{Text: clock, Scan: timeInto(now)}
}

// timeInto scans a time.
func timeInto(t *time.Time) func(pgkit.Row) error {
	return func(from pgkit.Row) error {
		err := from.Scan(t)
		*t = t.UTC()
		return err
	}
}

// insert inserts the absent candidates.
func (a *application) insert() *pgkit.Statement {
	rows := a.absent()
	text, args := insert, arrays(inserted, rows)
	if len(rows) == 1 {
		text, args = insertOne, values(inserted, rows[0])
	}
	if a.notifies {
		text += notifyInserted
	}
	statement := a.is.statement(text, args...)
	statement.Scan = a.insertedInto
	return statement
}

func (a *application) insertedInto(from pgkit.Row) error {
	var (
		id           name
		created, due time.Time
		notified     string
	)
	if err := from.Scan(&id, &created, &due, &notified); err != nil {
		return err
	}
	c := a.fresh[id]
	if c == nil {
		return errInserted
	}
	c.inserted = true
	c.row.CreatedAt, c.row.NextAt = created.UTC(), due.UTC()
	c.row.payload = nil // it was written by the INSERT
	a.now = c.row.CreatedAt
	return nil
}

// lock reads and locks the existing intents.
func (a *application) lock(names pgtype.FlatArray[name]) *pgkit.Statement {
	return &pgkit.Statement{Text: a.is.of(lock), Args: []any{names}, Scan: func(from pgkit.Row) error {
		r, err := scanRow(from)
		a.rows[r.id] = r
		return err
	}}
}
