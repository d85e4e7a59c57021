package pgstore

import (
	"time"

	"github.com/resilienthttp/resilienthttp/idempotency"
)

// scanRecord reads columns, and whatever follows them into more.
func scanRecord(from row, more ...any) (idempotency.Record, error) {
	var (
		r                idempotency.Record
		status, takeover int16
		code             int64
		lease            *time.Time
		header           *string
		body, reference  []byte
	)
	dest := append([]any{
		&r.Scope, &r.Operation, &r.Key, (*string)(&r.Fingerprint), &status, &r.Owner, &r.Generation, &lease, &takeover,
		&r.Started, &r.Updated, &r.Expires, &code, &header, &body, &reference,
	}, more...)
	if err := from.Scan(dest...); err != nil {
		return idempotency.Record{}, err
	}
	h, err := decodeHeader(header)
	if err != nil {
		return idempotency.Record{}, err
	}
	r.Status = idempotency.Status(status)
	r.Takeover = idempotency.Takeover(takeover)
	r.Result = idempotency.Result{Code: int(code), Header: h, Body: body, Reference: string(reference)}
	if lease != nil {
		r.LeaseExpires = lease.UTC()
	}
	for _, t := range [...]*time.Time{&r.Started, &r.Updated, &r.Expires} {
		*t = t.UTC()
	}
	return r, nil
}

// idArgs are the first arguments of every statement on a record.
func idArgs(id *idempotency.ID, more ...any) []any {
	return append([]any{id.Scope, id.Operation, id.Key}, more...)
}

// leaseArgs are the first arguments of every statement on a lease.
func leaseArgs(l *idempotency.Lease, more ...any) []any {
	return append([]any{l.Scope, l.Operation, l.Key, l.Owner, l.Generation}, more...)
}

// judgedArgs are the first arguments of every statement on a record that must still
// be as it was when it was judged.
func judgedArgs(r *idempotency.Record, more ...any) []any {
	var lease *time.Time
	if !r.LeaseExpires.IsZero() {
		lease = &r.LeaseExpires
	}
	return append([]any{r.Scope, r.Operation, r.Key, int16(r.Status), r.Owner, r.Generation, lease}, more...)
}

// resultArgs are what an execution ended with: code, header, body and reference.
func resultArgs(o *idempotency.Outcome) ([4]any, error) {
	var result idempotency.Result
	if o.Status == idempotency.Completed || o.Status == idempotency.FailedFinal {
		result = o.Result
	}
	header, err := encodeHeader(result.Header)
	if err != nil {
		return [4]any{}, err
	}
	var reference []byte
	if result.Reference != "" {
		reference = []byte(result.Reference) // bytea, for a text has no NUL
	}
	return [4]any{int64(result.Code), header, result.Body, reference}, nil
}

// microseconds is what PostgreSQL counts in, rounded up: what is positive stays so.
func microseconds(d time.Duration) int64 {
	return int64((d + time.Microsecond - 1) / time.Microsecond)
}

// milliseconds is what PostgreSQL counts time limits in, rounded up, and no more
// than it can count.
func milliseconds(d time.Duration) int64 {
	const most = 1<<31 - 1
	if d <= 0 {
		return 0
	}
	return min(int64((d-1)/time.Millisecond)+1, most)
}
