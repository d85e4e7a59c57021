package resilienthttp_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"reflect"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/internal/memhttp"
	"github.com/resilienthttp/resilienthttp/internal/sleep"
)

// This file has helpers of the black-box tests: a scripted Base, counted bodies, and a check that a
// request is unchanged.

// step is one response of a scriptedBase.
type step func(*http.Request) (*http.Response, error)

// scriptedBase is a Base that obeys the contract of http.RoundTripper: it reads the request's
// body, closes it, and returns the next step; the last step is repeated. It is safe for
// concurrent use.
type scriptedBase struct {
	ledger // of the response bodies

	mu    sync.Mutex
	steps []step
	sent  []sent

	unread     bool         // leaves request bodies unread
	idleClosed atomic.Int64 // calls of CloseIdleConnections
}

// sent is a request that a scriptedBase has received.
type sent struct {
	Request       *http.Request // its body is closed
	Header        http.Header   // a copy
	Body          io.ReadCloser // the same value
	Text          string        // what was read from it
	ContentLength int64
	At            time.Time
}

func script(steps ...step) *scriptedBase { return &scriptedBase{steps: steps} }

func (b *scriptedBase) RoundTrip(r *http.Request) (*http.Response, error) {
	s := sent{
		Request: r, Header: r.Header.Clone(), Body: r.Body, ContentLength: r.ContentLength, At: time.Now(),
	}
	switch {
	case r.Body == nil:
	case b.unread:
		defer r.Body.Close()
	default: // as net/http does: the body is closed when it is sent, and the response comes later
		text, err := io.ReadAll(r.Body)
		_ = r.Body.Close()
		if err != nil {
			return nil, err
		}
		s.Text = string(text)
	}
	b.mu.Lock()
	next := b.steps[min(len(b.sent), len(b.steps)-1)]
	b.sent = append(b.sent, s)
	b.mu.Unlock()
	resp, err := next(r)
	if resp != nil && resp.Body != nil && resp.Body != http.NoBody {
		resp.Body = b.count(resp.Body)
	}
	return resp, err
}

func (b *scriptedBase) CloseIdleConnections() { b.idleClosed.Add(1) }

// calls are the requests so far.
func (b *scriptedBase) calls() []sent {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]sent(nil), b.sent...)
}

// ledger counts the response bodies that a Base has handed out, and those of
// them that were closed.
type ledger struct{ opened, closed, reads atomic.Int64 }

func (l *ledger) count(body io.ReadCloser) io.ReadCloser {
	l.opened.Add(1)
	return &ledgerBody{ReadCloser: body, ledger: l}
}

// requireBalance requires that every body was closed, once.
func (l *ledger) requireBalance(tb testing.TB) {
	tb.Helper()
	require.Equal(tb, l.opened.Load(), l.closed.Load(), "opened and closed response bodies")
}

type ledgerBody struct {
	io.ReadCloser
	ledger *ledger
}

func (b *ledgerBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.ledger.reads.Add(int64(n))
	return n, err
}

// Close counts each call: a second one makes the ledger lose its balance.
func (b *ledgerBody) Close() error {
	b.ledger.closed.Add(1)
	return b.ReadCloser.Close()
}

// status responds with a status and with headers in pairs. The body is "status 503".
func status(code int, header ...string) step {
	return func(r *http.Request) (*http.Response, error) {
		return response(r, code, "status "+strconv.Itoa(code), header...), nil
	}
}

// response is a response as net/http would make it.
func response(r *http.Request, code int, body string, header ...string) *http.Response {
	h := http.Header{}
	for i := 0; i+1 < len(header); i += 2 {
		h.Add(header[i], header[i+1])
	}
	return &http.Response{
		Status: fmt.Sprintf("%d %s", code, http.StatusText(code)), StatusCode: code,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: h, Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body)), Request: r,
	}
}

// withBody responds with a status and a body.
func withBody(code int, body io.ReadCloser, header ...string) step {
	return func(r *http.Request) (*http.Response, error) {
		resp := response(r, code, "", header...)
		resp.Body, resp.ContentLength = body, -1
		return resp, nil
	}
}

// refused is a connection that no server accepts: nothing is sent.
var refused = failing(&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED})

// failing returns an error.
func failing(err error) step {
	return func(*http.Request) (*http.Response, error) { return nil, err }
}

