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

// Server is an http.Server on a host of an in-memory [Network]. [NewServer] and
// [Network.Serve] start one; the zero value is not usable. It is safe for concurrent use,
// inside the bubble in which it was made.
type Server struct {
	URL    string       // "http://mem.test": scheme and host, without a slash at the end
	Config *http.Server // for its methods, such as Shutdown; its fields must not be changed
	Net    *Network     // the network on which the server listens

	tb       testing.TB
	listener *listener
	own      bool               // Net belongs to this server only
	end      context.CancelFunc // ends the base context of all requests
	client   options            // for Transport
	roots    *x509.CertPool

	mu       sync.Mutex
	idle     sync.Cond // signals isIdle
	handlers int       // running handlers
	conns    int       // connections that net/http serves
	serving  bool
	closed   bool
}

type options struct {
	host     string
	http2    bool
	tls      bool
	up, down time.Duration
	config   []func(*http.Server)
	wrap     func(net.Listener) net.Listener // nil: none
}

// Option is an option of a [Server].
type Option func(*options)

// Host sets the name of a server of [NewServer]. Without it, the name is "mem.test".
func Host(name string) Option { return func(o *options) { o.host = name } }

// HTTP2 makes the server and [Server.Transport] use HTTP/2: unencrypted with prior knowledge,
// or over TLS with the option [TLS]. The server still supports HTTP/1.
func HTTP2() Option { return func(o *options) { o.http2 = true } }

// TLS makes the server use HTTPS, with a certificate for its host that only
// [Server.Transport] trusts. The certificate is valid from 1990 to 2090.
func TLS() Option { return func(o *options) { o.tls = true } }

// Latency delays the clients' data by up and the server's data by down. A dial takes up plus
// down. The 64 KiB of a direction include data in flight.
func Latency(up, down time.Duration) Option {
	return func(o *options) { o.up, o.down = up, down }
}

// Configure lets f change the http.Server before it starts: timeouts, hooks, limits.
func Configure(f func(*http.Server)) Option {
	return func(o *options) { o.config = append(o.config, f) }
}

// Wrap makes the server accept connections from wrap(l), where l is its listener. A connection that
// wraps one of l must have NetConn() net.Conn.
func Wrap(wrap func(l net.Listener) net.Listener) Option {
	return func(o *options) { o.wrap = wrap }
}

// NewServer starts a server on a new Network. It is closed when tb ends. In a bubble tb must
// be the bubble's T (see the package documentation). A nil h means http.DefaultServeMux.
func NewServer(tb testing.TB, h http.Handler, opts ...Option) *Server {
	o := options{host: "mem.test"}
	for _, opt := range opts {
		opt(&o)
	}
	s := new(Network).serve(tb, h, o)
	s.own = true
	tb.Cleanup(s.Close)
	return s
}

// Serve starts a server like [NewServer], on n and with the name host.
func (n *Network) Serve(tb testing.TB, host string, h http.Handler, opts ...Option) *Server {
	var o options
	for _, opt := range opts {
		opt(&o)
	}
	o.host = host
	s := n.serve(tb, h, o)
	tb.Cleanup(s.Close)
	return s
}

func (n *Network) serve(tb testing.TB, h http.Handler, o options) *Server {
	s := &Server{
		URL: "http://" + o.host, Config: &http.Server{Handler: h}, Net: n,
		tb: tb, client: o, serving: true,
	}
	s.idle.L = &s.mu
	if o.tls {
		s.URL = "https://" + o.host
		s.Config.TLSConfig, s.roots = certify(tb, o.host)
	}
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetHTTP1(true)
	s.Config.Protocols.SetHTTP2(o.http2)
	s.Config.Protocols.SetUnencryptedHTTP2(o.http2)
	s.Config.ErrorLog = log.New(tbWriter{s}, "", 0)
	for _, f := range o.config {
		f(s.Config)
	}
	s.watch()

	s.listener = n.listen(o.host, o.up, o.down)
	listener := net.Listener(s.listener)
	if o.wrap != nil {
		listener = o.wrap(listener)
	}
	go func() {
		var err error
		if o.tls {
			err = s.Config.ServeTLS(listener, "", "")
		} else {
			err = s.Config.Serve(listener)
		}
		if !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
			tb.Errorf("memhttp: %s: %v", s.URL, err)
		}
		s.count(func() { s.serving = false })
	}()
	return s
}

