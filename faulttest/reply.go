package faulttest

import (
	"bufio"
	"bytes"
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

// A Reply is what happens to one request: an answer, a fault, or an answer with
// a fault in it. The zero value is an empty 200. It is a plain value, may be
// shared and copied, and serves any number of requests at once.
//
// A Reply reads the whole request body before it answers, save for
// [ResetBeforeRead]. Its answers bear a Date and, where their status allows a
// body, a Content-Length.
type Reply struct {
	Status int         // 0: 200, or that of Handler
	Header http.Header // added to that of Handler, whose fields of the same name it replaces
	Body   string      // "": that of Handler, or none. The Content-Type of a JSON object or array is application/json, if Header has no other

	// Handler does the work: it is called once the request's head is there, and
	// what it writes is held back, in memory, to be delayed, slowed and broken as
	// the other fields say. That is how to lose the answer to work that was done.
	// What Handler does to the connection (hijacking, a fault of its own) takes
	// place at once. Nil: no work.
	Handler http.Handler

	Delay time.Duration // before the response headers, or before a reset. Ends early when the client leaves
	Pause time.Duration // before each Chunk of the body: a slow body. 0: none
	Chunk int           // bytes; 0: 1. Without Pause it means nothing

	Fault Fault
	// At is how many bytes of the body ResetMidBody, Truncated and Stalled send.
	// 0: half of them; negative: none; at most all but one. An empty body becomes
	// one of 64 bytes for them.
	At int

	RetryAfter       time.Duration    // sent in the form of Form, and rounded up to what that can say. 0: not sent
	RetryAfterFormat RetryAfterFormat // 0: Seconds
	RateLimits       []RateLimit      // quotas that the headers tell of; not enforced, see Quota
}

var _ http.Handler = Reply{}

// Status returns a Reply with the status, and nothing else.
func Status(code int) Reply { return Reply{Status: code} }

// OK returns a 200 with the body.
func OK(body string) Reply { return Reply{Body: body} }

// Redirect returns a redirect (301, 302, 303, 307, 308) to the location, which
// is sent as it is: a path or a URL, well-formed or not.
func Redirect(code int, location string) Reply {
	return Reply{Status: code, Header: http.Header{"Location": {location}}}
}

// Unavailable returns a 503 that asks the client to wait.
func Unavailable(wait time.Duration, form RetryAfterFormat) Reply {
	return Reply{Status: http.StatusServiceUnavailable, RetryAfter: wait, RetryAfterFormat: form}
}

// Throttled returns a 429 whose headers say, in the dialect and in nothing else,
// that a quota of 60 a minute is used up until reset has passed. For a
// Retry-After beside them set [Reply.RetryAfter]; for other numbers, or several
// quotas, [Reply.RateLimits].
func Throttled(d Dialect, reset time.Duration) Reply {
	return Reply{
		Status:     http.StatusTooManyRequests,
		RateLimits: []RateLimit{{Dialect: d, Limit: 60, Reset: reset, Window: time.Minute}},
	}
}

// Lose returns a Reply that has work do its work and then resets the connection
// instead of answering: the charge is made, and the client does not know.
func LoseResponse(work http.Handler) Reply { return Reply{Handler: work, Fault: ResetAfterRead} }

// orOK is h, or the zero Reply where there is none.
func orOK(h http.Handler) http.Handler {
	if h == nil {
		return Reply{}
	}
	return h
}

// ServeHTTP answers, or does not.
func (p Reply) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x, ctx := exchangeOf(r), r.Context()
	if p.Fault < NoFault || p.Fault > Hang {
		misuse(w, r, fmt.Sprintf("Reply.Fault: there is no %v", p.Fault))
		return
	}
	if p.Status != 0 && p.Status != http.StatusSwitchingProtocols && (p.Status < 200 || p.Status > 999) {
		misuse(w, r, fmt.Sprintf("Reply.Status: %d is not the status of an answer", p.Status))
		return
	}
	if p.Fault == ResetBeforeRead {
		wait(ctx, p.Delay)
		x.fault(p.Fault, true)
		hangUp(w, true, x.begun())
		return
	}
	a, gone := p.answer(w, r)
	if gone {
		return
	}
	if r.Body != nil {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			abort() // the client left in the middle of its request
		}
	}
	if p.Fault == Hang {
		x.fault(Hang, false)
		<-ctx.Done()
		abort()
	}
	if !wait(ctx, p.Delay) {
		abort()
	}
	switch p.Fault { //nolint:exhaustive // the others come later
	case ResetAfterRead:
		x.fault(p.Fault, true)
		hangUp(w, true, x.begun())
		return
	case CloseAfterRead:
		x.fault(p.Fault, true)
		hangUp(w, false, "")
		return
	}
	for _, l := range p.RateLimits {
		x.tells(l.Dialect)
	}
	p.head(w.Header(), a, x.clock(time.Now()))
	w.WriteHeader(a.status)
	p.body(ctx, w, a.body)
	p.breakOff(ctx, w, x)
}

