package resilienthttp_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/internal/bubble"
	"github.com/resilienthttp/resilienthttp/internal/memhttp"
)

// silenceable is a network with connections that can become silent: they stay open, and deliver nothing.
type silenceable struct {
	dial func(context.Context, string, string) (net.Conn, error)

	mu    sync.Mutex
	conns []*mutableConn
}

type mutableConn struct {
	net.Conn

	silent atomic.Bool
}

func (m *mutableConn) Read(p []byte) (int, error) {
	for {
		if n, err := m.Conn.Read(p); err != nil || !m.silent.Load() {
			return n, err
		}
	}
}

func (m *mutableConn) Write(p []byte) (int, error) {
	if m.silent.Load() {
		return len(p), nil
	}
	return m.Conn.Write(p)
}

func (s *silenceable) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := s.dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	m := &mutableConn{Conn: conn}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns = append(s.conns, m)
	return m, nil
}

// silence makes the connections that are open now silent.
func (s *silenceable) silence() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.conns {
		c.silent.Store(true)
	}
}

func (s *silenceable) dialed() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}

// onMemory is a Connections, or a NewBase, on an in-memory network.
type onMemory struct {
	*silenceable

	url  string
	base *http.Transport
	left atomic.Int64
}

func newOnMemory(t *testing.T, h http.HandlerFunc, opts ...memhttp.Option) *onMemory {
	t.Helper()
	s := memhttp.NewServer(t, h, opts...)
	base := s.Transport()
	base.HTTP2, base.IdleConnTimeout = resilienthttp.NewBase().HTTP2, 90*time.Second
	m := &onMemory{silenceable: &silenceable{dial: base.DialContext}, url: s.URL, base: base}
	base.DialContext = m.DialContext
	return m
}

// call makes a call with a deadline, or without one, and returns its status.
func (m *onMemory) call(t *testing.T, transport http.RoundTripper, method string, deadline time.Duration) (int, error) {
	t.Helper()
	return received(transport.RoundTrip(newRequest(t, method, m.url, bodyOf(method)).WithContext(withDeadline(t, deadline))))
}

// bodyOf is the body of a request of a method.
func bodyOf(method string) string {
	if method == http.MethodPost {
		return "body"
	}
	return ""
}

// received reads the response of a call, and returns its status.
func received(resp *http.Response, err error) (int, error) {
	if err != nil {
		return 0, err
	}
	defer func() { _ = resp.Body.Close() }()
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, err
}

func (m *onMemory) trace() *resilienthttp.Trace {
	return &resilienthttp.Trace{ConnectionLeft: func(*resilienthttp.Attempt) { m.left.Add(1) }}
}

// connected is a Transport over a Connections, to an HTTP/2 server in memory.
func connected(t *testing.T, h http.HandlerFunc) (*onMemory, *resilienthttp.Transport) {
	t.Helper()
	m := newOnMemory(t, h, memhttp.HTTP2(), memhttp.TLS())
	transport := &resilienthttp.Transport{Base: &resilienthttp.Connections{Transport: m.base}, Trace: m.trace()}
	t.Cleanup(transport.CloseIdleConnections)
	return m, transport
}

// load makes ten calls a second for some time, and returns the number of failures and of calls.
func (m *onMemory) load(t *testing.T, transport http.RoundTripper, method string, seconds int) (failed, calls int64) {
	t.Helper()
	var failures atomic.Int64
	var work sync.WaitGroup
	for range 10 * seconds {
		calls++
		work.Go(func() {
			if status, err := m.call(t, transport, method, 5*time.Second); err != nil || status != http.StatusOK {
				failures.Add(1)
			}
		})
		time.Sleep(100 * time.Millisecond)
	}
	work.Wait()
	return failures.Load(), calls
}

func afterMillis(n int) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		time.Sleep(time.Duration(n) * time.Millisecond)
		_, _ = io.WriteString(w, "hello")
	}
}

// opaque is a wrapper without an Unwrap method, such as otelhttp's.
type opaque struct{ next http.RoundTripper }

func (o opaque) RoundTrip(r *http.Request) (*http.Response, error) {
	return o.next.RoundTrip(r.Clone(r.Context()))
}