// watch wraps the hooks of s.Config to count handlers and connections.
func (s *Server) watch() {
	c := s.Config

	handler := c.Handler
	if handler == nil {
		handler = http.DefaultServeMux
	}
	c.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.count(func() { s.handlers++ })
		defer s.count(func() { s.handlers-- })
		handler.ServeHTTP(w, r)
	})

	state := c.ConnState
	c.ConnState = func(conn net.Conn, to http.ConnState) {
		if state != nil {
			state(conn, to)
		}
		switch to {
		case http.StateNew:
			s.count(func() { s.conns++ })
		case http.StateClosed, http.StateHijacked:
			s.count(func() { s.conns-- })
		default: // the connection is still served
		}
	}

	// Requests end with the server. net/http does not end the request of a closed
	// connection if no goroutine reads from the connection.
	base := c.BaseContext
	life, end := context.WithCancel(context.Background())
	s.end = end
	c.BaseContext = func(l net.Listener) context.Context {
		if base == nil {
			return life
		}
		ctx, cancel := context.WithCancel(base(l))
		context.AfterFunc(life, cancel)
		return ctx
	}

	conn := c.ConnContext
	c.ConnContext = func(ctx context.Context, nc net.Conn) context.Context {
		ctx = context.WithValue(ctx, connKey{}, unwrap(nc))
		if conn != nil {
			ctx = conn(ctx, nc)
		}
		return ctx
	}
}

func (s *Server) count(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
	if s.isIdle() {
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
// no timeouts and no proxy. The caller may change it before its first use. Closing the network
// closes its idle connections.
func (s *Server) Transport() *http.Transport {
	t := s.Net.Transport()
	if s.client.http2 {
		t.Protocols = new(http.Protocols)
		t.Protocols.SetHTTP2(s.client.tls)
		t.Protocols.SetUnencryptedHTTP2(!s.client.tls)
	}
	if s.client.tls {
		t.TLSClientConfig = &tls.Config{RootCAs: s.roots}
	}
	return t
}

// Conns returns the number of connections that were opened to the server, and of those that
// their clients have not closed, to find leaks. net/http closes connections in the background:
// call synctest.Wait first.
func (s *Server) Conns() (opened, open int) { return s.listener.conns() }

// ResetConns resets all connections, busy or idle, as after a restart of the machine. The
// server still listens.
func (s *Server) ResetConns() { s.listener.abort() }

// logAfter is the time after which Close logs that it waits, and for what.
const logAfter = 5 * time.Second

// Close stops listening, ends the contexts of requests, resets connections and waits until
// all handlers have returned, including those with hijacked connections. It may be called
// more than once. A handler must not call it, because it would wait for itself.
//
// For a server of [NewServer], Close also closes the Network. On a shared network another
// server can use the host afterwards.
func (s *Server) Close() {
	if s.own {
		s.Net.Close()
	}
	s.end()
	_ = s.listener.Close() // fails if it is closed already
	s.listener.abort()
	// After the reset, because it writes to TLS connections under a lock, which must not
	// block. It prevents that requests are served that have arrived already.
	_ = s.Config.Close() // its error is the listener's

	slow := time.AfterFunc(logAfter, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if !s.closed {
			s.tb.Logf("memhttp: Close of %s has waited %v for %d handlers and %d connections",
				s.URL, logAfter, s.handlers, s.conns)
		}
	})
	defer slow.Stop()
	for done := false; !done; {
		s.wait()
		// An HTTP/2 connection can end while a handler is about to start. In a bubble
		// the shortest sleep lasts until all other goroutines block.
		time.Sleep(time.Nanosecond)
		s.count(func() {
			done = s.isIdle()
			s.closed = s.closed || done
		})
	}
}

func (s *Server) wait() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for !s.isIdle() {
		s.idle.Wait()
	}
}

func (s *Server) isIdle() bool { return s.handlers == 0 && s.conns == 0 && !s.serving }

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

// certify returns a configuration with a certificate for host, and the roots that trust it.
func certify(tb testing.TB, host string) (*tls.Config, *x509.CertPool) {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		DNSNames:     []string{host},
		NotBefore:    time.Date(1990, 1, 1, 0, 0, 0, 0, time.UTC),
		NotAfter:     time.Date(2090, 1, 1, 0, 0, 0, 0, time.UTC),
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatalf("memhttp: %v", err)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		tb.Fatalf("memhttp: %v", err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		tb.Fatalf("memhttp: %v", err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(leaf)
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}, roots
}
