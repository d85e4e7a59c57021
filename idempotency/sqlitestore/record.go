package sqlitestore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/resilienthttp/resilienthttp/idempotency"
)

// readRecord runs the statement that loads a record, and returns that (nil: there
// is none) and SQLite's time, by which it is to be judged.
func readRecord(ctx context.Context, load statement, id idempotency.ID) (*idempotency.Record, time.Time, error) {
	var (
		r                                              = idempotency.Record{ID: id}
		started, updated, leaseExpires, expires, clock int64
		header                                         []byte
		hasBody                                        bool
	)
	found, err := readRow(ctx, load, []any{id.Scope, id.Operation, id.Key},
		&r.Fingerprint, &r.Status, &r.Owner, &r.Generation, &started, &updated, &leaseExpires, &expires,
		&r.Result.Code, &r.Result.Reference, &header, &r.Result.Body, &hasBody, &clock)
	if err != nil || !found {
		return nil, time.Time{}, err
	}
	if r.Result.Header, err = decodeHeader(header); err != nil {
		return nil, time.Time{}, err
	}
	if hasBody && r.Result.Body == nil {
		r.Result.Body = []byte{} // the driver makes nil of it
	}
	r.Started, r.Updated = timeOf(started), timeOf(updated)
	r.LeaseExpires, r.Expires = timeOf(leaseExpires), timeOf(expires)
	return &r, timeOf(clock), nil
}

// applyStep does what Decide said, unless the record is not the one that was
// judged any more: then the result is nil.
func applyStep(
	ctx context.Context, s *statements, step idempotency.Step, judged *idempotency.Record, c *idempotency.Claim,
) (*idempotency.Record, error) {
	r := &idempotency.Record{
		ID: c.ID, Fingerprint: c.Fingerprint, Status: idempotency.InProgress, Owner: c.Owner,
	}
	switch step {
	case idempotency.Insert:
		return readChange(ctx, r, s.insert, []any{
			c.Scope, c.Operation, c.Key, string(c.Fingerprint), c.Owner, millis(c.Lease), millis(c.TTL),
		})
	case idempotency.Take:
		return readChange(ctx, r, s.take, append(asJudgedArgs(judged),
			string(c.Fingerprint), c.Owner, millis(c.Lease), millis(c.TTL)))
	case idempotency.Abandon:
		r.Fingerprint, r.Status, r.Owner = judged.Fingerprint, idempotency.Unknown, ""
		return readChange(ctx, r, s.abandon, asJudgedArgs(judged))
	default:
		return nil, fmt.Errorf("sqlitestore: step %d is not known", step)
	}
}

// asJudgedArgs are the arguments of the condition asJudged.
func asJudgedArgs(r *idempotency.Record) []any {
	return []any{
		r.Scope, r.Operation, r.Key,
		int64(r.Status), r.Owner, r.Generation, r.LeaseExpires.UnixMilli(), r.Expires.UnixMilli(),
	}
}

// leaseArgs are the arguments of the condition theLease.
func leaseArgs(l *idempotency.Lease) []any {
	return []any{l.Scope, l.Operation, l.Key, l.Owner, l.Generation}
}

// outcomeArgs are the arguments of setOutcome.
func outcomeArgs(l *idempotency.Lease, o *idempotency.Outcome) []any {
	var result idempotency.Result // what is not replayed is not stored
	if o.Status == idempotency.Completed || o.Status == idempotency.FailedFinal {
		result = o.Result
	}
	return append(leaseArgs(l), int64(o.Status), result.Code, result.Reference,
		encodeHeader(result.Header), result.Body, millis(o.TTL))
}

// readChange runs a statement that returns what it wrote, and completes r with
// it. nil: it changed nothing.
func readChange(
	ctx context.Context, r *idempotency.Record, change statement, args []any,
) (*idempotency.Record, error) {
	var started, updated, leaseExpires, expires int64
	found, err := readRow(ctx, change, args, &r.Generation, &started, &updated, &leaseExpires, &expires)
	if err != nil || !found {
		return nil, err
	}
	r.Started, r.Updated = timeOf(started), timeOf(updated)
	r.LeaseExpires, r.Expires = timeOf(leaseExpires), timeOf(expires)
	return r, nil
}

// readRow reads the one row that the statement gives. It runs the statement to
// its end: only there SQLite commits what a RETURNING has told, and begins a
// checkpoint when one is due. (sql.Row would leave after the row.)
func readRow(ctx context.Context, s statement, args []any, to ...any) (found bool, err error) {
	rows, err := s.QueryContext(ctx, args...)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		found = true
		if err := rows.Scan(to...); err != nil {
			return false, err
		}
	}
	return found, rows.Err()
}

// writeLease runs a statement that only a lease's holder may run.
func writeLease(ctx context.Context, s statement, args []any) error {
	n, err := affected(s.ExecContext(ctx, args...))
	if err == nil && n == 0 {
		return idempotency.ErrLeaseLost
	}
	return err
}

func affected(result sql.Result, err error) (int, error) {
	if err != nil {
		return 0, err
	}
	n, err := result.RowsAffected()
	return int(n), err
}

// millis rounds up: no lease is shorter than asked for.
func millis(d time.Duration) int64 {
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}

func timeOf(millis int64) time.Time { return time.UnixMilli(millis).UTC() }
