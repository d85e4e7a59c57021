package memhttp

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log"
	"math/big"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// Server is an http.Server on a host of an in-memory [Network]. [NewServer] and [Network.Serve] start one; the zero
// value is not usable. It is safe for concurrent use, inside the bubble in which it was made.
type Server struct {
	URL    string       // "http://mem.test": scheme and host, without a slash at the end
	Config *http.Server // for its methods, such as Shutdown; its fields must not be changed
	Net    *Network     // the network on which the server listens

	tb       testing.TB
	listener *listener
	served   chan struct{}      // closed when Serve has returned
	end      context.CancelFunc // ends the base context of all requests
	roots    *x509.CertPool     // of a server with TLS

	// Set by options.
	host       string
	http2, tls bool
	wrap       func(net.Listener) net.Listener

	mu     sync.Mutex
	idle   sync.Cond // busy is 0
	busy   int       // running handlers, and connections that net/http serves
	closed bool
}

// Option is an option of a [Server].
type Option func(*Server)

// Host sets the name of a server of [NewServer]. Without it, the name is "mem.test".
func Host(name string) Option { return func(s *Server) { s.host = name } }

// HTTP2 makes the server and [Server.Transport] use HTTP/2: unencrypted with prior knowledge,
// or over TLS with the option [TLS]. The server still supports HTTP/1.
func HTTP2() Option { return func(s *Server) { s.http2 = true } }

// TLS makes the server use HTTPS, with a certificate for its host that only
// [Server.Transport] trusts. The certificate is valid from 1990 to 2090.
func TLS() Option { return func(s *Server) { s.tls = true } }

// Configure lets f change the http.Server before it starts: timeouts, hooks, limits. With a BaseContext of f, Close
// does not end the contexts of requests; with a ConnContext of f, [RequestConn] panics.
func Configure(f func(*http.Server)) Option { return func(s *Server) { f(s.Config) } }

// Wrap makes the server accept connections from wrap(l), where l is its listener. That may be a
// socket, outside of a bubble: then [Host] is its address.
func Wrap(wrap func(l net.Listener) net.Listener) Option { return func(s *Server) { s.wrap = wrap } }

// NewServer starts a server on a new Network. Both are closed when tb ends. In a bubble tb must
// be the bubble's T (see the package documentation).
func NewServer(tb testing.TB, h http.Handler, opts ...Option) *Server {
	return NewNetwork(tb).Serve(tb, "mem.test", h, opts...)
}

// Serve starts a server like [NewServer], on n and with the name host.
func (n *Network) Serve(tb testing.TB, host string, h http.Handler, opts ...Option) *Server {
	s := &Server{Net: n, tb: tb, host: host, served: make(chan struct{})}
	s.idle.L = &s.mu
	// Requests end with the server. net/http does not end the request of a closed
	// connection if no goroutine reads from the connection.
	life, end := context.WithCancel(context.Background())
	s.end = end
	s.Config = &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			s.count(1)
			defer s.count(-1)
			h.ServeHTTP(w, r)
		}),
		ErrorLog:    log.New(tbWriter{s}, "", 0),
		Protocols:   new(http.Protocols),
		BaseContext: func(net.Listener) context.Context { return life },
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			if secure, ok := c.(*tls.Conn); ok {
				c = secure.NetConn()
			}
			return context.WithValue(ctx, connKey{}, c)
		},
	}
	for _, opt := range opts {
		opt(s)
	}
	s.Config.Protocols.SetHTTP1(true)
	s.Config.Protocols.SetHTTP2(s.http2)
	s.Config.Protocols.SetUnencryptedHTTP2(s.http2)
	state := s.Config.ConnState
	s.Config.ConnState = func(c net.Conn, to http.ConnState) {
		if state != nil {
			state(c, to)
		}
		switch to { //nolint:exhaustive // the other states are between these
		case http.StateNew:
			s.count(1)
		case http.StateClosed, http.StateHijacked:
			s.count(-1)
		}
	}

	accepts := n.Listen(s.host)
	s.listener = accepts.(*listener) //nolint:errcheck // Listen returns nothing else
	if s.wrap != nil {
		accepts = s.wrap(accepts)
	}
	serve := s.Config.Serve
	s.URL = "http://" + s.host
	if s.tls {
		s.URL = "https://" + s.host
		s.certify()
		serve = func(l net.Listener) error { return s.Config.ServeTLS(l, "", "") }
	}
	go func() {
		defer close(s.served)
		if err := serve(accepts); !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
			tb.Errorf("%s: %v", s.URL, err)
		}
	}()
	tb.Cleanup(s.Close)
	return s
}

func (s *Server) count(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.busy += n; s.busy == 0 {
		s.idle.Broadcast()
	}
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
	if s.http2 {
		t.Protocols = new(http.Protocols)
		t.Protocols.SetHTTP2(s.tls)
		t.Protocols.SetUnencryptedHTTP2(!s.tls)
	}
	if s.tls {
		t.TLSClientConfig = &tls.Config{RootCAs: s.roots}
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
	s.end()
	_ = s.listener.Close() // fails if it is closed already
	s.listener.abort()
	// After the reset, because it writes to TLS connections under a lock, which must not
	// block. It prevents that requests are served that have arrived already.
	_ = s.Config.Close() // its error is the listener's
	<-s.served
	_ = s.Config.Close() // closes connections that were being accepted

	slow := time.AfterFunc(5*time.Second, func() {
		_, _ = tbWriter{s}.Write([]byte("Close has waited 5s for handlers that do not return"))
	})
	defer slow.Stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	for !s.closed {
		for s.busy > 0 {
			s.idle.Wait()
		}
		s.mu.Unlock()
		// An HTTP/2 connection can end while a handler is about to start. In a bubble
		// the shortest sleep lasts until all other goroutines block.
		time.Sleep(time.Nanosecond)
		s.mu.Lock()
		s.closed = s.busy == 0
	}
}

// tbWriter is the destination of net/http's log. It drops lines after Close, because a T must
// not be used after its test.
type tbWriter struct{ s *Server }

func (w tbWriter) Write(p []byte) (int, error) {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	if !w.s.closed {
		w.s.tb.Logf("%s: %s", w.s.URL, strings.TrimSpace(string(p)))
	}
	return len(p), nil
}

// certify makes a certificate for the host, and the roots that trust it.
func (s *Server) certify() {
	name, _, _ := strings.Cut(s.host, ":")
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		DNSNames:     []string{name},
		NotBefore:    time.Date(1990, 1, 1, 0, 0, 0, 0, time.UTC),
		NotAfter:     time.Date(2090, 1, 1, 0, 0, 0, 0, time.UTC),
	}
	key := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	der := must(x509.CreateCertificate(rand.Reader, template, template, key.Public(), key))
	s.roots = x509.NewCertPool()
	s.roots.AddCert(must(x509.ParseCertificate(der)))
	s.Config.TLSConfig = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
}

func must[V any](v V, err error) V {
	if err != nil {
		panic(err)
	}
	return v
}
