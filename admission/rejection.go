package admission

import (
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/field"
)

// The problem types that draft-ietf-httpapi-ratelimit-headers-11 (section 5) asks IANA to
// register, and the page that explains our own.
const (
	registered = "https://iana.org/assignments/http-problem-types#"
	explained  = "https://github.com/resilienthttp/resilienthttp/blob/main/docs/admission.md#"

	quotaExceeded   = registered + "quota-exceeded"
	reducedCapacity = registered + "temporary-reduced-capacity"
)

// problem is an encoded rejection (RFC 9457).
type problem struct {
	status    int
	body      []byte
	length    string
	permanent bool // a retry would be rejected again
}

func newProblem(status int, kind, title string, violated ...string) problem {
	body, _ := json.Marshal(struct { //nolint:errchkjson // strings and a number
		Type     string   `json:"type"`
		Title    string   `json:"title"`
		Status   int      `json:"status"`
		Violated []string `json:"violated-policies,omitempty"`
	}{kind, title, status, violated})
	body = append(body, '\n')
	return problem{status: status, body: body, length: strconv.Itoa(len(body))}
}

// misconfigured is the response of an invalid configuration.
func misconfigured() problem {
	p := newProblem(http.StatusInternalServerError, explained+"misconfigured", "The server is misconfigured")
	p.permanent = true
	return p
}

// jittered returns a wait of d to 1.5 d, so that clients that are rejected together do not
// retry together.
func jittered(d time.Duration) time.Duration {
	return d + rand.N(d/2+1)
}

// reject responds with the problem. A wait of 0 means no Retry-After. Nothing was executed of a request that is rejected, and
// the response says so.
func reject(w http.ResponseWriter, r *http.Request, p *problem, wait time.Duration) {
	h := w.Header()
	values := [...]string{"application/problem+json", "no-store", p.length, field.NotExecuted, "", "", "false"}
	set := func(name string, i int) { h[name] = values[i : i+1 : i+1] }
	set("Content-Type", 0)
	set("Cache-Control", 1)
	set("Content-Length", 2)
	set(field.ExecutedHeader, 3)
	if wait > 0 {
		values[4] = strconv.FormatInt(wholeSeconds(wait), 10)
		values[5] = strconv.FormatInt(int64((wait+time.Millisecond-1)/time.Millisecond), 10)
		set("Retry-After", 4)
		set("Retry-After-Ms", 5)
	}
	if p.permanent {
		set("X-Should-Retry", 6)
	}
	before := respondsFirst(w, r)
	w.WriteHeader(p.status)
	_, _ = w.Write(p.body)
	if before {
		drain(w, r)
	}
}

// drainTimeout is the time for the rest of the body of a rejected request.
const drainTimeout = 100 * time.Millisecond

// drain sends the response and reads the body. If the body does not end in time, it closes the
// connection: net/http would read the rest of the body as the next request.
func drain(w http.ResponseWriter, r *http.Request) {
	c := http.NewResponseController(w)
	_ = c.Flush()
	_ = c.SetReadDeadline(time.Now().Add(drainTimeout))
	if _, err := io.CopyN(io.Discard, r.Body, maxBody+1); !errors.Is(err, io.EOF) {
		panic(http.ErrAbortHandler)
	}
	_ = c.SetReadDeadline(time.Time{})
}

// maxBody is the number of bytes of an unread body that net/http reads to keep the
// connection.
const maxBody = 256 << 10

// respondsFirst reports whether the response is sent before the body has arrived. The HTTP/1
// server of net/http reads up to maxBody before it sends a response, unless full duplex is
// enabled. Then the handler must read the whole body itself.
func respondsFirst(w http.ResponseWriter, r *http.Request) bool {
	return r.ProtoMajor == 1 && r.ContentLength > 0 && r.ContentLength <= maxBody &&
		r.Header["Expect"] == nil && // the client waits for 100 Continue before it sends the body
		http.NewResponseController(w).EnableFullDuplex() == nil
}

// wholeSeconds returns a time in seconds, rounded up, at least one.
func wholeSeconds(d time.Duration) int64 {
	return int64((max(d, 1)-1)/time.Second) + 1
}
