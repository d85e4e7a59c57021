package sqlitestore

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/resilienthttp/resilienthttp/idempotency/driver"
	"github.com/resilienthttp/resilienthttp/internal/sqlitekit"
)

// row is a record as the database gives it.
type row struct {
	driver.Record

	started, updated, leaseExpires, expires int64
	header                                  []byte
	hasBody                                 bool
}

// columns are where to put what the statements' columns give.
func (r *row) columns() []any {
	return []any{
		&r.Fingerprint, &r.Status, &r.Owner, &r.Generation,
		&r.started, &r.updated, &r.leaseExpires, &r.Takeover, &r.expires,
		&r.Result.Code, &r.Result.Reference, &r.header, &r.Result.Body, &r.hasBody,
	}
}

// record is what was read.
func (r *row) record() (_ *driver.Record, err error) {
	if r.Result.Header, err = decodeHeader(r.header); err != nil {
		return nil, err
	}
	if r.hasBody && r.Result.Body == nil {
		r.Result.Body = []byte{} // the driver makes nil of it
	}
	r.Started, r.Updated = timeOf(r.started), timeOf(r.updated)
	r.LeaseExpires, r.Expires = timeOf(r.leaseExpires), timeOf(r.expires)
	return &r.Record, nil
}

// readRecord runs the statement that loads a record, and returns that (nil: there
// is none) and SQLite's time, by which it is to be judged.
func readRecord(ctx context.Context, load sqlitekit.Statement, id driver.ID) (*driver.Record, time.Time, error) {
	var (
		r     row
		clock int64
		found bool
	)
	r.ID = id
	_, err := sqlitekit.ReadRows(ctx, load, idArgs(id), func(rows *sql.Rows) error {
		return rows.Scan(append(r.columns(), &found, &clock)...)
	})
	if err != nil || !found {
		return nil, timeOf(clock), err
	}
	record, err := r.record()
	return record, timeOf(clock), err
}

// readRecords runs a statement that gives records: those that it finds, or has
// changed. After an error it has changed none, whatever it gave before.
func readRecords(ctx context.Context, s sqlitekit.Statement, args []any) ([]driver.Record, error) {
	var all []driver.Record
	_, err := sqlitekit.ReadRows(ctx, s, args, func(rows *sql.Rows) error {
		var r row
		if err := rows.Scan(append([]any{&r.Scope, &r.Operation, &r.Key}, r.columns()...)...); err != nil {
			return err
		}
		record, err := r.record()
		if err == nil {
			all = append(all, *record)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

// applyStep does what Decide said, unless the record is not the one that was
// judged any more: then the result is nil.
func applyStep(
	ctx context.Context, s *statements, step driver.Step, judged *driver.Record, c *driver.Claim,
) (*driver.Record, error) {
	var all []driver.Record
	var err error
	switch step {
	case driver.Insert:
		all, err = readRecords(ctx, s.insert, []any{
			c.Scope, c.Operation, c.Key, string(c.Fingerprint), c.Owner, millis(c.Lease), int64(c.Takeover), millis(c.TTL),
		})
	case driver.Take:
		all, err = readRecords(ctx, s.take, append(asJudgedArgs(judged),
			string(c.Fingerprint), c.Owner, millis(c.Lease), int64(c.Takeover), millis(c.TTL)))
	case driver.StepMarkUnknown:
		all, err = readRecords(ctx, s.abandon, asJudgedArgs(judged))
	default:
		err = fmt.Errorf("sqlitestore: step %d is not known", step)
	}
	if len(all) == 0 {
		return nil, err
	}
	return &all[0], nil
}

// idArgs are the arguments of the condition theRecord.
func idArgs(id driver.ID) []any { return []any{id.Scope, id.Operation, id.Key} }

// asJudgedArgs are the arguments of the condition asJudged.
func asJudgedArgs(r *driver.Record) []any {
	return []any{
		r.Scope, r.Operation, r.Key,
		int64(r.Status), r.Owner, r.Generation, r.LeaseExpires.UnixMilli(), r.Expires.UnixMilli(),
	}
}

// leaseArgs are the arguments of the condition theLease.
func leaseArgs(l *driver.Lease) []any {
	return []any{l.Scope, l.Operation, l.Key, l.Owner, l.Generation}
}

// completeArgs are the arguments of completeSQL.
func completeArgs(l *driver.Lease, o *driver.Outcome) []any {
	result := stored(o)
	return append(leaseArgs(l), int64(o.Status), result.Code, result.Reference,
		encodeHeader(result.Header), result.Body, millis(o.TTL))
}

// finishArgs are the arguments of finishSQL. r is what Begin has answered with.
func finishArgs(r *driver.Record, o *driver.Outcome) []any {
	result := stored(o)
	return []any{
		r.Scope, r.Operation, r.Key, string(r.Fingerprint), int64(o.Status), r.Owner, r.Generation,
		r.Started.UnixMilli(), r.LeaseExpires.UnixMilli(), int64(r.Takeover), millis(o.TTL), r.Expires.UnixMilli(),
		result.Code, result.Reference, encodeHeader(result.Header), result.Body,
	}
}

// stored is what is stored of an outcome's result: nothing that is not replayed.
func stored(o *driver.Outcome) driver.Result {
	if o.Status == driver.Completed || o.Status == driver.FailedFinal {
		return o.Result
	}
	return driver.Result{}
}

// writeLease runs a statement that only a lease's holder may run.
func writeLease(ctx context.Context, s sqlitekit.Statement, args []any) error {
	n, err := sqlitekit.Affected(s.ExecContext(ctx, args...))
	if err == nil && n == 0 {
		return driver.ErrLeaseLost
	}
	return err
}

// millis rounds up: no lease is shorter than asked for.
func millis(d time.Duration) int64 {
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}

func timeOf(millis int64) time.Time { return time.UnixMilli(millis).UTC() }
