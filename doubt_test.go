package resilienthttp_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/faulttest"
	"github.com/resilienthttp/resilienthttp/internal/bubble"
	"github.com/resilienthttp/resilienthttp/internal/memhttp"
)

const (
	cut    = ""       // the server executes the request, and closes the connection without a response
	vanish = "vanish" // the same, and then it refuses connections
)

// raw is a response as a server sends it.
func raw(status string, fields ...string) string {
	return "HTTP/1.1 " + status + "\r\nContent-Length: 0\r\n" + strings.Join(append(fields, "\r\n"), "\r\n")
}

// answering starts a server that gives one answer after the other, over all its connections.
func answering(t *testing.T, n *memhttp.Network, host string, answers ...string) {
	t.Helper()
	l := n.Listen(host)
	t.Cleanup(func() { _ = l.Close() })
	serveRaw(t, l, func(conn net.Conn) {
		defer func() { _ = conn.Close() }()
		for r := bufio.NewReader(conn); ; {
			req, err := http.ReadRequest(r)
			if err != nil {
				return
			}
			_, _ = io.Copy(io.Discard, req.Body)
			answer := answers[0]
			if len(answers) > 1 {
				answers = answers[1:]
			}
			if answer == vanish {
				_ = l.Close()
			}
			if answer == cut || answer == vanish {
				return
			}
			_, _ = io.WriteString(conn, answer)
		}
	})
}

// §4.18a: net/http repeats a request on its own if a reused connection breaks. The repetition succeeds as with a bare
// client, costs no attempt, and leaves what went before it in doubt.
func TestInDoubt_sentAgainByNetHTTP(t *testing.T) {
	ok, busy := raw("200 OK"), raw("503 Service Unavailable", "Retry-After: 1")
	hidden := func(base http.RoundTripper) http.RoundTripper {
		return roundTripper(func(req *http.Request) (*http.Response, error) {
			return base.RoundTrip(req.WithContext(context.Background()))
		})
	}
	passing := func(base http.RoundTripper) http.RoundTripper { return roundTripper(base.RoundTrip) }
	for _, row := range []struct {
		name         string
		method, body string
		field        string // with the key, instead of Idempotency
		wrap         func(http.RoundTripper) http.RoundTripper
		answers      []string
		status       int // 0: an error
		inDoubt      bool
	}{
		{"GET: repeated", http.MethodGet, "", "", nil, []string{cut, ok}, 200, false},
		{"POST with a body: repeated", http.MethodPost, "charge", "", nil, []string{cut, ok}, 200, false},
		{"POST without a body: repeated", http.MethodPost, "", "", nil, []string{cut, ok}, 200, false},
		{"429: in doubt", http.MethodPost, "charge", "", nil, []string{cut, raw("429 Too Many Requests")}, 429, true},
		{"429, no body: in doubt", http.MethodPost, "", "", nil, []string{cut, raw("429 Too Many Requests")}, 429, true},
		{"409, no body: in doubt", http.MethodPost, "", "", nil, []string{cut, raw("409 Conflict")}, 409, true},
		{"402: in doubt", http.MethodPost, "charge", "", nil, []string{cut, raw("402 Payment Required")}, 402, true},
		{"503 with Retry-After: in doubt", http.MethodPost, "charge", "", nil, []string{cut, busy}, 503, true},
		{"refused: in doubt", http.MethodPost, "charge", "", nil, []string{vanish}, 0, true},
		{"refused, no body: in doubt", http.MethodPost, "", "", nil, []string{vanish}, 0, true},
		{"refused, GET: sent, never in doubt", http.MethodGet, "", "", nil, []string{vanish}, 0, false},
		{"refused, another field: in doubt", http.MethodPost, "", "X-Idempotency-Key", nil, []string{vanish}, 0, true},
		{"refused, behind a Base: in doubt", http.MethodPost, "", "", passing, []string{vanish}, 0, true},
		{"429, behind a Base: in doubt", http.MethodPost, "", "", passing, []string{cut, raw("429 Too Many Requests")}, 429, true},
		{"refused, behind a Base that hides it: in doubt", http.MethodPost, "", "", hidden, []string{vanish}, 0, true},
		{"refused, a key without a value, behind a Base that hides it: in doubt", http.MethodPost, "", "Idempotency-Key", hidden, []string{vanish}, 0, true},
		{"refused, with a body, behind a Base that hides it: in doubt", http.MethodPost, "charge", "", hidden, []string{vanish}, 0, true},
		{"429, with a body, behind a Base that hides it: in doubt", http.MethodPost, "charge", "", hidden, []string{cut, raw("429 Too Many Requests")}, 429, true},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			n := memhttp.NewNetwork(t)
			answering(t, n, "api.test", append([]string{ok}, row.answers...)...)
			base := n.Transport()
			t.Cleanup(base.CloseIdleConnections)
			tr := bareTransport(base, 3)
			if row.wrap != nil {
				tr.Base = row.wrap(base)
			}
			tr.Idempotency.Disabled = row.field != ""
			readAll(t, roundTrip(t, tr, newRequest(t, http.MethodGet, "http://api.test/", ""))) // its connection is reused
			synctest.Wait()

			req := newRequest(t, row.method, "http://api.test/", row.body)
			switch row.field {
			case "":
			case "Idempotency-Key":
				req.Header[row.field] = []string{}
			default:
				req.Header.Set(row.field, "one")
			}
			resp, err := tr.RoundTrip(req.WithContext(resilienthttp.WithSingleAttempt(t.Context())))
			attempts := resilienthttp.Attempts(resp)
			if row.status == 0 {
				failed := asError(t, err)
				assert.False(t, failed.NotSent())
				attempts = failed.Attempts
			} else {
				require.NoError(t, err)
				assert.Equal(t, row.status, resp.StatusCode)
				readAll(t, resp)
			}
			require.Len(t, attempts, 1)
			assert.True(t, attempts[0].Resent || row.wrap != nil)
			assert.Equal(t, row.inDoubt, resilienthttp.InDoubt(resp, err))
			if row.wrap == nil {
				assert.Contains(t, resilienthttp.Explain(resp, err), "sent again by net/http")
			}
		})
	}
}

