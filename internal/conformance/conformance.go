// Package conformance tests an http.RoundTripper that wraps another one: the requirements of
// http.RoundTripper's documentation, and the expectations of http.Client,
// httputil.ReverseProxy and other callers (§4.1 to §4.6 of docs/maintainers/invariants.md).
package conformance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// Test runs all tests. wrap returns the RoundTripper under test around a base. Each test
// calls it in its own testing/synctest bubble.
func Test(t *testing.T, wrap func(http.RoundTripper) http.RoundTripper) {
	t.Helper()
	for name, test := range map[string]func(*testing.T, func(http.RoundTripper) http.RoundTripper){
		"one of response and error":      oneOfTwo,
		"the request is not modified":    requestNotModified,
		"the request's body is closed":   bodyClosedOnce,
		"a redirect is returned":         redirectsReturned,
		"an upgraded connection":         upgraded,
		"the request arrives unchanged":  bodyArrives,
		"the context ends with the body": contextEndsWithBody,
		"responses are closed":           responsesClosed,
		"idle connections are closed":    idleClosed,
		"many requests at once":          manyAtOnce,
		"RequestURI is cleared":          requestURI,
		"cancellation ends the call":     canceled,
		"Response.Request can be sent":   sentAgain,
	} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { test(t, wrap) }) })
	}
}

// base is a RoundTripper that conforms, and counts its responses.
type base struct {
	answer func(*http.Request) (*http.Response, error)

	opened, closed atomic.Int64 // response bodies
	idle           atomic.Int64 // calls of CloseIdleConnections
}

var errBroken = errors.New("connection broke")

func (b *base) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		defer r.Body.Close()
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			return nil, err
		}
	}
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	resp, err := b.answer(r)
	if resp != nil {
		b.opened.Add(1)
		resp.Body = &responseBody{resp.Body, r.Context(), b}
	}
	return resp, err
}

func (b *base) CloseIdleConnections() { b.idle.Add(1) }

// responseBody fails after the end of its request's context, as net/http's bodies do.
type responseBody struct {
	io.ReadCloser
	ctx  context.Context //nolint:containedctx // the request's context: Read must return after its end
	base *base
}

func (b *responseBody) Read(p []byte) (int, error) {
	if err := b.ctx.Err(); err != nil {
		return 0, err
	}
	return b.ReadCloser.Read(p)
}

func (b *responseBody) Close() error {
	b.base.closed.Add(1)
	return b.ReadCloser.Close()
}

// answering returns a base that answers with a status, and with headers in pairs.
func answering(status int, header ...string) *base {
	return &base{answer: func(r *http.Request) (*http.Response, error) {
		h := http.Header{}
		for i := 0; i+1 < len(header); i += 2 {
			h.Set(header[i], header[i+1])
		}
		return &http.Response{
			Status: fmt.Sprintf("%d %s", status, http.StatusText(status)), StatusCode: status,
			Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
			Header: h, Body: io.NopCloser(strings.NewReader("answer")), ContentLength: 6, Request: r,
		}, nil
	}}
}

func failing() *base {
	return &base{answer: func(*http.Request) (*http.Response, error) { return nil, errBroken }}
}

// body is a request's body that counts calls of Close.
type body struct {
	io.Reader
	closed atomic.Int64
}

func (b *body) Close() error {
	b.closed.Add(1)
	return nil
}

// request returns a request with a body that cannot be replayed.
func request(t *testing.T, ctx context.Context) (*http.Request, *body) {
	t.Helper()
	req := newRequest(t, ctx, http.MethodPost, "http://api.test/things?a=b")
	req.Header.Set("X-Mine", "value")
	b := &body{Reader: strings.NewReader("content")}
	req.Body, req.ContentLength = b, 7
	return req, b
}

func newRequest(t *testing.T, ctx context.Context, method, url string) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	return req
}

// exchanged is a response with its body, which is closed.
type exchanged struct {
	*http.Response
	text string
}

func exchange(t *testing.T, do func(*http.Request) (*http.Response, error), req *http.Request) exchanged {
	t.Helper()
	resp := send(t, do, req)
	return exchanged{resp, finish(t, resp)}
}

func send(t *testing.T, do func(*http.Request) (*http.Response, error), req *http.Request) *http.Response {
	t.Helper()
	resp, err := do(req)
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

func finish(t *testing.T, resp *http.Response) string {
	t.Helper()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Errorf("reading the body: %v", err)
	}
	if err := resp.Body.Close(); err != nil {
		t.Errorf("closing the body: %v", err)
	}
	return string(text)
}

