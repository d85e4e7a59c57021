package resilientotel

import (
	"context"
	"errors"
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

// testConformance tests an http.RoundTripper that wraps another one: the requirements of http.RoundTripper's documentation,
// and the expectations of http.Client, httputil.ReverseProxy and other callers (§4.1 to §4.6 of docs/maintainers/invariants.md).
// wrap returns the RoundTripper under test around a base. Each test calls it in its own testing/synctest bubble.
func testConformance(t *testing.T, wrap func(http.RoundTripper) http.RoundTripper) {
	t.Helper()
	for name, test := range map[string]func(*testing.T, func(http.RoundTripper) http.RoundTripper){
		"responses are returned":           responsesReturned,
		"an error, and the body is closed": failed,
		"an upgraded connection":           upgraded,
		"unread responses are closed":      responsesClosed,
		"idle connections are closed":      idleClosed,
		"many requests at once":            manyAtOnce,
		"cancellation ends the call":       canceled,
		"Response.Request can be sent":     sentAgain,
	} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { test(t, wrap) }) })
	}
}

// base is a RoundTripper that conforms, and counts its responses.
type base struct {
	answer func(*http.Request) (*http.Response, error)

	sent           *http.Request // the last one
	text           string        // of its body
	opened, closed atomic.Int64  // response bodies
	idle           atomic.Int64  // calls of CloseIdleConnections
	mu             sync.Mutex
}

func (b *base) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		defer r.Body.Close()
		text, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		b.mu.Lock()
		b.sent, b.text = r, string(text)
		b.mu.Unlock()
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