// §4.18a: what a Base sends before the request is no repetition of the request.
func TestInDoubt_signers(t *testing.T) {
	ok, declined := raw("200 OK"), raw("402 Payment Required")
	signing := func(sign func(base http.RoundTripper, req *http.Request) error) func(http.RoundTripper) http.RoundTripper {
		return func(base http.RoundTripper) http.RoundTripper {
			return roundTripper(func(req *http.Request) (*http.Response, error) {
				signed := req.Clone(req.Context())
				if err := sign(base, signed); err != nil {
					_ = req.Body.Close()
					return nil, err
				}
				return base.RoundTrip(signed)
			})
		}
	}
	token := signing(func(base http.RoundTripper, req *http.Request) error {
		forToken := newRequest(t, http.MethodGet, "http://token.test/", "")
		resp, err := base.RoundTrip(forToken.WithContext(req.Context()))
		if err != nil {
			return err
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		return resp.Body.Close()
	})
	hash := signing(func(_ http.RoundTripper, req *http.Request) error {
		body, err := req.GetBody()
		if err != nil {
			return err
		}
		_, _ = io.Copy(io.Discard, body)
		return body.Close()
	})
	challenged := func(base http.RoundTripper) http.RoundTripper {
		return roundTripper(func(req *http.Request) (*http.Response, error) {
			resp, err := base.RoundTrip(req)
			if err != nil || resp.StatusCode != http.StatusUnauthorized {
				return resp, err
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
			again := req.Clone(req.Context())
			if again.Body, err = req.GetBody(); err != nil {
				return nil, err
			}
			return base.RoundTrip(again)
		})
	}
	for _, row := range []struct {
		name    string
		wrap    func(http.RoundTripper) http.RoundTripper
		answers []string
		status  int
		inDoubt bool
	}{
		{"a 401 that is answered with credentials, 402: the result", challenged, []string{raw("401 Unauthorized"), declined}, 402, false},
		{"a 401 that is answered with credentials, sent again, 402: in doubt", challenged, []string{raw("401 Unauthorized"), cut, declined}, 402, true},
		{"a token, 402: the result", token, []string{declined}, 402, false},
		{"a hash of the body, 402: the result", hash, []string{declined}, 402, false},
		{"a hash of the body, sent again, 402: in doubt", hash, []string{cut, declined}, 402, true},
		{"a token, 429: no work", token, []string{raw("429 Too Many Requests")}, 429, false},
		{"a token, 503 that says that nothing was executed", token, []string{raw("503 Service Unavailable", "Request-Executed: ?0")}, 503, false},
		{"a token, sent again, 402: in doubt", token, []string{cut, declined}, 402, true},
	} {
		for body, content := range map[string]string{"a short body": "charge", "a long body": strings.Repeat("charge", 20_000), "the body of an SDK": "charge"} {
			bubble.Run(t, row.name+", "+body, func(t *testing.T) {
				n := memhttp.NewNetwork(t)
				answering(t, n, "token.test", ok)
				answering(t, n, "api.test", append([]string{ok}, row.answers...)...)
				base := n.Transport()
				t.Cleanup(base.CloseIdleConnections)
				tr := bareTransport(row.wrap(base), 3)
				readAll(t, roundTrip(t, bareTransport(base, 1), newRequest(t, http.MethodGet, "http://api.test/", ""))) // its connection is reused
				synctest.Wait()

				req := newRequest(t, http.MethodPost, "http://api.test/", content)
				if getBody := req.GetBody; body == "the body of an SDK" {
					req.GetBody = func() (io.ReadCloser, error) { return getBody() }
				}
				resp, err := tr.RoundTrip(req.WithContext(resilienthttp.WithSingleAttempt(t.Context())))
				require.NoError(t, err)
				readAll(t, resp)
				assert.Equal(t, row.status, resp.StatusCode)
				assert.Equal(t, row.inDoubt, resilienthttp.InDoubt(resp, nil), resilienthttp.Explain(resp, nil))
				require.Len(t, resilienthttp.Attempts(resp), 1)
				assert.Equal(t, row.inDoubt, resilienthttp.Attempts(resp)[0].Resent)
			})
		}
	}
}

// §4.18a: over HTTP/2, net/http repeats what the server has not processed. It still succeeds, as one attempt, and is seen.
func TestInDoubt_sentAgainOverHTTP2(t *testing.T) {
	const headers, reset, settings, goAway, end = 1, 3, 4, 7, 5
	refusedStream := func(stream uint32) []byte { return frame(reset, 0, stream, 0, 0, 0, 7) }
	goingAway := func(uint32) []byte { // the connection stays open until the client leaves
		return append(frame(settings, 0, 0), frame(goAway, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)...)
	}
	const ok, tooMany = "\x88", "\x08\x03429" // :status
	for _, row := range []struct {
		name, method, body string
		first              func(stream uint32) []byte
		answer             string
		status             int
		inDoubt            bool
	}{
		{"REFUSED_STREAM, GET: repeated", http.MethodGet, "", refusedStream, ok, 200, false},
		{"REFUSED_STREAM, POST with a body: repeated", http.MethodPost, "charge", refusedStream, ok, 200, false},
		{"REFUSED_STREAM, POST without a body: repeated", http.MethodPost, "", refusedStream, ok, 200, false},
		{"REFUSED_STREAM, 429: in doubt", http.MethodPost, "charge", refusedStream, tooMany, 429, true},
		{"GOAWAY, GET: repeated", http.MethodGet, "", goingAway, ok, 200, false},
		{"GOAWAY, POST with a body: repeated", http.MethodPost, "charge", goingAway, ok, 200, false},
		{"GOAWAY, POST without a body: repeated", http.MethodPost, "", goingAway, ok, 200, false},
		{"GOAWAY, 429, no body: in doubt", http.MethodPost, "", goingAway, tooMany, 429, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			url := frameServer(t, func(request int, stream uint32) []byte {
				if request == 1 {
					return row.first(stream)
				}
				return frame(headers, end, stream, []byte(row.answer)...)
			})
			tr := bareTransport(unencrypted(), 3)
			t.Cleanup(tr.CloseIdleConnections)
			req := newRequest(t, row.method, url, row.body)
			resp := roundTrip(t, tr, req.WithContext(resilienthttp.WithSingleAttempt(t.Context())))
			readAll(t, resp)
			assert.Equal(t, row.status, resp.StatusCode)
			require.Len(t, resilienthttp.Attempts(resp), 1)
			assert.True(t, resilienthttp.Attempts(resp)[0].Resent)
			assert.Equal(t, row.inDoubt, resilienthttp.InDoubt(resp, nil))
		})
	}
}

// §4.18a: what looks like a failed TLS handshake proves nothing after the request was sent.
func TestInDoubt_noHandshake(t *testing.T) {
	done := 0
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		done++
		conn, _, err := http.NewResponseController(w).Hijack()
		if secure, ok := conn.(*tls.Conn); assert.NoError(t, err) && assert.True(t, ok) {
			_, _ = io.WriteString(secure.NetConn(), "HTTP/1.1 502 Bad Gateway\r\n\r\n") // without TLS
			_ = secure.NetConn().Close()
		}
	}))
	defer s.Close()
	tr := bareTransport(s.Client().Transport, 3)
	tr.Idempotency.Disabled = true
	resp, err := tr.RoundTrip(newRequest(t, http.MethodPost, s.URL, ""))
	require.ErrorIs(t, err, http.ErrSchemeMismatch)
	require.Equal(t, 1, done)
	assert.False(t, asError(t, err).NotSent())
	assert.True(t, resilienthttp.InDoubt(resp, err))
}

