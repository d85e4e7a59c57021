package pgstore

import (
	"context"
	"time"

	"github.com/resilienthttp/resilienthttp/durable"
	"github.com/resilienthttp/resilienthttp/internal/pgkit"
)

// row is an intent as the database has it.
type row struct {
	durable.Record

	id int64

	// place is the scope's in the round of a claim.
	place int64

	// payload and result are what is to be written. nil: as it is.
	payload, result []byte
}

// columns are those of a record but its payload and its result, as scanRow reads them.
const columns = ` i.id, i.scope, i.operation, i.key, i.gateway, i.fingerprint, i.state, i.epoch, i.generation, i.worker,
	i.next_at, i.deadline, i.attempts, i.tries, i.doubt, i.ask, i.class, i.code, i.reference, i.reason, i.letter,
	i.first_at, i.last_at, i.taken_at, i.since, i.batch, i."row", i.created, i.updated `

// scanRow reads columns, and the payload, the result and the place.
func scanRow(from pgkit.Row) (*row, error) {
	var (
		r                                row
		deadline, firstAt, lastAt, taken *time.Time
	)
	err := from.Scan(
		&r.id, &r.ID.Scope, &r.ID.Operation, &r.ID.Key, &r.Gateway, &r.Fingerprint, &r.State, &r.Epoch, &r.Generation, &r.Worker,
		&r.NextAt, &deadline, &r.Attempts, &r.Tries, &r.Doubt, &r.Ask, &r.Class, &r.Code, &r.Reference, &r.Reason, &r.Letter,
		&firstAt, &lastAt, &taken, &r.Since, &r.Batch, &r.Row, &r.Created, &r.Updated,
		&r.Payload, &r.Result, &r.place,
	)
	r.NextAt, r.Since, r.Created, r.Updated = r.NextAt.UTC(), r.Since.UTC(), r.Created.UTC(), r.Updated.UTC()
	r.Deadline, r.First, r.Last, r.Taken = orNone(deadline), orNone(firstAt), orNone(lastAt), orNone(taken)
	return &r, err
}

func orNone(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.UTC()
}

// into collects rows.
func into(all *[]*row) func(pgkit.Row) error {
	return func(from pgkit.Row) error {
		r, err := scanRow(from)
		*all = append(*all, r)
		return err
	}
}

// blob is never nil.
func blob(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

// writing is what a verb writes to rows that are there.
type writing struct {
	rows           []*row
	seen           map[int64]bool // is in rows
	begun, ended   []attempt
	opened, closed []letter
}

// judge does with a record what Decide says. It is then as later events of the same verb
// find it.
func (w *writing) judge(r *row, e *durable.Event, now time.Time) (result durable.Result) {
	result.Change, result.Err = durable.Decide(&r.Record, e, now)
	if result.Err == nil && result.Step != durable.StepKeep {
		w.add(r, &result.Change)
	}
	return result
}

func (w *writing) add(r *row, c *durable.Change) {
	r.Record = c.Record
	if c.Revised {
		r.payload = blob(r.Payload)
	}
	if r.State == durable.StateDone {
		r.result = blob(r.Result)
	}
	if !w.seen[r.id] {
		if w.seen == nil {
			w.seen = make(map[int64]bool)
		}
		w.seen[r.id] = true
		w.rows = append(w.rows, r)
	}
	if c.Begun != nil {
		w.begun = append(w.begun, attempt{c.Begun, r.id})
	}
	if c.Ended != nil {
		w.ended = append(w.ended, attempt{c.Ended, r.id})
	}
	if c.Opened != nil {
		w.opened = append(w.opened, letter{c.Opened, r.id})
	}
	if c.Closed != nil {
		w.closed = append(w.closed, letter{c.Closed, r.id})
	}
}

// ending is what a verb sends its last statements through: a transaction of its own,
// which is committed with them, or one of the caller's.
type ending interface {
	pgkit.Sender

	Commit(ctx context.Context, statements ...*pgkit.Statement) error
}

// write sends all, and commits. An attempt is begun before it ends, and a letter opened
// before it is closed.
func (w *writing) write(ctx context.Context, t ending, is *statements) error {
	var all []*pgkit.Statement
	add := func(n int, text string, args func() []any) {
		if n > 0 {
			all = append(all, &pgkit.Statement{Text: text, Args: args()})
		}
	}
	add(len(w.rows), is.update, func() []any { return arrays(is.updated, w.rows) })
	add(len(w.begun), is.beginAttempts, func() []any { return arrays(is.begun, w.begun) })
	add(len(w.ended), is.endAttempts, func() []any { return arrays(is.ended, w.ended) })
	add(len(w.opened), is.openLetters, func() []any { return arrays(is.opened, w.opened) })
	add(len(w.closed), is.closeLetters, func() []any { return arrays(is.closed, w.closed) })
	return t.Commit(ctx, all...)
}
