package memhttp

import (
	"bytes"
	"cmp"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// Conn is one end of an in-memory connection of a [Network]. The zero value is not usable. It is safe for concurrent
// use, and Close ends blocked calls. It behaves as a TCP connection of Linux:
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
	wake          *sync.Cond // of both ends, with their mutex
	in, out       *stream
	local, remote addr
	onClose       func()

	closed      bool
	writeClosed bool
	linger0     bool
}

// addr is a "host:port". Its network is "tcp", as callers of RemoteAddr expect.
type addr string

func (addr) Network() string  { return "tcp" }
func (a addr) String() string { return string(a) }

func newConns(client, server addr) (c, s *Conn) {
	wake := sync.NewCond(new(sync.Mutex))
	request, response := new(stream), new(stream)
	c = &Conn{wake: wake, in: response, out: request, local: client, remote: server}
	s = &Conn{wake: wake, in: request, out: response, local: server, remote: client}
	return c, s
}

// Reset resets c: its peer gets ECONNRESET. A handler gets its connection with [RequestConn].
func Reset(c *Conn) {
	_ = c.SetLinger(0) // fails if c is closed already
	_ = c.Close()
}

// Read returns data. If there is none, it waits.
func (c *Conn) Read(p []byte) (int, error) {
	c.wake.L.Lock()
	defer c.wake.L.Unlock()
	for {
		switch {
		case c.closed:
			return 0, c.fail("read", net.ErrClosed)
		case len(p) == 0:
			return 0, nil
		case passed(c.in.readBy):
			return 0, c.fail("read", os.ErrDeadlineExceeded)
		case c.in.data.Len() > 0:
			n, _ := c.in.data.Read(p)
			c.wake.Broadcast()
			return n, nil
		case c.in.rst:
			return 0, c.fail("read", os.NewSyscallError("read", syscall.ECONNRESET))
		case c.in.fin:
			return 0, io.EOF
		}
		c.wake.Wait()
	}
}

// Write returns when all of p is in the buffer. Concurrent writes of more than the buffer holds may be interleaved.
func (c *Conn) Write(p []byte) (n int, err error) {
	c.wake.L.Lock()
	defer c.wake.L.Unlock()
	for {
		switch {
		case c.closed:
			return n, c.fail("write", net.ErrClosed)
		case passed(c.out.writeBy):
			return n, c.fail("write", os.ErrDeadlineExceeded)
		case c.writeClosed:
			return n, c.fail("write", os.NewSyscallError("write", syscall.EPIPE))
		case c.out.refusal != 0:
			return n, c.fail("write", os.NewSyscallError("write", c.out.refusal))
		}
		k := min(len(p)-n, bufferSize-c.out.data.Len())
		switch {
		case len(p) == 0:
		case k == 0: // without a wake-up, because waiting writers would wake each other forever
			c.wake.Wait()
		case c.out.gone:
			// The writer's kernel accepts the bytes, the peer's kernel answers with a reset, and only the next write fails.
			c.out.refusal = cmp.Or(c.out.refusal, syscall.EPIPE)
		default:
			c.out.data.Write(p[n : n+k])
			c.wake.Broadcast()
		}
		if n += k; n == len(p) {
			return n, nil
		}
	}
}

// Close closes both directions. It resets the connection if there is unread data or after SetLinger(0).
func (c *Conn) Close() error {
	err := c.set("close", func() {
		c.closed = true
		c.in.gone = true
		switch {
		case (c.linger0 || c.in.data.Len() > 0) && c.writeClosed: // a reset after the end only makes writes fail
			c.in.refusal = cmp.Or(c.in.refusal, syscall.EPIPE)
		case c.linger0 || c.in.data.Len() > 0:
			c.out.rst, c.in.refusal = true, cmp.Or(c.in.refusal, syscall.ECONNRESET)
		default:
			c.out.fin = true
		}
	})
	if err == nil && c.onClose != nil {
		c.onClose()
	}
	return err
}

// CloseWrite closes the write direction: the peer reads io.EOF after the written data, and can still write.
func (c *Conn) CloseWrite() (err error) {
	closed := c.set("close", func() {
		switch {
		case c.in.rst:
			err = c.fail("close", os.NewSyscallError("shutdown", syscall.ENOTCONN))
		case !c.writeClosed:
			c.writeClosed, c.out.fin = true, true
		}
	})
	return cmp.Or(closed, err)
}

// SetLinger with 0 makes Close reset the connection. Any other number restores the default.
func (c *Conn) SetLinger(sec int) error { return c.set("set", func() { c.linger0 = sec == 0 }) }

// LocalAddr returns "192.0.2.1:" and a port for a client, and the dialed host and port for a server.
func (c *Conn) LocalAddr() net.Addr { return c.local }

// RemoteAddr returns the LocalAddr of the peer.
func (c *Conn) RemoteAddr() net.Addr { return c.remote }

// SetDeadline sets both deadlines, for blocked and future calls. The zero time means no deadline.
func (c *Conn) SetDeadline(t time.Time) error {
	_ = c.SetReadDeadline(t) // fails if the next call does
	return c.SetWriteDeadline(t)
}

// SetReadDeadline sets the deadline of reads.
func (c *Conn) SetReadDeadline(t time.Time) error { return c.setDeadline(&c.in.readBy, t) }

// SetWriteDeadline sets the deadline of writes.
func (c *Conn) SetWriteDeadline(t time.Time) error { return c.setDeadline(&c.out.writeBy, t) }

func (c *Conn) setDeadline(deadline *time.Time, t time.Time) error {
	return c.set("set", func() {
		*deadline = time.Time{}
		if !t.IsZero() {
			wait := time.Until(t)
			// Not t itself: without a monotonic reading the timer could fire a moment before
			// that time, and the waiters would then wait forever.
			*deadline = time.Now().Add(wait)
			if wait > 0 { // otherwise set wakes them
				time.AfterFunc(wait, func() { _ = c.set("set", func() {}) }) // after Close nothing waits
			}
		}
	})
}

func passed(deadline time.Time) bool { return !deadline.IsZero() && time.Until(deadline) <= 0 }

// set calls f with the mutex held, and wakes blocked calls. It fails if c is closed.
func (c *Conn) set(op string, f func()) error {
	c.wake.L.Lock()
	defer c.wake.L.Unlock()
	if c.closed {
		return c.fail(op, net.ErrClosed)
	}
	f()
	c.wake.Broadcast()
	return nil
}

// abort resets both directions for both ends. Each owner must still close its end.
func (c *Conn) abort() {
	c.wake.L.Lock()
	defer c.wake.L.Unlock()
	for _, s := range []*stream{c.in, c.out} {
		s.rst, s.refusal = !s.fin, cmp.Or(s.refusal, syscall.ECONNRESET)
	}
	c.wake.Broadcast()
}

func (c *Conn) fail(op string, err error) error {
	return &net.OpError{Op: op, Net: c.local.Network(), Source: c.local, Addr: c.remote, Err: err}
}

// bufferSize is the number of unread bytes that one direction of a connection holds before writes block.
const bufferSize = 64 << 10

// stream is one direction of a connection, from its writer to its reader. Both directions
// share one mutex, so that a close or a reset changes both at the same time.
type stream struct {
	data bytes.Buffer
	fin  bool // the stream ends after data
	rst  bool // the connection was reset after data

	gone    bool          // the reader has closed its end
	refusal syscall.Errno // the error of all further writes, after a reset or a close
	readBy  time.Time     // deadline of reads; zero: none
	writeBy time.Time     // deadline of writes; zero: none
}