// §4.18a: a call is in doubt if an attempt may have been executed, unless a later one got a 2xx.
func TestInDoubt_attempts(t *testing.T) {
	reset := failing(&net.OpError{Op: "read", Err: syscall.ECONNRESET})
	busy := status(503, "Retry-After", "1")
	post := http.MethodPost
	for _, row := range []struct {
		name   string
		method string
		steps  []step
		want   bool
	}{
		{"200", post, []step{status(200)}, false},
		{"101: the result is in another protocol", post, []step{status(101)}, true},
		{"101 to a GET", http.MethodGet, []step{status(101)}, false},
		{"402: the result", post, []step{status(402)}, false},
		{"500", post, []step{status(500)}, true},
		{"503", post, []step{status(503)}, true},
		{"503 with Retry-After: a proxy sends it after the work too", post, []step{busy}, true},
		{"503 with Retry-After that says that nothing was executed", post, []step{status(503, "Retry-After", "1", "Request-Executed", "?0")}, false},
		{"503 of Envoy's circuit breaker", post, []step{status(503, "X-Envoy-Overloaded", "true")}, false},
		{"503 of Envoy's rate limit", post, []step{status(503, "X-Envoy-Ratelimited", "true")}, false},
		{"503 that says that something was executed", post, []step{status(503, "Request-Executed", "?1")}, true},
		{"reset, 503 that says that nothing was executed: the doubt stays", post, []step{reset, status(503, "Request-Executed", "?0")}, true},
		{"403 that asks to wait: a limit", post, []step{status(403, "Retry-After", "1")}, false},
		{"499: a gateway's client has gone", post, []step{status(499)}, true},
		{"500 that may be repeated", post, []step{status(500, "X-Should-Retry", "true")}, true},
		{"408: Envoy has sent it after the request", post, []step{status(408)}, true},
		{"425, 429: no work", post, []step{status(425), status(429)}, false},
		{"421: no work", post, []step{status(421)}, false},
		{"reset, 200: the result", post, []step{reset, status(200)}, false},
		{"reset, 402: the doubt stays", post, []step{reset, status(402)}, true},
		{"reset, 401: the doubt stays", post, []step{reset, status(401)}, true},
		{"reset, 429: the doubt stays", post, []step{reset, status(429)}, true},
		{"502, 503 with Retry-After: the doubt stays", post, []step{status(502), busy}, true},
		{"reset, refused", post, []step{reset, refused}, true},
		{"refused", post, []step{refused}, false},
		{"429, refused", post, []step{status(429), refused}, false},
		{"refused, reset", post, []step{refused, reset}, true},
		{"no response", post, []step{hanging}, true},
		{"a success that the caller does not get", post, []step{status(200), refused}, true},
		{"a success that the caller does not get, 412", post, []step{status(200), status(412)}, true},
		{"DELETE, reset, 404", http.MethodDelete, []step{reset, status(404)}, true},
		{"PUT, reset, 204", http.MethodPut, []step{reset, status(204)}, false},
		{"GET, 500", http.MethodGet, []step{status(500)}, false},
		{"GET, reset", http.MethodGet, []step{reset}, false},
		{"malformed", "bad method", []step{failing(errors.New(`net/http: invalid method "bad method"`))}, false},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			tr := bareTransport(script(row.steps...), len(row.steps))
			tr.Policy.AttemptTimeout = time.Second
			if strings.HasPrefix(row.name, "a success") {
				tr.Policy.Classify = func(*resilienthttp.Attempt) resilienthttp.Verdict { return resilienthttp.VerdictTransient } // of a 200 too
			}
			req := newRequest(t, http.MethodPost, "http://api.test/", "charge")
			req.Method = row.method
			req.Header.Set("Idempotency-Key", "one")
			resp, err := tr.RoundTrip(req)
			finish(t, resp, err)
			assert.Equal(t, row.want, resilienthttp.InDoubt(resp, err), resilienthttp.Explain(resp, err))
		})
	}
}

