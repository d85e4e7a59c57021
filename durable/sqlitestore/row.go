package sqlitestore

import (
	"context"
	"database/sql"
	"time"

	"github.com/resilienthttp/resilienthttp/durable/internal/driver"
	"github.com/resilienthttp/resilienthttp/idempotency"
	"github.com/resilienthttp/resilienthttp/internal/sqlitekit"
)

// row is an intent as the database has it.
type row struct {
	driver.Record

	id int64
}

// readRows runs a statement that gives records.
func readRows(ctx context.Context, s sqlitekit.Statement, args ...any) (all []row, err error) {
	_, err = sqlitekit.ReadRows(ctx, s, args, func(rows *sql.Rows) error {
		r, err := scanRow(rows)
		if err == nil {
			all = append(all, r)
		}
		return err
	})
	return all, err
}

// readRow is nil if there is none.
func readRow(ctx context.Context, s sqlitekit.Statement, id idempotency.ID) (*row, error) {
	all, err := readRows(ctx, s, id.Scope, id.Operation, id.Key)
	if err != nil || len(all) == 0 {
		return nil, err
	}
	return &all[0], nil
}

// scanRow reads what the statements call columns, and the payload and the result.
func scanRow(rows *sql.Rows) (r row, err error) {
	var (
		nextAt, since, created, updated  int64
		deadline, firstAt, lastAt, taken sql.NullInt64
	)
	err = rows.Scan(
		&r.id, &r.ID.Scope, &r.ID.Operation, &r.ID.Key, &r.Gateway, &r.Fingerprint, &r.State, &r.Epoch, &r.Generation, &r.Worker,
		&nextAt, &deadline, &r.Attempts, &r.Claims, &r.InDoubt, &r.QueryNext, &r.Class, &r.Code, &r.Reference, &r.Reason, &r.DeadLetterID,
		&firstAt, &lastAt, &taken, &since, &r.Batch, &r.Row, &created, &updated, &r.Declines,
		&r.Payload, &r.Result,
	)
	r.NextAt, r.RetryWindowStart, r.CreatedAt, r.UpdatedAt = timeOf(nextAt), timeOf(since), timeOf(created), timeOf(updated)
	r.Deadline, r.FirstSentAt, r.LastSentAt, r.ClaimedAt = timeOrNone(deadline), timeOrNone(firstAt), timeOrNone(lastAt), timeOrNone(taken)
	return r, err
}

// mutable are the values of the columns from gateway to updated.
func mutable(r *driver.Record) []any {
	return []any{
		r.Gateway, string(r.Fingerprint), int64(r.State), r.Epoch, r.Generation, r.Worker, micros(r.NextAt), r.Scheduled(),
		micros(r.Deadline), r.Attempts, r.Claims, r.InDoubt, r.QueryNext, int64(r.Class), r.Code, r.Reference, r.Reason, r.DeadLetterID,
		micros(r.FirstSentAt), micros(r.LastSentAt), micros(r.ClaimedAt), micros(r.RetryWindowStart), r.Batch, r.Row, micros(r.CreatedAt), micros(r.UpdatedAt), r.Declines,
	}
}

// insert writes a new record. false: the record exists.
func (t *transaction) insert(ctx context.Context, r *driver.Record) (bool, error) {
	args := append([]any{r.ID.Scope, r.ID.Operation, r.ID.Key, blob(r.Payload)}, mutable(r)...)
	n, err := sqlitekit.Affected(t.statement(insert).ExecContext(ctx, args...))
	return n == 1, err
}

// write writes all of a change to an existing record.
func (t *transaction) write(ctx context.Context, id int64, c *driver.Change) error {
	if err := t.writeRecord(ctx, id, c); err != nil {
		return err
	}
	if l := c.Resolved; l != nil {
		if err := t.must(ctx, closeLetter, id, l.Number, micros(l.RedrivenAt), l.By, l.Note); err != nil {
			return err
		}
	}
	if c.Erased {
		if err := t.exec(ctx, eraseAttempts, id); err != nil {
			return err
		}
		return t.exec(ctx, eraseLetters, id)
	}
	if l := c.DeadLettered; l != nil {
		return t.exec(ctx, openLetter, id, l.Number, l.Gateway, l.Batch, l.Row, l.Reason, int64(l.Class), l.Code,
			l.InDoubt, l.Attempts, micros(l.DeadAt))
	}
	return nil
}

// writeRecord writes the record and its attempt. It moves the attempt before it, if there is one,
// to the journal.
func (t *transaction) writeRecord(ctx context.Context, id int64, c *driver.Change) error {
	r := &c.Record
	if c.StartedAttempt != nil && r.Generation > 1 {
		if err := t.exec(ctx, keepAttempt, id); err != nil {
			return err
		}
	}
	var payload, result any // NULL: unchanged
	if c.Revised || c.Erased {
		payload = blob(r.Payload)
	}
	if r.State == driver.StateDone || c.Erased {
		result = blob(r.Result)
	}
	switch a := c.StartedAttempt; {
	case c.FinishedAttempt != nil:
		a = c.FinishedAttempt
		return t.must(ctx, settle, id, a.Generation, int64(r.State), r.Epoch, micros(r.NextAt), r.Scheduled(), r.Attempts, r.InDoubt,
			r.QueryNext, int64(r.Class), r.Code, r.Reference, r.Reason, r.DeadLetterID, micros(r.FirstSentAt), micros(r.LastSentAt), micros(r.UpdatedAt),
			result, int64(a.Class), a.Code, a.Status, a.Reference, a.Error, r.Declines, r.Claims)
	case a != nil && r.State.Held():
		return t.must(ctx, take, id, int64(r.State), r.Epoch, r.Generation, r.Worker, r.Attempts, r.Claims, micros(r.FirstSentAt),
			micros(r.ClaimedAt), int64(a.Kind), a.Key, micros(r.RetryWindowStart))
	default:
		if err := t.must(ctx, update, append([]any{id, payload, result}, mutable(r)...)...); err != nil || a == nil {
			return err
		}
		return t.must(ctx, beginAttempt, id, a.Generation, int64(a.Kind), a.Epoch, a.Key, a.Worker, micros(a.SentAt),
			micros(a.FinishedAt), int64(a.Class), a.Code, a.Status, a.Reference, a.Error)
	}
}

// blob is never NULL.
func blob(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

// micros is NULL for no time.
func micros(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.UnixMicro()
}

func timeOf(micros int64) time.Time { return time.UnixMicro(micros).UTC() }

func timeOrNone(micros sql.NullInt64) time.Time {
	if !micros.Valid {
		return time.Time{}
	}
	return timeOf(micros.Int64)
}

// ceil is a duration in microseconds, rounded up: no lease is shorter than requested.
func ceil(d time.Duration) time.Duration {
	return (d + time.Microsecond - 1).Truncate(time.Microsecond)
}
