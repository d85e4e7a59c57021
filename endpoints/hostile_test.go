package endpoints_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/endpoints"
)

// hostile is a server on a socket that reads a request and then does what it wants with the connection.
// requests counts what it has read to the end.
func hostile(t *testing.T, requests *atomic.Int32, act func(net.Conn)) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = conn.Close() }()
				req, err := http.ReadRequest(bufio.NewReader(conn))
				if err != nil {
					return
				}
				_, _ = io.Copy(io.Discard, req.Body)
				requests.Add(1)
				act(conn)
			}()
		}
	}()
	return "http://" + listener.Addr().String()
}

// N1: whatever the first server does to the connection, a GET has a result before its deadline, and a
// POST that the first server has read is never sent to the second, unless the first says that it did
// nothing.
func TestTransport_hostile(t *testing.T) {
	says := func(text string) func(net.Conn) {
		return func(conn net.Conn) { _, _ = io.WriteString(conn, text) }
	}
	for _, row := range []struct {
		name   string
		act    func(net.Conn)
		stays  bool // the response of the first is the result of a GET
		noWork bool // the first says that it did nothing
	}{
		{"closes without a response", says(""), false, false},
		{"closes in the status line", says("HTTP/1.1 20"), false, false},
		{"closes in the headers", says("HTTP/1.1 200 OK\r\nContent-Le"), false, false},
		{"not HTTP", says("SSH-2.0-OpenSSH_9.6\r\n"), false, false},
		{"a negative Content-Length", says("HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n"), false, false},
		{"two Content-Lengths", says("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab"), false, false},
		{"a body shorter than Content-Length", says("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nab"), true, false},
		{"a 500 with a body that breaks", says("HTTP/1.1 500 No\r\nContent-Length: 100\r\n\r\nab"), false, false},
		{"a 429 and a close", says("HTTP/1.1 429 No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"), false, true},
		{"a 503 that asks to wait for years", says("HTTP/1.1 503 No\r\nRetry-After: 99999999\r\nContent-Length: 0\r\n\r\n"), false, true},
		{"headers without an end", func(conn net.Conn) {
			_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\n")
			for range 3 {
				if _, err := io.WriteString(conn, "X-Drip: "+strings.Repeat("a", 1<<20)+"\r\n"); err != nil {
					return
				}
			}
			_, _ = io.Copy(io.Discard, conn)
		}, false, false},
		{"a reset", func(conn net.Conn) {
			if tcp, ok := conn.(*net.TCPConn); ok {
				_ = tcp.SetLinger(0)
			}
		}, false, false},
		{"a 307 to itself with a user and a port of another scheme", says("HTTP/1.1 307 No\r\nLocation: ftp://user:pass@127.0.0.1:21/x\r\nContent-Length: 0\r\n\r\n"), true, false},
		{"a Location with a line of garbage", says("HTTP/1.1 302 No\r\nLocation: http://[::1/%zz\r\nContent-Length: 0\r\n\r\n"), true, false},
		{"a 421", says("HTTP/1.1 421 No\r\nContent-Length: 0\r\n\r\n"), true, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			for _, method := range []string{http.MethodGet, http.MethodPost} {
				var atFirst, atSecond atomic.Int32
				first := hostile(t, &atFirst, row.act)
				second := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { atSecond.Add(1) }))
				t.Cleanup(second.Close)
				tr := &endpoints.Transport{
					Endpoints: []endpoints.Endpoint{{Name: "a", URL: parse(t, first)}, {Name: "b", URL: parse(t, second.URL)}},
					Transport: &resilienthttp.Transport{Policy: resilienthttp.Policy{AttemptTimeout: 500 * time.Millisecond, MaxAttempts: 3, Backoff: resilienthttp.Constant(time.Millisecond)}},
				}
				t.Cleanup(tr.CloseIdleConnections)
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				t.Cleanup(cancel)
				req, err := http.NewRequestWithContext(ctx, method, first+"/x", strings.NewReader("hello"))
				require.NoError(t, err)
				resp, err := tr.RoundTrip(req)
				t.Log(resilienthttp.Explain(resp, err))
				if resp != nil {
					_, _ = io.Copy(io.Discard, resp.Body)
					require.NoError(t, resp.Body.Close())
				}
				require.NoError(t, ctx.Err(), "it ended before the deadline")
				require.NotZero(t, atFirst.Load())
				switch {
				case method == http.MethodPost && !row.noWork:
					require.Zero(t, atSecond.Load(), "the first has the POST")
				case method == http.MethodGet && row.stays:
					require.NoError(t, err)
					require.Zero(t, atSecond.Load())
				default:
					require.NoError(t, err)
					require.Equal(t, http.StatusOK, resp.StatusCode)
					require.Equal(t, int32(1), atSecond.Load())
				}
			}
		})
	}
}
