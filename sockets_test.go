package resilienthttp_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/faulttest"
)

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

// resetConn closes a connection so that its peer gets ECONNRESET.
func resetConn(conn net.Conn) {
	_ = conn.(*net.TCPConn).SetLinger(0)
	_ = conn.Close()
}

const okAnswer = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nfine"

// withoutKeys makes a Transport generate no idempotency keys.
func withoutKeys(tr *resilienthttp.Transport) *resilienthttp.Transport {
	tr.Idempotency.Off = true
	return tr
}

// TestBrokenConnections is §4.8 and §4.9 over sockets: what breaks before the
// answer is repeated if the request may be, and what breaks after it is the
// reader's to see.
func TestBrokenConnections(t *testing.T) {
	readRequest := func(conn net.Conn) *http.Request {
		req, err := http.ReadRequest(bufio.NewReader(conn))
		if err != nil {
			return nil
		}
		_, _ = io.Copy(io.Discard, req.Body)
		return req
	}
	tests := []struct {
		name  string
		spoil func(net.Conn)
	}{
		{"reset before the request is read", resetConn},
		{"reset after the request was read", func(conn net.Conn) {
			readRequest(conn)
			resetConn(conn)
		}},
		{"closed before the request is read", func(conn net.Conn) { _ = conn.Close() }},
		{"closed after the request was read", func(conn net.Conn) {
			readRequest(conn)
			_ = conn.Close()
		}},
		{"reset within the status line", func(conn net.Conn) {
			readRequest(conn)
			_, _ = io.WriteString(conn, "HTTP/1.1 20")
			resetConn(conn)
		}},
		{"closed within the headers", func(conn net.Conn) {
			readRequest(conn)
			_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Le")
			_ = conn.Close()
		}},
		{"closed after 100 Continue", func(conn net.Conn) {
			readRequest(conn)
			_, _ = io.WriteString(conn, "HTTP/1.1 100 Continue\r\n\r\n")
			_ = conn.Close()
		}},
	}
	for _, tt := range tests {
		serve := func(t *testing.T, broken int) (string, *atomic.Int64, func() []string) {
			var conns atomic.Int64
			var mu sync.Mutex
			var keys []string
			l, url := listen(t)
			serveRaw(t, l, func(conn net.Conn) {
				if conns.Add(1) <= int64(broken) {
					tt.spoil(conn)
					return
				}
				if req := readRequest(conn); req != nil {
					mu.Lock()
					keys = append(keys, req.Header.Get("Idempotency-Key"))
					mu.Unlock()
					_, _ = io.WriteString(conn, okAnswer)
				}
			})
			return url, &conns, func() []string {
				mu.Lock()
				defer mu.Unlock()
				return keys
			}
		}
		for _, method := range []string{"GET", "PUT", "POST"} {
			t.Run(tt.name+", repeatable "+method, func(t *testing.T) {
				url, conns, keys := serve(t, 2)
				req := newRequest(t, method, url, "")
				var bodies *trackedBodies
				if method != "GET" {
					bodies = trackBody(req, "content")
				}
				resp, err := overSockets(t).RoundTrip(req)
				require.NoError(t, err)
				require.Equal(t, "fine", readAll(t, resp))
				require.Len(t, resilienthttp.Attempts(resp), 3)
				require.Equal(t, int64(3), conns.Load())
				require.Equal(t, method == "POST", keys()[0] != "")
				for _, a := range resilienthttp.Attempts(resp)[:2] {
					require.Error(t, a.Err)
					require.Equal(t, resilienthttp.VerdictTransient, a.Verdict)
					require.Equal(t, resilienthttp.Attempts(resp)[2].Request.Header["Idempotency-Key"], a.Request.Header["Idempotency-Key"])
				}
				if bodies != nil {
					require.Len(t, bodies.bodies, 3)
				}
			})
		}
		t.Run(tt.name+", unkeyed POST", func(t *testing.T) {
			url, conns, _ := serve(t, 1)
			resp, err := withoutKeys(overSockets(t)).RoundTrip(newRequest(t, "POST", url, "content"))
			if err == nil && strings.Contains(tt.name, "before") {
				// Quick enough to break the handshake of TCP: nothing was sent then.
				readAll(t, resp)
				var dial *net.OpError
				require.ErrorAs(t, resilienthttp.Attempts(resp)[0].Err, &dial)
				require.Equal(t, "dial", dial.Op)
				return
			}
			require.ErrorIs(t, err, resilienthttp.ErrNotIdempotent)
			require.Len(t, asError(t, err).Attempts, 1)
			require.Equal(t, int64(1), conns.Load())
			require.False(t, asError(t, err).Timeout())
		})
	}
}

