package fuzz_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/conditional"
	"github.com/resilienthttp/resilienthttp/endpoints"
)

// plan is what a call does.
type plan struct {
	id       string
	at       time.Duration // since the start of the script
	method   string        // update: conditional.Update
	keyless  bool
	body     bool
	once     bool          // the body cannot be read again
	single   bool          // WithSingleAttempt
	again    bool          // the caller repeats a POST in doubt, as docs/endpoints.md says
	leaves   bool          // the caller leaves at the deadline: the context has none
	rewinds  bool          // the body is long, and GetBody rewinds its one reader
	loop     bool          // an outer loop sends the same request again, with a generated key: docs/idempotency-keys.md
	deadline time.Duration // 0: none, and the context never ends
	priority resilienthttp.Priority
}

// call is a call and its result.
type call struct {
	plan

	resp    *http.Response
	err     error
	body    string
	bodyErr error
	worked  bool // work was done when the call returned
}

const update = "update"

func (d draw) call(id string, at time.Duration) *call {
	p := plan{
		id: id, at: at, keyless: d.in(3), body: !d.in(4), once: d.in(8), single: d.in(4),
		again: d.in(2), leaves: d.in(4), priority: pick(d, 0, 0, resilienthttp.PriorityBatch, resilienthttp.PriorityCritical),
		method: pick(d, http.MethodPost, http.MethodPost, http.MethodPost, http.MethodGet, http.MethodPut, http.MethodDelete, update),
	}
	p.deadline = pick(d, 0, 30*time.Second, 5*time.Second, 600*time.Millisecond, 20*time.Millisecond)
	return &call{plan: p}
}

// drawMore draws what was added since the seeds of found were found.
func (c *call) drawMore(d draw) {
	c.rewinds = c.plan.body && !c.once && d.in(3)
	c.loop = c.method == http.MethodPost && !c.keyless && !c.once && d.in(3)
	if c.loop {
		c.again = false
	}
}

// long is the body of a call that rewinds it.
func long(id string) string { return strings.Repeat(id+"\n", 40_000) }

// run makes the call and reads the response.
func (c *call) run(client *http.Client, srv *servers) {
	ctx, cancel := context.Background(), func() {}
	switch {
	case c.deadline == 0:
	case c.leaves:
		ctx, cancel = context.WithCancel(ctx)
		defer time.AfterFunc(c.deadline, cancel).Stop()
	default:
		ctx, cancel = context.WithTimeout(ctx, c.deadline)
	}
	defer cancel()
	ctx = resilienthttp.WithPriority(ctx, c.priority)
	if !c.keyless && !c.loop && c.method != update { // its cycles are several operations
		ctx = resilienthttp.WithIdempotencyKey(ctx, "key of "+c.id)
	}
	if c.single {
		ctx = resilienthttp.WithSingleAttempt(ctx)
	}
	if c.method == update {
		u := conditional.Updater{Client: client, Header: http.Header{"Call": {c.id}}}
		c.resp, c.err = u.Update(ctx, "http://"+hosts[0]+"/account/1", func(current []byte, _ http.Header) ([]byte, error) {
			return append(current, c.id+";"...), nil
		})
	} else {
		c.resp, c.err = c.send(ctx, client)
	}
	c.worked = srv.worked(c)
	if c.resp != nil && c.err == nil {
		var content []byte
		content, c.bodyErr = io.ReadAll(c.resp.Body)
		c.body = string(content)
		_ = c.resp.Body.Close()
	}
	c.repeat(client, srv)
}

// repeat makes a call that is in doubt again, with the same key at the same server.
func (c *call) repeat(client *http.Client, srv *servers) {
	attempts := resilienthttp.Attempts(c.resp)
	if failed, ours := errors.AsType[*resilienthttp.Error](c.err); ours {
		attempts = failed.Attempts
	}
	if !c.again || c.keyless || c.method != http.MethodPost || len(attempts) == 0 || srv.redirected(c) || !resilienthttp.InDoubt(c.resp, c.err) {
		return
	}
	ctx, cancel := context.WithTimeout(resilienthttp.WithIdempotencyKey(context.Background(), "key of "+c.id), 30*time.Second)
	defer cancel()
	if srv.list {
		ctx = endpoints.WithEndpoint(ctx, attempts[len(attempts)-1].Endpoint)
	}
	if resp, err := c.send(ctx, client); err == nil {
		_ = resp.Body.Close()
	}
}