// hanging returns the context's error when the context ends.
func hanging(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

// after delays a step, unless the context ends before.
func after(d time.Duration, next step) step {
	return func(r *http.Request) (*http.Response, error) {
		if err := sleep.Context(r.Context(), d); err != nil {
			return nil, err
		}
		return next(r)
	}
}

// panicking panics with a value.
func panicking(value any) step {
	return func(*http.Request) (*http.Response, error) { panic(value) }
}

// errReset is the error of a connection that breaks after the request was sent.
var errReset error = brokenError{}

// brokenError has no fields, so its text is shown.
type brokenError struct{}

func (brokenError) Error() string { return "connection broke" }

// roundTripper is a function as a Base.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// newRequest makes a request with a body that can be replayed, or without one.
func newRequest(tb testing.TB, method, url, body string) *http.Request {
	tb.Helper()
	var r io.Reader
	if body != "" {
		r = strings.NewReader(body)
	}
	req, err := http.NewRequestWithContext(context.Background(), method, url, r)
	require.NoError(tb, err)
	return req
}

func get(tb testing.TB) *http.Request {
	tb.Helper()
	return newRequest(tb, http.MethodGet, "http://api.test/things?token=querysecret", "")
}

// readAll reads a response's body to the end and closes it.
func readAll(tb testing.TB, resp *http.Response) string {
	tb.Helper()
	text, err := io.ReadAll(resp.Body)
	require.NoError(tb, err)
	require.NoError(tb, resp.Body.Close())
	return string(text)
}

// finish reads the response of a call, if there is one, and reports whether it is a 200.
func finish(tb testing.TB, resp *http.Response, err error) bool {
	tb.Helper()
	if err == nil {
		readAll(tb, resp)
	}
	return err == nil && resp.StatusCode == http.StatusOK
}

// trackedBodies gives a request a body, and a GetBody, and counts how often each
// of the bodies is closed.
type trackedBodies struct {
	mu     sync.Mutex
	bodies []*trackedBody
}

type trackedBody struct {
	*bytes.Reader
	closes atomic.Int64
}

func (b *trackedBody) Close() error {
	b.closes.Add(1)
	return nil
}

func (b *trackedBodies) open(content string) *trackedBody {
	b.mu.Lock()
	defer b.mu.Unlock()
	body := &trackedBody{Reader: bytes.NewReader([]byte(content))}
	b.bodies = append(b.bodies, body)
	return body
}

func trackBody(req *http.Request, content string) *trackedBodies {
	b := &trackedBodies{}
	req.Body = b.open(content)
	req.ContentLength = int64(len(content))
	req.GetBody = func() (io.ReadCloser, error) { return b.open(content), nil }
	return b
}

// requireClosedOnce requires that there were so many bodies, and that each was
// closed exactly once.
func (b *trackedBodies) requireClosedOnce(tb testing.TB, bodies int) {
	tb.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	require.Len(tb, b.bodies, bodies, "bodies of the request")
	for i, body := range b.bodies {
		require.Equal(tb, int64(1), body.closes.Load(), "closes of body %d", i+1)
	}
}

// requestState is a request as it was, to be compared with it later.
type requestState struct {
	req    *http.Request
	fields http.Request
	deep   *http.Request
}

func stateOf(req *http.Request) requestState {
	return requestState{req: req, fields: *req, deep: req.Clone(req.Context())}
}

// requireUnchanged requires that no field of the request has another value, and
// that nothing it points to was written to.
func (s requestState) requireUnchanged(tb testing.TB) {
	tb.Helper()
	require.Equal(tb, s.fields.Context(), s.req.Context())
	require.Equal(tb, s.deep.URL, s.req.URL)
	require.Equal(tb, s.deep.Header, s.req.Header)
	require.Equal(tb, s.deep.Trailer, s.req.Trailer)
	require.Equal(tb, s.deep.Form, s.req.Form)
	require.Equal(tb, s.deep.TransferEncoding, s.req.TransferEncoding)
	before, now := reflect.ValueOf(&s.fields).Elem(), reflect.ValueOf(s.req).Elem()
	for i := range before.NumField() {
		field := before.Type().Field(i)
		if !field.IsExported() {
			continue
		}
		switch b, n := before.Field(i), now.Field(i); b.Kind() {
		case reflect.Func, reflect.Map, reflect.Pointer, reflect.Chan, reflect.Slice:
			require.Equal(tb, b.Pointer(), n.Pointer(), "Request.%s", field.Name)
		default:
			same := b.Interface() == n.Interface() // of the Body the identity
			require.True(tb, same, "Request.%s", field.Name)
		}
	}
}

// asError is the *Error in err.
func asError(tb testing.TB, err error) *resilienthttp.Error {
	tb.Helper()
	var e *resilienthttp.Error
	require.ErrorAs(tb, err, &e)
	return e
}

// lastOf is the last attempt behind a response.
func lastOf(tb testing.TB, resp *http.Response) resilienthttp.Attempt {
	tb.Helper()
	attempts := resilienthttp.Attempts(resp)
	require.NotEmpty(tb, attempts)
	return attempts[len(attempts)-1]
}

// withDeadline is the context of the test with a deadline, or without one if d is 0.
func withDeadline(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	return until(t, t.Context(), d)
}

// until adds a deadline to a context. 0 is none.
func until(t *testing.T, ctx context.Context, d time.Duration) context.Context {
	t.Helper()
	if d == 0 {
		return ctx
	}
	ctx, cancel := context.WithTimeout(ctx, d)
	t.Cleanup(cancel)
	return ctx
}

// applied is a context with an option. nil is none.
func applied(ctx context.Context, option func(context.Context) context.Context) context.Context {
	if option == nil {
		return ctx
	}
	return option(ctx)
}

// gone is a context that is canceled.
func gone(ctx context.Context) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	return ctx
}

