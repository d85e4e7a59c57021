package faulttest

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// repeatRows are about what may be repeated, and where a request may go.
func repeatRows() []row {
	return []row{
		{"caller-key", checkCallerKey,
			"The caller has stored the key, and repeats the call with it after a crash; under another key the work is done again.",
			"draft-ietf-httpapi-idempotency-key-header, 2.2"},
		{"keys", checkKeys,
			"With a new key for each attempt the work is done twice, and with one key for two calls the second one is not done.",
			"draft-ietf-httpapi-idempotency-key-header, 2.2"},
		{"done-once", checkDoneOnce,
			"A response may be lost, or replaced by a proxy, after the work was done: a repetition without a key charges a card twice.",
			"RFC 9110, 9.2.2; Varnish answers 503 with Retry-After when its backend's response is lost"},
		{"redirects", checkRedirects,
			"Another origin is another owner: it can use the credentials, and learns which keys and deadlines the first one has.",
			"RFC 9110, 15.4: remove fields of one origin; Fetch, HTTP-redirect fetch: remove Authorization"},
	}
}

// charge is the body of a POST.
const charge = `{"amount":100}`

func checkCallerKey(c *trial) {
	work := new(Idempotent)
	s := c.scene("503, a lost response, then 201", Sequence(Status(503), LoseResponse(work), work))
	s.call(usual, http.MethodPost, charge, func(r *http.Request) { r.Header.Set(c.keyHeader, "caller-1") })
	for _, q := range s.Requests() {
		keys := q.Header.Values(c.keyHeader)
		s.want(slices.Equal(keys, []string{"caller-1"}), fmt.Sprintf("key of request %d", q.Number), "caller-1", strings.Join(keys, ", "))
	}
}

func checkKeys(c *trial) {
	work := new(Idempotent)
	s := c.scene("three equal calls, each fails first", PerKey(Status(503), work))
	var calls sync.WaitGroup
	for range 2 {
		calls.Go(func() { s.call(usual, http.MethodPost, charge) })
	}
	calls.Wait()
	s.call(usual, http.MethodPost, charge)
	s.AssertKeys(s, 3)

	s = c.scene("a lost response", PerKey(LoseResponse(work), work))
	s.call(usual, http.MethodPost, charge)
	s.AssertKeys(s, 1)
}

func checkDoneOnce(c *trial) {
	for name, first := range map[string]Reply{
		"the response is lost by a reset": {Fault: ResetAfterRead},
		"the response is lost by a close": {Fault: CloseAfterRead},
		"no response":                     {Fault: Hang},
		"500":                             Status(500),
		"502":                             Status(502),
		"503":                             Status(503),
		"503 with Retry-After":            Unavailable(time.Second, Seconds),
		"504":                             Status(504),
	} {
		work := new(Idempotent)
		first.Handler = work
		c.doneOnce(name+" after the work", Sequence(first, work), work)
	}
	// Nothing was done here, so the client may repeat the POST, but need not.
	work := new(Idempotent)
	c.doneOnce("429", Sequence(Reply{Status: 429, RetryAfter: time.Second}, work), work)
	work = new(Idempotent)
	c.doneOnce("connection refused", away{work, 100 * time.Millisecond}, work)
}

func (c *trial) doneOnce(name string, script http.Handler, work *Idempotent) {
	s := c.scene(name, script)
	got := s.call(usual, http.MethodPost, charge)
	done := 0
	for _, n := range work.Executions() {
		done += n
	}
	ok := done == 1 || done == 0 && !got.served()
	s.want(ok, "executions of one POST", "1, or none if it failed", fmt.Sprintf("%d, result %s", done, got))
}

// deadlineFields are fields with which clients tell a server how long a call may take.
func deadlineFields() []string {
	return []string{"X-Request-Deadline", "X-Request-Timeout-Ms", "Grpc-Timeout", "X-Envoy-Expected-Rq-Timeout-Ms"}
}

func checkRedirects(c *trial) {
	timed, cancel := context.WithTimeout(c.life, usual)
	defer cancel()
	callers := http.Header{"Authorization": {"Bearer secret"}}
	s := c.redirected(timed, "GET, 302 to another origin", http.MethodGet, http.StatusFound, callers)
	c.redirected(timed, "POST, 302 to another origin", http.MethodPost, http.StatusFound, callers)
	c.redirected(timed, "POST, 307 to another origin", http.MethodPost, http.StatusTemporaryRedirect, callers)

	callers.Set(c.keyHeader, "caller-1")
	// A client that sends a deadline of its own knows the fields. Another one cannot know the caller's.
	for _, q := range s.Requests() {
		for _, name := range deadlineFields() {
			if q.Header.Get(name) != "" {
				callers.Set(name, "12345678")
			}
		}
	}
	c.redirected(c.life, "POST with the caller's key, 307 to another origin", http.MethodPost, http.StatusTemporaryRedirect, callers)
	c.redirected(c.life, "POST with the caller's key, 303 to another origin", http.MethodPost, http.StatusSeeOther, callers)
}

// redirected makes a call that a server redirects to another origin, with the caller's header.
func (c *trial) redirected(ctx context.Context, name, method string, status int, callers http.Header) *scene {
	s := c.scene(name, Redirect(status, "http://other.test/charges"))
	other := &Server{Network: s.Server, Host: "other.test"}
	other.KeyHeader = c.keyHeader
	other.Start(s)
	req := s.request(ctx, method, "/charges", "{}")
	req.Header = callers.Clone()
	got := s.fetch((&http.Client{Transport: s.client}).Do, req)
	s.wantAt(other, other.Total() > 0, "requests to the other origin", "1: a 3xx is returned, and http.Client follows it", got.String())
	for _, q := range other.Requests() {
		for name := range callers {
			s.wantAt(other, q.Header.Get(name) != callers.Get(name), name+" of the request to the other origin", "none, or a new one", callers.Get(name))
		}
		reused := q.Key != "" && slices.ContainsFunc(s.Requests(), func(first Request) bool { return first.Key == q.Key })
		s.wantAt(other, !reused, "key of the request to the other origin", "none, or a new one", q.Key)
	}
	return s
}
