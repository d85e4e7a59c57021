package tcpproxy

import (
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// Conn is a connection that a Proxy carries. It is safe for concurrent use.
type Conn struct {
	proxy  *Proxy
	client net.Conn
	gate   gate          // of both directions
	mute   gate          // of what the server says
	over   chan struct{} // closed with the connection

	mu     sync.Mutex
	server net.Conn // nil until it is dialed
	closed bool
}

// Cut ends the connection in good order on both sides, as the end of a process does.
// What is under way is lost.
func (c *Conn) Cut() { c.close(nil) }

// Reset ends the connection as a crash, a firewall or a full table does: both sides
// are told that it is no more (RST, where they are TCP).
func (c *Conn) Reset() {
	c.close(func(conn net.Conn) {
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
		}
	})
}

// Halt holds back what arrives on this connection until Resume, as Proxy.Halt does
// on all.
func (c *Conn) Halt() { c.gate.shut() }

// Mute holds back what the server says, and not what the client does, until Resume:
// what is asked is done, and if the connection is ended meanwhile nobody learns of it.
func (c *Conn) Mute() { c.mute.shut() }

// Resume ends Halt and Mute, and not what holds for all of the proxy.
func (c *Conn) Resume() {
	c.gate.open()
	c.mute.open()
}

func (c *Conn) close(prepare func(net.Conn)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	c.closed = true
	close(c.over)
	for _, conn := range []net.Conn{c.client, c.server} {
		if conn == nil {
			continue
		}
		if prepare != nil {
			prepare(conn)
		}
		_ = conn.Close()
	}
}

// reaches gives the connection its other side. false: it has ended meanwhile, and so
// does that.
func (c *Conn) reaches(server net.Conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		_ = server.Close()
		return false
	}
	c.server = server
	return true
}

// pump passes on one direction until it ends. The other direction may last longer.
func (c *Conn) pump(to, from net.Conn) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if !c.pass() || to == c.client && !c.mute.pass(c.over) {
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

// pass waits as long as what was read is to be held back. false: the connection has
// ended.
func (c *Conn) pass() bool {
	if delay := time.Duration(c.proxy.delay.Load()); delay > 0 {
		timer := time.NewTimer(delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-c.over:
			return false
		}
	}
	return c.gate.pass(c.over) && c.proxy.gate.pass(c.over)
}
