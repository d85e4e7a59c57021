package endpoints_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/endpoints"
	"github.com/resilienthttp/resilienthttp/faulttest"
)

// list is a Transport with servers in memory as its endpoints: a.test, b.test and so on, in this order.
type list struct {
	*endpoints.Transport

	t       *testing.T
	servers map[string]*faulttest.Server

	mu   sync.Mutex
	down map[string]http.RoundTripper // by host; another behavior of the server
}

// newList starts a server for each script. edit may change the Transport before its first use.
func newList(t *testing.T, edit func(*endpoints.Transport), scripts ...http.Handler) *list {
	t.Helper()
	l := &list{t: t, servers: map[string]*faulttest.Server{}, down: map[string]http.RoundTripper{}}
	l.Transport = &endpoints.Transport{Transport: &resilienthttp.Transport{Base: l.base()}}
	var network *faulttest.Server
	for i, script := range scripts {
		name := string(rune('a' + i))
		srv := &faulttest.Server{InMemory: true, Host: name + ".test", Network: network, Script: script}
		srv.Start(t)
		if network == nil {
			network = srv
		}
		l.servers[srv.Host] = srv
		l.Endpoints = append(l.Endpoints, endpoints.Endpoint{Name: name, URL: parse(t, srv.URL)})
	}
	if edit != nil {
		edit(l.Transport)
	}
	return l
}

func parse(t *testing.T, text string) *url.URL {
	t.Helper()
	u, err := url.Parse(text)
	require.NoError(t, err)
	return u
}

// base sends a request to its server, or to what is in its place while it is down.
func (l *list) base() http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		l.mu.Lock()
		instead := l.down[req.URL.Host]
		l.mu.Unlock()
		if instead != nil {
			return instead.RoundTrip(req)
		}
		return l.servers["a.test"].Transport().RoundTrip(req)
	})
}

func (l *list) setDown(host string, instead http.RoundTripper) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down[host] = instead
}

// get and post make a call to the first endpoint, and return its response with the body read.
func (l *list) get(path string) (*http.Response, error) { return l.do(http.MethodGet, path, "") }

func (l *list) post(path string) (*http.Response, error) { return l.do(http.MethodPost, path, "{}") }

func (l *list) do(method, path, body string) (*http.Response, error) {
	l.t.Helper()
	return l.doIn(context.Background(), method, path, body)
}

func (l *list) doIn(ctx context.Context, method, path, body string) (*http.Response, error) {
	l.t.Helper()
	return sendIn(ctx, l.t, l, method, l.Endpoints[0].URL.String()+path, body)
}

// pair is a Transport with two endpoints, a and b. base gets all requests.
func pair(t *testing.T, a, b string, base http.RoundTripper) *endpoints.Transport {
	t.Helper()
	return &endpoints.Transport{
		Endpoints: []endpoints.Endpoint{{Name: "a", URL: parse(t, a)}, {Name: "b", URL: parse(t, b)}},
		Transport: &resilienthttp.Transport{Base: base},
	}
}

func newRequest(ctx context.Context, t *testing.T, method, url string, body io.Reader) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, url, body)
	require.NoError(t, err)
	return req
}

// closed makes a call and closes the body of its response.
func closed(t *testing.T, transport http.RoundTripper, req *http.Request) (*http.Response, error) {
	t.Helper()
	resp, err := transport.RoundTrip(req)
	if err == nil {
		require.NoError(t, resp.Body.Close())
	}
	return resp, err
}

func send(t *testing.T, transport http.RoundTripper, method, url, body string) (*http.Response, error) {
	t.Helper()
	return sendIn(context.Background(), t, transport, method, url, body)
}

func sendIn(ctx context.Context, t *testing.T, transport http.RoundTripper, method, url, body string) (*http.Response, error) {
	t.Helper()
	var reader io.Reader
	if body != "" {
		reader = strings.NewReader(body)
	}
	resp, err := (&http.Client{Transport: transport}).Do(newRequest(ctx, t, method, url, reader))
	if err == nil {
		_, _ = io.Copy(io.Discard, resp.Body)
		require.NoError(t, resp.Body.Close())
	}
	return resp, err
}

// visited returns the names of the endpoints of the attempts, in their order.
func visited(resp *http.Response, err error) string {
	attempts := resilienthttp.Attempts(resp)
	if failed := asError(err); failed != nil {
		attempts = failed.Attempts
	}
	var names []string
	for i := range attempts {
		names = append(names, attempts[i].Endpoint)
	}
	return strings.Join(names, " ")
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// refused is a server that has no process: no connection, nothing sent.
var refused = roundTripper(func(req *http.Request) (*http.Response, error) {
	closeBody(req)
	return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
})

// reset is a server that takes the request and breaks the connection.
var reset = roundTripper(func(req *http.Request) (*http.Response, error) {
	if req.Body != nil {
		_, _ = io.Copy(io.Discard, req.Body)
	}
	closeBody(req)
	return nil, &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET}
})

// hangs is a server that takes the request and says nothing.
var hangs = roundTripper(func(req *http.Request) (*http.Response, error) {
	closeBody(req)
	<-req.Context().Done()
	return nil, context.Cause(req.Context())
})

// answers is a server that sends one response.
func answers(status int, header http.Header) roundTripper {
	if header == nil {
		header = http.Header{}
	}
	return func(req *http.Request) (*http.Response, error) {
		closeBody(req)
		return &http.Response{
			StatusCode: status, Header: header.Clone(), Body: http.NoBody, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: req,
		}, nil
	}
}

func closeBody(req *http.Request) {
	if req.Body != nil {
		_ = req.Body.Close()
	}
}

// errOf is the error of a call. The value does not matter.
func errOf[T any](_ T, err error) error { return err }
