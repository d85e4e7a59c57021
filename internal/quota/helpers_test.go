package quota

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/ratelimitheader"
	"github.com/resilienthttp/resilienthttp/internal/retryafter"
	"github.com/resilienthttp/resilienthttp/internal/waitqueue"
)

// with returns a Limiter with RateLimit's defaults for the fields that are not set.
func with(c Config) *Limiter {
	if c.Burst == 0 {
		c.Burst = int(min(max(math.Ceil(float64(c.Limit)), 1), math.MaxInt32))
	}
	if c.MaxWait == 0 {
		c.MaxWait = time.Minute
	}
	if c.MaxBlock == 0 {
		c.MaxBlock = time.Hour
	}
	c.Follow = true
	return New(c)
}

// paced is a transport with a Limiter only.
type paced struct {
	*Limiter

	base      http.RoundTripper
	maxClosed time.Duration
	unknown   atomic.Int64 // requests in flight without a permit
}

func (p *paced) RoundTrip(req *http.Request) (*http.Response, error) {
	r := requestOf(p.Limiter, req)
	r.MaxBlock = p.maxClosed
	set, permit := p.Set(req.URL.Host), Permit{}
	active := set.Active()
	if active {
		var refusal *waitqueue.Rejection
		if permit, refusal = set.Admit(req.Context(), r, time.Now()); refusal != nil {
			return nil, &refusedError{*refusal, context.Cause(req.Context())}
		}
	}
	if !active {
		p.unknown.Add(1)
	}
	sent := time.Now()
	resp, err := p.base.RoundTrip(req)
	now, answer := time.Now(), new(Response)
	if err == nil {
		answer = answerOf(resp.StatusCode, resp.Header, now)
	}
	if active {
		permit.Done(answer, now)
	} else {
		set.Observe(r, answer, sent, now, p.unknown.Load()-1)
		p.unknown.Add(-1)
	}
	return resp, err
}

// requestOf is the request as the Limiter sees it.
func requestOf(l *Limiter, req *http.Request) Request {
	r := Request{Method: req.Method, Path: req.URL.Path}
	r.Deadline, _ = req.Context().Deadline()
	if secret := req.Header.Get("Authorization"); secret != "" {
		r.Credential = l.Hash(secret)
	}
	return r
}

// answerOf is a response as the Limiter sees it.
func answerOf(status int, h http.Header, now time.Time) *Response {
	a := &Response{Status: status}
	a.Quota, _ = ratelimitheader.Parse(h, now)
	if status >= http.StatusBadRequest {
		a.RetryAfter, a.AsksToWait = retryafter.Parse(h, now)
	}
	return a
}

// refusedError is a Rejection as an error.
type refusedError struct {
	waitqueue.Rejection

	cause error
}

func (e *refusedError) Error() string { return fmt.Sprintf("refused: %v", e.Rejection) }
func (e *refusedError) Unwrap() error { return e.cause }

// client makes requests through a Limiter only.
func client(base http.RoundTripper, l *Limiter) *http.Client {
	return &http.Client{Transport: &paced{Limiter: l, base: base, maxClosed: time.Minute}}
}

// get makes a request and reads its response.
func get(ctx context.Context, client *http.Client, url string, header ...string) (status int, refused *refusedError) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		panic(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := client.Do(req)
	if err != nil {
		if !errors.As(err, &refused) {
			refused = &refusedError{waitqueue.Rejection{Reason: notRefused}, err}
		}
		return 0, refused
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, nil
}

// notRefused is of a request that was sent, and failed.
const notRefused waitqueue.Reason = 255

// exchange is a request and its response, for tests that use the Limiter directly.
type exchange struct {
	*Limiter
	Request
	Permit

	scope  string
	ctx    context.Context
	status int
	header http.Header
}

func newExchange(ctx context.Context, l *Limiter) *exchange {
	return &exchange{
		Limiter: l, ctx: ctx, status: http.StatusOK, header: http.Header{},
		scope:   "api.example.com",
		Request: Request{Method: http.MethodGet, Path: "/v1/things/42", MaxBlock: time.Minute},
	}
}

func (e *exchange) enter() (refused *waitqueue.Rejection) {
	e.Permit, refused = e.Set(e.scope).Admit(e.ctx, e.Request, time.Now())
	return refused
}

// shows ends the exchange with a response that shows a quota. reset is in seconds.
func (e *exchange) shows(limit, remaining, reset int) {
	setFields(e.header, "X-RateLimit-Limit", limit, "X-RateLimit-Remaining", remaining, "X-RateLimit-Reset", reset)
	e.done()
}

func (e *exchange) done() {
	now := time.Now()
	e.Done(answerOf(e.status, e.header, now), now)
}