// C1: one HTTP/2 connection becomes silent under ten calls a second. Failures end within 5 s.
func TestConnections_silentConnection(t *testing.T) {
	overTLS := []memhttp.Option{memhttp.HTTP2(), memhttp.TLS()}
	for _, row := range []struct {
		name, method string
		opts         []memhttp.Option
		hedge        *resilienthttp.Hedge
		wrap         bool
		max          int64
	}{
		{"GET over TLS: none fails", http.MethodGet, overTLS, nil, false, 0},
		{"GET without TLS: none fails", http.MethodGet, overTLS[:1], nil, false, 0},
		{"POST over TLS: at most 5 s", http.MethodPost, overTLS, nil, false, 50},
		{"GET with hedges: none fails", http.MethodGet, overTLS, &resilienthttp.Hedge{}, false, 0},
		{"POST with hedges: at most 1 %", http.MethodPost, overTLS, &resilienthttp.Hedge{}, false, 4},
		{"POST through a wrapper: at most 5 s", http.MethodPost, overTLS, nil, true, 50},
		{"GET through a wrapper: none fails", http.MethodGet, overTLS, nil, true, 0},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			m := newOnMemory(t, afterMillis(20), row.opts...)
			transport := &resilienthttp.Transport{Base: &resilienthttp.Connections{Transport: m.base}, Trace: m.trace(), Hedge: row.hedge}
			if row.wrap {
				transport.Base = opaque{transport.Base}
			}
			defer transport.CloseIdleConnections()
			failed, _ := m.load(t, transport, row.method, 5)
			require.Zero(t, failed, "before")
			before := m.dialed()
			m.silence()
			failed, calls := m.load(t, transport, row.method, 40)
			t.Logf("failed %d of %d, left %d, dialed %d and %d", failed, calls, m.left.Load(), before, m.dialed()-before)
			require.LessOrEqual(t, failed, row.max)
			require.Positive(t, m.left.Load(), "hook")
			require.LessOrEqual(t, m.dialed()-before, 3, "new connections")
		})
	}
}

// C1: all connections of a node die at once, the spare one too. A call tries a third.
func TestConnections_allConnectionsSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, transport := connected(t, afterMillis(20))
		transport.Hedge = &resilienthttp.Hedge{Delay: 10 * time.Millisecond, MaxRatio: -1}
		_, _ = m.load(t, transport, http.MethodGet, 1)
		require.Equal(t, 2, m.dialed(), "connections with the spare one")
		m.silence()
		failed, _ := m.load(t, transport, http.MethodGet, 20)
		require.Zero(t, failed)
	})
}

// C1: an attempt that times out leaves its silent connection, and the retry uses another one.
func TestConnections_attemptTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, transport := connected(t, afterMillis(20))
		transport.Policy = resilienthttp.Policy{AttemptTimeout: time.Second, MaxAttempts: 2}
		for range 3 {
			_, err := m.call(t, transport, http.MethodPost, 0)
			require.NoError(t, err)
		}
		m.silence()
		status, err := m.call(t, transport, http.MethodPost, 0)
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, status)
		require.EqualValues(t, 1, m.left.Load())
		start := time.Now()
		_, err = m.call(t, transport, http.MethodPost, 0)
		require.NoError(t, err)
		require.Less(t, time.Since(start), time.Second, "the next call avoids the connection")
		require.Equal(t, 2, m.dialed())
	})
}

// C1: a connection that delivers again gets new requests again.
func TestConnections_returnsToConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var wait atomic.Int64
		m, transport := connected(t, func(w http.ResponseWriter, r *http.Request) { afterMillis(int(wait.Load()))(w, r) })
		call := func() {
			_, err := m.call(t, transport, http.MethodPost, 10*time.Second)
			assert.NoError(t, err)
		}
		call()
		wait.Store(7000)
		var work sync.WaitGroup
		work.Go(call)
		time.Sleep(6 * time.Second)
		wait.Store(0)
		require.EqualValues(t, 1, m.left.Load(), "no byte for 5 s")
		call()
		require.Equal(t, 2, m.dialed())
		work.Wait()
		m.mu.Lock()
		m.conns[1].silent.Store(true)
		m.mu.Unlock()
		start := time.Now()
		call()
		require.Less(t, time.Since(start), time.Second, "the first connection is in use again")
		require.Equal(t, 2, m.dialed())
	})
}

// C3: a server that is slow, but not silent, keeps its connection, with one request in flight and
// with a hundred.
func TestConnections_slowServerKeepsConnection(t *testing.T) {
	for _, row := range []struct {
		name   string
		calls  int
		method string
		policy resilienthttp.Policy
	}{
		{"one POST, informational responses", 1, http.MethodPost, resilienthttp.Policy{}},
		{"a hundred POSTs", 100, http.MethodPost, resilienthttp.Policy{}},
		{"a hundred GETs that time out", 100, http.MethodGet, resilienthttp.Policy{AttemptTimeout: 3 * time.Second, MaxAttempts: 1}},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			var slow atomic.Bool
			m, transport := connected(t, func(w http.ResponseWriter, _ *http.Request) {
				for range 8 {
					if !slow.Load() {
						return
					}
					time.Sleep(time.Second)
					w.WriteHeader(http.StatusEarlyHints) // a frame
				}
			})
			transport.Policy, transport.Breaker = row.policy, never()
			_, err := m.call(t, transport, row.method, 10*time.Second)
			require.NoError(t, err)
			slow.Store(true)
			var work sync.WaitGroup
			for range row.calls {
				work.Go(func() { _, _ = m.call(t, transport, row.method, 10*time.Second) })
			}
			work.Wait()
			slow.Store(false)
			_, err = m.call(t, transport, row.method, 10*time.Second)
			require.NoError(t, err)
			require.Zero(t, m.left.Load())
			require.Equal(t, 1, m.dialed())
		})
	}
}