func oneOfTwo(t *testing.T, wrap func(http.RoundTripper) http.RoundTripper) {
	rt := wrap(failing())
	req, _ := request(t, context.Background())
	if resp, err := rt.RoundTrip(req); resp != nil || !errors.Is(err, errBroken) { //nolint:bodyclose // there is none
		t.Errorf("got %v and %v, want the base's error alone", resp, err)
	}
	for _, status := range []int{100, 200, 204, 304, 400, 401, 404, 409, 418, 429, 500, 501, 503, 599} {
		req, _ := request(t, context.Background())
		if resp := exchange(t, wrap(answering(status)).RoundTrip, req); resp.StatusCode != status || resp.text != "answer" {
			t.Errorf("status %d: got %d with %q", status, resp.StatusCode, resp.text)
		}
	}
}

func requestNotModified(t *testing.T, wrap func(http.RoundTripper) http.RoundTripper) {
	req, _ := request(t, context.Background())
	url, before := req.URL, req.Clone(req.Context())
	exchange(t, wrap(answering(http.StatusOK)).RoundTrip, req)
	if req.URL != url || !reflect.DeepEqual(req, before) {
		t.Errorf("the request was modified:\n%+v\n%+v", before, req)
	}
}

func bodyClosedOnce(t *testing.T, wrap func(http.RoundTripper) http.RoundTripper) {
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	for name, call := range map[string]struct {
		base   *base
		ctx    context.Context //nolint:containedctx // a row's input
		change func(*http.Request)
	}{
		"answered":        {base: answering(http.StatusOK)},
		"unavailable":     {base: answering(http.StatusServiceUnavailable)},
		"failed":          {base: failing()},
		"canceled before": {base: answering(http.StatusOK), ctx: gone},
		"no URL":          {base: answering(http.StatusOK), change: func(r *http.Request) { r.URL = nil }},
	} {
		req, b := request(t, cmp.Or(call.ctx, context.Background()))
		if call.change != nil {
			call.change(req)
		}
		if resp, err := wrap(call.base).RoundTrip(req); err == nil {
			finish(t, resp)
		}
		if n := b.closed.Load(); n != 1 {
			t.Errorf("%s: the body was closed %d times, want 1", name, n)
		}
	}
}

func redirectsReturned(t *testing.T, wrap func(http.RoundTripper) http.RoundTripper) {
	for _, status := range []int{301, 302, 303, 307, 308} {
		// http.Client reports a Location that is no URL, so a RoundTripper returns it.
		for _, location := range []string{"http://other.test/", "/relative", "http://[::1%zz/"} {
			req, _ := request(t, context.Background())
			resp := exchange(t, wrap(answering(status, "Location", location)).RoundTrip, req)
			if resp.StatusCode != status || resp.Header.Get("Location") != location {
				t.Errorf("%d to %s: got %d to %s", status, location, resp.StatusCode, resp.Header.Get("Location"))
			}
		}
	}
}

// pipe is the body of a 101 response.
type pipe struct {
	io.ReadCloser
	written strings.Builder
}

func (p *pipe) Write(b []byte) (int, error) { return p.written.Write(b) }