// §4.18a: errors and responses that are not of this library.
func TestInDoubt_others(t *testing.T) {
	refused := &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	of := func(method string, status int) *http.Response {
		return &http.Response{StatusCode: status, Request: &http.Request{Method: method}}
	}
	for _, row := range []struct {
		name string
		resp *http.Response
		err  error
		want bool
	}{
		{"neither", nil, nil, false},
		{"an error", nil, io.EOF, true},
		{"refused", nil, refused, false},
		{"an error of http.Client, POST", nil, &url.Error{Op: "Post", Err: io.EOF}, true},
		{"an error of http.Client, GET", nil, &url.Error{Op: "Get", Err: io.EOF}, false},
		{"refused after a response", of(http.MethodPost, 302), &url.Error{Op: "Post", Err: refused}, true},
		{"500 to a POST", of(http.MethodPost, 500), nil, true},
		{"500 to a GET", of("", 500), nil, false},
		{"404 to a POST", of(http.MethodPost, 404), nil, false},
		{"the body of a 201 to a POST breaks", of(http.MethodPost, 201), io.ErrUnexpectedEOF, true},
		{"the body of a 200 to a GET breaks", of(http.MethodGet, 200), io.ErrUnexpectedEOF, false},
		{"the body of a 500 to a GET breaks", of(http.MethodGet, 500), io.ErrUnexpectedEOF, false},
		{"a response without a request", &http.Response{StatusCode: http.StatusInternalServerError}, nil, true},
		{"an Error without attempts", nil, &resilienthttp.Error{Err: io.EOF}, true},
		{"rejected", nil, &resilienthttp.Error{Reason: resilienthttp.ErrBreakerOpen}, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			assert.Equal(t, row.want, resilienthttp.InDoubt(row.resp, row.err))
		})
	}
}