// C3: the caller's deadline alone says nothing about a connection.
func TestConnections_deadlineAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, transport := connected(t, afterMillis(20))
		transport.Policy.AttemptTimeout = -1
		_, err := m.call(t, transport, http.MethodGet, time.Second)
		require.NoError(t, err)
		m.silence()
		_, err = m.call(t, transport, http.MethodGet, time.Second)
		require.ErrorIs(t, err, resilienthttp.ErrDeadline)
		require.Zero(t, m.left.Load())
	})
}

// C1: a client that only opens event streams gets no second attempts. It leaves a silent connection too.
func TestConnections_silentStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, transport := connected(t, afterMillis(20))
		stream := func() error {
			req := newRequest(t, http.MethodGet, m.url, "").WithContext(withDeadline(t, 5*time.Second))
			req.Header.Set("Accept", "text/event-stream")
			_, err := received(transport.RoundTrip(req))
			return err
		}
		require.NoError(t, stream())
		m.silence()
		require.ErrorIs(t, stream(), resilienthttp.ErrDeadline)
		require.EqualValues(t, 1, m.left.Load())
		require.NoError(t, stream(), "on another connection")
	})
}

// C2: HTTP/1.1 has the same connections and results as with NewBase.
func TestConnections_http1(t *testing.T) {
	for _, opts := range [][]memhttp.Option{nil, {memhttp.TLS()}} {
		t.Run(fmt.Sprintf("%d options", len(opts)), func(t *testing.T) {
			type result struct {
				failed, calls int64
				dialed        int
			}
			run := func(connections bool) (r result) {
				synctest.Test(t, func(t *testing.T) {
					m := newOnMemory(t, afterMillis(20), opts...)
					transport := &resilienthttp.Transport{Base: m.base, Trace: m.trace()}
					if connections {
						transport.Base = &resilienthttp.Connections{Transport: m.base}
					}
					defer transport.CloseIdleConnections()
					for _, method := range []string{http.MethodGet, http.MethodPost} {
						failed, calls := m.load(t, transport, method, 3)
						r.failed, r.calls = r.failed+failed, r.calls+calls
						m.silence()
						failed, calls = m.load(t, transport, method, 10)
						r.failed, r.calls = r.failed+failed, r.calls+calls
					}
					r.dialed = m.dialed()
					require.Zero(t, m.left.Load())
				})
				return r
			}
			require.Equal(t, run(false), run(true))
		})
	}
}

// C1: MaxAge renews connections; requests of the old ones end, and then they are closed.
func TestConnections_maxAge(t *testing.T) {
	for protocol, opts := range map[string][]memhttp.Option{"HTTP/1.1": nil, "HTTP/2": {memhttp.HTTP2(), memhttp.TLS()}} {
		bubble.Run(t, protocol, func(t *testing.T) {
			release := make(chan struct{})
			s := memhttp.NewServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodPut {
					<-release
				}
				_, _ = io.WriteString(w, "hello")
			}), opts...)
			m := &onMemory{url: s.URL}
			c := &resilienthttp.Connections{Transport: s.Transport(), MaxAge: time.Hour}
			defer c.CloseIdleConnections()
			var work sync.WaitGroup
			work.Go(func() {
				status, err := m.call(t, c, http.MethodPut, 0)
				assert.NoError(t, err)
				assert.Equal(t, http.StatusOK, status)
			})
			synctest.Wait()
			for range 61 {
				_, err := m.call(t, c, http.MethodGet, 0)
				require.NoError(t, err)
				time.Sleep(time.Minute)
			}
			opened, open := s.Conns()
			t.Logf("opened %d, open %d", opened, open)
			require.Less(t, open, opened+1)
			before := opened
			close(release)
			work.Wait()
			time.Sleep(time.Hour)
			synctest.Wait()
			_, open = s.Conns()
			require.Equal(t, 1, open, "the old connection is closed")
			require.GreaterOrEqual(t, before, 2)
			require.LessOrEqual(t, before, 3)
		})
	}
}

// C4: a thousand rotations fail no call of a client without retries.
func TestConnections_rotations(t *testing.T) {
	for _, row := range []struct {
		name          string
		http2, secure bool
		rotations     int64
	}{
		{"HTTP/1.1", false, false, 1000}, {"HTTP/2", true, false, 1000}, {"HTTP/2 over TLS", true, true, 50},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := newProtocolServer(t, row.http2, row.secure, afterMillis(1))
			rotate(t, &resilienthttp.Connections{Transport: s.base, MaxAge: time.Nanosecond}, s.url, row.rotations)
		})
	}
}