// TestTruncatedBody is §4.1: the answer has come; that its body breaks off is for
// its reader to see, and nothing is repeated behind his back.
func TestTruncatedBody(t *testing.T) {
	for name, script := range map[string]http.Handler{
		"of a known length": faulttest.Reply{Body: "fine weather", Fault: faulttest.Truncated, At: 3},
		"chunked": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "fin")
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}),
	} {
		t.Run(name, func(t *testing.T) {
			s := faulttest.New(t, script)
			resp, err := overSockets(t).RoundTrip(newRequest(t, "GET", s.URL, ""))
			require.NoError(t, err)
			text, err := io.ReadAll(resp.Body)
			require.ErrorIs(t, err, io.ErrUnexpectedEOF)
			require.Equal(t, "fin", string(text))
			require.NoError(t, resp.Body.Close())
			s.AssertAttempts(t, 1)
		})
	}
}

// TestKeepAliveRace is §4.8: a server that closes an idle connection just as a
// request is written to it. Each request is served once all the same, save the
// unkeyed POST, of which nobody can know.
func TestKeepAliveRace(t *testing.T) {
	for _, tt := range []struct {
		method  string
		keyless bool
		ok      bool
	}{{"GET", true, true}, {"PUT", true, true}, {"POST", false, true}, {"POST", true, false}} {
		t.Run(fmt.Sprintf("%s, keyless %v", tt.method, tt.keyless), func(t *testing.T) {
			l, url := listen(t)
			var served atomic.Int64
			serveRaw(t, l, func(conn net.Conn) {
				r := bufio.NewReader(conn)
				req, err := http.ReadRequest(r)
				if err != nil {
					return
				}
				_, _ = io.Copy(io.Discard, req.Body)
				served.Add(1)
				_, _ = io.WriteString(conn, okAnswer)
				// The next request arrives at a server that has just decided to close.
				_, _ = r.Peek(1)
				resetConn(conn)
			})
			tr := overSockets(t)
			tr.Idempotency.Off = tt.keyless
			for i := range 10 {
				resp, err := tr.RoundTrip(newRequest(t, tt.method, url, "content"))
				if i > 0 && !tt.ok {
					require.ErrorIs(t, err, resilienthttp.ErrNotIdempotent)
					return
				}
				require.NoError(t, err)
				require.Equal(t, "fine", readAll(t, resp))
				require.Equal(t, int64(i+1), served.Load())
			}
		})
	}
}

// TestConnectionRefused is §4.8: a request that never left is repeated, whatever
// its method.
func TestConnectionRefused(t *testing.T) {
	l, url := listen(t)
	address := l.Addr().String()
	require.NoError(t, l.Close())

	t.Run("for good", func(t *testing.T) {
		req := newRequest(t, "POST", url, "")
		bodies := trackBody(req, "content")
		_, err := withoutKeys(overSockets(t)).RoundTrip(req)
		require.ErrorIs(t, err, syscall.ECONNREFUSED)
		require.ErrorIs(t, err, resilienthttp.ErrMaxAttempts)
		require.Len(t, asError(t, err).Attempts, 4)
		bodies.requireClosedOnce(t, 4)
		require.Contains(t, err.Error(), "connection refused")
	})
	t.Run("until somebody listens", func(t *testing.T) {
		tr := withoutKeys(overSockets(t))
		waits := 0
		tr.Trace = &resilienthttp.Trace{RetryWait: func(*resilienthttp.Attempt) {
			if waits++; waits == 2 {
				l, err := net.Listen("tcp", address)
				if err != nil {
					return // somebody else has the port now
				}
				serveRaw(t, l, func(conn net.Conn) {
					if _, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
						_, _ = io.WriteString(conn, okAnswer)
					}
				})
			}
		}}
		resp, err := tr.RoundTrip(newRequest(t, "POST", url, "content"))
		if errors.Is(err, syscall.ECONNREFUSED) {
			t.Skip("the port was taken meanwhile")
		}
		require.NoError(t, err)
		require.Equal(t, "fine", readAll(t, resp))
		require.Len(t, resilienthttp.Attempts(resp), 3)
	})
}

// TestRedirectWithBody is §4.3 and §4.8: a 307 to the same origin takes body and
// key along; to another one, the body and a key of its own.
func TestRedirectWithBody(t *testing.T) {
	other := faulttest.New(t, nil)
	s := faulttest.New(t, faulttest.Script{
		{Route: "/1", Do: faulttest.Redirect(307, "/2")},
		{Route: "/2", Do: faulttest.Redirect(308, other.URL)},
	})
	resp, err := (&http.Client{Transport: overSockets(t)}).Post(s.URL+"/1", "text/plain", strings.NewReader("order"))
	require.NoError(t, err)
	readAll(t, resp)
	s.AssertAttempts(t, 2) // by their key
	s.AssertKeys(t, 1)
	other.AssertKeys(t, 1)
	require.NotEqual(t, s.Requests()[0].Key, other.Requests()[0].Key)
	for _, q := range append(s.Requests(), other.Requests()...) {
		require.Equal(t, "order", string(q.Body))
	}
}

