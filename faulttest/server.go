package faulttest

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"

	"github.com/resilienthttp/resilienthttp/internal/memhttp"
)

// Server serves a handler on a loopback socket or in memory, and records requests in its Log. [New]
// and [NewInMemory] start one. For other options, use a literal and Start:
//
//	srv := &faulttest.Server{Script: script, InMemory: true}
//	srv.KeyHeader = "PayPal-Request-Id"
//	srv.Start(t)
//
// The zero value can be started and answers 200. A Server is safe for concurrent use; its fields
// must not be modified after Start. A field that was set later fails the test, and all requests get
// a 500 that names it.
type Server struct {
	// Log records the requests. Its fields are options.
	Log

	// Script is any handler: a Script, a Sequence, a Reply, an http.ServeMux, your own. nil means
	// the zero Reply.
	Script http.Handler

	// InMemory makes the server listen on an in-memory network, inside or outside of a
	// testing/synctest bubble. Only its own Client and Transport reach it, and those of
	// servers on the same Network.
	InMemory bool
	// Host is the name of a server in memory, with or without a port. "" means fault.test.
	Host string
	// Network is another server in memory, already started, with another Host. Both servers then
	// share its network. It implies InMemory. nil means a new network.
	Network *Server

	// HTTP2 makes the server and its Client and Transport use HTTP/2, without TLS. The faults that
	// break a connection then abort the stream, except Silent.
	HTTP2 bool

	// URL is set by Start, without a slash at its end: http://127.0.0.1:41927,
	// http://fault.test.
	URL string

	client    *http.Client
	transport *http.Transport
	end       context.CancelCauseFunc
	server    *memhttp.Server // also of a socket
	conns     connections
	closed    sync.Once
	started   serverOptions
	misused   sync.Once // a field was set after Start
}

// New starts a Server with that handler on a loopback socket. It is closed when the test ends. If tb
// is nil, in a program that is not a test, the caller must call Close.
func New(tb TB, script http.Handler) *Server {
	s := &Server{Script: script}
	s.Start(tb)
	return s
}

// NewInMemory starts a Server with that handler on an in-memory network. In a testing/synctest
// bubble tb must be the bubble's t. The server is closed when the test ends. If tb is nil, the
// caller must call Close.
func NewInMemory(tb TB, script http.Handler) *Server {
	s := &Server{Script: script, InMemory: true}
	s.Start(tb)
	return s
}

// Start starts the server, which is closed when the test ends. tb gets net/http's log, which
// includes panics of handlers, and fails if a Rule or a Reply is invalid. If tb is nil, the caller
// must call Close. Start panics if it cannot listen, if it is called twice, or if it would listen
// on a socket in a testing/synctest bubble.
func (s *Server) Start(tb TB) {
	if s.URL != "" {
		panic("faulttest: Server started twice")
	}
	if strings.ContainsAny(s.Host, "/?#@") {
		panic(fmt.Sprintf("faulttest: Server.Host is %q, want a name such as api.test", s.Host))
	}
	if !s.InMemory && s.Network == nil && inBubble() {
		panic("faulttest: a socket stops the clock of a synctest bubble: use NewInMemory or Server.InMemory")
	}
	life, end := context.WithCancelCause(context.Background())
	s.end = end
	s.start(tb, life)
	t := asTesting{tb: tb}
	if s.Network != nil {
		s.InMemory = true
		if s.Network.server == nil || !s.Network.started.InMemory {
			panic("faulttest: Server.Network is not in memory, or not started")
		}
	}
	s.started = s.options()
	host := cmp.Or(s.Host, "fault.test")
	network := s.network(t, host)
	dial := network.DialContext
	var socket net.Listener // nil: in memory
	if !s.InMemory {
		socket = listen()
		host, dial = socket.Addr().String(), new(net.Dialer).DialContext
	}
	s.server = network.Serve(t, host, s.Record(s.guarded(tb)), func(m *memhttp.Server) {
		m.EnableHTTP2 = s.HTTP2
		m.Listener = s.conns.listener(cmp.Or(socket, m.Listener))
		s.conns.configure(m.Config)
		m.Config.BaseContext = func(net.Listener) context.Context { return life }
		m.Config.ConnState = func(conn net.Conn, to http.ConnState) {
			if to == http.StateClosed || to == http.StateHijacked {
				s.forget(conn.RemoteAddr().String())
			}
		}
	})
	s.URL, s.transport = s.server.URL, s.server.Transport()
	s.transport.DialContext = s.dialer(dial)
	s.client = &http.Client{Transport: s.transport}
	t.Cleanup(func() {
		if err := s.optionsError(); err != nil {
			s.reportOptions(tb, err)
		}
		s.Close()
		s.stop(tb)
	})
}