// rotate makes calls, a few at a time, each of which renews the connections.
func rotate(t *testing.T, c *resilienthttp.Connections, url string, rotations int64) {
	t.Helper()
	defer c.CloseIdleConnections()
	client := &http.Client{Transport: c}
	var work sync.WaitGroup
	var calls, failed, reused atomic.Int64
	for i := range 4 {
		work.Go(func() {
			for calls.Add(1) <= rotations && failed.Load() == 0 {
				trace := httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
					if info.Reused {
						reused.Add(1)
					}
				}}
				req := newRequest(t, []string{http.MethodGet, http.MethodPost}[i%2], url, "body").WithContext(httptrace.WithClientTrace(t.Context(), &trace))
				resp, err := client.Do(req)
				if !assert.NoError(t, err) {
					failed.Add(1)
					return
				}
				_, err = io.Copy(io.Discard, resp.Body)
				if !assert.NoError(t, errors.Join(err, resp.Body.Close())) || !assert.Equal(t, http.StatusOK, resp.StatusCode) {
					failed.Add(1)
				}
			}
		})
	}
	work.Wait()
	t.Logf("%d requests used a connection of another", reused.Load())
	require.Less(t, reused.Load(), rotations/2, "the connections were not renewed")
}

// §4.9: a 421 is retried once, on another connection, with any method, if Base is a Connections.
func TestConnections_misdirected(t *testing.T) {
	for protocol, opts := range map[string][]memhttp.Option{"HTTP/1.1": nil, "HTTP/2": {memhttp.HTTP2(), memhttp.TLS()}} {
		for _, row := range []struct {
			name        string
			misdirected int // connections that answer 421
			header      string
			connections bool
			status      int
			requests    int64
		}{
			{"the first connection: a second one", 1, "", true, http.StatusOK, 2},
			{"each connection: one retry", 100, "", true, http.StatusMisdirectedRequest, 2},
			{"NewBase: no retry", 1, "", false, http.StatusMisdirectedRequest, 1},
			{"the server says no: no retry", 1, "false", true, http.StatusMisdirectedRequest, 1},
		} {
			for _, method := range []string{http.MethodGet, http.MethodPost} {
				bubble.Run(t, protocol+", "+row.name+", "+method, func(t *testing.T) {
					var requests atomic.Int64
					var mu sync.Mutex
					seen := map[string]int{}
					m := newOnMemory(t, func(w http.ResponseWriter, r *http.Request) {
						requests.Add(1)
						mu.Lock()
						defer mu.Unlock()
						if seen[r.RemoteAddr] == 0 {
							seen[r.RemoteAddr] = len(seen) + 1
						}
						if seen[r.RemoteAddr] <= row.misdirected {
							if row.header != "" {
								w.Header().Set("X-Should-Retry", row.header)
							}
							w.WriteHeader(http.StatusMisdirectedRequest)
						}
					}, opts...)
					transport := &resilienthttp.Transport{Base: m.base, Idempotency: resilienthttp.Idempotency{Disabled: true}}
					if row.connections {
						transport.Base = &resilienthttp.Connections{Transport: m.base}
					}
					defer transport.CloseIdleConnections()
					status, err := m.call(t, transport, method, 0)
					require.NoError(t, err)
					require.Equal(t, row.status, status)
					require.Equal(t, row.requests, requests.Load())
				})
			}
		}
	}
}

// C2: a Transport that a clone would not behave like is used itself, with one pool.
func TestConnections_onePool(t *testing.T) {
	t.Run("RegisterProtocol: the error names the scheme and the remedy", func(t *testing.T) {
		base := resilienthttp.NewBase()
		base.RegisterProtocol("test", instant{})
		connections := &resilienthttp.Connections{Transport: base}
		for _, transport := range []http.RoundTripper{connections, &resilienthttp.Transport{Base: connections}} {
			_, err := (&http.Client{Transport: transport}).Get("test://host/secret")
			require.ErrorContains(t, err, "invalid request: Connections sends http and https only (want the Transport of RegisterProtocol as Base): "+
				`unsupported protocol scheme "test"`)
			if failed, ok := errors.AsType[*resilienthttp.Error](err); ok {
				require.Len(t, failed.Attempts, 1, "no retry")
				require.True(t, failed.NotSent())
				require.NotContains(t, failed.Error(), "secret")
			}
		}
		resp, err := (&http.Client{Transport: &resilienthttp.Transport{Base: base}}).Get("test://host/")
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
	})
	t.Run("x/net/http2: its RoundTripper is used", func(t *testing.T) {
		// golang.org/x/net/http2.ConfigureTransport sets these two.
		s := newProtocolServer(t, true, true, afterMillis(0))
		var upgraded atomic.Int64
		s.base.TLSClientConfig.NextProtos = []string{"h2"}
		s.base.TLSNextProto = map[string]func(string, *tls.Conn) http.RoundTripper{"h2": func(_ string, c *tls.Conn) http.RoundTripper {
			upgraded.Add(1)
			_ = c.Close()
			return instant{}
		}}
		c := &resilienthttp.Connections{Transport: s.base, MaxAge: time.Nanosecond}
		_, err := s.send(t.Context(), t, c, http.MethodGet)
		require.NoError(t, err)
		require.EqualValues(t, 1, upgraded.Load())
	})
	t.Run("DialTLSContext: its connection stays a tls.Conn, and MaxAge renews it", func(t *testing.T) {
		s := newProtocolServer(t, true, true, afterMillis(0))
		config := s.base.TLSClientConfig.Clone()
		config.NextProtos = []string{"h2"}
		s.base.DialTLSContext = func(ctx context.Context, network, address string) (net.Conn, error) {
			return (&tls.Dialer{Config: config}).DialContext(ctx, network, address)
		}
		c := &resilienthttp.Connections{Transport: s.base, MaxAge: time.Nanosecond}
		defer c.CloseIdleConnections()
		for range 3 {
			status, err := s.send(t.Context(), t, c, http.MethodGet)
			require.NoError(t, err)
			require.Equal(t, http.StatusOK, status)
		}
		require.EqualValues(t, 3, s.accepted.Load())
	})
	t.Run("Dial: connections are watched", func(t *testing.T) {
		s := newProtocolServer(t, true, true, afterMillis(0))
		var dials atomic.Int64
		s.base.DialContext = nil
		s.base.Dial = func(network, address string) (net.Conn, error) { //nolint:staticcheck // a deprecated field
			dials.Add(1)
			return net.Dial(network, address)
		}
		c := &resilienthttp.Connections{Transport: s.base}
		defer c.CloseIdleConnections()
		_, err := s.send(t.Context(), t, c, http.MethodGet)
		require.NoError(t, err)
		require.EqualValues(t, 1, dials.Load())
	})
}