// TestUntrustedCertificate is §4.9: one attempt, and the reason is found.
func TestUntrustedCertificate(t *testing.T) {
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	s.Config.ErrorLog = quiet()
	s.StartTLS()
	defer s.Close()
	for _, h2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("HTTP/2 %v", h2), func(t *testing.T) {
			tr := overSockets(t)
			base := &http.Transport{ForceAttemptHTTP2: h2, TLSClientConfig: &tls.Config{RootCAs: x509.NewCertPool()}}
			defer base.CloseIdleConnections()
			tr.Base = base
			_, err := tr.RoundTrip(newRequest(t, "GET", s.URL, ""))
			var unknown x509.UnknownAuthorityError
			require.ErrorAs(t, err, &unknown)
			require.Len(t, asError(t, err).Attempts, 1)
		})
	}
}

// TestGoAway is §4.9 over HTTP/2: a server that sends its clients away loses no
// request, with or without a body.
func TestGoAway(t *testing.T) {
	var served atomic.Int64
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if served.Add(1)%3 == 0 {
			w.Header().Set("Connection", "close") // for HTTP/2: GOAWAY
		}
		fmt.Fprintf(w, "%s", r.Proto)
	}))
	s.EnableHTTP2, s.Config.ErrorLog = true, quiet()
	s.StartTLS()
	defer s.Close()
	tr := overSockets(t)
	tr.Base = s.Client().Transport
	tr.Budget = &resilienthttp.Budget{Ratio: -1}
	const each = 25
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := range each {
				resp, err := tr.RoundTrip(newRequest(t, []string{"GET", "POST"}[i%2], s.URL, []string{"", "content"}[i%2]))
				if err != nil {
					t.Errorf("%v", err)
					continue
				}
				if text, err := io.ReadAll(resp.Body); err != nil || string(text) != "HTTP/2.0" {
					t.Errorf("%q, %v", text, err)
				}
				_ = resp.Body.Close()
			}
		})
	}
	wg.Wait()
	require.GreaterOrEqual(t, served.Load(), int64(8*each))
}

// TestServerGoesDownAndUp: a call in flight is cut off with its server, and is
// repeated against the one that comes after it.
func TestServerGoesDownAndUp(t *testing.T) {
	arrived := make(chan struct{})
	first := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		close(arrived)
		<-r.Context().Done()
	}))
	second := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "up again") }))
	defer second.Close()
	defer first.Close()
	var target atomic.Pointer[string]
	address := first.Listener.Addr().String()
	target.Store(&address)
	tr := overSockets(t)
	base := &http.Transport{DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, *target.Load())
	}}
	defer base.CloseIdleConnections()
	tr.Base = base
	go func() {
		<-arrived
		address := second.Listener.Addr().String()
		target.Store(&address)
		first.CloseClientConnections()
	}()
	resp, err := tr.RoundTrip(newRequest(t, "GET", "http://api.test/", ""))
	require.NoError(t, err)
	require.Equal(t, "up again", readAll(t, resp))
	require.Len(t, resilienthttp.Attempts(resp), 2)
}

// TestAttemptTimeoutOverSocket: a server that accepts and says nothing.
func TestAttemptTimeoutOverSocket(t *testing.T) {
	s := faulttest.New(t, faulttest.Hang)
	tr := overSockets(t)
	tr.Policy.AttemptTimeout = 20 * time.Millisecond
	_, err := tr.RoundTrip(newRequest(t, "GET", s.URL, ""))
	require.ErrorIs(t, err, resilienthttp.ErrAttemptTimeout)
	require.NotErrorIs(t, err, context.Canceled)
	requireTimeout(t, err)
	require.Len(t, asError(t, err).Attempts, 4)
	s.AssertAttempts(t, 4)
}

// TestManyOverSockets is the race detector's share of the real thing: 64
// goroutines, one Transport, a server that answers, drops, resets and refuses.
func TestManyOverSockets(t *testing.T) {
	fine := faulttest.OK("fine")
	s := faulttest.New(t, faulttest.Cycle(
		faulttest.Reply{Status: 503, Body: "busy"}, faulttest.CloseAfterRead, faulttest.ResetAfterRead, faulttest.ResetBeforeRead,
		faulttest.Status(404), fine, fine, fine,
	))
	tr := overSockets(t)
	tr.Budget = &resilienthttp.Budget{Ratio: -1}
	tr.Policy.MaxAttempts = 20
	tr.Hedge = &resilienthttp.Hedge{MaxRatio: -1}
	counting := &countingBase{base: &http.Transport{MaxIdleConnsPerHost: 64}}
	defer counting.CloseIdleConnections()
	tr.Base = counting
	var wg sync.WaitGroup
	for g := range 64 {
		wg.Go(func() {
			for i := range 10 {
				resp, err := tr.RoundTrip(newRequest(t, []string{"GET", "POST", "PUT"}[(g+i)%3], s.URL, []string{"", "content", "content"}[(g+i)%3]))
				if err != nil {
					t.Errorf("%v", err)
					continue
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
			}
		})
	}
	wg.Wait()
	// A loser of a hedge is drained aside.
	require.Eventually(t, func() bool { return counting.opened.Load() == counting.closed.Load() }, 5*time.Second, time.Millisecond)
}