// §4.18a: a program may set Request.Response to one that has no request.
func TestInDoubt_redirectWithoutRequest(t *testing.T) {
	for _, from := range []*http.Response{{StatusCode: 500}, {StatusCode: 500, Request: &http.Request{Method: http.MethodPost}}} {
		req := newRequest(t, http.MethodPost, "http://api.test/", "charge")
		req.Response = from
		resp := roundTrip(t, bareTransport(script(status(200)), 1), req)
		readAll(t, resp)
		require.True(t, resilienthttp.InDoubt(resp, nil))
	}
}

// §4.18a: a program may send its own request again, with the response of the call before.
func TestInDoubt_requestSentAgain(t *testing.T) {
	tr := bareTransport(script(status(307), status(308)), 1)
	req := newRequest(t, http.MethodPost, "http://api.test/", "")
	for range 2 {
		resp := roundTrip(t, tr, req)
		readAll(t, resp)
		req.Response = resp
		require.False(t, resilienthttp.InDoubt(resp, nil))
	}
}

// §4.18a: an error of the request's body says nothing of the request, although it proves that another one was not sent.
func TestInDoubt_bodyFails(t *testing.T) {
	for _, row := range []struct {
		name string
		err  error
	}{
		{"connection refused", &url.Error{Op: "Get", Err: &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}}},
		{"a host without an address", &net.DNSError{IsNotFound: true}},
		{"rejected by another Transport", &resilienthttp.Error{Reason: resilienthttp.ErrBreakerOpen}},
		{"malformed", errors.New(`unsupported protocol scheme "ftp"`)},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			n, seen := memhttp.NewNetwork(t), 0
			n.Serve(t, "api.test", http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				seen++
				_, _ = io.Copy(io.Discard, r.Body)
			}))
			base := n.Transport()
			t.Cleanup(base.CloseIdleConnections)
			tr := bareTransport(base, 3)
			tr.Idempotency.Disabled = true
			req := newRequest(t, http.MethodPost, "http://api.test/", "charge")
			req.ContentLength = -1
			req.GetBody = func() (io.ReadCloser, error) {
				return io.NopCloser(io.MultiReader(strings.NewReader("charge"), iotest.ErrReader(row.err))), nil
			}
			req.Body, _ = req.GetBody()
			resp, err := tr.RoundTrip(req)
			synctest.Wait()
			require.Equal(t, 1, seen)
			assert.False(t, asError(t, err).NotSent())
			assert.True(t, resilienthttp.InDoubt(resp, err))
		})
	}
}

