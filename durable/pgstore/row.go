package pgstore

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/resilienthttp/resilienthttp/durable"
	"github.com/resilienthttp/resilienthttp/durable/internal/sqlquery"
	"github.com/resilienthttp/resilienthttp/idempotency"
	"github.com/resilienthttp/resilienthttp/internal/pgkit"
)

// row is an intent as the database has it.
type row struct {
	durable.Record

	id  name
	seq int64

	// attempt is the attempt that began or ended.
	attempt *durable.Attempt

	// holder is the worker that held the intent before its attempt ended.
	holder string

	// until is the time from which it is too late to insert the intent. Zero means never.
	until time.Time

	// place is the position of the scope in a claim.
	place int64

	// payload and result are the new values. nil: unchanged.
	payload, result []byte
}

func scanRow(from pgkit.Row) (*row, error) {
	r := new(row)
	err := sqlquery.Scan(from, sqlquery.IntentColumns, &r.Record, &r.seq, &r.Payload, &r.place)
	r.id = nameOf(&r.ID)
	return r, err
}

// into collects rows.
func into(all *[]*row) func(pgkit.Row) error {
	return func(from pgkit.Row) error {
		r, err := scanRow(from)
		*all = append(*all, r)
		return err
	}
}

// writing collects what a verb writes to existing rows.
type writing struct {
	rows           []*row
	taken          []*row        // rows that were only claimed
	seen           map[name]bool // is in rows
	begun, ended   []attempt
	opened, closed []letter
	erased         pgtype.FlatArray[name]
}

// judge applies the decision of Decide to a record. Later events of the same verb find the
// new state.
func (w *writing) judge(r *row, e *durable.Event, now time.Time) (result durable.Result) {
	result.Change, result.Err = durable.Decide(&r.Record, e, now)
	if result.Err == nil && result.Step != durable.StepKeep {
		w.add(r, &result.Change)
	}
	return result
}

// take is judge of a claim, the only event of its verb for this intent.
func (w *writing) take(r *row, e *durable.Event, now time.Time) (result durable.Result) {
	result.Change, result.Err = durable.Decide(&r.Record, e, now)
	switch {
	case result.Err != nil:
	case result.StartedAttempt == nil: // buried
		w.add(r, &result.Change)
	default:
		r.Record, r.attempt = result.Record, result.StartedAttempt
		w.taken = append(w.taken, r)
	}
	return result
}

func (w *writing) add(r *row, c *durable.Change) {
	r.Record = c.Record
	if c.Revised || c.Erased {
		r.payload = sqlquery.Blob(r.Payload)
	}
	if r.State == durable.StateDone || c.Erased {
		r.result = sqlquery.Blob(r.Result)
	}
	if c.Erased {
		w.erased = append(w.erased, r.id)
	}
	if !w.seen[r.id] {
		if w.seen == nil {
			w.seen = make(map[name]bool)
		}
		w.seen[r.id] = true
		w.rows = append(w.rows, r)
	}
	if c.StartedAttempt != nil {
		w.begun = append(w.begun, attempt{c.StartedAttempt, r.id})
	}
	if c.FinishedAttempt != nil {
		w.ended = append(w.ended, attempt{c.FinishedAttempt, r.id})
	}
	if c.DeadLettered != nil {
		w.opened = append(w.opened, letter{c.DeadLettered, r.id})
	}
	if c.Resolved != nil {
		w.closed = append(w.closed, letter{c.Resolved, r.id})
	}
}

// statements are all that write what was collected. An attempt ends before the next begins, and a dead
// letter is inserted before it is resolved. With notifies, an intent that is due again notifies.
func (w *writing) statements(is *texts, notifies bool) []*pgkit.Statement {
	text := update
	if notifies {
		text += notifyUpdated
	}
	all := slices.Concat(
		of(is, text, updated, w.rows), of(is, endAttempts, ended, w.ended), w.begin(is),
		of(is, openLetters, opened, w.opened), of(is, closeLetters, closed, w.closed),
	)
	if len(w.erased) > 0 {
		all = append(all, is.statement(eraseAttempts, w.erased), is.statement(eraseLetters, w.erased))
	}
	return all
}

// begin begins attempts. It moves the last attempts of the intents to the journal table first.
// A call has at most one attempt of an intent.
func (w *writing) begin(is *texts) (all []*pgkit.Statement) {
	var former pgtype.FlatArray[name]
	for _, r := range w.taken {
		if r.Generation > 1 {
			former = append(former, r.id)
		}
	}
	if len(former) > 0 {
		all = append(all, is.statement(keepAttempts, former))
	}
	all = append(all, of(is, take, taken, w.taken)...)
	for left := w.begun; len(left) > 0; {
		var now, later []attempt
		former = nil
		for _, a := range left {
			if slices.Contains(former, a.intent) {
				later = append(later, a)
			} else {
				now, former = append(now, a), append(former, a.intent)
			}
		}
		left = later
		all = append(all, is.statement(keepAttempts, former))
		all = append(all, of(is, beginAttempts, begun, now)...)
	}
	return all
}

// of returns a statement for the rows, or none if there are no rows.
func of[T any](is *texts, text string, fields []field[T], rows []T) []*pgkit.Statement {
	if len(rows) == 0 {
		return nil
	}
	return []*pgkit.Statement{is.statement(text, arrays(fields, rows)...)}
}

// name identifies an intent in the tables: half of a SHA-256, which is shorter than most IDs. A
// collision cannot be found.
type name = pgtype.UUID

// nameOf is, in SQL,
//
//	encode(substr(sha256(int4send(octet_length(scope)) || convert_to(scope, 'UTF8') ||
//		int4send(octet_length(operation)) || convert_to(operation, 'UTF8') || convert_to(key, 'UTF8')), 1, 16), 'hex')::uuid
//
// It is stored, and never changes.
func nameOf(id *idempotency.ID) name {
	text := make([]byte, 0, 256)
	for _, part := range [...]string{id.Scope, id.Operation} {
		text = binary.BigEndian.AppendUint32(text, uint32(len(part)))
		text = append(text, part...)
	}
	sum := sha256.Sum256(append(text, id.Key...))
	return name{Bytes: [16]byte(sum[:16]), Valid: true}
}

func compareNames(a, b name) int { return bytes.Compare(a.Bytes[:], b.Bytes[:]) }