// C2: the connection that a hook gets can do what the dialer's can.
func TestConnections_wrapper(t *testing.T) {
	s := newProtocolServer(t, false, false, afterMillis(0))
	c := &resilienthttp.Connections{Transport: s.base}
	var conn net.Conn
	ctx := withGotConn(t.Context(), func(got net.Conn) { conn = got })
	_, err := s.send(ctx, t, c, http.MethodGet)
	require.NoError(t, err)
	_, ok := conn.(interface{ NetConn() net.Conn }).NetConn().(*net.TCPConn)
	require.True(t, ok)
	raw, err := conn.(syscall.Conn).SyscallConn()
	require.NoError(t, err)
	require.NoError(t, raw.Control(func(uintptr) {}))
	_, err = conn.(io.ReaderFrom).ReadFrom(strings.NewReader(""))
	require.NoError(t, err)
	require.NoError(t, conn.(interface{ CloseWrite() error }).CloseWrite())
	c.CloseIdleConnections()

	synctest.Test(t, func(t *testing.T) { // a connection without these methods
		m := newOnMemory(t, afterMillis(0))
		c := &resilienthttp.Connections{Transport: m.base}
		defer c.CloseIdleConnections()
		var conn net.Conn
		req := newRequest(t, http.MethodGet, m.url, "").WithContext(withGotConn(t.Context(), func(got net.Conn) { conn = got }))
		resp := roundTrip(t, c, req)
		require.NoError(t, resp.Body.Close())
		require.ErrorIs(t, conn.(interface{ CloseWrite() error }).CloseWrite(), errors.ErrUnsupported)
		_, err = conn.(syscall.Conn).SyscallConn()
		require.ErrorIs(t, err, errors.ErrUnsupported)
	})
}

// C2: the zero value works, before its first use too, and the Transport stays as it is.
func TestConnections_zeroValue(t *testing.T) {
	c := &resilienthttp.Connections{}
	c.CloseIdleConnections()
	base, ok := c.Unwrap().(*http.Transport)
	require.True(t, ok)
	require.NotNil(t, base)
	require.Same(t, base, c.Unwrap())

	own := &http.Transport{MaxConnsPerHost: 7}
	c = &resilienthttp.Connections{Transport: own}
	require.Same(t, own, c.Unwrap())
	s := newProtocolServer(t, false, false, afterMillis(0))
	_, err := s.send(t.Context(), t, c, http.MethodGet)
	require.NoError(t, err)
	c.CloseIdleConnections()
	require.Nil(t, own.DialContext)
	require.Equal(t, 7, own.MaxConnsPerHost)
}

// C1: rotation, silence and calls at the same time, for the race detector.
func TestConnections_concurrent(t *testing.T) {
	s := newProtocolServer(t, true, true, afterMillis(1))
	s.base.TLSHandshakeTimeout = time.Second
	network := &silenceable{dial: new(net.Dialer).DialContext}
	s.base.DialContext = network.DialContext
	c := &resilienthttp.Connections{Transport: s.base, MaxAge: 50 * time.Millisecond}
	transport := &resilienthttp.Transport{
		Base: c, Trace: resilienthttp.LogTrace(slog.New(slog.DiscardHandler)), Hedge: &resilienthttp.Hedge{Delay: 3 * time.Millisecond, MaxRatio: -1},
		Policy: resilienthttp.Policy{AttemptTimeout: 100 * time.Millisecond}, Budget: &resilienthttp.Budget{Ratio: -1},
		Breaker: &resilienthttp.Breaker{FailureRatio: -1},
	}
	var work sync.WaitGroup
	for i := range 8 {
		work.Go(func() {
			for range 10 {
				// A call may fail if its connection becomes silent during the handshake.
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				_, _ = s.send(ctx, t, transport, []string{http.MethodGet, http.MethodPost}[i%2])
				cancel()
			}
		})
	}
	for range 5 {
		time.Sleep(10 * time.Millisecond)
		network.silence()
		c.CloseIdleConnections()
	}
	work.Wait()
	transport.CloseIdleConnections()
	_, err := s.send(t.Context(), t, c, http.MethodGet) // without a time limit
	require.NoError(t, err)
	c.CloseIdleConnections()
}