// §4.18a: the calls of a redirect inherit what is known.
func TestInDoubt_redirects(t *testing.T) {
	to := func(status, location string) string { return raw(status, "Location: "+location) }
	found, other := to("303 See Other", "http://api.test/charge"), to("307 Temporary Redirect", "http://b.test/")
	same := to("307 Temporary Redirect", "http://api.test/elsewhere")
	stop := errors.New("stop")
	for _, row := range []struct {
		name    string
		method  string
		a, b    []string // answers of api.test and b.test; none: connection refused
		check   func(cancel context.CancelFunc) error
		fails   bool
		inDoubt bool
	}{
		{name: "302, then refused", method: http.MethodPost, a: []string{to("302 Found", "http://b.test/")}, fails: true, inDoubt: true},
		{name: "303, then refused", method: http.MethodPost, a: []string{to("303 See Other", "http://b.test/")}, fails: true, inDoubt: true},
		{name: "307, then refused", method: http.MethodPost, a: []string{other}, fails: true, inDoubt: true},
		{name: "303, then 500", method: http.MethodPost, a: []string{found, raw("500 Internal Server Error")}, inDoubt: true},
		{name: "303, then 429", method: http.MethodPost, a: []string{found, raw("429 Too Many Requests")}, inDoubt: true},
		{name: "303, then 404", method: http.MethodPost, a: []string{found, raw("404 Not Found")}, inDoubt: true},
		{name: "303, then 302, then 404", method: http.MethodPost, a: []string{found, to("302 Found", "http://api.test/again"), raw("404 Not Found")}, inDoubt: true},
		{name: "GET, 302, then 404", method: http.MethodGet, a: []string{to("302 Found", "http://api.test/again"), raw("404 Not Found")}},
		{name: "303, then 200", method: http.MethodPost, a: []string{found, raw("200 OK")}},
		{name: "cut, then 302, then 200 to the GET, as of a login", method: http.MethodPost, a: []string{cut, to("302 Found", "http://api.test/login"), raw("200 OK")}, inDoubt: true},
		{name: "307, then 402", method: http.MethodPost, a: []string{other}, b: []string{raw("402 Payment Required")}},
		{name: "502, 307, 200 of the same server", method: http.MethodPost, a: []string{raw("502 Bad Gateway"), same, raw("200 OK")}},
		{name: "502, 307, 402 of the same server", method: http.MethodPost, a: []string{raw("502 Bad Gateway"), same, raw("402 Payment Required")}, inDoubt: true},
		{name: "502, 307, 200 of another server", method: http.MethodPost, a: []string{raw("502 Bad Gateway"), other}, b: []string{raw("200 OK")}, fails: true, inDoubt: true},
		{name: "502, 307, 200 of another server, PUT", method: http.MethodPut, a: []string{raw("502 Bad Gateway"), other}, b: []string{raw("200 OK")}, inDoubt: true},
		{name: "GET, 302, then refused", method: http.MethodGet, a: []string{to("302 Found", "http://b.test/")}, fails: true},
		{name: "not followed", method: http.MethodPost, a: []string{other}, check: func(context.CancelFunc) error { return stop }, fails: true, inDoubt: true},
		{name: "not followed, GET", method: http.MethodGet, a: []string{other}, check: func(context.CancelFunc) error { return stop }, fails: true},
		{name: "canceled between", method: http.MethodPost, a: []string{other}, b: []string{raw("200 OK")}, check: func(cancel context.CancelFunc) error {
			cancel()
			return nil
		}, fails: true, inDoubt: true},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			n := memhttp.NewNetwork(t)
			answering(t, n, "api.test", row.a...)
			if row.b != nil {
				answering(t, n, "b.test", row.b...)
			}
			base := n.Transport()
			t.Cleanup(base.CloseIdleConnections)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			client := &http.Client{Transport: bareTransport(base, 2)}
			if row.check != nil {
				client.CheckRedirect = func(*http.Request, []*http.Request) error { return row.check(cancel) }
			}
			resp, err := client.Do(newCall(ctx, t, row.method, "charge"))
			finish(t, resp, err)
			assert.Equal(t, row.fails, err != nil)
			assert.Equal(t, row.inDoubt, resilienthttp.InDoubt(resp, err), "%v", err)
			if failed, ours := errors.AsType[*resilienthttp.Error](err); ours {
				assert.False(t, failed.NotSent())
			}
		})
	}
}

