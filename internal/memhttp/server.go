// Package memhttp runs net/http's server and [http.Transport] over in-memory connections. Code
// that waits can then be tested in the virtual time of a [testing/synctest] bubble.
//
//	synctest.Test(t, func(t *testing.T) {
//		s := memhttp.NewServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
//			time.Sleep(time.Hour)
//		}))
//		client := &http.Client{Transport: s.Transport(), Timeout: time.Minute}
//		_, err := client.Get(s.URL) // fails after exactly one virtual minute
//	})
//
// All waits of this package are durable, as synctest calls it. Outside of a bubble the same
// code works in real time. A connection behaves as a TCP connection of Linux, including its
// errors (see [Conn]); TestConn_behavesLikeTCP compares it with a loopback socket.
//
// # Rules for tests in a bubble
//
//   - Make the server inside the bubble, with the bubble's t. Its cleanups run inside the
//     bubble, so [Server.Close] runs at the right time. With the outer t, Close would run
//     outside, and the runtime would end the process.
//   - Virtual time stops at the end of the test's cleanups. Close therefore waits for all
//     handlers and connections of the server. It does not wait for goroutines that a handler
//     starts, as [http.TimeoutHandler] does: these must end with r.Context().
//   - Cleanups run in reverse order. Release a handler before Close: in a defer, in a later
//     cleanup, or by letting the handler also wait for r.Context(), which Close ends.
//   - A response body that is neither closed nor read to its end leaks a goroutine. The
//     bubble then ends with "blocked goroutines remain": look for persistConn.readLoop in
//     the stacks. A request with t.Context() hides such a leak, and
//     so does HTTP/2.
//   - Waiting for a [sync.Mutex] is not durable. net/http holds one while it reads a request
//     body or writes an HTTP/2 frame. A test hangs in real time if a handler answers while
//     another goroutine still reads r.Body, or if an HTTP/2 peer has stopped reading.
//   - Two timers with the same time fire in either order. Do not sleep for exactly the timeout
//     under test.
//   - A bubble starts in the year 2000. Certificates must be valid then, as those of [TLS] are.
package memhttp

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// Server is an httptest.Server on a host of an in-memory [Network]. [NewServer] and [Network.Serve] start one; the zero
// value is not usable. It is safe for concurrent use, inside the bubble in which it was made. Its URL is "http://" or
// "https://" and the host. The fields of its Config must not be changed.
type Server struct {
	*httptest.Server
	Net *Network // the network on which the server listens

	tb       testing.TB
	listener *listener
	life     context.Context // of the server, and the base context of all requests
	end      context.CancelFunc
	handlers sync.WaitGroup // those that run
	log      *log.Logger    // of net/http
	mu       sync.Mutex     // guards the end of life
}

// Option is an option of a [Server]: a function that is called before it starts. It may also change the Config: timeouts,
// hooks, limits. With a BaseContext of its own, Close does not end the contexts of requests; with a ConnContext,
// [RequestConn] panics. It may replace the Listener, also by a socket, outside of a bubble.
type Option func(*Server)

// HTTP2 makes the server and [Server.Transport] use HTTP/2: unencrypted with prior knowledge,
// or over TLS with the option [TLS].
func HTTP2() Option { return func(s *Server) { s.EnableHTTP2 = true } }

// TLS makes the server use HTTPS. Only [Server.Transport] trusts its certificate, which is httptest's and valid from
// 1970 to 2084.
func TLS() Option { return func(s *Server) { s.TLS = new(tls.Config) } }

// NewServer starts a server on a new Network, with the name "mem.test". Both are closed when tb ends. In a bubble tb must
// be the bubble's T (see the package documentation).
func NewServer(tb testing.TB, h http.Handler, opts ...Option) *Server {
	return NewNetwork(tb).Serve(tb, "mem.test", h, opts...)
}