func (s *servers) redirected(c *call) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.moved[c.id]
}

func (c *call) send(ctx context.Context, client *http.Client) (*http.Response, error) {
	var body io.Reader
	switch {
	case c.plan.body && c.once:
		body = io.MultiReader(strings.NewReader(c.id))
	case c.plan.body:
		body = strings.NewReader(c.id)
	}
	path := "/keyed/"
	if c.keyless {
		path = "/keyless/"
	}
	req, err := http.NewRequestWithContext(ctx, c.method, "http://"+hosts[0]+path+c.id, body)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Call", c.id)
	if c.rewinds {
		reader := strings.NewReader(long(c.id))
		req.ContentLength = reader.Size()
		req.GetBody = func() (io.ReadCloser, error) {
			_, err := reader.Seek(0, io.SeekStart)
			return io.NopCloser(struct{ io.Reader }{reader}), err
		}
		req.Body, _ = req.GetBody()
	}
	resp, err := client.Do(req)
	for range 2 {
		if !c.loop || err == nil && resp.StatusCode < http.StatusInternalServerError || ctx.Err() != nil {
			break
		}
		if err == nil {
			_ = resp.Body.Close()
		}
		time.Sleep(time.Second)
		if req.GetBody != nil {
			req.Body, _ = req.GetBody()
		}
		resp, err = client.Do(req)
	}
	return resp, err
}

// worked reports whether the work of the call was done.
func (s *servers) worked(c *call) bool { return s.count(c) > 0 }

// count returns how often the work of the call was done.
func (s *servers) count(c *call) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, times := range s.work[c.id] {
		n += times
	}
	return n + strings.Count(s.balance.content, c.id+";")
}

// check returns the promise that the result of the call breaks, or "".
func (c *call) check(srv *servers) string {
	status, count := 0, srv.count(c)
	if c.resp != nil {
		status = c.resp.StatusCode
	}
	safe, success := c.method == http.MethodGet, status/100 == 2 && c.err == nil
	doubt := resilienthttp.InDoubt(c.resp, c.err) || errors.Is(c.err, conditional.ErrUnknown)
	failed, ours := errors.AsType[*resilienthttp.Error](c.err)
	srv.mu.Lock()
	defer srv.mu.Unlock()
	seen := len(srv.seen[c.id])
	unseen := srv.hidden && (safe || !c.plan.body)
	// http.Client has followed a redirect to another origin. docs/errors.md says of which repetitions the library can see no doubt.
	free := srv.across[c.id] && (doubt || unseen) && !srv.list
	// A redirect's request has another address than the one that the loop repeats, and a new call at a list may go elsewhere.
	looped := c.loop && (srv.moved[c.id] || srv.list && !srv.shared)
	switch {
	case srv.torn[c.id]:
		return "a body was stored that was not sent"
	case c.resp == nil && c.err == nil:
		return "neither a response nor an error"
	case count > 1 && !free && !looped && (c.method == http.MethodPost || c.method == update):
		return "done twice"
	case count > 0 && !success && status != http.StatusSeeOther && !doubt && !unseen && !c.loop: // the loop's last call has a doubt of its own
		return "InDoubt is false, and the work is done"
	case success && doubt && !srv.moved[c.id]:
		return "InDoubt is true after a success"
	case ours && failed.NotSent() && seen > 0 && !unseen && c.method != update && !c.loop: // an update's read is another request
		return "NotSent is true, and a server has seen the request"
	case success && !safe && !c.worked:
		return "success without work"
	case c.err == nil && c.method != update && !strings.HasPrefix(c.id, c.body), c.err == nil && c.bodyErr == nil && c.body != c.id && c.method != update:
		return "the answer of another call: " + c.body
	}
	return ""
}