// T14: the log has a record of a connection that is left.
func TestConnections_log(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, transport := connected(t, afterMillis(0))
		var records bytes.Buffer
		transport.Trace = resilienthttp.LogTrace(slog.New(slog.NewTextHandler(&records, nil)))
		_, err := m.call(t, transport, http.MethodGet, 0)
		require.NoError(t, err)
		m.silence()
		_, err = m.call(t, transport, http.MethodGet, 2*time.Second)
		require.NoError(t, err)
		require.Contains(t, records.String(), "event=connection_left http.request.method=GET server.address=mem.test scope=mem.test attempt=1")
	})
}

// C4: a thousand rotations against nginx fail no call, over HTTP/1.1 and HTTP/2.
func TestConnections_nginx(t *testing.T) {
	program, err := exec.LookPath("nginx")
	if err != nil {
		t.Skip("nginx is not installed, or not in PATH")
	}
	for _, protocol := range []string{"HTTP/1.1", "HTTP/2"} {
		t.Run(protocol, func(t *testing.T) {
			folder := t.TempDir()
			address := closedPort(t)
			http2, base := "", resilienthttp.NewBase()
			base.Proxy = nil
			if protocol == "HTTP/2" {
				http2, base = " http2", unencrypted()
			}
			config := fmt.Sprintf("daemon off; pid %[1]s/pid; error_log %[1]s/error.log; events {}\n"+
				"http { access_log off; client_body_temp_path %[1]s/body; proxy_temp_path %[1]s/proxy; fastcgi_temp_path %[1]s/fastcgi;\n"+
				"uwsgi_temp_path %[1]s/uwsgi; scgi_temp_path %[1]s/scgi; server { listen %[2]s%[3]s; location / { return 200 hello; } } }\n",
				folder, address, http2)
			require.NoError(t, os.WriteFile(folder+"/nginx.conf", []byte(config), 0o600))
			server := exec.Command(program, "-p", folder, "-e", folder+"/error.log", "-c", folder+"/nginx.conf")
			require.NoError(t, server.Start())
			// Killed, it would leave its worker behind.
			t.Cleanup(func() { _ = server.Process.Signal(os.Interrupt); _ = server.Wait() })
			require.Eventually(t, func() bool {
				conn, err := net.Dial("tcp", address)
				return err == nil && conn.Close() == nil
			}, 30*time.Second, 10*time.Millisecond)
			rotate(t, &resilienthttp.Connections{Transport: base, MaxAge: time.Nanosecond}, "http://"+address, 1000)
		})
	}
}

// frameServer is an HTTP/2 server without TLS that answers each request with the frames of a function.
func frameServer(t *testing.T, answer func(request int, stream uint32) []byte) (url string) {
	t.Helper()
	var requests atomic.Int64
	l, url := listen(t)
	serveRaw(t, l, func(conn net.Conn) {
		defer context.AfterFunc(t.Context(), func() { _ = conn.Close() })()
		serveFrames(conn, func(stream uint32) []byte { return answer(int(requests.Add(1)), stream) })
	})
	return url
}

// unencrypted is a NewBase for HTTP/2 without TLS.
func unencrypted() *http.Transport {
	base := resilienthttp.NewBase()
	base.Proxy, base.Protocols = nil, new(http.Protocols)
	base.Protocols.SetUnencryptedHTTP2(true)
	return base
}

// frame returns an HTTP/2 frame: RFC 9113 section 4.1.
func frame(kind, flags byte, stream uint32, payload ...byte) []byte {
	head := []byte{0, byte(len(payload) >> 8), byte(len(payload)), kind, flags}
	return append(binary.BigEndian.AppendUint32(head, stream), payload...)
}

func serveFrames(conn io.ReadWriter, answer func(stream uint32) []byte) {
	const headers, settings, goAway = 1, 4, 7
	preface := make([]byte, len("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"))
	if _, err := io.ReadFull(conn, preface); err != nil {
		return
	}
	_, _ = conn.Write(frame(settings, 0, 0))
	for {
		head := make([]byte, 9)
		if _, err := io.ReadFull(conn, head); err != nil {
			return
		}
		if _, err := io.CopyN(io.Discard, conn, int64(head[1])<<8|int64(head[2])); err != nil {
			return
		}
		if head[3] == headers {
			frames := answer(binary.BigEndian.Uint32(head[5:]))
			if _, err := conn.Write(frames); err != nil || frames[3] == goAway {
				return
			}
		}
	}
}