func upgraded(t *testing.T, wrap func(http.RoundTripper) http.RoundTripper) {
	conn := &pipe{ReadCloser: io.NopCloser(strings.NewReader("from the server"))}
	rt := wrap(roundTripper(func(r *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusSwitchingProtocols, Header: http.Header{"Upgrade": {"x"}}, Body: conn, Request: r}, nil
	}))
	resp := send(t, rt.RoundTrip, newRequest(t, context.Background(), http.MethodGet, "http://api.test/"))
	writer, ok := resp.Body.(io.Writer)
	if !ok {
		t.Fatalf("a %T is not an io.Writer", resp.Body)
	}
	if _, err := writer.Write([]byte("to the server")); err != nil || conn.written.String() != "to the server" {
		t.Errorf("wrote %q: %v", conn.written.String(), err)
	}
	if text := finish(t, resp); text != "from the server" {
		t.Errorf("read %q", text)
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func bodyArrives(t *testing.T, wrap func(http.RoundTripper) http.RoundTripper) {
	for _, length := range []int64{7, -1} {
		rt := wrap(roundTripper(func(r *http.Request) (*http.Response, error) {
			text, err := io.ReadAll(r.Body)
			if err != nil || string(text) != "content" || r.ContentLength != length || r.Header.Get("X-Mine") != "value" {
				t.Errorf("got %q of %d, %v, %v", text, r.ContentLength, r.Header, err)
			}
			_ = r.Body.Close()
			return answering(http.StatusOK).answer(r)
		}))
		req, _ := request(t, context.Background())
		req.ContentLength = length
		exchange(t, rt.RoundTrip, req)
	}
}

func contextEndsWithBody(t *testing.T, wrap func(http.RoundTripper) http.RoundTripper) {
	var sent context.Context
	b := answering(http.StatusOK)
	rt := wrap(roundTripper(func(r *http.Request) (*http.Response, error) {
		sent = r.Context() //nolint:fatcontext // the test only reads its error
		return b.RoundTrip(r)
	}))
	req, _ := request(t, context.Background())
	resp := send(t, rt.RoundTrip, req) //nolint:bodyclose // finish closes it
	<-time.After(time.Hour)            // longer than the timeouts of an attempt: the caller may read slowly
	if err := sent.Err(); err != nil {
		t.Errorf("the context ended before the body was read: %v", err)
	}
	if text := finish(t, resp); text != "answer" {
		t.Errorf("read %q", text)
	}
}

func responsesClosed(t *testing.T, wrap func(http.RoundTripper) http.RoundTripper) {
	for _, status := range []int{200, 429, 500, 503} {
		b := answering(status)
		resp := send(t, wrap(b).RoundTrip, newRequest(t, context.Background(), http.MethodGet, "http://api.test/"))
		_ = resp.Body.Close() // unread, so nothing but Close ends it
		synctest.Wait()
		if opened, closed := b.opened.Load(), b.closed.Load(); opened != closed {
			t.Errorf("status %d: %d response bodies, %d closed", status, opened, closed)
		}
	}
}

func idleClosed(t *testing.T, wrap func(http.RoundTripper) http.RoundTripper) {
	b := answering(http.StatusOK)
	(&http.Client{Transport: wrap(b)}).CloseIdleConnections()
	if n := b.idle.Load(); n != 1 {
		t.Errorf("CloseIdleConnections reached the base %d times, want 1", n)
	}
}

func manyAtOnce(t *testing.T, wrap func(http.RoundTripper) http.RoundTripper) {
	b := answering(http.StatusOK)
	rt := wrap(b)
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for range 20 {
				req, body := request(t, context.Background())
				resp, err := rt.RoundTrip(req)
				if err != nil {
					t.Errorf("%v", err)
					return
				}
				finish(t, resp)
				if n := body.closed.Load(); n != 1 {
					t.Errorf("a body was closed %d times, want 1", n)
				}
			}
		})
	}
	wg.Wait()
	// One response for each request: nothing was sent twice, and none was dropped.
	if opened, closed := b.opened.Load(), b.closed.Load(); opened != closed || opened != 320 {
		t.Errorf("%d response bodies, %d closed, want 320", opened, closed)
	}
}

func requestURI(t *testing.T, wrap func(http.RoundTripper) http.RoundTripper) {
	rt := wrap(roundTripper(func(r *http.Request) (*http.Response, error) {
		if r.RequestURI != "" {
			t.Errorf("RequestURI is %q, which http.Client rejects", r.RequestURI)
		}
		return answering(http.StatusOK).answer(r)
	}))
	req := newRequest(t, context.Background(), http.MethodGet, "http://api.test/")
	req.RequestURI = "/things"
	exchange(t, rt.RoundTrip, req)
}

func canceled(t *testing.T, wrap func(http.RoundTripper) http.RoundTripper) {
	rt := wrap(&base{answer: func(r *http.Request) (*http.Response, error) {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}})
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(time.Second, cancel)
	req, _ := request(t, ctx)
	start := time.Now()
	resp, err := rt.RoundTrip(req) //nolint:bodyclose // there is none
	if resp != nil || !errors.Is(err, context.Canceled) || time.Since(start) != time.Second {
		t.Errorf("got %v and %v after %s", resp, err, time.Since(start))
	}
}

func sentAgain(t *testing.T, wrap func(http.RoundTripper) http.RoundTripper) {
	client := &http.Client{Transport: wrap(answering(http.StatusOK))}
	resp := exchange(t, client.Do, newRequest(t, context.Background(), http.MethodGet, "http://api.test/"))
	exchange(t, client.Do, resp.Request) // its context must not have ended with the first call
}
