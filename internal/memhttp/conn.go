package memhttp

import (
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// Conn is one end of an in-memory connection of a [Network]. The zero value is not usable.
// It is safe for concurrent use, and Close ends blocked calls. It behaves as a TCP
// connection of Linux:
//
//   - Each direction holds 64 KiB. A Write blocks while it is full.
//   - After the peer's Close or CloseWrite, Read returns the remaining data, then [io.EOF].
//   - The first write to a closed peer succeeds and its data is lost; later ones fail with
//     EPIPE. net/http's retries depend on that.
//   - Close with unread data, or after SetLinger(0), resets the connection. The peer reads the
//     remaining data. Then all its calls fail with ECONNRESET (in Linux only the first one).
//   - After a deadline, calls fail with [os.ErrDeadlineExceeded], also if there is data. After
//     Close they fail with [net.ErrClosed]. All errors but io.EOF are [*net.OpError]s.
type Conn struct {
	mu            *sync.Mutex // of both ends
	in, out       *stream
	local, remote addr
	onClose       func()

	closed      bool
	writeClosed bool
	linger0     bool
}

var _ net.Conn = (*Conn)(nil)

// addr is a "host:port". Its network is "tcp", as callers of RemoteAddr expect.
type addr string

func (addr) Network() string  { return "tcp" }
func (a addr) String() string { return string(a) }

// newConns returns the two ends of a connection.
func newConns(client, server addr, up, down time.Duration) (c, s *Conn) {
	mu := new(sync.Mutex)
	request, response := newStream(mu, up), newStream(mu, down)
	c = &Conn{mu: mu, in: response, out: request, local: client, remote: server}
	s = &Conn{mu: mu, in: request, out: response, local: server, remote: client}
	return c, s
}

// Reset resets conn: its peer gets ECONNRESET. conn must be a *Conn, or wrap one as a
// *tls.Conn does; otherwise Reset panics. A handler gets its connection with
// [http.Hijacker] or with [RequestConn].
func Reset(conn net.Conn) {
	c := unwrap(conn)
	_ = c.SetLinger(0) // fails if c is closed already
	_ = c.Close()
}

func unwrap(conn net.Conn) *Conn {
	if w, ok := conn.(interface{ NetConn() net.Conn }); ok {
		conn = w.NetConn()
	}
	c, ok := conn.(*Conn)
	if !ok {
		panic(fmt.Sprintf("memhttp: a %T is not of this network", conn))
	}
	return c
}

// Read returns the data that has arrived. If there is none, it waits.
func (c *Conn) Read(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		switch {
		case c.closed:
			return 0, c.fail("read", net.ErrClosed)
		case len(p) == 0:
			return 0, nil
		case c.in.readBy.passed:
			return 0, c.fail("read", os.ErrDeadlineExceeded)
		case c.in.arrived > 0:
			return c.in.pull(p), nil
		case c.in.rst:
			return 0, c.fail("read", os.NewSyscallError("read", syscall.ECONNRESET))
		case c.in.fin:
			return 0, io.EOF
		}
		c.in.canRead.Wait()
	}
}

// Write returns when all of p is in the buffer. Concurrent writes are not interleaved.
func (c *Conn) Write(p []byte) (n int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	// A flag instead of a second mutex, because waiting for a mutex is not durable.
	for c.out.writing {
		if err := c.writeError(); err != nil {
			return 0, err
		}
		c.out.canWrite.Wait()
	}
	c.out.writing = true
	defer func() {
		c.out.writing = false
		c.out.canWrite.Broadcast()
	}()
	for {
		if err := c.writeError(); err != nil {
			return n, err
		}
		if n == len(p) {
			return n, nil
		}
		if k := c.out.push(p[n:], c.in); k > 0 {
			if n += k; n == len(p) {
				return n, nil
			}
			continue
		}
		c.out.canWrite.Wait()
	}
}

// writeError returns the error of a write now, or nil.
func (c *Conn) writeError() error {
	switch {
	case c.closed:
		return c.fail("write", net.ErrClosed)
	case c.out.writeBy.passed:
		return c.fail("write", os.ErrDeadlineExceeded)
	case c.writeClosed:
		return c.fail("write", os.NewSyscallError("write", syscall.EPIPE))
	case c.out.refusal != nil:
		return c.fail("write", os.NewSyscallError("write", c.out.refusal))
	}
	return nil
}

// Close closes both directions. It resets the connection if there is unread data or after
// SetLinger(0).
func (c *Conn) Close() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return c.fail("close", net.ErrClosed)
	}
	c.closed = true
	c.in.gone = true
	switch {
	case c.linger0 || c.in.data.n > 0:
		c.out.reset(c.in, c.writeClosed)
	case !c.writeClosed:
		c.out.finish()
	}
	c.in.data, c.in.arrived = ring{}, 0
	c.in.readBy.reset(time.Time{})
	c.out.writeBy.reset(time.Time{})
	c.in.canRead.Broadcast()
	c.out.canWrite.Broadcast()
	c.mu.Unlock()

	if c.onClose != nil {
		c.onClose()
	}
	return nil
}

// CloseWrite closes the write direction: the peer reads io.EOF after the written data, and
// can still write.
func (c *Conn) CloseWrite() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		return c.fail("close", net.ErrClosed)
	case c.in.rst:
		return c.fail("close", os.NewSyscallError("shutdown", syscall.ENOTCONN))
	case !c.writeClosed:
		c.writeClosed = true
		c.out.finish()
		c.out.canWrite.Broadcast()
	}
	return nil
}

// SetLinger with 0 makes Close reset the connection. Any other number restores the default.
func (c *Conn) SetLinger(sec int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return c.fail("set", net.ErrClosed)
	}
	c.linger0 = sec == 0
	return nil
}

// LocalAddr returns "192.0.2.1:" and a port for a client, and the dialed host and port for
// a server.
func (c *Conn) LocalAddr() net.Addr { return c.local }

// RemoteAddr returns the LocalAddr of the peer.
func (c *Conn) RemoteAddr() net.Addr { return c.remote }

// SetDeadline sets both deadlines, for blocked and future calls. The zero time means no
// deadline.
func (c *Conn) SetDeadline(t time.Time) error { return c.setDeadlines(t, true, true) }

// SetReadDeadline sets the deadline of reads.
func (c *Conn) SetReadDeadline(t time.Time) error { return c.setDeadlines(t, true, false) }

// SetWriteDeadline sets the deadline of writes.
func (c *Conn) SetWriteDeadline(t time.Time) error { return c.setDeadlines(t, false, true) }

func (c *Conn) setDeadlines(t time.Time, read, write bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return c.fail("set", net.ErrClosed)
	}
	if read {
		c.in.readBy.reset(t)
	}
	if write {
		c.out.writeBy.reset(t)
	}
	return nil
}

// abort resets both directions for both ends, without delay. Each owner must still close
// its end.
func (c *Conn) abort() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.in.abort()
	c.out.abort()
}

func (c *Conn) fail(op string, err error) error {
	return &net.OpError{Op: op, Net: c.local.Network(), Source: c.local, Addr: c.remote, Err: err}
}
