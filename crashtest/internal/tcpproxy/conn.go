package tcpproxy

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/sleep"
)

// Conn is a connection that a Proxy forwards. It is safe for concurrent use.
type Conn struct {
	proxy  *Proxy
	client net.Conn
	gate   gate            // for both directions
	mute   gate            // for data from the server
	ctx    context.Context //nolint:containedctx // It ends with the connection.
	end    context.CancelFunc

	mu     sync.Mutex
	server net.Conn // nil until dial has returned
	closed bool
}

// Cut closes both sides in an orderly way (FIN), as the end of a process does. Data in transit is lost.
func (c *Conn) Cut() { c.close(-1) }

// Reset resets both sides (RST, if they are TCP), as a crash or a firewall does. Data in transit is lost.
func (c *Conn) Reset() { c.close(0) }

// Halt delays all data of this connection until Resume, in both directions.
func (c *Conn) Halt() { c.gate.shut() }

// Mute delays the data from the server until Resume, but not the data from the client. If the connection ends before
// Resume, the server has done the work and the client has no answer.
func (c *Conn) Mute() { c.mute.shut() }

// Resume ends Halt and Mute of this connection. Proxy.Halt stays in effect.
func (c *Conn) Resume() {
	c.gate.open()
	c.mute.open()
}

// close closes both sides with this argument of SetLinger.
func (c *Conn) close(linger int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	c.closed = true
	c.end()
	for _, conn := range []net.Conn{c.client, c.server} {
		if conn == nil {
			continue
		}
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.SetLinger(linger)
		}
		_ = conn.Close()
	}
}

// setServer sets the connection to the server. If the client's side is closed already, it
// closes the server's and returns false.
func (c *Conn) setServer(server net.Conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		_ = server.Close()
		return false
	}
	c.server = server
	return true
}

// pump forwards one direction until it ends. The other direction may last longer.
func (c *Conn) pump(to, from net.Conn) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if !c.pass() || to == c.client && !c.mute.pass(c.ctx) {
			return
		}
		if _, failed := to.Write(buffer[:n]); failed != nil {
			c.Reset()
			return
		}
		switch {
		case errors.Is(err, io.EOF):
			if half, ok := to.(interface{ CloseWrite() error }); ok {
				_ = half.CloseWrite()
			}
			return
		case err != nil:
			c.Reset()
			return
		}
	}
}

// pass waits for the delay and for the gates. It returns false if the connection has ended.
func (c *Conn) pass() bool {
	if delay := time.Duration(c.proxy.delay.Load()); delay > 0 && sleep.Context(c.ctx, delay) != nil {
		return false
	}
	return c.gate.pass(c.ctx) && c.proxy.gate.pass(c.ctx)
}

// gate delays data while it is shut. The zero value is open.
type gate struct {
	opened atomic.Pointer[chan struct{}] // closed when the gate opens; nil if it is open
}

func (g *gate) shut() {
	g.opened.CompareAndSwap(nil, new(make(chan struct{})))
}

func (g *gate) open() {
	if opened := g.opened.Swap(nil); opened != nil {
		close(*opened)
	}
}

// pass waits until the gate is open. It returns false if the context ends before.
func (g *gate) pass(ctx context.Context) bool {
	for opened := g.opened.Load(); opened != nil; opened = g.opened.Load() {
		select {
		case <-*opened:
		case <-ctx.Done():
			return false
		}
	}
	return true
}
