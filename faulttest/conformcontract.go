package faulttest

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/sleep"
)

// contractRows are about http.RoundTripper and the bodies of requests and responses.
func contractRows() []row {
	return []row{
		{"result", checkResult,
			"http.Client drops the response, or panics, if a RoundTripper returns both a response and an error, or neither.",
			"net/http, RoundTripper"},
		{"request", checkRequest,
			"The caller may send the request again, and headers that the client has added would then be sent twice.",
			"net/http, RoundTripper: RoundTrip should not modify the request"},
		{"body-closed", checkBodyClosed,
			"A body that stays open keeps its file or pipe, and a second Close may close what another goroutine has opened since.",
			"net/http, RoundTripper: RoundTrip must always close the body; io.Closer: a second Close is undefined"},
		{"whole-body", checkWholeBody,
			"A server that gets a part of a body with a valid end stores it: half a file, or an empty one.",
			"net/http, Request.GetBody returns a new copy of Body; RFC 9112, 7.1: the last chunk ends a body"},
		{"last-response", checkLastResponse,
			"The body of the last response has the reason of the failure, and callers read it after RoundTrip has returned.",
			"net/http, RoundTripper: RoundTrip must return err == nil if it obtained a response"},
		{"client-errors", checkClientErrors,
			"The same request gets the same answer, so a retry only delays the caller and loads the server.",
			"RFC 9110, 15.5: the client seems to have erred"},
		{"goroutines", checkGoroutines,
			"What one call leaves behind, a service leaves behind for each call, until its memory or its connections are used up.",
			"net/http, Response.Body: it is the caller's responsibility to close Body"},
	}
}

// ending is a way in which a call ends.
type ending struct {
	name   string
	script http.Handler
	left   time.Duration // until the deadline of the call
}

func endings() []ending {
	busy := Reply{Status: 503, Body: "busy"} // a body, because an empty one needs no Close
	return []ending{
		{"200", OK("done"), usual},
		{"404", Status(404), usual},
		{"503 twice, then 200", Sequence(busy, busy, OK("done")), usual},
		{"503 always", busy, usual},
		{"429 with Retry-After, then 200", Sequence(Reply{Status: 429, Body: "busy", RetryAfter: time.Second}, OK("done")), usual},
		{"reset before the body is read, then 200", Sequence(ResetBeforeRead, OK("done")), usual},
		{"reset always", ResetAfterRead, usual},
		{"connection refused", away{OK("done"), time.Hour}, usual},
		{"no response until the deadline", Hang, 3 * time.Second},
		{"Retry-After above the deadline", Unavailable(asked, Seconds), 3 * time.Second},
		{"the deadline has passed before the call", OK("done"), -time.Second},
	}
}

// play makes a call of PUT that ends so.
func (c *trial) play(e ending, name string, edit ...func(*http.Request)) (*scene, fetched) {
	s := c.scene(e.name+name, e.script)
	got := s.call(e.left, http.MethodPut, "payload", edit...)
	return s, got
}

func checkResult(c *trial) {
	for _, e := range endings() {
		s, got := c.play(e, "")
		s.want((got.resp == nil) != (got.err == nil), "result of RoundTrip", "either a response or an error",
			fmt.Sprintf("response: %v, error: %v", got.resp != nil, got.err))
	}
}

func checkRequest(c *trial) {
	for _, e := range endings() {
		var req *http.Request
		var before http.Request
		s, _ := c.play(e, "", func(r *http.Request) {
			r.Header.Set("X-Caller", "1")
			req = r
			before = *r
			before.URL = new(*r.URL)
			before.Header = r.Header.Clone()
		})
		c.sleep(time.Second) // a client may still be busy
		changed := changes(&before, req)
		s.want(len(changed) == 0, "fields of the request that the client has changed", "none", strings.Join(changed, ", "))
	}
}

// changes returns the fields that differ.
func changes(before, after *http.Request) (fields []string) {
	if *before.URL != *after.URL {
		fields = append(fields, "URL: "+after.URL.String())
	}
	if !maps.EqualFunc(before.Header, after.Header, slices.Equal) {
		fields = append(fields, fmt.Sprintf("Header: %v", after.Header))
	}
	was, is := reflect.ValueOf(*before), reflect.ValueOf(*after)
	for i := range is.NumField() {
		name := is.Type().Field(i).Name
		if name != "URL" && name != "Header" && !same(was.Field(i), is.Field(i)) {
			fields = append(fields, name)
		}
	}
	return fields
}

// counted is a body that counts how often it is closed.
type counted struct {
	io.Reader

	closed atomic.Int32
}

func (b *counted) Close() error {
	b.closed.Add(1)
	return nil
}

func checkBodyClosed(c *trial) {
	for _, e := range endings() {
		c.bodyClosed(e, ", with GetBody", func(*http.Request) {})
		c.bodyClosed(e, ", without GetBody", once)
	}
}

// once removes GetBody, as a body that is a stream has none.
func once(req *http.Request) { req.GetBody = nil }

