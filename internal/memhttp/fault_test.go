package memhttp_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/internal/bubble"
	"github.com/resilienthttp/resilienthttp/internal/memhttp"
)

func TestServerTimeouts(t *testing.T) {
	for _, row := range []struct {
		name   string
		config func(*http.Server)
		send   string
		after  time.Duration
		want   string // how the answer begins
	}{
		{"header", func(s *http.Server) { s.ReadHeaderTimeout = time.Minute }, "GET / HTTP/1.1\r\n", time.Minute, ""},
		{"body", func(s *http.Server) { s.ReadTimeout = time.Minute }, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhi", time.Minute, "HTTP/1.1 400"},
		{"idle", func(s *http.Server) { s.IdleTimeout = time.Hour }, "GET / HTTP/1.1\r\nHost: x\r\n\r\n", time.Hour, "HTTP/1.1 200"},
		{"write", func(s *http.Server) { s.WriteTimeout = time.Second }, "GET /big HTTP/1.1\r\nHost: x\r\n\r\n", time.Second, "HTTP/1.1 200"},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			s := memhttp.NewServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if _, err := io.Copy(io.Discard, r.Body); err != nil {
					w.Header().Set("Connection", "close")
					w.WriteHeader(http.StatusBadRequest)
				}
				if r.URL.Path == "/big" {
					_, _ = w.Write(make([]byte, 1<<20))
				}
			}), memhttp.Configure(row.config))
			c, err := s.Net.DialContext(t.Context(), "tcp", "mem.test:80")
			require.NoError(t, err)
			defer func() { _ = c.Close() }()
			begin := time.Now()
			_, err = io.WriteString(c, row.send)
			require.NoError(t, err)
			// A client that does not read until after the timeout. At the same time
			// the two timers would fire in either order.
			time.Sleep(row.after + time.Millisecond)
			got, _ := io.ReadAll(c)
			require.Less(t, time.Since(begin), row.after+time.Second)
			require.True(t, strings.HasPrefix(string(got), row.want), "%.100q", got)
		})
	}
}

func TestResets(t *testing.T) {
	hijack := func(w http.ResponseWriter) net.Conn {
		c, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			panic(err)
		}
		return c
	}
	for _, row := range []struct {
		name    string
		handler http.HandlerFunc
		body    string
		want    string // of the response body, before the error; none: the request fails
		err     error
	}{
		{"before reading", func(w http.ResponseWriter, _ *http.Request) { memhttp.Reset(hijack(w).(*memhttp.Conn)) }, "body", "", syscall.ECONNRESET},
		{"without hijacking", func(_ http.ResponseWriter, r *http.Request) { memhttp.Reset(memhttp.RequestConn(r)) }, "", "", syscall.ECONNRESET},
		{"linger and close", func(w http.ResponseWriter, _ *http.Request) {
			c := hijack(w).(*memhttp.Conn)
			_, _ = c.SetLinger(0), c.Close()
		}, "", "", syscall.ECONNRESET},
		{"in mid-body", func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, "part")
			_ = http.NewResponseController(w).Flush()
			memhttp.Reset(memhttp.RequestConn(r))
		}, "", "part", syscall.ECONNRESET},
		{"closed", func(w http.ResponseWriter, _ *http.Request) { _ = hijack(w).Close() }, "", "", io.EOF},
		{"closed in mid-body", func(w http.ResponseWriter, _ *http.Request) {
			c := hijack(w)
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\npart")
			_ = c.Close()
		}, "", "part", io.ErrUnexpectedEOF},
		{"panic in mid-body", func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "part")
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}, "", "part", io.ErrUnexpectedEOF},
	} {
		t.Run(row.name, func(t *testing.T) {
			both(t, func(t *testing.T) {
				s := memhttp.NewServer(t, row.handler)
				c := &http.Client{Transport: s.Transport()}
				resp, err := c.Post(s.URL, "", strings.NewReader(row.body))
				if row.want != "" {
					require.NoError(t, err)
					var got []byte
					got, err = io.ReadAll(resp.Body)
					require.Equal(t, row.want, string(got))
					require.NoError(t, resp.Body.Close())
				}
				require.ErrorIs(t, err, row.err)
			})
		})
	}
}

// The client is blocked in a write of more data than the buffers hold.
func TestReset_duringUpload(t *testing.T) {
	both(t, func(t *testing.T) {
		s := memhttp.NewServer(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.ReadFull(r.Body, make([]byte, 100_000))
			memhttp.Reset(memhttp.RequestConn(r))
		}))
		c := &http.Client{Transport: s.Transport()}
		_, err := c.Post(s.URL, "", bytes.NewReader(make([]byte, 1<<20)))
		// http.Transport returns the error of its reader or of its writer, also over a
		// socket: the reader closes the connection of the writer.
		if !errors.Is(err, net.ErrClosed) {
			require.ErrorIs(t, err, syscall.ECONNRESET)
		}
	})
}

// net/http notices closed idle connections before the next request.
func TestResetConns_idle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memhttp.NewServer(t, hello)
		c := &http.Client{Transport: s.Transport()}
		get(t, c, s.URL)
		s.ResetConns()
		synctest.Wait()
		opened, open := s.Conns()
		require.Equal(t, [2]int{1, 0}, [2]int{opened, open})
		get(t, c, s.URL)
		opened, open = s.Conns()
		require.Equal(t, [2]int{2, 1}, [2]int{opened, open})
	})
}

// Conns counts connections with unread bodies and connections that are not closed.
func TestConns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memhttp.NewServer(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write(make([]byte, 1<<20))
		}))
		c := &http.Client{Transport: s.Transport()}
		var bodies []io.Closer
		for range 3 {
			resp, err := c.Get(s.URL)
			require.NoError(t, err)
			bodies = append(bodies, resp.Body)
		}
		c.CloseIdleConnections()
		synctest.Wait()
		opened, open := s.Conns()
		require.Equal(t, [2]int{3, 3}, [2]int{opened, open})
		for _, b := range bodies {
			require.NoError(t, b.Close())
		}
		synctest.Wait()
		opened, open = s.Conns()
		require.Equal(t, [2]int{3, 0}, [2]int{opened, open})
	})
}
