package admission

import (
	"encoding/json"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"
)

// The types of problems that draft-ietf-httpapi-ratelimit-headers-11 (section 5) asks
// IANA to register, and where ours are explained that no registry has.
const (
	registered = "https://iana.org/assignments/http-problem-types#"
	explained  = "https://github.com/resilienthttp/resilienthttp/blob/main/docs/admission.md#"

	quotaExceeded   = registered + "quota-exceeded"
	reducedCapacity = registered + "temporary-reduced-capacity"
)

// problem is a refusal that has been written already (RFC 9457), so that sending it
// costs next to nothing.
type problem struct {
	status    int
	body      []byte
	length    string
	permanent bool // it would be refused again, whenever it came
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

// misconfigured is the answer of a gate that cannot work.
func misconfigured() problem {
	p := newProblem(http.StatusInternalServerError, explained+"misconfigured", "The server is misconfigured")
	p.permanent = true
	return p
}

// jittered is a wait to tell a client: at least d, and up to half of it more, so that
// those who are refused together do not come back together.
func jittered(d time.Duration) time.Duration {
	return d + rand.N(d/2+1)
}

// refuse answers with the problem; a wait of 0 says nothing of when to come back.
func reject(w http.ResponseWriter, r *http.Request, p *problem, wait time.Duration) {
	h := w.Header()
	values := [...]string{"application/problem+json", "no-store", p.length, "", "", "false"}
	set := func(name string, i int) { h[name] = values[i : i+1 : i+1] }
	set("Content-Type", 0)
	set("Cache-Control", 1)
	set("Content-Length", 2)
	if wait > 0 {
		values[3] = strconv.FormatInt(wholeSeconds(wait), 10)
		values[4] = strconv.FormatInt(int64((wait+time.Millisecond-1)/time.Millisecond), 10)
		set("Retry-After", 3)
		set("Retry-After-Ms", 4)
	}
	if p.permanent {
		set("X-Should-Retry", 5)
	}
	before := answersFirst(w, r)
	w.WriteHeader(p.status)
	_, _ = w.Write(p.body)
	if before {
		_ = http.NewResponseController(w).Flush()
		_, _ = io.CopyN(io.Discard, r.Body, longestBody+1)
	}
}

// longestBody is what net/http reads of a body that a handler has left, to keep the
// connection.
const longestBody = 256 << 10

// answersFirst sees to it that the answer can leave before the body has come. By
// itself net/http's HTTP/1 server reads so much of it before. If it does not, the body
// has to be read by the end of the handler: when the server finds its end only after
// that, it reads the connection twice at once.
func answersFirst(w http.ResponseWriter, r *http.Request) bool {
	return r.ProtoMajor == 1 && r.ContentLength > 0 && r.ContentLength <= longestBody &&
		r.Header["Expect"] == nil && // who waits to be asked for the body is not asked
		http.NewResponseController(w).EnableFullDuplex() == nil
}

// wholeSeconds is a time in seconds, rounded up, and at least one.
func wholeSeconds(d time.Duration) int64 {
	if d <= time.Second {
		return 1
	}
	return int64((d-1)/time.Second) + 1
}