// head fills in the response headers.
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
		// By the same reading of the clock as the dates above.
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

// body sends what there is to send of the body. Errors are those of a client
// that has left, which its context tells too.
func (p Reply) body(ctx context.Context, w http.ResponseWriter, body []byte) {
	if p.Fault.midBody() {
		at := p.At
		if at == 0 {
			at = len(body) / 2
		}
		body = body[:max(min(at, len(body)-1), 0)]
	}
	if p.Pause <= 0 {
		_, _ = w.Write(body)
		return
	}
	rc := http.NewResponseController(w)
	for chunk := range slices.Chunk(body, max(p.Chunk, 1)) {
		// What came before: the head, or the last chunk. The very last one goes
		// out when the handler returns and all of it is on record.
		_ = rc.Flush()
		if !wait(ctx, p.Pause) {
			abort()
		}
		_, _ = w.Write(chunk)
	}
}

// breakOff does what is left to do of a fault once a part of the body is sent.
func (p Reply) breakOff(ctx context.Context, w http.ResponseWriter, x *exchange) {
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
		hangUp(w, true, "")
	default: // Truncated: net/http closes the connection, since bytes are missing
	}
}

// An answer is a response in memory.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// stock is the body of faults in mid-body that have none of their own. It is
// JSON, so that half of it is not.
const stock = `{"faulttest":"a body that the client is not to get to the end."}`

// answer does the work, and says what there is to send, or that the connection
// is gone.
func (p Reply) answer(w http.ResponseWriter, r *http.Request) (a answer, gone bool) {
	a = answer{status: http.StatusOK, header: make(http.Header)}
	if p.Handler != nil {
		if a, gone = capture(w, r, p.Handler); gone {
			return a, true
		}
	}
	if p.Status != 0 {
		a.status = p.Status
	}
	for name, values := range p.Header {
		a.header[http.CanonicalHeaderKey(name)] = values
	}
	if p.Body != "" {
		a.body = []byte(p.Body)
	}
	if len(a.body) == 0 && p.Fault.midBody() {
		a.body = []byte(stock)
	}
	return a, false
}

// capture has h answer into memory, unless it takes the connection.
func capture(w http.ResponseWriter, r *http.Request, h http.Handler) (a answer, gone bool) {
	b := &buffer{under: w, header: make(http.Header)}
	h.ServeHTTP(b, r)
	b.WriteHeader(http.StatusOK)
	return b.answer, b.gone
}

// A buffer is a ResponseWriter that keeps what is written.
type buffer struct {
	under  http.ResponseWriter
	header http.Header
	answer answer
	gone   bool
}

// Unwrap is for http.ResponseController: deadlines and the like.
func (b *buffer) Unwrap() http.ResponseWriter { return b.under }

// Hijack lets h break the connection that it will not answer on.
func (b *buffer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(b.under).Hijack()
	b.gone = b.gone || err == nil
	return conn, rw, err
}

func (b *buffer) Header() http.Header { return b.header }

func (b *buffer) WriteHeader(code int) {
	if b.answer.status == 0 && code >= 200 {
		b.answer.status = code
		b.answer.header = b.header.Clone() // what is set from now on is too late
	}
}

func (b *buffer) Write(p []byte) (int, error) {
	b.WriteHeader(http.StatusOK)
	b.answer.body = append(b.answer.body, p...)
	return len(p), nil
}

// Flush does nothing; without it, that of under would be found.
func (b *buffer) Flush() {}

// wait waits for d, and reports false if ctx ended first. A wait of no time
// always succeeds.
func wait(ctx context.Context, d time.Duration) bool {
	return d <= 0 || sleep.Context(ctx, d) == nil
}
