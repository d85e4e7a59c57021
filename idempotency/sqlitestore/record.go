package sqlitestore

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/resilienthttp/resilienthttp/idempotency"
	"github.com/resilienthttp/resilienthttp/idempotency/internal/sqlrecord"
	"github.com/resilienthttp/resilienthttp/internal/sqlitekit"
)

// row is a record as the database returns it.
type row struct {
	idempotency.Record

	started, updated, leaseExpires, expires int64
	header                                  []byte
	hasBody                                 bool
}

// columns returns the destinations of the statements' columns.
func (r *row) columns() []any {
	return []any{
		&r.Fingerprint, &r.Status, &r.Owner, &r.Generation,
		&r.started, &r.updated, &r.leaseExpires, &r.Takeover, &r.expires,
		&r.Result.Code, &r.Result.Reference, &r.header, &r.Result.Body, &r.hasBody,
	}
}

func (r *row) record() (_ *idempotency.Record, err error) {
	if r.Result.Header, err = sqlrecord.DecodeHeader(r.header); err != nil {
		return nil, err
	}
	if r.hasBody && r.Result.Body == nil {
		r.Result.Body = []byte{} // The driver returns nil for an empty blob.
	}
	r.Started, r.Updated = timeOf(r.started), timeOf(r.updated)
	r.LeaseExpires, r.Expires = timeOf(r.leaseExpires), timeOf(r.expires)
	return &r.Record, nil
}

// readRecord returns a record, or nil if there is none, and SQLite's time.
func readRecord(ctx context.Context, s statements, id idempotency.ID) (*idempotency.Record, time.Time, error) {
	var (
		r     row
		clock int64
		found bool
	)
	r.ID = id
	_, err := sqlitekit.ReadRows(ctx, s[load], idArgs(id), func(rows *sql.Rows) error {
		return rows.Scan(append(r.columns(), &found, &clock)...)
	})
	if err != nil || !found {
		return nil, timeOf(clock), err
	}
	record, err := r.record()
	return record, timeOf(clock), err
}

// readRecords returns the records that a statement finds or has changed. After an
// error it has changed none.
func readRecords(ctx context.Context, s sqlitekit.Statement, args ...any) ([]idempotency.Record, error) {
	var all []idempotency.Record
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

// idArgs are the arguments of the condition theRecord.
func idArgs(id idempotency.ID) []any { return []any{id.Scope, id.Operation, id.Key} }

// asJudgedArgs are the arguments of the condition asJudged.
func asJudgedArgs(r *idempotency.Record) []any {
	return append(idArgs(r.ID), int64(r.Status), r.Owner, r.Generation, r.LeaseExpires.UnixMilli(), r.Expires.UnixMilli())
}

// leaseArgs are the arguments of the condition theLease.
func leaseArgs(l *idempotency.Lease, more ...any) []any {
	return append(append(idArgs(l.ID), l.Owner, l.Generation), more...)
}

// claimArgs are what a claim writes.
func claimArgs(c *idempotency.Claim) []any {
	return []any{string(c.Fingerprint), c.Owner, millis(c.Lease), int64(c.Takeover), millis(c.TTL)}
}

// resultArgs are code, reference, header and body.
func resultArgs(o *idempotency.Outcome) ([]any, error) {
	result := o.Stored()
	header, err := sqlrecord.EncodeHeader(result.Header)
	return []any{result.Code, result.Reference, header, result.Body}, err
}

// writeOutcome runs finish, which writes the record of transactional work.
func writeOutcome(ctx context.Context, s sqlitekit.Statement, r *idempotency.Record, o *idempotency.Outcome) error {
	result, err := resultArgs(o)
	if err != nil {
		return err
	}
	return writeLease(ctx, s, append([]any{
		r.Scope, r.Operation, r.Key, string(r.Fingerprint), int64(o.Status), r.Owner, r.Generation,
		r.Started.UnixMilli(), r.LeaseExpires.UnixMilli(), int64(r.Takeover), millis(o.TTL), r.Expires.UnixMilli(),
	}, result...))
}

// apply does the step that idempotency.Decide returned. The result is nil if the record
// has changed since it was judged.
func (s statements) apply(
	ctx context.Context, step idempotency.Step, judged *idempotency.Record, c *idempotency.Claim,
) (*idempotency.Record, error) {
	var all []idempotency.Record
	var err error
	switch step {
	case idempotency.StepInsert:
		all, err = readRecords(ctx, s[insert], append(idArgs(c.ID), claimArgs(c)...)...)
	case idempotency.StepTake:
		all, err = readRecords(ctx, s[take], append(asJudgedArgs(judged), claimArgs(c)...)...)
	case idempotency.StepMarkUnknown:
		all, err = readRecords(ctx, s[markUnknown], asJudgedArgs(judged)...)
	default:
		err = fmt.Errorf("sqlitestore: step is %d, want a step that writes", step)
	}
	if len(all) == 0 {
		return nil, err
	}
	return &all[0], nil
}

// writeLease runs a statement that only the holder of a lease may run.
func writeLease(ctx context.Context, s sqlitekit.Statement, args []any) error {
	n, err := sqlitekit.Affected(s.ExecContext(ctx, args...))
	if err == nil && n == 0 {
		return idempotency.ErrLeaseLost
	}
	return err
}

// millis rounds up, so that no lease is shorter than requested.
func millis(d time.Duration) int64 {
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}

func timeOf(millis int64) time.Time { return time.UnixMilli(millis).UTC() }