// canceledAfter is a context that its caller cancels after d.
func canceledAfter(ctx context.Context, d time.Duration) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	time.AfterFunc(d, cancel)
	return ctx
}

// protocols are the versions of HTTP of a server in memory.
var protocols = map[string][]memhttp.Option{"HTTP/1.1": nil, "HTTP/2": {memhttp.HTTP2()}}

// every is a Policy that waits for d before each retry.
func every(d time.Duration) resilienthttp.Policy {
	return resilienthttp.Policy{Backoff: resilienthttp.Constant(d)}
}

// never is a Breaker that does not open.
func never() *resilienthttp.Breaker { return &resilienthttp.Breaker{FailureRatio: -1} }

// nervous is a Breaker that opens at the first failure, for about the cooldown, and rejects calls at once.
func nervous(cooldown time.Duration) *resilienthttp.Breaker {
	return &resilienthttp.Breaker{MaxWait: -1, FailureRatio: 0.01, MinRequests: 1, Probes: 1, Cooldown: cooldown, MaxCooldown: cooldown, Window: 10 * time.Second}
}

// tokens is a Budget for n retries, whatever their results.
func tokens(n int) *resilienthttp.Budget {
	if n == 0 {
		n = -1
	}
	return &resilienthttp.Budget{Ratio: 1e-9, Burst: n, Static: true}
}

// serveRaw serves each connection of a listener with f, which need not close it.
// The listener, and what is left of the connections, ends with the test.
func serveRaw(tb testing.TB, l net.Listener, f func(net.Conn)) {
	var wg sync.WaitGroup
	tb.Cleanup(func() {
		_ = l.Close()
		wg.Wait()
	})
	wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer conn.Close()
				f(conn)
			})
		}
	})
}

// Real sockets, for what only an operating system does. Nothing sleeps here: the
// backoff is a microsecond, and each step waits for what the one before has
// caused.

func overSockets(tb testing.TB) *resilienthttp.Transport {
	tr := &resilienthttp.Transport{Policy: every(time.Microsecond), Breaker: never()}
	tb.Cleanup(tr.CloseIdleConnections)
	return tr
}

// listen returns a listener on the loopback, and its URL.
func listen(tb testing.TB) (net.Listener, string) {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(tb, err)
	return l, "http://" + l.Addr().String()
}

// closedPort returns an address without a listener. If possible, the address is not 127.0.0.1: a
// closed port that all tests share may be given to another test.
func closedPort(tb testing.TB) (address string) {
	tb.Helper()
	host := "127.0.0.1"
	if runtime.GOOS == "linux" {
		host = fmt.Sprintf("127.%d.%d.%d", 1+rand.IntN(254), rand.IntN(256), 1+rand.IntN(254))
	}
	l, err := net.Listen("tcp", host+":0")
	require.NoError(tb, err)
	require.NoError(tb, l.Close())
	return l.Addr().String()
}

// resetConn closes a connection so that its peer gets ECONNRESET.
func resetConn(conn net.Conn) {
	_ = conn.(*net.TCPConn).SetLinger(0)
	_ = conn.Close()
}

