package faulttest

import (
	"crypto/sha256"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Request is the record of one request and of its response so far. It is a plain value. Header and
// Body are shared with the [Log] and must not be modified.
type Request struct {
	// Number is the number of the request in the order of arrival, from 1.
	Number int
	// Method, Host, URI (path and query as sent), Path and Header are those of the request.
	Method string
	Host   string
	URI    string
	Path   string
	Header http.Header

	// ContentLength is the length in the header: 0 without a body, -1 if it is unknown.
	ContentLength int64

	// Body is the part of the body that was read, at most Log.MaxBody bytes.
	Body []byte
	// BodySize is the number of bytes of the body that were read.
	BodySize int64
	// BodyRead is true if the body was read to its end.
	BodyRead bool

	// Key is the idempotency key, or "".
	Key string

	// Deadline is the client's deadline: X-Request-Deadline, or ReceivedAt plus TimeLeft. It is
	// zero if the request has neither field.
	Deadline time.Time
	// TimeLeft is the time until the deadline: X-Request-Timeout-Ms, or Deadline minus
	// ReceivedAt.
	TimeLeft time.Duration

	// Conn is the number of the connection in the order of their first requests, from 1.
	Conn int
	// Reused is true if the connection had an earlier request.
	Reused bool

	// ReceivedAt is the time when the header was read.
	ReceivedAt time.Time
	// CanceledAt is the time when the server noticed that the client had canceled, before the
	// handler ended; otherwise zero.
	CanceledAt time.Time
	// EndedAt is the time when the handler ended; zero while it runs.
	EndedAt time.Time

	// Status is the status of the response; 0 if there is none.
	Status int
	// ResponseBytes is the number of bytes of the response body.
	ResponseBytes int64
	// Fault is the injected fault.
	Fault Fault
	// Note is set by a Quota, an Idempotent or a Script: "over quota", "replayed", "no rule".
	Note string

	sum                      [sha256.Size]byte // hash of the body, if BodyRead
	hasDeadline, hasTimeLeft bool              // the request has the field
	closed                   bool              // the Server closed before the handler ended
	hijacked                 bool
}

// Outcome describes the response and the fault, as in a transcript: "503", "200 replayed", "reset
// after read", "hang, client canceled", "in progress".
func (q Request) Outcome() string {
	var parts []string
	if q.Status != 0 {
		parts = append(parts, strings.TrimSpace(strconv.Itoa(q.Status)+" "+q.Note))
	} else if q.Note != "" {
		parts = append(parts, q.Note)
	}
	switch {
	case q.Fault.midBody():
		parts = append(parts, fmt.Sprintf("%v after %d bytes", q.Fault, q.ResponseBytes))
	case q.Fault != NoFault:
		parts = append(parts, q.Fault.String())
	}
	if !q.CanceledAt.IsZero() {
		parts = append(parts, "client canceled")
	}
	if q.closed {
		parts = append(parts, "server closed")
	}
	if q.EndedAt.IsZero() {
		parts = append(parts, "in progress")
	}
	if len(parts) == 0 {
		return "no response"
	}
	return strings.Join(parts, ", ")
}

// Call is one call of the client: the requests that [Log.GroupCalls] puts together.
type Call struct {
	// ID is the result of GroupCalls.
	ID string
	// Attempts are the requests of the call, in order of arrival.
	Attempts []Request
}

// Gaps returns the waits between the attempts: from EndedAt of one attempt, or its CanceledAt, to
// ReceivedAt of the next one. The wait is 0 if the two overlap, as hedged requests do.
func (c Call) Gaps() []time.Duration {
	var gaps []time.Duration
	for i := 1; i < len(c.Attempts); i++ {
		gap, end := time.Duration(0), c.Attempts[i-1].EndedAt
		if left := c.Attempts[i-1].CanceledAt; !left.IsZero() {
			end = left // the handler may have run longer
		}
		if !end.IsZero() {
			gap = max(c.Attempts[i].ReceivedAt.Sub(end), 0)
		}
		gaps = append(gaps, gap)
	}
	return gaps
}

// target returns the parts of a request that all attempts of a call share.
func (q *Request) target() string { return q.Method + " " + strings.ToLower(q.Host) + q.URI }

func (q *Request) annotate(text string) {
	if q.Note != "" {
		q.Note += ", "
	}
	q.Note += text
}

// readDeadline sets Deadline and TimeLeft.
func (q *Request) readDeadline(field string) {
	ms, err := strconv.ParseInt(strings.TrimSpace(q.Header.Get("X-Request-Timeout-Ms")), 10, 64)
	if q.hasTimeLeft = err == nil && ms >= 0 && ms <= math.MaxInt64/int64(time.Millisecond); q.hasTimeLeft {
		q.TimeLeft = time.Duration(ms) * time.Millisecond
		q.Deadline = q.ReceivedAt.Add(q.TimeLeft)
	}
	at, err := time.Parse(time.RFC3339, strings.TrimSpace(q.Header.Get(field)))
	if q.hasDeadline = err == nil; q.hasDeadline {
		q.Deadline = at
		if !q.hasTimeLeft {
			q.TimeLeft = at.Sub(q.ReceivedAt)
		}
	}
}