// §4.8, §4.9: a request that the server has not processed is repeated, whatever its method, and
// ENHANCE_YOUR_CALM is throttling.
func TestConnections_streamErrors(t *testing.T) {
	const headers, reset, goAway, end = 1, 3, 7, 5
	ok := func(stream uint32) []byte { return frame(headers, end, stream, 0x88) } // :status 200
	for _, row := range []struct {
		name    string
		method  string
		first   func(stream uint32) []byte
		status  int
		verdict resilienthttp.Verdict
	}{
		{"REFUSED_STREAM, POST: repeated", http.MethodPost, func(stream uint32) []byte { return frame(reset, 0, stream, 0, 0, 0, 7) }, 200, resilienthttp.VerdictDefault},
		{"ENHANCE_YOUR_CALM for a stream, GET: throttled", http.MethodGet, func(stream uint32) []byte { return frame(reset, 0, stream, 0, 0, 0, 11) }, 200, resilienthttp.VerdictThrottled},
		{"ENHANCE_YOUR_CALM for a stream, POST: throttled, not repeated", http.MethodPost, func(stream uint32) []byte { return frame(reset, 0, stream, 0, 0, 0, 11) }, 0, resilienthttp.VerdictThrottled},
		{"ENHANCE_YOUR_CALM for the connection: throttled", http.MethodGet, func(stream uint32) []byte {
			return frame(goAway, 0, 0, 0, 0, 0, byte(stream), 0, 0, 0, 11)
		}, 200, resilienthttp.VerdictThrottled},
		{"GOAWAY with INTERNAL_ERROR below the stream, POST: not executed, repeated", http.MethodPost, func(uint32) []byte {
			return frame(goAway, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2)
		}, 200, resilienthttp.VerdictTransient},
		{"GOAWAY with ENHANCE_YOUR_CALM below the stream, POST: throttled, repeated", http.MethodPost, func(uint32) []byte {
			return frame(goAway, 0, 0, 0, 0, 0, 0, 0, 0, 0, 11)
		}, 200, resilienthttp.VerdictThrottled},
		{"GOAWAY with INTERNAL_ERROR above the stream, POST: in doubt", http.MethodPost, func(stream uint32) []byte {
			return frame(goAway, 0, 0, 0, 0, 0, byte(stream), 0, 0, 0, 2)
		}, 0, resilienthttp.VerdictTransient},
		{"INTERNAL_ERROR, GET: transient", http.MethodGet, func(stream uint32) []byte { return frame(reset, 0, stream, 0, 0, 0, 2) }, 200, resilienthttp.VerdictTransient},
	} {
		t.Run(row.name, func(t *testing.T) {
			url := frameServer(t, func(request int, stream uint32) []byte {
				if request == 1 {
					return row.first(stream)
				}
				return ok(stream)
			})
			var failed resilienthttp.Verdict
			transport := &resilienthttp.Transport{
				Base: &resilienthttp.Connections{Transport: unencrypted()}, Idempotency: resilienthttp.Idempotency{Disabled: true}, Policy: every(0),
				Trace: &resilienthttp.Trace{AttemptDone: func(a *resilienthttp.Attempt) {
					if a.Err != nil {
						failed = a.Verdict
					}
				}},
			}
			t.Cleanup(transport.CloseIdleConnections)
			code, err := received(transport.RoundTrip(newRequest(t, row.method, url, "")))
			require.Equal(t, row.verdict, failed, "%v", err)
			require.Equal(t, row.status, code)
			require.Equal(t, row.status == 0, err != nil, "%v", err)
			require.Equal(t, row.status == 0, resilienthttp.InDoubt(nil, err), "%v", err)
		})
	}
}