// network returns the network of the server, which is new or that of another one.
func (s *Server) network(t asTesting, host string) *memhttp.Network {
	switch {
	case s.Network == nil:
		return memhttp.NewNetwork(t)
	case strings.EqualFold(s.Network.URL, "http://"+host):
		panic(fmt.Sprintf("faulttest: Server.Host: %s is the host of Server.Network already", host))
	}
	return s.Network.server.Net
}

// Client returns the server's client, always the same one. The caller may modify it before its first
// use.
func (s *Server) Client() *http.Client { return s.client }

// Transport returns the transport of Client, for example as the base of your own transport. It has
// no proxy and no timeouts. It reaches this server and others on its Network, or those on loopback
// sockets; for another host it returns a *net.DNSError. The caller may modify it before its first
// use. A clone also reaches the server, over its own connections.
func (s *Server) Transport() *http.Transport { return s.transport }

// Silence makes the connections silent that are open now, as if the server's machine had died: they
// stay open, but no byte and no end of the connection passes. New connections work. Silence is safe
// for concurrent use.
func (s *Server) Silence() { s.conns.silence() }

// dialer returns a DialContext that dials the hosts of this server's network alone. A test must
// neither reach a real provider by mistake, nor take a wrong URL for a server that is down.
func (s *Server) dialer(dial func(context.Context, string, string) (net.Conn, error)) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		host, _, err := net.SplitHostPort(address)
		if err == nil && !s.reaches(address, host) {
			return nil, &net.OpError{Op: "dial", Net: network, Err: &net.DNSError{
				Err: "not a host of this faulttest.Server (want " + s.URL + ")", Name: host, IsNotFound: true,
			}}
		}
		return dial(ctx, network, address)
	}
}

func (s *Server) reaches(address, host string) bool {
	if s.started.InMemory {
		return s.server.Net.Known(address)
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// Close ends the requests in progress, including those of [Hang], [Silent] and [Stalled], closes all
// connections, and waits until all handlers have returned. It may be called more than once. A
// handler must not call it.
func (s *Server) Close() {
	if s.URL == "" {
		return // the server was not started
	}
	s.closed.Do(func() {
		s.end(errClosed)
		s.transport.CloseIdleConnections()
		s.conns.close()
		s.server.Close()
		s.conns.drain.Wait()
	})
}

// inBubble reports whether the caller runs in a testing/synctest bubble, by the first line of its
// stack trace. In a bubble a goroutine that waits for a socket stops all timers, so that a test
// with a wait would hang.
func inBubble() bool {
	var trace [64]byte
	head, _, _ := bytes.Cut(trace[:runtime.Stack(trace[:], false)], []byte("\n"))
	return bytes.Contains(head, []byte("synctest bubble"))
}

// listen returns a listener on a loopback socket.
func listen() net.Listener {
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it does not block
	if err != nil {
		var err6 error
		if l, err6 = net.Listen("tcp6", "[::1]:0"); err6 != nil { //nolint:noctx // it does not block
			panic(fmt.Sprintf("faulttest: cannot listen on a loopback socket: %v; %v", err, err6))
		}
	}
	return l
}
