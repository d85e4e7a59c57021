package faulttest

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/sleep"
)

// Reply is a handler that sends a response, injects a fault, or both. The zero value sends an
// empty 200. It is a plain value, may be copied, and is safe for concurrent use.
//
// A Reply reads the whole request body before it responds, except for [ResetBeforeRead]. Its
// responses have a Date and, if their status allows a body, a Content-Length.
type Reply struct {
	// Status is the status code. Zero means the Handler's, or 200.
	Status int
	// Header is added to the Handler's header and replaces fields of the same name.
	Header http.Header
	// Body is the response body. "" means the Handler's, or none. If it is a JSON object or array,
	// the default Content-Type is application/json.
	Body string

	// Handler is called after the request's header was read, and its response is buffered in
	// memory. The other fields then change, delay or break that response. If Handler hijacks the
	// connection or injects a fault itself, that takes effect at once. nil means none.
	Handler http.Handler

	// Delay is the wait before the response header, or before a reset. It ends early if the client
	// cancels. Zero means none.
	Delay time.Duration
	// Pause is the wait before each Chunk of the body. Zero means none.
	Pause time.Duration
	// Chunk is the number of bytes between two pauses. Zero means 1.
	Chunk int

	// Fault is the fault to inject. Zero means NoFault.
	Fault Fault
	// At is the number of body bytes that ResetMidBody, Truncated and Stalled send, at most
	// all but one. Zero means half of the body, and a negative number none. If there is no
	// body, these faults use one of 64 bytes.
	At int

	// RetryAfter is the wait that the response asks for, rounded up to what the format can
	// express. Zero means that no such field is sent.
	RetryAfter time.Duration
	// RetryAfterFormat is the format of RetryAfter. Zero means Seconds.
	RetryAfterFormat RetryAfterFormat
	// RateLimits are quotas that the header describes. They are not enforced: see Quota.
	RateLimits []RateLimit
}

var _ http.Handler = Reply{}

// Status returns a Reply with that status and no body.
func Status(code int) Reply { return Reply{Status: code} }

// OK returns a Reply with status 200 and that body.
func OK(body string) Reply { return Reply{Body: body} }

// Redirect returns a Reply with that status (301, 302, 303, 307 or 308) and Location. The
// location is sent unchanged, also if it is malformed.
func Redirect(code int, location string) Reply {
	return Reply{Status: code, Header: http.Header{"Location": {location}}}
}

// Unavailable returns a Reply with status 503 that asks the client to wait.
func Unavailable(wait time.Duration, form RetryAfterFormat) Reply {
	return Reply{Status: http.StatusServiceUnavailable, RetryAfter: wait, RetryAfterFormat: form}
}

// Throttled returns a Reply with status 429. Its header describes, in that dialect, a quota of
// 60 per minute with 0 remaining until the reset. Set [Reply.RetryAfter] for a Retry-After, and
// [Reply.RateLimits] for other quotas.
func Throttled(d Dialect, reset time.Duration) Reply {
	return Reply{
		Status:     http.StatusTooManyRequests,
		RateLimits: []RateLimit{{Dialect: d, Limit: 60, Reset: reset, Window: time.Minute}},
	}
}

// LoseResponse returns a Reply that calls work and then resets the connection instead of
// responding: the charge is made, and the client does not know.
func LoseResponse(work http.Handler) Reply { return Reply{Handler: work, Fault: ResetAfterRead} }

// orOK returns h, or the zero Reply if h is nil.
func orOK(h http.Handler) http.Handler {
	return cmp.Or[http.Handler](h, Reply{})
}

// ServeHTTP sends the response or injects the fault.
func (p Reply) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x, ctx := exchangeOf(r), r.Context()
	if p.Fault < NoFault || p.Fault > Silent {
		misuse(w, r, fmt.Sprintf("Reply.Fault: %v is not a fault", p.Fault))
		return
	}
	if p.Status != 0 && p.Status != http.StatusSwitchingProtocols && (p.Status < 200 || p.Status > 999) {
		misuse(w, r, fmt.Sprintf("Reply.Status: %d is not the status of a final response", p.Status))
		return
	}
	for _, l := range p.RateLimits {
		if !l.Dialect.valid() {
			misuse(w, r, fmt.Sprintf("Reply.RateLimits: %v is not a dialect", l.Dialect))
			return
		}
	}
	if !p.RetryAfterFormat.valid() {
		misuse(w, r, fmt.Sprintf("Reply.RetryAfterFormat: %d is not a format", p.RetryAfterFormat))
		return
	}
	if p.Fault == ResetBeforeRead {
		wait(ctx, p.Delay)
		x.fault(p.Fault, true)
		closeConn(w, true, x.beforeReset())
		return
	}
	a, gone := p.answer(w, r)
	if gone {
		return
	}
	if r.Body != nil {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			abort() // the client canceled while it sent the request
		}
	}
	if p.Fault == Hang || p.Fault == Silent {
		x.fault(p.Fault, false)
		if p.Fault == Silent {
			silence(r)
		}
		<-ctx.Done()
		abort()
	}
	if !wait(ctx, p.Delay) {
		abort()
	}
	switch p.Fault { //nolint:exhaustive // the other faults follow below
	case ResetAfterRead:
		x.fault(p.Fault, true)
		closeConn(w, true, x.beforeReset())
		return
	case CloseAfterRead:
		x.fault(p.Fault, true)
		closeConn(w, false, "")
		return
	}
	for _, l := range p.RateLimits {
		x.adjustClock(l.Dialect)
	}
	p.head(w.Header(), a, x.clock(time.Now()))
	w.WriteHeader(a.status)
	p.body(ctx, w, a.body)
	p.breakBody(ctx, w, x)
}