// answering returns a base that answers with a status and a Location.
func answering(status int, location string) *base {
	return &base{answer: func(r *http.Request) (*http.Response, error) {
		return &http.Response{
			Status: http.StatusText(status), StatusCode: status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
			Header: http.Header{"Location": {location}}, Body: io.NopCloser(strings.NewReader("answer")), ContentLength: 6, Request: r,
		}, nil
	}}
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

// request returns a request with a body that cannot be replayed, or one without a body.
func request(t *testing.T, ctx context.Context, content string) (*http.Request, *body) {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://api.test/things?a=b", nil)
	if err != nil {
		t.Fatal(err)
	}
	b := &body{Reader: strings.NewReader(content)}
	if content != "" {
		req.Method, req.Body, req.ContentLength = http.MethodPost, b, int64(len(content))
	}
	return req, b
}

func roundTrip(t *testing.T, rt http.RoundTripper, req *http.Request) *http.Response {
	t.Helper()
	resp, err := rt.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

// finish reads and closes the body, which must have the text.
func finish(t *testing.T, resp *http.Response, want string) {
	t.Helper()
	if text, err := io.ReadAll(resp.Body); err != nil || string(text) != want {
		t.Errorf("read %q and %v, want %q", text, err, want)
	}
	if err := resp.Body.Close(); err != nil {
		t.Errorf("closing the body: %v", err)
	}
}

// responsesReturned sends a request that must arrive and stay as it is. The caller gets each
// response, redirects too, and may read its body later.
func responsesReturned(t *testing.T, wrap func(http.RoundTripper) http.RoundTripper) {
	for i, status := range []int{100, 200, 204, 301, 302, 303, 304, 307, 308, 400, 401, 404, 409, 418, 429, 500, 501, 503, 599} {
		// http.Client reports a Location that is no URL, so a RoundTripper returns it.
		location := []string{"http://other.test/", "/relative", "http://[::1%zz/"}[i%3]
		b := answering(status, location)
		req, content := request(t, context.Background(), "content")
		req.Header.Set("X-Mine", "value")
		req.RequestURI = "/things" // http.Client rejects it
		if i%2 == 1 {
			req.ContentLength = -1
		}
		url, before := req.URL, req.Clone(req.Context())
		resp := roundTrip(t, wrap(b), req)
		if resp.StatusCode != status || resp.Header.Get("Location") != location {
			t.Errorf("status %d to %s: got %d to %s", status, location, resp.StatusCode, resp.Header.Get("Location"))
		}
		if req.URL != url || !reflect.DeepEqual(req, before) {
			t.Errorf("the request was modified:\n%+v\n%+v", before, req)
		}
		if b.text != "content" || b.sent.ContentLength != req.ContentLength || b.sent.Header.Get("X-Mine") != "value" || b.sent.RequestURI != "" {
			t.Errorf("sent %q, %+v", b.text, b.sent)
		}
		<-time.After(time.Hour) // longer than the timeouts of an attempt: the caller may read slowly
		finish(t, resp, "answer")
		if opened, closed, of := b.opened.Load(), b.closed.Load(), content.closed.Load(); opened != 1 || closed != 1 || of != 1 {
			t.Errorf("status %d: %d responses, %d closed, the request's body was closed %d times, want 1", status, opened, closed, of)
		}
	}
}

func failed(t *testing.T, wrap func(http.RoundTripper) http.RoundTripper) {
	broken := errors.New("connection broke")
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	for name, row := range map[string]struct {
		ctx    context.Context //nolint:containedctx // a row's input
		change func(*http.Request)
		want   error // nil: any
	}{
		"failed":          {context.Background(), func(*http.Request) {}, broken},
		"canceled before": {gone, func(*http.Request) {}, context.Canceled},
		"no URL":          {context.Background(), func(r *http.Request) { r.URL = nil }, nil},
	} {
		req, content := request(t, row.ctx, "content")
		row.change(req)
		b := &base{answer: func(*http.Request) (*http.Response, error) { return nil, broken }}
		resp, err := wrap(b).RoundTrip(req)
		if resp != nil || err == nil || row.want != nil && !errors.Is(err, row.want) {
			t.Errorf("%s: got %v and %v, want %v", name, resp, err, row.want)
		}
		if n := content.closed.Load(); n != 1 {
			t.Errorf("%s: the body was closed %d times, want 1", name, n)
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
	req, _ := request(t, context.Background(), "")
	resp := roundTrip(t, wrap(roundTripper(func(r *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusSwitchingProtocols, Header: http.Header{"Upgrade": {"x"}}, Body: conn, Request: r}, nil
	})), req)
	writer, ok := resp.Body.(io.Writer)
	if !ok {
		t.Fatalf("a %T is not an io.Writer", resp.Body)
	}
	if _, err := writer.Write([]byte("to the server")); err != nil || conn.written.String() != "to the server" {
		t.Errorf("wrote %q: %v", conn.written.String(), err)
	}
	finish(t, resp, "from the server")
}

func responsesClosed(t *testing.T, wrap func(http.RoundTripper) http.RoundTripper) {
	for _, status := range []int{200, 429, 500, 503} {
		b := answering(status, "")
		req, _ := request(t, context.Background(), "")
		_ = roundTrip(t, wrap(b), req).Body.Close() // unread, so nothing but Close ends it
		synctest.Wait()
		if opened, closed := b.opened.Load(), b.closed.Load(); opened != closed {
			t.Errorf("status %d: %d response bodies, %d closed", status, opened, closed)
		}
	}
}

func idleClosed(t *testing.T, wrap func(http.RoundTripper) http.RoundTripper) {
	b := answering(http.StatusOK, "")
	(&http.Client{Transport: wrap(b)}).CloseIdleConnections()
	if n := b.idle.Load(); n != 1 {
		t.Errorf("CloseIdleConnections reached the base %d times, want 1", n)
	}
}

func manyAtOnce(t *testing.T, wrap func(http.RoundTripper) http.RoundTripper) {
	b := answering(http.StatusOK, "")
	rt := wrap(b)
	var requests, contents atomic.Int64
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for range 20 {
				req, content := request(t, context.Background(), "content")
				if resp, err := rt.RoundTrip(req); err == nil {
					finish(t, resp, "answer")
					requests.Add(1)
				}
				contents.Add(content.closed.Load())
			}
		})
	}
	wg.Wait()
	// One response for each request: nothing was sent twice, and none was dropped.
	for _, n := range []int64{requests.Load(), contents.Load(), b.opened.Load(), b.closed.Load()} {
		if n != 320 {
			t.Errorf("%d responses, %d bodies of requests closed, %d response bodies, %d closed, want 320 of each",
				requests.Load(), contents.Load(), b.opened.Load(), b.closed.Load())
		}
	}
}

func canceled(t *testing.T, wrap func(http.RoundTripper) http.RoundTripper) {
	rt := wrap(&base{answer: func(r *http.Request) (*http.Response, error) {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}})
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(time.Second, cancel)
	req, _ := request(t, ctx, "content")
	start := time.Now()
	resp, err := rt.RoundTrip(req)
	if resp != nil || !errors.Is(err, context.Canceled) || time.Since(start) != time.Second {
		t.Errorf("got %v and %v after %s", resp, err, time.Since(start))
	}
}

func sentAgain(t *testing.T, wrap func(http.RoundTripper) http.RoundTripper) {
	rt := wrap(answering(http.StatusOK, ""))
	req, _ := request(t, context.Background(), "")
	resp := roundTrip(t, rt, req)
	finish(t, resp, "answer")
	resp = roundTrip(t, rt, resp.Request)
	finish(t, resp, "answer")
}