func (c *trial) bodyClosed(e ending, name string, edit func(*http.Request)) {
	var mu sync.Mutex
	var bodies []*counted
	open := func() (io.ReadCloser, error) {
		mu.Lock()
		defer mu.Unlock()
		body := &counted{Reader: strings.NewReader("payload")}
		bodies = append(bodies, body)
		return body, nil
	}
	s, _ := c.play(e, name, func(r *http.Request) {
		r.Body, _ = open()
		r.GetBody = open
	}, edit)
	c.sleep(time.Second) // net/http may close a body after RoundTrip
	mu.Lock()
	defer mu.Unlock()
	for i, b := range bodies {
		s.want(b.closed.Load() == 1, fmt.Sprintf("calls of Close of body %d", i+1), "1", fmt.Sprint(b.closed.Load()))
	}
}

const fileSize = 64 << 10

// slowRead is longer than the backoff of clients, so that a client that does not wait for the end of
// an attempt's Read begins the next attempt beside it.
const slowRead = 10 * time.Second

// chunks is a body that comes in quarters from a slow source. SDKs rewind such a reader for each attempt.
type chunks struct {
	ctx  context.Context //nolint:containedctx // Read has none
	mu   sync.Mutex
	text string
	at   int
}

func (b *chunks) Read(p []byte) (int, error) {
	_ = sleep.Context(b.ctx, slowRead)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.at == len(b.text) {
		return 0, io.EOF
	}
	n := copy(p[:min(len(p), len(b.text)/4)], b.text[b.at:])
	b.at += n
	return n, nil
}

func (b *chunks) rewind() (io.ReadCloser, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.at = 0
	return io.NopCloser(b), nil
}

// early responds before it has read the body, as a proxy without a backend does, and then reads it.
func early(w http.ResponseWriter, r *http.Request) {
	_ = http.NewResponseController(w).EnableFullDuplex()
	w.WriteHeader(http.StatusServiceUnavailable)
	_, _ = io.WriteString(w, "no backend")
	_ = http.NewResponseController(w).Flush()
	_, _ = io.Copy(io.Discard, r.Body)
}

func checkWholeBody(c *trial) {
	text := strings.Repeat("0123456789abcdef", fileSize/16)
	stored := OK("stored")
	unknown := func(r *http.Request) { r.ContentLength = -1 }
	rewinds := func(r *http.Request) {
		body := &chunks{ctx: c.life, text: text}
		r.Body = io.NopCloser(body)
		r.GetBody = body.rewind
	}
	c.wholeBody("503 twice, length known", text, Sequence(Status(503), Status(503), stored))
	c.wholeBody("503 twice, length unknown", text, Sequence(Status(503), Status(503), stored), unknown)
	c.wholeBody("503, no GetBody, length known", text, Sequence(Status(503), stored), once)
	c.wholeBody("503, no GetBody, length unknown", text, Sequence(Status(503), stored), once, unknown)
	c.wholeBody("reset in the body, length unknown", text, Sequence(ResetBeforeRead, stored), unknown)
	c.wholeBody("503 before the body was read, and GetBody rewinds one reader", text, Sequence(http.HandlerFunc(early), stored), unknown, rewinds)
}

func (c *trial) wholeBody(name, text string, script http.Handler, edit ...func(*http.Request)) {
	s := c.scene(name, script)
	s.call(10*usual, http.MethodPut, text, edit...)
	c.sleep(2 * slowRead) // until all bodies are read
	for _, q := range s.Requests() {
		whole := q.BodySize == fileSize && strings.HasPrefix(text, string(q.Body))
		s.want(!q.BodyRead || whole, fmt.Sprintf("body of request %d", q.Number), "the caller's 65536 bytes, or a request that breaks", describe(&q))
	}
}

func checkLastResponse(c *trial) {
	text := strings.Repeat("x", fileSize)
	s := c.scene("503 always", Reply{Status: 503, Body: text})
	got := s.call(10*usual, http.MethodGet, "")
	s.want(got.err == nil && got.body == text, "result of the call", "the last 503 with its 65536 bytes", got.String())

	slow := Reply{Body: text, Chunk: fileSize / 8, Pause: time.Second}
	s = c.scene("503, then 200 with a body that takes 8 s", Sequence(Status(503), slow))
	got = s.call(10*usual, http.MethodGet, "")
	retried := s.Total() > 1
	s.want(!retried || got.err == nil && got.body == text, "result of the call", "200 with 65536 bytes", got.String())
}

func checkClientErrors(c *trial) {
	for _, status := range []int{400, 401, 403, 404, 410, 422} {
		for _, method := range []string{http.MethodGet, http.MethodPut} {
			s := c.scene(fmt.Sprintf("%s, %d", method, status), Status(status))
			s.call(usual, method, "payload")
			s.want(s.Total() == 1, "requests", "1", fmt.Sprint(s.Total()))
		}
	}
}

func checkGoroutines(c *trial) {
	known := bubbleGoroutines() // before the first client
	for _, e := range endings() {
		s := c.scene(e.name, e.script)
		// The end of its context also ends what net/http has left of a call. So it does not end before the check.
		ctx, cancel := context.WithTimeout(c.life, e.left)
		s.Cleanup(cancel)
		s.fetch(s.client.RoundTrip, s.request(ctx, http.MethodGet, "/file", ""))
		c.sleep(time.Second)
		s.end()
		s.Close()
		c.sleep(time.Second)
		for id, stack := range bubbleGoroutines() {
			if _, before := known[id]; !before {
				s.Errorf("a goroutine is left a second after the call (readLoop of net/http: a response body is open):\n%s", stack)
				known[id] = stack
			}
		}
	}
}