const okAnswer = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nfine"

// withoutKeys makes a Transport generate no idempotency keys.
func withoutKeys(tr *resilienthttp.Transport) *resilienthttp.Transport {
	tr.Idempotency.Disabled = true
	return tr
}

// puppet is a Base that calls a function of the test.
type puppet func(*http.Request) (*http.Response, error)

func (p puppet) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Body != nil {
		defer req.Body.Close()
	}
	return p(req)
}

// puppetStatus responds to every request with the status.
func puppetStatus(status int, header ...string) puppet {
	return func(req *http.Request) (*http.Response, error) { return response(req, status, "body", header...), nil }
}

// atOnce is a Backoff for tests that are not about waiting.
func atOnce(int, time.Duration) time.Duration { return 0 }

// bareTransport disables the mechanisms that are not the subject of the test.
func bareTransport(base http.RoundTripper, attempts int) *resilienthttp.Transport {
	return &resilienthttp.Transport{
		Base:      base,
		Policy:    resilienthttp.Policy{MaxAttempts: attempts, Backoff: atOnce},
		Budget:    &resilienthttp.Budget{Ratio: -1},
		Breaker:   &resilienthttp.Breaker{FailureRatio: -1},
		RateLimit: &resilienthttp.RateLimit{IgnoreHeaders: true},
	}
}

// newCall is a request to http://api.test/ as http.NewRequest makes it.
func newCall(ctx context.Context, tb testing.TB, method, body string) *http.Request {
	tb.Helper()
	return newRequest(tb, method, "http://api.test/", body).WithContext(ctx)
}

// roundTrip makes a call that has a response.
func roundTrip(tb testing.TB, rt http.RoundTripper, req *http.Request) *http.Response {
	tb.Helper()
	resp, err := rt.RoundTrip(req)
	require.NoError(tb, err)
	return resp
}

// do makes a call of a client that has a response.
func do(tb testing.TB, client *http.Client, req *http.Request) *http.Response {
	tb.Helper()
	resp, err := client.Do(req)
	require.NoError(tb, err)
	return resp
}

// discard makes a call, closes its response, and returns its error.
func discard(rt http.RoundTripper, req *http.Request) error {
	resp, err := rt.RoundTrip(req)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// nothingLeft requires that no call is in flight or waits.
func nothingLeft(tb testing.TB, tr *resilienthttp.Transport) {
	tb.Helper()
	for _, s := range tr.State().Scopes {
		require.Zero(tb, s.InFlight+s.Queued+s.RetryWaiting+s.Breaker.Waiting, s.Scope)
	}
}

// tripped makes the call and returns all its attempts.
func tripped(tb testing.TB, rt http.RoundTripper, req *http.Request) []resilienthttp.Attempt {
	tb.Helper()
	resp, err := rt.RoundTrip(req)
	if err == nil {
		require.NoError(tb, resp.Body.Close())
		return resilienthttp.Attempts(resp)
	}
	require.Nil(tb, resp)
	return asError(tb, err).Attempts
}

// rawServer accepts on a loopback socket and leaves each connection to serve.
func rawServer(t *testing.T, serve func(net.Conn)) (address string, accepted *atomic.Int64) {
	t.Helper()
	l, _ := listen(t)
	accepted = new(atomic.Int64)
	serveRaw(t, l, func(conn net.Conn) {
		accepted.Add(1)
		serve(conn)
	})
	return l.Addr().String(), accepted
}

// realPOST makes an unkeyed POST over net/http and real sockets.
func realPOST(t *testing.T, base *http.Transport, url string) []resilienthttp.Attempt {
	t.Helper()
	t.Cleanup(base.CloseIdleConnections)
	return tripped(t, withoutKeys(bareTransport(base, 2)), newRequest(t, http.MethodPost, url, "charge"))
}

// instant is a Base that responds at once, without a bookkeeping of its own.
type instant struct{}

func (instant) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		_, _ = io.Copy(io.Discard, r.Body)
		_ = r.Body.Close()
	}
	return &http.Response{
		Status: "200 OK", StatusCode: http.StatusOK, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header:  http.Header{"Content-Type": {"application/json"}, "Date": {"Thu, 01 Jan 2026 00:00:00 GMT"}},
		Body:    io.NopCloser(bytes.NewReader(nil)),
		Request: r,
	}, nil
}
