package sqlitestore

import (
	"context"

	"github.com/resilienthttp/resilienthttp/durable"
	"github.com/resilienthttp/resilienthttp/durable/internal/sqlquery"
	"github.com/resilienthttp/resilienthttp/idempotency"
)

// row is an intent as the database has it.
type row struct {
	durable.Record

	id int64
}

// rows runs a statement that gives records.
func (t *transaction) rows(ctx context.Context, text string, args ...any) (all []*row, err error) {
	err = t.Query(ctx, text, args, func(from sqlquery.Row) error {
		r, err := scanRow(from)
		all = append(all, r)
		return err
	})
	return all, err
}

func scanRow(from sqlquery.Row) (*row, error) {
	r := new(row)
	return r, sqlquery.Scan(from, sqlquery.IntentColumns, &r.Record, &r.Payload, &r.id)
}

// row is nil if there is none.
func (t *transaction) row(ctx context.Context, text string, id idempotency.ID) (*row, error) {
	all, err := t.rows(ctx, text, id.Scope, id.Operation, id.Key)
	if err != nil || len(all) == 0 {
		return nil, err
	}
	return all[0], nil
}

// insert writes a new record. false: the record exists.
func (t *transaction) insert(ctx context.Context, r *durable.Record) (bool, error) {
	args := append(sqlquery.Values(sqlquery.IntentColumns, r), r.Scheduled(), sqlquery.Blob(r.Payload))
	n, err := t.affected(ctx, insert, args...)
	return n == 1, err
}

// write writes all of a change to an existing record.
func (t *transaction) write(ctx context.Context, id int64, c *durable.Change) error {
	if err := t.writeRecord(ctx, id, c); err != nil {
		return err
	}
	if l := c.Resolved; l != nil {
		if err := t.must(ctx, closeLetter, id, l.Number, l.RedrivenAt, l.By, l.Note); err != nil {
			return err
		}
	}
	if c.Erased {
		if err := t.exec(ctx, eraseAttempts, id); err != nil {
			return err
		}
		return t.exec(ctx, eraseLetters, id)
	}
	if c.DeadLettered != nil {
		return t.exec(ctx, openLetter, append([]any{id}, sqlquery.Values(sqlquery.LetterColumns, c.DeadLettered)...)...)
	}
	return nil
}

// writeRecord writes the record and its attempt. It moves the attempt before it, if there is one,
// to the journal.
func (t *transaction) writeRecord(ctx context.Context, id int64, c *durable.Change) error {
	r := &c.Record
	if c.StartedAttempt != nil && r.Generation > 1 {
		if err := t.exec(ctx, keepAttempt, id); err != nil {
			return err
		}
	}
	var payload, result any // NULL: unchanged
	if c.Revised || c.Erased {
		payload = sqlquery.Blob(r.Payload)
	}
	if r.State == durable.StateDone || c.Erased {
		result = sqlquery.Blob(r.Result)
	}
	args := []any{id, payload, result, r.Scheduled()}
	if r.State.Held() { // it was claimed
		args = append(args, sqlquery.Values(taken, r)...)
		return t.must(ctx, take, append(args, sqlquery.Values(sqlquery.AttemptColumns, c.StartedAttempt)...)...)
	}
	args = append(args, sqlquery.Values(mutable, r)...)
	switch {
	case c.FinishedAttempt != nil:
		return t.must(ctx, end, append(args, sqlquery.Values(ended, c.FinishedAttempt)...)...)
	case c.StartedAttempt != nil:
		return t.must(ctx, begin, append(args, sqlquery.Values(sqlquery.AttemptColumns, c.StartedAttempt)...)...)
	default:
		return t.must(ctx, update, args...)
	}
}
