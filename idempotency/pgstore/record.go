package pgstore

import (
	"time"

	"github.com/resilienthttp/resilienthttp/idempotency"
)

// scanRecord reads columns, and whatever follows them into more.
func scanRecord(from row, more ...any) (idempotency.Record, error) {
	var (
		r               idempotency.Record
		status          int16
		code            int64
		header          *string
		body, reference []byte
	)
	dest := append([]any{
		&r.Scope, &r.Operation, &r.Key, (*string)(&r.Fingerprint), &status, &r.Owner, &r.Generation,
		&r.LeaseExpires, &r.Started, &r.Updated, &r.Expires, &code, &header, &body, &reference,
	}, more...)
	if err := from.Scan(dest...); err != nil {
		return idempotency.Record{}, err
	}
	h, err := decodeHeader(header)
	if err != nil {
		return idempotency.Record{}, err
	}
	r.Status = idempotency.Status(status)
	r.Result = idempotency.Result{Code: int(code), Header: h, Body: body, Reference: string(reference)}
	for _, t := range [...]*time.Time{&r.LeaseExpires, &r.Started, &r.Updated, &r.Expires} {
		*t = t.UTC()
	}
	return r, nil
}

// leaseArgs are the first arguments of every statement on a lease.
func leaseArgs(l *idempotency.Lease, more ...any) []any {
	return append([]any{l.Scope, l.Operation, l.Key, l.Owner, l.Generation}, more...)
}

// outcomeArgs are leaseArgs and what an execution ended with.
func outcomeArgs(l *idempotency.Lease, o *idempotency.Outcome) ([]any, error) {
	var result idempotency.Result
	if o.Status == idempotency.Completed || o.Status == idempotency.FailedFinal {
		result = o.Result
	}
	header, err := encodeHeader(result.Header)
	if err != nil {
		return nil, err
	}
	var reference []byte
	if result.Reference != "" {
		reference = []byte(result.Reference) // bytea, for a text has no NUL
	}
	return leaseArgs(l, int16(o.Status), int64(result.Code), header, result.Body, reference, microseconds(o.TTL)), nil
}

// microseconds is what PostgreSQL counts in, rounded up: what is positive stays so.
func microseconds(d time.Duration) int64 {
	return int64((d + time.Microsecond - 1) / time.Microsecond)
}
