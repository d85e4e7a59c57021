package resilienthttp

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"syscall"
)

// watchedConn is a connection that counts what it delivers, below TLS.
type watchedConn struct {
	net.Conn

	pools *pools
	pool  int
	plain bool // HTTP/2 without TLS

	protocol atomic.Uint32
	reads    atomic.Uint64           // calls of Read with data
	silentAt atomic.Uint64           // 1 + reads when it was taken out of use; zero means never
	key      atomic.Pointer[poolKey] // its entry in pools.silent
	closed   atomic.Bool
}

// isSilent reports whether the connection is out of use: it is open, and has delivered nothing since
// it was taken out.
func (c *watchedConn) isSilent() bool {
	return c.silentAt.Load() == c.reads.Load()+1 && !c.closed.Load()
}

// protocolBelow returns the protocol of the connection, for which secure has the result of ALPN; nil: it has no TLS.
func (c *watchedConn) protocolBelow(secure *tls.Conn) uint32 {
	if c.protocol.Load() == protocolUnknown {
		protocol, http2 := protocolHTTP1, c.plain
		if secure != nil {
			http2 = secure.ConnectionState().NegotiatedProtocol == "h2"
		}
		if http2 {
			protocol = protocolHTTP2
		}
		c.protocol.Store(protocol)
	}
	return c.protocol.Load()
}

func (c *watchedConn) NetConn() net.Conn { return c.Conn }

func (c *watchedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.reads.Add(1)
	}
	return n, err
}

// Close may be called more than once.
func (c *watchedConn) Close() error {
	if !c.closed.Swap(true) {
		c.pools.open.Add(-1)
		if key := c.key.Load(); key != nil {
			c.pools.forget(*key, c)
		}
	}
	return c.Conn.Close()
}

// ReadFrom implements io.ReaderFrom: the operating system can copy a file.
func (c *watchedConn) ReadFrom(r io.Reader) (int64, error) {
	if fast, ok := c.Conn.(io.ReaderFrom); ok {
		return fast.ReadFrom(r)
	}
	return io.Copy(struct{ io.Writer }{c.Conn}, r)
}

func (c *watchedConn) CloseWrite() error { return closeWrite(c.Conn) }

func (c *watchedConn) SyscallConn() (syscall.RawConn, error) {
	if raw, ok := c.Conn.(syscall.Conn); ok {
		return raw.SyscallConn()
	}
	return nil, errors.ErrUnsupported
}

func (p *pools) dial(t *http.Transport, number int) func(context.Context, string, string) (net.Conn, error) {
	dial := t.DialContext
	plain := t.Protocols != nil && t.Protocols.UnencryptedHTTP2() && !t.Protocols.HTTP1()
	if dial == nil {
		dial = new(net.Dialer).DialContext
		if old := t.Dial; old != nil { //nolint:staticcheck // a deprecated field may be set
			dial = func(_ context.Context, network, address string) (net.Conn, error) { return old(network, address) }
		}
	}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil || conn == nil {
			return conn, err
		}
		p.open.Add(1)
		return &watchedConn{Conn: conn, pools: p, pool: number, plain: plain}, nil
	}
}
