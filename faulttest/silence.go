package faulttest

import (
	"context"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// connections are those of a Server. They can go silent, as if the server's machine or the path to it
// had failed: they stay open, and no byte and no end of the connection passes.
type connections struct {
	mu    sync.Mutex
	open  map[*connection]struct{}
	ended bool // the Server closes: Close works for silent connections too
	drain sync.WaitGroup
}

// silence makes the connections silent that are open now.
func (cs *connections) silence() {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	for c := range cs.open {
		c.silent.Store(true)
	}
}

// close closes the silent connections. The server's own Close would wait for their readers.
func (cs *connections) close() {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.ended = true
	for c := range cs.open {
		if c.silent.Load() {
			_ = c.Conn.Close()
		}
	}
}

// configure makes requests know their connection.
func (cs *connections) configure(s *http.Server) {
	s.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		return context.WithValue(ctx, connectionKey{}, c)
	}
}

type connectionKey struct{}

// silence makes the connection of a request silent, if it is one of a Server.
func silence(r *http.Request) {
	if c, ok := r.Context().Value(connectionKey{}).(*connection); ok {
		c.silent.Store(true)
	}
}

// listener wraps a listener, so that its connections can go silent.
func (cs *connections) listener(l net.Listener) net.Listener { return &listener{l, cs} }

type listener struct {
	net.Listener

	connections *connections
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &connection{Conn: conn, of: l.connections}
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	if c.of.open == nil {
		c.of.open = map[*connection]struct{}{}
	}
	c.of.open[c] = struct{}{}
	return c, nil
}

// connection is the server's end of a connection.
type connection struct {
	net.Conn

	of     *connections
	silent atomic.Bool
	closed atomic.Bool // by the server
}

// NetConn returns the connection that c wraps. A reset needs it.
func (c *connection) NetConn() net.Conn { return c.Conn }

// Read implements net.Conn. What a silent connection reads is lost.
func (c *connection) Read(p []byte) (int, error) {
	for {
		if n, err := c.Conn.Read(p); err != nil || !c.silent.Load() {
			return n, err
		}
	}
}

// Write implements net.Conn. What a silent connection writes is lost.
func (c *connection) Write(p []byte) (int, error) {
	if c.silent.Load() {
		return len(p), nil
	}
	return c.Conn.Write(p)
}

// Close implements net.Conn. A silent connection stays open until the client closes it, or the Server.
func (c *connection) Close() error {
	if c.closed.Swap(true) {
		return net.ErrClosed
	}
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	if !c.silent.Load() || c.of.ended {
		delete(c.of.open, c)
		return c.Conn.Close()
	}
	_ = c.Conn.SetDeadline(time.Time{})
	c.of.drain.Go(func() {
		_, _ = io.Copy(io.Discard, c.Conn)
		c.of.mu.Lock()
		defer c.of.mu.Unlock()
		delete(c.of.open, c)
		_ = c.Conn.Close()
	})
	return nil
}

// SetReadDeadline implements net.Conn. After Close it would end a connection that must stay open.
func (c *connection) SetReadDeadline(t time.Time) error {
	if c.closed.Load() {
		return net.ErrClosed
	}
	return c.Conn.SetReadDeadline(t)
}