// Serve starts a server like [NewServer], on n and with the name host.
func (n *Network) Serve(tb testing.TB, host string, h http.Handler, opts ...Option) *Server {
	s := &Server{Net: n, tb: tb, listener: n.listen(host)}
	// Requests end with the server. net/http does not end the request of a closed
	// connection if no goroutine reads from the connection.
	s.life, s.end = context.WithCancel(context.Background())
	s.log = log.New(tbWriter{s}, "", 0)
	s.Server = &httptest.Server{Listener: s.listener, Config: &http.Server{
		Handler:     s.counted(h),
		ErrorLog:    s.log,
		Protocols:   new(http.Protocols),
		BaseContext: func(net.Listener) context.Context { return s.life },
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			if secure, ok := c.(*tls.Conn); ok {
				c = secure.NetConn()
			}
			return context.WithValue(ctx, connKey{}, c)
		},
	}}
	for _, opt := range opts {
		opt(s)
	}
	s.Config.Protocols.SetHTTP1(true)
	s.Config.Protocols.SetHTTP2(s.EnableHTTP2)
	s.Config.Protocols.SetUnencryptedHTTP2(s.EnableHTTP2)
	if s.TLS == nil {
		s.Start()
	} else {
		s.StartTLS()
	}
	tb.Cleanup(s.Close)
	return s
}

// counted returns h with a count of its calls. After the end of the server, requests that have arrived are not served.
func (s *Server) counted(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		ended := s.life.Err() != nil
		if !ended {
			s.handlers.Add(1)
		}
		s.mu.Unlock()
		if ended {
			panic(http.ErrAbortHandler)
		}
		defer s.handlers.Done()
		h.ServeHTTP(w, r)
	})
}

type connKey struct{}

// RequestConn returns the server's end of the connection of r, which must be the request of a
// handler of a [Server]; otherwise it panics. It is for faults and deadlines: its data belongs
// to net/http. Reset(RequestConn(r)) resets the connection without hijacking, also for HTTP/2.
func RequestConn(r *http.Request) *Conn {
	c, ok := r.Context().Value(connKey{}).(*Conn)
	if !ok {
		panic("memhttp: not a request to a handler of a Server")
	}
	return c
}

// Transport returns a new http.Transport for this server and the others on its network. It has
// no timeouts and no proxy. The caller may change it before its first use.
func (s *Server) Transport() *http.Transport {
	t := s.Net.Transport()
	if s.EnableHTTP2 {
		t.Protocols = new(http.Protocols)
		t.Protocols.SetHTTP2(s.TLS != nil)
		t.Protocols.SetUnencryptedHTTP2(s.TLS == nil)
	}
	if s.TLS != nil {
		t.TLSClientConfig = &tls.Config{RootCAs: x509.NewCertPool(), ServerName: "example.com"} // a name in the certificate
		t.TLSClientConfig.RootCAs.AddCert(s.Certificate())
	}
	return t
}

// Conns returns the number of connections that were opened to the server, and of those that their clients have not
// closed, to find leaks. net/http closes connections in the background: call synctest.Wait first.
func (s *Server) Conns() (opened, open int) {
	s.Net.mu.Lock()
	defer s.Net.mu.Unlock()
	return s.listener.opened, len(s.listener.open)
}

// ResetConns resets all connections, busy or idle, as after a restart of the machine. The server still listens.
func (s *Server) ResetConns() { s.listener.abort() }

// Close stops listening, ends the contexts of requests, resets connections and waits until all handlers have returned,
// including those with hijacked connections. It may be called more than once. A handler must not call it, because it
// would wait for itself. Another server can use the host afterwards.
func (s *Server) Close() {
	s.mu.Lock()
	s.end()
	s.mu.Unlock()
	_ = s.listener.Close() // fails if it is closed already
	s.listener.abort()
	// After the reset, because it writes to TLS connections under a lock, which must not block.
	_ = s.Config.Close() // its error is the listener's

	slow := time.AfterFunc(5*time.Second, func() { s.log.Print("Close has waited 5s for handlers that do not return") })
	s.handlers.Wait()
	slow.Stop()
	s.Server.Close()            // waits for the connections
	s.log.SetOutput(io.Discard) // a T must not be used after its test
}

// tbWriter is the destination of net/http's log until Close.
type tbWriter struct{ s *Server }

func (w tbWriter) Write(p []byte) (int, error) {
	w.s.tb.Logf("%s: %s", w.s.URL, strings.TrimSpace(string(p)))
	return len(p), nil
}
