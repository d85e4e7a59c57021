package resilienthttp

import (
	"cmp"
	"net/http"
	"net/textproto"
	"time"
)

const (
	defaultDeadlineHeader = "X-Request-Deadline"
	retryOwnerHeader      = "X-Retry-Owner"
	retryOwnerCaller      = "caller"

	// deadlineFormat is RFC 3339 with milliseconds, in UTC.
	deadlineFormat = "2006-01-02T15:04:05.000Z"
)

// DeadlineHeader sends the deadline of a call to the server, for [DeadlineHandler] or a server
// that knows the field. The zero value sends X-Request-Deadline if the call has a deadline, from
// its context or from http.Client.Timeout. The field has a time in UTC (RFC 3339 with
// milliseconds): the earlier of the call's deadline and the attempt's timeout, minus Margin.
// X-Request-Timeout-Ms, or Relative, has the remaining time. A receiver prefers it, because clocks
// differ. See docs/deadlines.md.
type DeadlineHeader struct {
	// Name is the name of the field. "" means X-Request-Deadline.
	Name string

	// Relative is the name of the field with the remaining time, rounded down. "" means
	// X-Request-Timeout-Ms. "grpc-timeout" gets a number of at most eight digits and its unit. Any
	// other name, for example Envoy's "x-envoy-expected-rq-timeout-ms", gets milliseconds.
	Relative string

	// Margin is subtracted from the time that is sent, for the network. If less than 1 ms is
	// left, the call ends with ErrDeadline. Zero or a negative duration means none.
	Margin time.Duration

	// Disabled means that no deadline is sent. Retry ownership is not affected.
	Disabled bool
}

func (d DeadlineHeader) withDefaults() DeadlineHeader {
	d.Name = deadlineField(d.Name)
	d.Relative = textproto.CanonicalMIMEHeaderKey(cmp.Or(d.Relative, timeoutHeader))
	d.Margin = max(d.Margin, 0)
	return d
}

// deadlineField returns the canonical name of the deadline's field. "" means the default.
func deadlineField(name string) string {
	return textproto.CanonicalMIMEHeaderKey(cmp.Or(name, defaultDeadlineHeader))
}

// minLeft is the shortest time that is sent.
const minLeft = time.Millisecond

// header returns a copy of h with the deadline, or false if less than minLeft would be left.
func (d *DeadlineHeader) header(h http.Header, deadline, now time.Time) (http.Header, bool) {
	left := max(deadline.Sub(now), 0) - d.Margin // max, since Sub saturates
	if left < minLeft {
		return nil, false
	}
	h = h.Clone()
	h[d.Name] = []string{now.Add(left).UTC().Format(deadlineFormat)}
	if d.Relative != timeoutHeader {
		delete(h, timeoutHeader) // a proxy's copy of what it received says too much
	}
	h[d.Relative] = []string{formatRelative(d.Relative, left)}
	return h, true
}
