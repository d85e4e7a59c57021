// Package tcpproxy is a TCP proxy for tests and examples. It injects network faults:
// delays, resets, closed connections and connections that transfer nothing.
package tcpproxy

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/sleep"
)

// Proxy accepts TCP connections on a loopback port and forwards them, in both directions, to the connections that dial
// returns. [Listen] makes one. It is safe for concurrent use.
type Proxy struct {
	listener net.Listener
	dial     func(context.Context) (net.Conn, error)
	ctx      context.Context //nolint:containedctx // It ends with Close.
	end      context.CancelFunc
	once     sync.Once
	gate     gate         // for all connections
	delay    atomic.Int64 // a time.Duration

	conns sync.Map // of *Conn
	work  sync.WaitGroup
}

// Listen starts a proxy on a free port. It calls dial once for each connection, with a context that Close cancels. If
// dial fails, the proxy resets the connection. The proxy does not end with ctx; the caller must call Close.
func Listen(ctx context.Context, dial func(context.Context) (net.Conn, error)) (*Proxy, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{listener: listener, dial: dial}
	p.ctx, p.end = context.WithCancel(context.WithoutCancel(ctx))
	p.work.Go(p.accept)
	return p, nil
}

// Addr is the proxy's address, as host:port.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Halt delays all data until Resume, in both directions, on existing and on new
// connections. The end of a connection is delayed too. No data is lost.
func (p *Proxy) Halt() { p.gate.shut() }

// Resume ends Halt.
func (p *Proxy) Resume() { p.gate.open() }

// Delay makes the proxy wait for d before it forwards each chunk that it reads. Zero means no delay.
func (p *Proxy) Delay(d time.Duration) { p.delay.Store(int64(d)) }

// Conns returns the open connections in no particular order.
func (p *Proxy) Conns() (conns []*Conn) {
	for c := range p.conns.Range {
		conns = append(conns, c.(*Conn)) //nolint:errcheck // it has nothing else
	}
	return conns
}

// Close stops the proxy and closes its connections, and returns when they are closed.
// The second and later calls do nothing.
func (p *Proxy) Close() (err error) {
	p.once.Do(func() {
		p.end()
		err = p.listener.Close()
		for _, c := range p.Conns() {
			c.Cut()
		}
		p.work.Wait()
	})
	return err
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil: // the connection is closed already, or no file descriptor is left
			_ = sleep.Context(p.ctx, time.Millisecond)
		default:
			p.work.Go(func() { p.forward(client) })
		}
	}
}

func (p *Proxy) forward(client net.Conn) {
	c := &Conn{proxy: p, client: client}
	c.ctx, c.end = context.WithCancel(context.Background())
	p.conns.Store(c, nil)
	defer p.conns.Delete(c)
	if p.ctx.Err() != nil {
		c.Cut() // Close may not have found it
		return
	}
	if !c.pass() {
		return
	}
	server, err := p.dial(p.ctx)
	if err != nil || !c.setServer(server) {
		c.Reset()
		return
	}
	var back sync.WaitGroup
	back.Go(func() { c.pump(client, server) })
	c.pump(server, client)
	back.Wait()
	c.Cut()
}
