package resilientotel

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// testConformance tests an http.RoundTripper that wraps another one: the requirements of http.RoundTripper's documentation,
// and the expectations of http.Client, httputil.ReverseProxy and other callers (§4.1 to §4.6 of docs/maintainers/invariants.md).
// wrap returns the RoundTripper under test around a base. Each test calls it in its own testing/synctest bubble.
func testConformance(t *testing.T, wrap wrapping) {
	t.Helper()
	for name, test := range map[string]func(*testing.T, wrapping){
		"responses are returned":           responsesReturned,
		"an error, and the body is closed": failed,
		"an upgraded connection":           upgraded,
		"unread responses are closed":      responsesClosed,
		"idle connections are closed":      idleClosed,
		"many requests at once":            manyAtOnce,
		"cancellation ends the call":       canceled,
	} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { test(t, wrap) }) })
	}
}

type wrapping func(base http.RoundTripper) http.RoundTripper

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

// request returns a request with a body that cannot be replayed.
func request(t *testing.T, ctx context.Context) (*http.Request, *body) {
	t.Helper()
	b := &body{Reader: strings.NewReader("content")}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://api.test/things?a=b", b)
	require.NoError(t, err)
	req.ContentLength = int64(len("content"))
	return req, b
}

// finish reads and closes the body, which must have the text.
func finish(t *testing.T, resp *http.Response, want string) {
	t.Helper()
	text, err := io.ReadAll(resp.Body)
	assert.NoError(t, err)
	assert.Equal(t, want, string(text))
	assert.NoError(t, resp.Body.Close())
}

// responsesReturned sends a request that must arrive and stay as it is. The caller gets each
// response, redirects too, and may read its body later.
func responsesReturned(t *testing.T, wrap wrapping) {
	for i, status := range []int{100, 200, 204, 301, 302, 303, 304, 307, 308, 400, 401, 404, 409, 418, 429, 500, 501, 503, 599} {
		// http.Client reports a Location that is no URL, so a RoundTripper returns it.
		location := []string{"http://other.test/", "/relative", "http://[::1%zz/"}[i%3]
		b := answering(status, location)
		req, content := request(t, t.Context())
		req.Header.Set("X-Mine", "value")
		req.RequestURI = "/things" // http.Client rejects it
		if i%2 == 1 {
			req.ContentLength = -1
		}
		url, before := req.URL, req.Clone(req.Context())
		resp, err := wrap(b).RoundTrip(req)
		require.NoError(t, err)
		assert.Equal(t, status, resp.StatusCode)
		assert.Equal(t, location, resp.Header.Get("Location"), status)
		assert.Same(t, url, req.URL, "the request was modified")
		assert.Equal(t, before, req, "the request was modified")
		assert.Equal(t, "content", b.text)
		assert.Equal(t, req.ContentLength, b.sent.ContentLength)
		assert.Equal(t, "value", b.sent.Header.Get("X-Mine"))
		assert.Empty(t, b.sent.RequestURI)
		<-time.After(time.Hour) // longer than the timeouts of an attempt: the caller may read slowly
		finish(t, resp, "answer")
		counts := []int64{b.opened.Load(), b.closed.Load(), content.closed.Load()}
		assert.Equal(t, []int64{1, 1, 1}, counts, "status %d: responses, those that were closed, and closed bodies of requests", status)
	}
}

func failed(t *testing.T, wrap wrapping) {
	broken := errors.New("connection broke")
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for name, row := range map[string]struct {
		ctx    context.Context //nolint:containedctx // a row's input
		change func(*http.Request)
		want   error // nil: any
	}{
		"failed":          {t.Context(), func(*http.Request) {}, broken},
		"canceled before": {gone, func(*http.Request) {}, context.Canceled},
		"no URL":          {t.Context(), func(r *http.Request) { r.URL = nil }, nil},
	} {
		req, content := request(t, row.ctx)
		row.change(req)
		b := &base{answer: func(*http.Request) (*http.Response, error) { return nil, broken }}
		resp, err := wrap(b).RoundTrip(req)
		assert.Nil(t, resp, name)
		assert.Error(t, err, name)
		if row.want != nil {
			assert.ErrorIs(t, err, row.want, name)
		}
		assert.EqualValues(t, 1, content.closed.Load(), name)
	}
}

// pipe is the body of a 101 response.
type pipe struct {
	io.ReadCloser
	written strings.Builder
}

func (p *pipe) Write(b []byte) (int, error) { return p.written.Write(b) }

func upgraded(t *testing.T, wrap wrapping) {
	conn := &pipe{ReadCloser: io.NopCloser(strings.NewReader("from the server"))}
	resp, err := wrap(roundTripper(func(r *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusSwitchingProtocols, Header: http.Header{"Upgrade": {"x"}}, Body: conn, Request: r}, nil
	})).RoundTrip(get(t, t.Context(), url))
	require.NoError(t, err)
	require.Implements(t, (*io.Writer)(nil), resp.Body)
	require.NoError(t, errOf(io.WriteString(resp.Body.(io.Writer), "to the server")))
	assert.Equal(t, "to the server", conn.written.String())
	finish(t, resp, "from the server")
}

func responsesClosed(t *testing.T, wrap wrapping) {
	for _, status := range []int{200, 429, 500, 503} {
		b := answering(status, "")
		require.NoError(t, called(t, wrap(b), get(t, t.Context(), url))) // unread, so nothing but Close ends it
		synctest.Wait()
		assert.Equal(t, b.opened.Load(), b.closed.Load(), status)
	}
}

func idleClosed(t *testing.T, wrap wrapping) {
	b := answering(http.StatusOK, "")
	(&http.Client{Transport: wrap(b)}).CloseIdleConnections()
	assert.EqualValues(t, 1, b.idle.Load())
}

func manyAtOnce(t *testing.T, wrap wrapping) {
	b := answering(http.StatusOK, "")
	rt := wrap(b)
	var requests, contents atomic.Int64
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for range 20 {
				req, content := request(t, t.Context())
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
	assert.Equal(t, []int64{320, 320, 320, 320}, []int64{requests.Load(), contents.Load(), b.opened.Load(), b.closed.Load()},
		"responses, closed bodies of requests, response bodies, and those that were closed")
}

func canceled(t *testing.T, wrap wrapping) {
	rt := wrap(&base{answer: func(r *http.Request) (*http.Response, error) {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}})
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(time.Second, cancel)
	req, _ := request(t, ctx)
	start := time.Now()
	resp, err := rt.RoundTrip(req)
	assert.Nil(t, resp)
	require.ErrorIs(t, err, context.Canceled)
	assert.Equal(t, time.Second, time.Since(start))
}