// head sets the response header.
func (p Reply) head(h http.Header, a answer, now time.Time) {
	for name, values := range a.header {
		h[name] = slices.Clone(values)
	}
	if p.RetryAfter > 0 {
		p.RetryAfterFormat.set(h, p.RetryAfter, now)
	}
	for _, l := range p.RateLimits {
		l.set(h, now)
	}
	if h["Content-Type"] == nil && isJSON(a.body) {
		h.Set("Content-Type", "application/json")
	}
	if h["Date"] == nil {
		// The same time as in the dates above.
		h.Set("Date", now.UTC().Format(http.TimeFormat))
	}
	h.Del("Content-Length")
	if a.status >= 200 && a.status != http.StatusNoContent && a.status != http.StatusNotModified {
		h.Set("Content-Length", strconv.Itoa(len(a.body)))
	}
}

func isJSON(body []byte) bool {
	body = bytes.TrimSpace(body)
	return len(body) > 0 && (body[0] == '{' || body[0] == '[') && json.Valid(body)
}

// body sends the body, or its part before the fault. Write errors are ignored: the client has
// canceled, which also ends the context.
func (p Reply) body(ctx context.Context, w http.ResponseWriter, body []byte) {
	if p.Fault.midBody() {
		at := cmp.Or(p.At, len(body)/2)
		body = body[:max(min(at, len(body)-1), 0)]
	}
	if p.Pause <= 0 {
		_, _ = w.Write(body)
		return
	}
	rc := http.NewResponseController(w)
	for chunk := range slices.Chunk(body, max(p.Chunk, 1)) {
		// It flushes the header, or the previous chunk. The last chunk is sent when the
		// handler returns, after its record is complete.
		_ = rc.Flush()
		if !wait(ctx, p.Pause) {
			abort()
		}
		_, _ = w.Write(chunk)
	}
}

// breakBody injects a fault after a part of the body.
func (p Reply) breakBody(ctx context.Context, w http.ResponseWriter, x *exchange) {
	if !p.Fault.midBody() {
		return
	}
	x.fault(p.Fault, p.Fault != Stalled)
	switch p.Fault {
	case Stalled:
		_ = http.NewResponseController(w).Flush()
		<-ctx.Done()
		abort()
	case ResetMidBody:
		_ = http.NewResponseController(w).Flush()
		closeConn(w, true, "")
	default: // Truncated: net/http closes the connection, because bytes are missing
	}
}

// answer is a buffered response.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// defaultBody is the body of faults in mid-body if the Reply has no body. A part of it is
// invalid JSON.
const defaultBody = `{"faulttest":"a body that the client is not to get to the end."}`

// answer calls Handler and returns the response. gone is true if Handler took the connection.
func (p Reply) answer(w http.ResponseWriter, r *http.Request) (a answer, gone bool) {
	a = answer{status: http.StatusOK, header: make(http.Header)}
	if p.Handler != nil {
		if a, gone = capture(w, r, p.Handler); gone {
			return a, true
		}
	}
	a.status = cmp.Or(p.Status, a.status)
	for name, values := range p.Header {
		a.header[http.CanonicalHeaderKey(name)] = values
	}
	if p.Body != "" {
		a.body = []byte(p.Body)
	}
	if len(a.body) == 0 && p.Fault.midBody() {
		a.body = []byte(defaultBody)
	}
	return a, false
}

// capture buffers h's response. gone is true if h took the connection.
func capture(w http.ResponseWriter, r *http.Request, h http.Handler) (a answer, gone bool) {
	b := &buffer{under: w, header: make(http.Header)}
	h.ServeHTTP(b, r)
	b.WriteHeader(http.StatusOK)
	return b.answer, b.gone
}

// buffer is a ResponseWriter that keeps the response in memory.
type buffer struct {
	under  http.ResponseWriter
	header http.Header
	answer answer
	gone   bool
}

// Unwrap is for http.ResponseController, for example for deadlines.
func (b *buffer) Unwrap() http.ResponseWriter { return b.under }

// Hijack lets the handler take the connection.
func (b *buffer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(b.under).Hijack()
	b.gone = b.gone || err == nil
	return conn, rw, err
}

func (b *buffer) Header() http.Header { return b.header }

func (b *buffer) WriteHeader(code int) {
	if b.answer.status == 0 && code >= 200 {
		b.answer.status = code
		b.answer.header = b.header.Clone() // later changes of the header have no effect
	}
}

func (b *buffer) Write(p []byte) (int, error) {
	b.WriteHeader(http.StatusOK)
	b.answer.body = append(b.answer.body, p...)
	return len(p), nil
}

// Flush does nothing. It hides the Flush of under.
func (b *buffer) Flush() {}

// wait waits for d and returns false if ctx ends before. If d is 0 it returns true.
func wait(ctx context.Context, d time.Duration) bool {
	return d <= 0 || sleep.Context(ctx, d) == nil
}
