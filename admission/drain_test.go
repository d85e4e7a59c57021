package admission_test

import (
	"bufio"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/admission"
)

// A1: if the body of a rejected request does not arrive, its connection is closed. The rest of the body is
// not read as another request, and a client that resets the connection causes no panic of net/http.
func TestRejection_bodyDoesNotCome(t *testing.T) {
	const hidden = "GET /hidden HTTP/1.1\r\nHost: a.test\r\n\r\n"
	for _, row := range []struct {
		name string
		then func(t *testing.T, c *net.TCPConn)
	}{
		{"the body comes late: not served", func(t *testing.T, c *net.TCPConn) {
			time.Sleep(300 * time.Millisecond)
			_, _ = io.WriteString(c, hidden)
			_, err := c.Read(make([]byte, 1))
			require.Error(t, err)
		}},
		{"the body never comes: closed", func(t *testing.T, c *net.TCPConn) {
			require.NoError(t, c.SetReadDeadline(time.Now().Add(10*time.Second)))
			_, err := c.Read(make([]byte, 1))
			require.Error(t, err)
			timeout, ok := err.(net.Error)
			require.False(t, ok && timeout.Timeout(), "the connection is still open")
		}},
		{"the client resets: no panic", func(t *testing.T, c *net.TCPConn) {
			require.NoError(t, c.SetLinger(0))
			require.NoError(t, c.Close())
			time.Sleep(50 * time.Millisecond)
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			var served atomic.Int64
			quota := &admission.Quota{Limit: 1, Window: time.Hour}
			mux := http.NewServeMux()
			mux.Handle("/limited", quota.Handler(http.NotFoundHandler()))
			mux.HandleFunc("/hidden", func(http.ResponseWriter, *http.Request) { served.Add(1) })
			var logged strings.Builder
			server := httptest.NewUnstartedServer(mux)
			server.Config.ReadTimeout, server.Config.IdleTimeout = 50*time.Millisecond, time.Minute
			server.Config.ErrorLog = log.New(&logged, "", 0)
			server.Start()
			_, err := quota.Take(t.Context(), "127.0.0.1", 1)
			require.NoError(t, err)
			conn, err := net.Dial("tcp", server.Listener.Addr().String())
			require.NoError(t, err)
			defer conn.Close()
			_, err = fmt.Fprintf(conn, "POST /limited HTTP/1.1\r\nHost: a.test\r\nContent-Length: %d\r\n\r\n", len(hidden))
			require.NoError(t, err)
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			require.NoError(t, err)
			require.Equal(t, http.StatusTooManyRequests, resp.StatusCode, "before the body")
			row.then(t, conn.(*net.TCPConn))
			server.Close()
			require.Zero(t, served.Load())
			require.NotContains(t, logged.String(), "panic")
		})
	}
}
