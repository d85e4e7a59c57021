package pgstore

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/resilienthttp/resilienthttp/durable"
	"github.com/resilienthttp/resilienthttp/idempotency"
	"github.com/resilienthttp/resilienthttp/internal/pgkit"
)

// Apply implements durable.Store. It takes three round trips, and two where nothing is
// enqueued.
func (s *Store) Apply(ctx context.Context, events []durable.Event) (results []durable.Result, err error) {
	for i := range events {
		if err := durable.ValidEvent(&events[i]); err != nil {
			return nil, err
		}
	}
	if len(events) == 0 {
		return nil, ctx.Err()
	}
	err = s.transact(ctx, func(t *pgkit.Transaction) error {
		results, err = (&application{is: s.is, events: events}).run(ctx, t)
		return err
	})
	if err != nil {
		return nil, err
	}
	return results, nil
}

// application is a batch of events. New intents are inserted first, then what was there
// is locked, each in the order of the names: so no two batches wait for each other.
type application struct {
	is     *statements
	events []durable.Event

	ids   []idempotency.ID              // of all, in order
	fresh map[idempotency.ID]*candidate // may be new
	rows  map[idempotency.ID]*row       // were there
	now   time.Time
}

// candidate is an intent that is enqueued, taken for a new one, which it nearly always is.
type candidate struct {
	result durable.Result
	event  int
	row    row // id 0: it was not inserted
}

func (a *application) run(ctx context.Context, t ending) ([]durable.Result, error) {
	a.collect()
	if err := a.load(ctx, t); err != nil {
		return nil, err
	}
	var w writing
	results := make([]durable.Result, len(a.events))
	for i := range a.events {
		e := &a.events[i]
		id := e.ID()
		if c := a.fresh[id]; c != nil && c.row.id != 0 && c.event == i {
			results[i] = c.result
			a.rows[id] = &c.row
			continue
		}
		if r := a.rows[id]; r != nil {
			results[i] = w.judge(r, e, a.now)
			continue
		}
		results[i].Change, results[i].Err = durable.Decide(nil, e, a.now)
	}
	return results, w.write(ctx, t, a.is)
}

// collect lists the names. One that is not in order is that of none, whatever the database
// would make of it.
func (a *application) collect() {
	for i := range a.events {
		if id := a.events[i].ID(); id.Validate() == nil {
			a.ids = append(a.ids, id)
		}
	}
	slices.SortFunc(a.ids, compareIDs)
	a.ids = slices.Compact(a.ids)
	a.rows = make(map[idempotency.ID]*row, len(a.ids))
}

func compareIDs(a, b idempotency.ID) int {
	if c := strings.Compare(a.Scope, b.Scope); c != 0 {
		return c
	}
	if c := strings.Compare(a.Operation, b.Operation); c != 0 {
		return c
	}
	return strings.Compare(a.Key, b.Key)
}

// propose finds what may be new: the first event of a name that would insert it.
func (a *application) propose() {
	a.fresh = make(map[idempotency.ID]*candidate)
	for i := range a.events {
		e := &a.events[i]
		if e.Kind != durable.EventEnqueue || a.fresh[e.ID()] != nil {
			continue
		}
		change, err := durable.Decide(nil, e, a.now)
		if err == nil && change.Step == durable.StepInsert {
			a.fresh[e.ID()] = &candidate{
				result: durable.Result{Change: change}, event: i,
				row: row{Record: change.Record, payload: blob(change.Record.Payload)},
			}
		}
	}
}

func (a *application) enqueues() bool {
	return slices.ContainsFunc(a.events, func(e durable.Event) bool { return e.Kind == durable.EventEnqueue })
}

// errElusive: what stands in the way of inserting is gone whenever one looks.
var errElusive = errors.New("pgstore: an intent comes and goes")

// load inserts what is new, locks what is there, and reads the time.
func (a *application) load(ctx context.Context, t pgkit.Sender) error {
	if !a.enqueues() {
		return t.Send(ctx, a.lock(nil), a.clock())
	}
	if err := t.Send(ctx, a.clock()); err != nil {
		return err
	}
	a.propose()
	inserted := &a.now
	for range 3 { // what is in the way may be swept before it is locked
		now := a.now
		if inserted != nil {
			inserted = &now
		}
		if err := t.Send(ctx, a.insert(), a.lock(inserted), a.clock()); err != nil {
			return err
		}
		if len(a.absent()) == 0 {
			return nil
		}
		inserted = nil
	}
	return errElusive
}

// absent are the candidates that were neither inserted nor found.
func (a *application) absent() []*row {
	var rows []*row
	for _, id := range a.ids {
		if c := a.fresh[id]; c != nil && c.row.id == 0 && a.rows[id] == nil {
			rows = append(rows, &c.row)
		}
	}
	return rows
}

func (a *application) clock() *pgkit.Statement { return clockInto(&a.now) }

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

func (a *application) insert() *pgkit.Statement {
	return &pgkit.Statement{Text: a.is.insert, Args: arrays(a.is.inserted, a.absent()), Scan: func(from pgkit.Row) error {
		var (
			id   int64
			name idempotency.ID
		)
		err := from.Scan(&id, &name.Scope, &name.Operation, &name.Key)
		if c := a.fresh[name]; c != nil {
			c.row.id = id
			c.row.payload = nil // is written
		}
		return err
	}}
}

// lock reads and locks what is there, but what was inserted at a time.
func (a *application) lock(inserted *time.Time) *pgkit.Statement {
	scopes, operations, keys := make([]string, len(a.ids)), make([]string, len(a.ids)), make([]string, len(a.ids))
	for i, id := range a.ids {
		scopes[i], operations[i], keys[i] = id.Scope, id.Operation, id.Key
	}
	return &pgkit.Statement{Text: a.is.lock, Args: []any{scopes, operations, keys, inserted}, Scan: func(from pgkit.Row) error {
		r, err := scanRow(from)
		if c := a.fresh[r.ID]; c == nil || c.row.id == 0 {
			a.rows[r.ID] = r
		}
		return err
	}}
}
