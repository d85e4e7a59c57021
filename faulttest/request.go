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

// A Request is the record of one request and of what came of it, as far as that
// had come when the record was asked for. It is a plain value; Header and Body
// are shared with the [Log] and must not be changed.
type Request struct {
	Number int    // from 1, in the order of arrival
	Method string // POST
	Host   string
	URI    string // path and query, as they were sent
	Path   string
	Header http.Header

	ContentLength int64 // that the head tells; 0: no body; -1: not told, as with a chunked body

	Body     []byte // the first Log.MaxBody bytes of what was read of it
	BodySize int64  // how many bytes were read of it
	BodyRead bool   // to its end

	Key string // the idempotency key; "": none

	// Deadline is until when the client will wait: X-Request-Deadline, or else
	// Arrived plus TimeLeft. The zero time: the request does not say.
	Deadline time.Time
	// TimeLeft is how long the client will wait, from Arrived on:
	// X-Request-Timeout-Ms, or else Deadline less Arrived.
	TimeLeft time.Duration

	Conn   int  // number of the connection, from 1, in the order of their first requests
	Reused bool // the connection had carried a request before

	ReceivedAt time.Time // when the head had come
	CanceledAt time.Time // when the server saw that the client had left, before the handler was done; zero: it did not
	EndedAt    time.Time // when the handler was done; zero while it is at work

	Status        int    // of the answer; 0: none was begun
	ResponseBytes int64  // bytes of the response body
	Fault         Fault  // what was done to it
	Note          string // by a Quota, an Idempotent or a Script: "replayed", "over quota"

	sum [sha256.Size]byte // of the body, if BodyRead
	// Whether the client said it, or it was worked out.
	saidDeadline, saidLeft bool
	closed                 bool // the Server closed before the handler was done
	hijacked               bool
}

// Outcome says in a few words what came of the request, as transcripts do: "503",
// "200 replayed", "reset after read", "hang, client left", "in hand".
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
		parts = append(parts, "client left")
	}
	if q.closed {
		parts = append(parts, "server closed")
	}
	if q.EndedAt.IsZero() {
		parts = append(parts, "in hand")
	}
	if len(parts) == 0 {
		return "no answer"
	}
	return strings.Join(parts, ", ")
}

// A Call is what belongs together of a Log's requests: the attempts of one call
// of the client. [Log.GroupCalls] says how that is known.
type Call struct {
	ID       string // what the attempts have in common
	Attempts []Request
}

// Gaps returns how long the client waited before each attempt but the first:
// from the end of the attempt before (its answer, its fault, or when the server
// saw that the client had left) to the arrival of the next. It is 0 where the
// two overlap, as those of a hedged request do.
func (c Call) Gaps() []time.Duration {
	var gaps []time.Duration
	for i := 1; i < len(c.Attempts); i++ {
		gap, end := time.Duration(0), c.Attempts[i-1].EndedAt
		if left := c.Attempts[i-1].CanceledAt; !left.IsZero() {
			end = left // though the work may have gone on
		}
		if !end.IsZero() {
			gap = max(c.Attempts[i].ReceivedAt.Sub(end), 0)
		}
		gaps = append(gaps, gap)
	}
	return gaps
}

// target is what two attempts of one call have in common.
func (q *Request) target() string { return q.Method + " " + strings.ToLower(q.Host) + q.URI }

func (q *Request) annotate(text string) {
	if q.Note != "" {
		q.Note += ", "
	}
	q.Note += text
}

// readDeadline reads what the client says of its deadline.
func (q *Request) readDeadline(field string) {
	ms, err := strconv.ParseInt(strings.TrimSpace(q.Header.Get("X-Request-Timeout-Ms")), 10, 64)
	if q.saidLeft = err == nil && ms >= 0 && ms <= math.MaxInt64/int64(time.Millisecond); q.saidLeft {
		q.TimeLeft = time.Duration(ms) * time.Millisecond
		q.Deadline = q.ReceivedAt.Add(q.TimeLeft)
	}
	at, err := time.Parse(time.RFC3339, strings.TrimSpace(q.Header.Get(field)))
	if q.saidDeadline = err == nil; q.saidDeadline {
		q.Deadline = at
		if !q.saidLeft {
			q.TimeLeft = at.Sub(q.ReceivedAt)
		}
	}
}
