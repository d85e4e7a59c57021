package pgstore

import (
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/resilienthttp/resilienthttp/idempotency"
	"github.com/resilienthttp/resilienthttp/idempotency/internal/sqlrecord"
	"github.com/resilienthttp/resilienthttp/internal/pgkit"
)

// found is a record and the database's time when it was read.
type found struct {
	record *idempotency.Record // nil: none
	now    time.Time
}

// scan reads columns. more is what follows them.
func (f *found) scan(from pgkit.Row, more ...any) error {
	var (
		r                idempotency.Record
		status, takeover int16
		code             int64
		reference        []byte

		// pgx scans its own types with fewer allocations.
		started, updated, expires, lease pgtype.Timestamptz
		header                           pgtype.Text
	)
	dest := append(make([]any, 0, 17),
		&started, &updated, &expires, &r.Generation, &code, &lease, &status, &takeover,
		&r.Scope, &r.Operation, &r.Key, (*string)(&r.Fingerprint), &r.Owner, &header, &r.Result.Body, &reference)
	if err := from.Scan(append(dest, more...)...); err != nil {
		return err
	}
	var err error
	if header.Valid {
		if r.Result.Header, err = sqlrecord.DecodeHeader([]byte(header.String)); err != nil {
			return err
		}
	}
	r.Status = idempotency.Status(status)
	r.Takeover = idempotency.Takeover(takeover)
	r.Result.Code, r.Result.Reference = int(code), string(reference)
	if lease.Valid {
		r.LeaseExpires = lease.Time.UTC()
	}
	r.Started, r.Updated, r.Expires = started.Time.UTC(), updated.Time.UTC(), expires.Time.UTC()
	f.record = &r
	return nil
}

// scanNow reads columns and the time.
func (f *found) scanNow(from pgkit.Row) error { return f.scan(from, &f.now) }

// idArgs are the first arguments of each statement on a record.
func idArgs(id *idempotency.ID, more ...any) []any {
	return append(append(make([]any, 0, 3+len(more)), id.Scope, id.Operation, id.Key), more...)
}

// leaseArgs are the first arguments of each statement on a lease.
func leaseArgs(l *idempotency.Lease, more ...any) []any {
	return append(idArgs(&l.ID, l.Owner, l.Generation), more...)
}

// judgedArgs are the first arguments of each statement that requires the record to be
// the one that Decide saw.
func judgedArgs(r *idempotency.Record, more ...any) []any {
	var lease *time.Time
	if !r.LeaseExpires.IsZero() {
		lease = &r.LeaseExpires
	}
	return append(idArgs(&r.ID, int16(r.Status), r.Owner, r.Generation, lease), more...)
}

// resultArgs are an outcome's code, header, body and reference.
func resultArgs(o *idempotency.Outcome) ([4]any, error) {
	result := o.Stored()
	text, err := sqlrecord.EncodeHeader(result.Header)
	if err != nil {
		return [4]any{}, err
	}
	var header *string // text, because not all of pgx's modes encode bytes as text
	if text != nil {
		header = new(string(text))
	}
	var reference []byte
	if result.Reference != "" {
		reference = []byte(result.Reference) // bytea, because a text cannot contain a NUL
	}
	return [4]any{int64(result.Code), header, result.Body, reference}, nil
}

// microseconds is PostgreSQL's resolution. It rounds up, so that a positive duration
// stays positive.
func microseconds(d time.Duration) int64 {
	return int64((d + time.Microsecond - 1) / time.Microsecond)
}

// milliseconds is the unit of PostgreSQL's time limits. It rounds up, to at most the
// largest limit.
func milliseconds(d time.Duration) int64 {
	const most = 1<<31 - 1
	if d <= 0 {
		return 0
	}
	return min(int64((d-1)/time.Millisecond)+1, most)
}
