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

// A Server is an http.Server on a host of an in-memory [Network]. It comes
// from [NewServer] or [Network.Serve]; the zero value is of no use. Its methods
// may be called by many goroutines, inside the bubble in which it was made.
type Server struct {
	URL    string       // "http://mem.test": scheme and host, no slash at the end
	Config *http.Server // for Shutdown, SetKeepAlivesEnabled and the like; its fields must be left alone
	Net    *Network     // on which the server listens

	tb       testing.TB
	listener *listener
	own      bool               // Net is this server's alone
	end      context.CancelFunc // of the base context of all requests
	client   options            // what Transport needs
	roots    *x509.CertPool

	mu       sync.Mutex
	idle     sync.Cond // handlers, conns and serving are all none
	handlers int       // running
	conns    int       // that net/http serves
	serving  bool
	closed   bool
}

type options struct {
	host     string
	http2    bool
	tls      bool
	up, down time.Duration
	config   []func(*http.Server)
}

// An Option changes a [Server].
type Option func(*options)

// Host sets the name of the server, for [NewServer]; "mem.test" without it.
func Host(name string) Option { return func(o *options) { o.host = name } }

// HTTP2 has the server and [Server.Transport] speak HTTP/2: unencrypted, with
// prior knowledge, or over TLS together with the option [TLS]. The server goes
// on to understand HTTP/1.
func HTTP2() Option { return func(o *options) { o.http2 = true } }

// TLS has the server listen for https, with a certificate for its host that
// only [Server.Transport] trusts. It is valid from 1990 to 2090, in a bubble
// and out of it.
func TLS() Option { return func(o *options) { o.tls = true } }

// Latency delays what clients send by up, and what the server sends by down.
// A dial takes both. The 64 KiB of a direction include what is under way.
func Latency(up, down time.Duration) Option {
	return func(o *options) { o.up, o.down = up, down }
}

// Configure has f change the http.Server before it starts: timeouts, hooks,
// limits.
func Configure(f func(*http.Server)) Option {
	return func(o *options) { o.config = append(o.config, f) }
}

// NewServer starts a server on a Network of its own. It is closed when tb ends;
// in a bubble tb must be the T of the bubble (see the package documentation).
// A nil h is http.DefaultServeMux.
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

// Serve starts a server as [NewServer] does, on n, under the name of host.
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
	go func() {
		var err error
		if o.tls {
			err = s.Config.ServeTLS(s.listener, "", "")
		} else {
			err = s.Config.Serve(s.listener)
		}
		if !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
			tb.Errorf("memhttp: %s: %v", s.URL, err)
		}
		s.count(func() { s.serving = false })
	}()
	return s
}

// watch puts itself around the hooks of s.Config, to learn what is running.
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
		default: // still served
		}
	}

	// Requests end with the server. That of a closed connection does not, if
	// nobody happens to read from it.
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

// RequestConn returns the server's end of the connection that r, a request as
// a handler of a [Server] gets it, came on; it panics for others. It is for faults and deadlines; its
// bytes belong to net/http. Reset(RequestConn(r)) is a reset in the middle of
// whatever the handler is doing, for HTTP/2 too, and needs no hijacking.
func RequestConn(r *http.Request) *Conn {
	c, ok := r.Context().Value(connKey{}).(*Conn)
	if !ok {
		panic("memhttp: not a request to a handler of a Server")
	}
	return c
}

// Transport returns a new http.Transport that reaches this server, and the
// others on its network. Its idle connections are closed with that network. It
// has no timeouts and no proxy; the caller may change it before first use.
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

// Conns returns how many connections were opened to the server, and how many
// of these have not been closed by their client, which is the leak that tests
// look for. net/http closes in the background: call synctest.Wait first.
func (s *Server) Conns() (opened, open int) { return s.listener.conns() }

// ResetConns resets all connections, busy or idle, as a machine does that has
// gone down and come up again. The server goes on to listen.
func (s *Server) ResetConns() { s.listener.abort() }

// patience is how long Close waits before it says what it waits for.
const patience = 5 * time.Second

// Close stops listening, ends the contexts of requests, resets connections and
// waits for handlers, also those that hijacked theirs, to return: in a bubble
// their sleeps pass in virtual time. It may be called more than once. A handler
// must not call it, since it would wait for itself.
//
// The Network of a server from [NewServer] is closed too, with the idle
// connections of its transports. On a shared network the host is free for
// another server.
func (s *Server) Close() {
	if s.own {
		s.Net.Close()
	}
	s.end()
	_ = s.listener.Close() // fails if it is closed already
	s.listener.abort()
	// Only now: it writes to TLS connections under a lock, which must not block.
	// What it adds is that requests which have come already are not served.
	_ = s.Config.Close() // gives the listener's error

	slow := time.AfterFunc(patience, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if !s.closed {
			s.tb.Logf("memhttp: Close of %s has waited %v for %d handlers and %d connections",
				s.URL, patience, s.handlers, s.conns)
		}
	})
	defer slow.Stop()
	for done := false; !done; {
		s.wait()
		// An HTTP/2 connection can end with a handler about to start. In a bubble
		// the least sleep lasts until all other goroutines block.
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

// A tbWriter is where net/http logs. It falls silent with Close, since a T
// must not be used after its test.
type tbWriter struct{ s *Server }

func (w tbWriter) Write(p []byte) (int, error) {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	if !w.s.closed {
		w.s.tb.Logf("%s: %s", w.s.URL, strings.TrimSpace(string(p)))
	}
	return len(p), nil
}

// certify makes a certificate for host, and the roots that trust it.
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
