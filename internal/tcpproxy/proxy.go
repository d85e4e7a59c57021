// Package tcpproxy is a wire that can be cut: a proxy for tests and examples, which
// treats the connections that it carries as networks, hosts and middleboxes do.
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

// Proxy takes TCP connections on a port of the loopback, and passes on what they
// carry to where dial leads, in both directions. [Listen] makes one. It is safe for
// concurrent use.
type Proxy struct {
	listener net.Listener
	dial     func(context.Context) (net.Conn, error)
	ctx      context.Context //nolint:containedctx // It is the proxy's life, which Close ends.
	end      context.CancelFunc
	once     sync.Once
	gate     gate         // of all connections
	delay    atomic.Int64 // a time.Duration

	mu    sync.Mutex
	conns map[*Conn]struct{}
	work  sync.WaitGroup
}

// Listen starts a proxy. For each connection that it takes it calls dial, with a
// context that Close ends; where dial fails, the connection is reset.
func Listen(ctx context.Context, dial func(context.Context) (net.Conn, error)) (*Proxy, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{listener: listener, dial: dial, conns: map[*Conn]struct{}{}}
	p.ctx, p.end = context.WithCancel(context.WithoutCancel(ctx))
	p.work.Go(p.accept)
	return p, nil
}

// Addr is where the proxy listens, as host:port.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Port is the port of Addr.
func (p *Proxy) Port() int {
	addr, _ := p.listener.Addr().(*net.TCPAddr)
	return addr.Port
}

// Halt holds back what arrives, in both directions and also on connections that are
// new, until Resume: the proxy takes it, and passes on nothing, not even the end of a
// connection. What is held back is not lost.
func (p *Proxy) Halt() { p.gate.shut() }

// Resume ends Halt.
func (p *Proxy) Resume() { p.gate.open() }

// Delay makes the proxy pass on each piece that it reads d later, one after the
// other. 0: at once.
func (p *Proxy) Delay(d time.Duration) { p.delay.Store(int64(d)) }

// Conns are the connections that are open, in no order.
func (p *Proxy) Conns() []*Conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	conns := make([]*Conn, 0, len(p.conns))
	for c := range p.conns {
		conns = append(conns, c)
	}
	return conns
}

// Close ends the proxy and cuts its connections. It returns when they are closed.
// Calling it again does nothing.
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
		case err != nil: // that connection has gone already, or there are no files
			_ = sleep.Context(p.ctx, time.Millisecond)
		default:
			p.work.Go(func() { p.carry(client) })
		}
	}
}

// carry carries a connection to its end.
func (p *Proxy) carry(client net.Conn) {
	c := &Conn{proxy: p, client: client, over: make(chan struct{})}
	if !p.add(c) {
		c.Cut()
		return
	}
	defer p.remove(c)
	if !c.pass() {
		return
	}
	server, err := p.dial(p.ctx)
	if err != nil || !c.reaches(server) {
		c.Reset()
		return
	}
	var back sync.WaitGroup
	back.Go(func() { c.pump(client, server) })
	c.pump(server, client)
	back.Wait()
	c.Cut()
}

// add is false when the proxy has been closed.
func (p *Proxy) add(c *Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns[c] = struct{}{}
	return p.ctx.Err() == nil
}

func (p *Proxy) remove(c *Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
}