// A Classify may ask for the doubt of its attempt, of which the call knows nothing yet.
func TestInDoubt_withinClassify(t *testing.T) {
	transport := &resilienthttp.Transport{Base: instant{}}
	transport.Policy.Classify = func(a *resilienthttp.Attempt) resilienthttp.Verdict {
		require.False(t, resilienthttp.InDoubt(a.Response, a.Err))
		require.Nil(t, resilienthttp.Attempts(a.Response))
		return resilienthttp.VerdictDefault
	}
	resp, err := (&http.Client{Transport: transport}).Post("http://api.test/", "text/plain", strings.NewReader("x"))
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Len(t, resilienthttp.Attempts(resp), 1)
}

// §4.18a: an API may say in its own words that nothing was executed, and Classify may not believe that a response proves it.
func TestNotExecuted(t *testing.T) {
	says := func(notExecuted bool) func(*resilienthttp.Attempt) resilienthttp.Verdict {
		return func(a *resilienthttp.Attempt) resilienthttp.Verdict {
			if a.Response == nil || a.Response.StatusCode == http.StatusOK {
				return resilienthttp.VerdictDefault
			}
			a.NotExecuted = notExecuted
			return resilienthttp.VerdictThrottled
		}
	}
	rateExceeded := func(a *resilienthttp.Attempt, body []byte) resilienthttp.Verdict {
		a.NotExecuted = bytes.Contains(body, []byte("status 400"))
		return resilienthttp.VerdictThrottled
	}
	for _, row := range []struct {
		name   string
		policy resilienthttp.Policy
		reply  step
		again  bool
		doubt  bool
	}{
		{"a 500 that Classify knows: repeated", resilienthttp.Policy{Classify: says(true)}, status(500), true, false},
		{"a 400 that ClassifyBody knows: repeated", resilienthttp.Policy{ClassifyBody: rateExceeded}, status(400), true, false},
		{"a 400 that ClassifyBody does not know: not repeated", resilienthttp.Policy{ClassifyBody: rateExceeded}, status(404), false, false},
		{"a 429 after the work: not repeated", resilienthttp.Policy{Classify: says(false)}, status(429), false, true},
		{"a lost response is not known to Classify: not repeated", resilienthttp.Policy{Classify: says(true)}, failing(errReset), false, true},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			base := script(row.reply, status(200))
			tr := withoutKeys(&resilienthttp.Transport{Base: base, Policy: row.policy})
			resp, err := tr.RoundTrip(newRequest(t, http.MethodPost, "http://api.test/", "charge"))
			finish(t, resp, err)
			require.Equal(t, row.again, len(base.sent) == 2)
			require.Equal(t, row.doubt, resilienthttp.InDoubt(resp, err))
		})
	}
}

// §4.18a: the body of a 2xx breaks, so the work is done, and its result is lost. It is the same for each way in which a body ends.
func TestInDoubt_bodyBreaks(t *testing.T) {
	for _, row := range []struct {
		name, method string
		fault        faulttest.Fault
		want         bool
	}{
		{"truncated, POST", http.MethodPost, faulttest.Truncated, true},
		{"reset, POST", http.MethodPost, faulttest.ResetMidBody, true},
		{"silent, POST", http.MethodPost, faulttest.Stalled, true},
		{"truncated, GET", http.MethodGet, faulttest.Truncated, false},
		{"reset, GET", http.MethodGet, faulttest.ResetMidBody, false},
		{"silent, GET", http.MethodGet, faulttest.Stalled, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := faulttest.NewInMemory(t, faulttest.Reply{Status: http.StatusCreated, Fault: row.fault})
				tr := bareTransport(s.Transport(), 1)
				tr.Policy.ReadTimeout = time.Second
				resp := roundTrip(t, tr, newRequest(t, row.method, s.URL, ""))
				_, err := io.ReadAll(resp.Body)
				require.Error(t, err)
				require.NoError(t, resp.Body.Close())
				require.Equal(t, row.want, resilienthttp.InDoubt(resp, err), "%v", err)
			})
		})
	}
}
