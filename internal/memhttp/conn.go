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

// A Conn is one end of an in-memory connection. It comes from dialling or
// accepting on a [Network]; the zero value is of no use. All methods may be
// called at once from many goroutines, and Close ends the calls that block.
//
// It does what a TCP connection of Linux does:
//
//   - Each direction holds 64 KiB; a Write that finds it full blocks.
//   - After the peer's Close or CloseWrite, reads give what is left, then [io.EOF].
//   - The first write to a closed peer is taken and lost, as on a wire; those
//     after it fail with EPIPE. net/http's own retries depend on that: a failed
//     first write would mean that nothing was sent.
//   - Close with unread data in hand, or after SetLinger(0), resets: the peer's
//     reads give what is left, then ECONNRESET, and its writes ECONNRESET. Linux
//     tells that to one call only, here every later call is told, lest a test
//     depend on which of its goroutines comes first.
//   - A deadline that has passed fails with [os.ErrDeadlineExceeded], even when
//     there is something to read. Use after Close fails with [net.ErrClosed].
//   - All errors but io.EOF are of type [*net.OpError].
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

// addr is a "host:port" on a network that calls itself tcp, so that code that
// looks at RemoteAddr finds what it expects.
type addr string

func (addr) Network() string  { return "tcp" }
func (a addr) String() string { return string(a) }

// newConns makes the two ends of a connection.
func newConns(client, server addr, up, down time.Duration) (c, s *Conn) {
	mu := new(sync.Mutex)
	request, response := newStream(mu, up), newStream(mu, down)
	c = &Conn{mu: mu, in: response, out: request, local: client, remote: server}
	s = &Conn{mu: mu, in: request, out: response, local: server, remote: client}
	return c, s
}

// Reset closes conn abruptly: its peer gets ECONNRESET. conn is a *Conn, or
// wraps one as a *tls.Conn does; Reset panics if it is anything else.
//
// A handler gets at its connection with [http.Hijacker], or with [RequestConn].
func Reset(conn net.Conn) {
	c := unwrap(conn)
	_ = c.SetLinger(0) // fails if c is closed already: there is nothing to reset then
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

// Read reads what has arrived, or waits for something to arrive.
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

// Write returns when all of p is on its way, though perhaps not yet read.
// Writes of several goroutines go out one after the other.
func (c *Conn) Write(p []byte) (n int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	// A flag and not a second mutex: waiting for a mutex is not durable.
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

// writeError says why c cannot be written to now.
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

// Close closes both directions: in good order if all that has come was read
// and SetLinger(0) was not called, else with a reset.
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

// CloseWrite closes the writing half: the peer reads io.EOF after what was
// written, and can still write.
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

// SetLinger with 0 makes Close reset the connection; any other number makes it
// close in good order, which is the default.
func (c *Conn) SetLinger(sec int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return c.fail("set", net.ErrClosed)
	}
	c.linger0 = sec == 0
	return nil
}

// LocalAddr returns "192.0.2.1:" and a port for a client, the dialled host and
// port for a server.
func (c *Conn) LocalAddr() net.Addr { return c.local }

// RemoteAddr returns the LocalAddr of the peer.
func (c *Conn) RemoteAddr() net.Addr { return c.remote }

// SetDeadline sets both deadlines, for blocked and future calls. The zero time
// clears them.
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

// abort kills both directions for both ends, at once. Each end must still be
// closed by its owner.
func (c *Conn) abort() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.in.abort()
	c.out.abort()
}

func (c *Conn) fail(op string, err error) error {
	return &net.OpError{Op: op, Net: c.local.Network(), Source: c.local, Addr: c.remote, Err: err}
}
