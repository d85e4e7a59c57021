package pgstore

import (
	"time"

	"github.com/resilienthttp/resilienthttp/idempotency/driver"
)

// scanRecord reads columns, and whatever follows them into more.
func scanRecord(from row, more ...any) (driver.Record, error) {
	var (
		r                driver.Record
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
		return driver.Record{}, err
	}
	h, err := decodeHeader(header)
	if err != nil {
		return driver.Record{}, err
	}
	r.Status = driver.Status(status)
	r.Takeover = driver.Takeover(takeover)
	r.Result = driver.Result{Code: int(code), Header: h, Body: body, Reference: string(reference)}
	if lease != nil {
		r.LeaseExpires = lease.UTC()
	}
	for _, t := range [...]*time.Time{&r.Started, &r.Updated, &r.Expires} {
		*t = t.UTC()
	}
	return r, nil
}

// idArgs are the first arguments of every statement on a record.
func idArgs(id *driver.ID, more ...any) []any {
	return append([]any{id.Scope, id.Operation, id.Key}, more...)
}

// leaseArgs are the first arguments of every statement on a lease.
func leaseArgs(l *driver.Lease, more ...any) []any {
	return append([]any{l.Scope, l.Operation, l.Key, l.Owner, l.Generation}, more...)
}

// judgedArgs are the first arguments of every statement on a record that must still
// be as it was when it was judged.
func judgedArgs(r *driver.Record, more ...any) []any {
	var lease *time.Time
	if !r.LeaseExpires.IsZero() {
		lease = &r.LeaseExpires
	}
	return append([]any{r.Scope, r.Operation, r.Key, int16(r.Status), r.Owner, r.Generation, lease}, more...)
}

// resultArgs are what an execution ended with: code, header, body and reference.
func resultArgs(o *driver.Outcome) ([4]any, error) {
	var result driver.Result
	if o.Status == driver.Completed || o.Status == driver.FailedFinal {
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