// C5: a server that answers each request by a GOAWAY without an error, so that net/http would send it thousands of times, gets
// at most four requests of an attempt.
func TestConnections_goAwayStorm(t *testing.T) {
	const goAway = 7
	var requests atomic.Int64
	url := frameServer(t, func(int, uint32) []byte {
		requests.Add(1)
		return frame(goAway, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
	})
	for _, base := range []http.RoundTripper{unencrypted(), &resilienthttp.Connections{Transport: unencrypted()}} {
		requests.Store(0)
		tr := &resilienthttp.Transport{Base: base, Policy: resilienthttp.Policy{MaxAttempts: 2, Backoff: resilienthttp.Constant(time.Millisecond)}}
		t.Cleanup(tr.CloseIdleConnections)
		_, err := tr.RoundTrip(newRequest(t, http.MethodGet, url, ""))
		require.ErrorContains(t, err, "net/http sent the request again and again")
		require.LessOrEqual(t, requests.Load(), int64(8))
		require.GreaterOrEqual(t, requests.Load(), int64(6), "a few are repeated")
	}
}

// C5: an attempt ends at its fourth new connection without a response. Idle ones that turn out to be dead are no reason: net/http then takes
// the next. Neither are requests of a Base that gets a token before it sends the attempt.
func TestAttempt_newConnections(t *testing.T) {
	for _, row := range []struct {
		name   string
		reused bool
		conns  int
		tokens int // responses that Base has had before, each on a new connection
		ends   bool
	}{
		{"three new connections", false, 3, 0, false},
		{"four new connections", false, 4, 0, true},
		{"a hundred idle ones that were dead, and a new one", true, 100, 0, false},
		{"a token in five requests, and three new connections", false, 3, 5, false},
		{"a token in five requests, and four new connections", false, 4, 5, true},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			tr := bareTransport(roundTripper(func(r *http.Request) (*http.Response, error) {
				hooks := httptrace.ContextClientTrace(r.Context())
				for range row.tokens {
					hooks.GotConn(httptrace.GotConnInfo{})
					if hooks.GotFirstResponseByte != nil {
						hooks.GotFirstResponseByte()
					}
				}
				for range row.conns {
					hooks.GotConn(httptrace.GotConnInfo{Reused: row.reused})
				}
				if err := r.Context().Err(); err != nil {
					return nil, err
				}
				return response(r, http.StatusOK, ""), nil
			}), 1)
			_, err := received(tr.RoundTrip(get(t)))
			require.Equal(t, row.ends, err != nil, "%v", err)
		})
	}
}

// §4.8: net/http repeats a refused request itself, six times. Its error after that is a proof too.
func TestConnections_refusedStream(t *testing.T) {
	const headers, reset, endHeaders = 1, 3, 4
	url := frameServer(t, func(_ int, stream uint32) []byte {
		return append(frame(headers, endHeaders, stream, 0x88), frame(reset, 0, stream, 0, 0, 0, 7)...)
	})
	base := unencrypted()
	defer base.CloseIdleConnections()
	resp := roundTrip(t, base, newRequest(t, http.MethodGet, url, ""))
	_, refused := io.ReadAll(resp.Body)
	require.Error(t, refused)
	require.NoError(t, resp.Body.Close())

	for _, row := range []struct {
		name string
		err  error
		want int
	}{{"REFUSED_STREAM: repeated", refused, 2}, {"another error: not repeated", io.ErrUnexpectedEOF, 1}} {
		t.Run(row.name, func(t *testing.T) {
			next := script(failing(row.err), status(http.StatusOK))
			transport := &resilienthttp.Transport{Base: next, Idempotency: resilienthttp.Idempotency{Disabled: true}, Policy: every(0)}
			_ = discard(transport, newRequest(t, http.MethodPost, "http://api.test/", "body"))
			require.Len(t, next.sent, row.want)
		})
	}
}

// C2: a Transport that makes HTTP/2 connections still does behind Connections.
func TestConnections_plainTransport(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Proto) }))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	source := &http.Transport{}
	defer source.CloseIdleConnections()
	_ = source.Clone() // configures HTTP/2, as the first request does
	source.TLSClientConfig.RootCAs = server.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
	client := &http.Client{Transport: &resilienthttp.Connections{Transport: source}}
	defer client.CloseIdleConnections()
	resp, err := client.Get(server.URL)
	require.NoError(t, err)
	require.Equal(t, "HTTP/2.0", readAll(t, resp))
}

// protocolServer is a server over TLS or not, with HTTP/1.1 or HTTP/2.
type protocolServer struct {
	url      string
	base     *http.Transport // trusts and reaches the server
	accepted atomic.Int64    // connections
}

func newProtocolServer(t *testing.T, http2, secure bool, h http.Handler) *protocolServer {
	t.Helper()
	server := httptest.NewUnstartedServer(h)
	base := resilienthttp.NewBase()
	base.Proxy = nil
	s := &protocolServer{base: base}
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			s.accepted.Add(1)
		}
	}
	if http2 && !secure {
		server.Config.Protocols, base.Protocols = new(http.Protocols), new(http.Protocols)
		server.Config.Protocols.SetUnencryptedHTTP2(true)
		base.Protocols.SetUnencryptedHTTP2(true)
	}
	server.EnableHTTP2 = http2
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // dials that end with their pool
	if secure {
		server.StartTLS()
		trusted, ok := server.Client().Transport.(*http.Transport)
		require.True(t, ok)
		base.TLSClientConfig = trusted.TLSClientConfig.Clone()
		base.TLSClientConfig.NextProtos = nil
	} else {
		server.Start()
	}
	s.url = server.URL
	t.Cleanup(func() {
		base.CloseIdleConnections()
		server.CloseClientConnections()
		server.Close()
	})
	return s
}

// send makes a call, and returns the status.
func (s *protocolServer) send(ctx context.Context, t *testing.T, rt http.RoundTripper, method string) (status int, err error) {
	t.Helper()
	return received(rt.RoundTrip(newRequest(t, method, s.url, bodyOf(method)).WithContext(ctx)))
}

func withGotConn(ctx context.Context, f func(net.Conn)) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) { f(info.Conn) }})
}
