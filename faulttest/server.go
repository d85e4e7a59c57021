package faulttest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/memhttp"
)

// A Server serves a script, on a loopback socket or in memory, and keeps a Log,
// whose methods are its own. It comes from [New] or [NewInMemory] or, if more is
// to be said than those take, from a literal and Start:
//
//	srv := &faulttest.Server{Script: script, InMemory: true}
//	srv.KeyHeader = "PayPal-Request-Id"
//	srv.Start(t)
//
// The zero value is ready to be started, and answers 200. Its methods may be
// called by many goroutines; the fields must be left alone once it is started.
type Server struct {
	Log // what has come; its fields are options

	// Script is any handler: a Script, a Sequence, a Reply, an http.ServeMux, your
	// own. Nil: the zero Reply.
	Script http.Handler

	// InMemory has the server listen on an in-memory network instead of a socket.
	// Only its own Client and Transport, and those of servers Beside it, reach it.
	// It works in a bubble of testing/synctest, in which an hour of waiting takes
	// no time, and out of it.
	InMemory bool
	Host     string  // name of a server in memory, with a port or without; "": fault.test
	Network  *Server // nil, or another server in memory, started before, whose network this one shares, under another Host. Implies InMemory

	// URL is that of the server, without a slash at its end, once it is started:
	// http://127.0.0.1:41927, http://fault.test.
	URL string

	client    *http.Client
	transport *http.Transport
	end       context.CancelCauseFunc
	mem       *memhttp.Server // in memory
	tcp       *loopback       // on a socket
	closed    sync.Once

	patience time.Duration // how long Close waits before it says what it waits for; 0: 5 s
}

// New starts a Server for the script on a loopback socket. It is closed when the
// test ends. tb may be nil in a program that is no test, and closes the Server
// itself.
func New(tb TB, script http.Handler) *Server {
	s := &Server{Script: script}
	s.Start(tb)
	return s
}

// NewInMemory starts a Server for the script on an in-memory network, for
// testing/synctest. In a bubble tb must be the bubble's own t. The server is
// closed when the test ends; tb may be nil where it closes the Server itself.
func NewInMemory(tb TB, script http.Handler) *Server {
	s := &Server{Script: script, InMemory: true}
	s.Start(tb)
	return s
}

// Start starts the server, which Close closes, and with it the end of the test.
// tb is told what net/http logs, panics of handlers among it, and fails if a
// script is not well-formed. It may be nil. Start panics if it cannot listen, is
// called twice, or is to listen on a socket in a bubble of testing/synctest.
func (s *Server) Start(tb TB) {
	if s.URL != "" {
		panic("faulttest: Server started twice")
	}
	if strings.ContainsAny(s.Host, "/?#@") {
		panic(fmt.Sprintf("faulttest: Server.Host is a name such as api.test, not %q", s.Host))
	}
	if !s.InMemory && s.Network == nil && bubbled() {
		panic("faulttest: a server on a socket would stop the clock of a synctest bubble: use NewInMemory, or Server.InMemory")
	}
	life, end := context.WithCancelCause(context.Background())
	s.end = end
	s.start(tb, life)
	config := func(c *http.Server) {
		c.BaseContext = func(net.Listener) context.Context { return life }
		c.ConnState = func(conn net.Conn, to http.ConnState) {
			if to == http.StateClosed || to == http.StateHijacked {
				s.forget(conn.RemoteAddr().String())
			}
		}
	}
	t := asTesting{tb: tb}
	if s.Network != nil {
		s.InMemory = true
		if s.Network.mem == nil {
			panic("faulttest: Server.Beside is not in memory, or not started")
		}
	}
	if s.InMemory {
		host := s.Host
		if host == "" {
			host = "fault.test"
		}
		if s.Network != nil {
			if strings.EqualFold(s.Network.URL, "http://"+host) {
				panic(fmt.Sprintf("faulttest: Server.Host: %s is the server Beside already", host))
			}
			s.mem = s.Network.mem.Net.Serve(t, host, s.Record(s.Script), memhttp.Configure(config))
		} else {
			s.mem = memhttp.NewServer(t, s.Record(s.Script), memhttp.Host(host), memhttp.Configure(config))
		}
		s.URL, s.transport = s.mem.URL, s.mem.Transport()
	} else {
		s.tcp = listen(t, s.Record(s.Script), config)
		s.tcp.patience = cmp.Or(s.patience, 5*time.Second)
		s.URL, s.transport = s.tcp.url, &http.Transport{}
	}
	s.client = &http.Client{Transport: s.transport}
	t.Cleanup(func() {
		s.Close()
		s.stop(tb)
	})
}

// Client returns a client of the server, always the same one. It may be changed
// before its first use.
func (s *Server) Client() *http.Client { return s.client }

// Transport returns the transport of that client, for the bottom of your own:
// without a proxy and without timeouts. It may be changed before its first use.
// A clone of it reaches the server too, over connections of its own.
func (s *Server) Transport() *http.Transport { return s.transport }

// Close ends the requests in hand, closes all connections, and waits until every
// handler has returned. What [Hang] and [Stalled] hold up ends with it. It may be
// called more than once, and not by a handler.
func (s *Server) Close() {
	if s.URL == "" {
		return // it was never started
	}
	s.closed.Do(func() {
		s.end(errClosed)
		s.transport.CloseIdleConnections()
		if s.mem != nil {
			s.mem.Close()
		} else {
			s.tcp.close()
		}
	})
}

// bubbled reports whether the caller is in a bubble of testing/synctest: traces
// of goroutines begin with that. In a bubble, a goroutine that waits for a socket
// keeps all timers from going off, and a test that waits hangs for good.
func bubbled() bool {
	var trace [64]byte
	head, _, _ := bytes.Cut(trace[:runtime.Stack(trace[:], false)], []byte("\n"))
	return bytes.Contains(head, []byte("synctest bubble"))
}

// A loopback is an http.Server on a socket that can wait for its own end.
type loopback struct {
	url      string
	tb       asTesting
	server   *http.Server
	patience time.Duration

	served chan struct{} // closed when Serve has returned

	mu     sync.Mutex
	idle   sync.Cond
	busy   int // handlers and connections
	closed bool
}

func listen(tb asTesting, h http.Handler, config func(*http.Server)) *loopback {
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it does not block
	if err != nil {
		var err6 error
		if l, err6 = net.Listen("tcp6", "[::1]:0"); err6 != nil { //nolint:noctx // it does not block
			panic(fmt.Sprintf("faulttest: cannot listen on a loopback socket: %v; %v", err, err6))
		}
	}
	lo := &loopback{url: "http://" + l.Addr().String(), tb: tb, served: make(chan struct{})}
	lo.idle.L = &lo.mu
	lo.server = &http.Server{ //nolint:gosec // no timeouts: faults take as long as they are told to
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			lo.count(1)
			defer lo.count(-1)
			h.ServeHTTP(w, r)
		}),
		ErrorLog: log.New(lo, "", 0),
	}
	config(lo.server)
	state := lo.server.ConnState
	lo.server.ConnState = func(conn net.Conn, to http.ConnState) {
		state(conn, to)
		switch to { //nolint:exhaustive // the others are between the two
		case http.StateNew:
			lo.count(1)
		case http.StateClosed, http.StateHijacked:
			lo.count(-1)
		}
	}
	go func() {
		defer close(lo.served)
		if err := lo.server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			tb.Errorf("faulttest: %v", err)
		}
	}()
	return lo
}

func (lo *loopback) count(n int) {
	lo.mu.Lock()
	defer lo.mu.Unlock()
	if lo.busy += n; lo.busy == 0 {
		lo.idle.Broadcast()
	}
}

// Write is for net/http's log. It falls silent with the end of the test, after
// which a T must not be used.
func (lo *loopback) Write(p []byte) (int, error) {
	lo.mu.Lock()
	defer lo.mu.Unlock()
	if !lo.closed {
		lo.tb.Logf("%s: %s", lo.url, strings.TrimSpace(string(p)))
	}
	return len(p), nil
}

func (lo *loopback) close() {
	_ = lo.server.Close()
	<-lo.served
	_ = lo.server.Close() // connections that were just being accepted
	slow := time.AfterFunc(lo.patience, func() {
		_, _ = fmt.Fprintf(lo, "Close has waited %v for handlers that do not return", lo.patience)
	})
	defer slow.Stop()
	lo.mu.Lock()
	defer lo.mu.Unlock()
	for lo.busy > 0 {
		lo.idle.Wait()
	}
	lo.closed = true
}
