package memhttp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Network is a set of hosts that can be dialed by name. The zero value is empty and ready to
// use. The caller must call Close. A Network is safe for concurrent use, but only inside the
// bubble that used it first.
type Network struct {
	mu         sync.Mutex
	hosts      map[string]*listener
	known      map[string]bool // hosts that have had a listener
	faults     map[string]func(context.Context) error
	transports []*http.Transport
	clients    int // number of connections so far
	closed     bool

	// life ends with Close. It is made at its first use, inside the bubble.
	life context.Context
	end  context.CancelFunc
}

// NewNetwork returns an empty Network that is closed when tb ends.
func NewNetwork(tb testing.TB) *Network {
	n := new(Network)
	tb.Cleanup(n.Close)
	return n
}

// Listen returns a listener for a host, with or without a port. A host without a port has all
// ports that have no listener of their own. Listen panics if the host has a listener that is
// not closed. As with TCP, a dial succeeds before Accept. Closing the listener resets
// connections that were not accepted.
func (n *Network) Listen(host string) net.Listener { return n.listen(host, 0, 0) }

func (n *Network) listen(host string, up, down time.Duration) *listener {
	host = strings.ToLower(host)
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.hosts[host] != nil {
		panic(fmt.Sprintf("memhttp: %s is listening already", host))
	}
	l := &listener{
		network: n, host: host, up: up, down: down,
		open: make(map[*Conn]bool), done: make(chan struct{}),
	}
	l.wake.L = &l.mu
	if n.hosts == nil {
		n.hosts, n.known = make(map[string]*listener), make(map[string]bool)
	}
	n.hosts[host], n.known[host] = l, true
	return l
}

// Known reports whether a host:port has, or has had, a listener.
func (n *Network) Known(address string) bool {
	address = strings.ToLower(address)
	host, _, err := net.SplitHostPort(address)
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.known[address] || err == nil && n.known[host]
}

// Transport returns a new http.Transport that dials this network. Close closes its idle
// connections.
func (n *Network) Transport() *http.Transport {
	t := &http.Transport{DialContext: n.DialContext}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.transports = append(n.transports, t)
	return t
}

// SetDialFault sets a fault for all later dials of host, a name or a "host:port", also
// without a listener. If f returns an error, the dial fails with it, wrapped in a
// [*net.OpError] if necessary. f may block until its context ends, and must be safe for
// concurrent use. A nil f removes the fault. See [Refuse] and [Hang].
func (n *Network) SetDialFault(host string, f func(ctx context.Context) error) {
	host = strings.ToLower(host)
	n.mu.Lock()
	defer n.mu.Unlock()
	if f == nil {
		delete(n.faults, host)
		return
	}
	if n.faults == nil {
		n.faults = make(map[string]func(context.Context) error)
	}
	n.faults[host] = f
}

// Refuse is a fault for [Network.SetDialFault]: the dial fails with ECONNREFUSED. A dial of
// a host without a listener fails in the same way.
func Refuse(context.Context) error {
	return os.NewSyscallError("connect", syscall.ECONNREFUSED)
}

// Hang is a fault for [Network.SetDialFault]: the dial blocks until its context ends or the
// network is closed. http.Transport detaches dials from their requests, so a dial may last
// longer than its request.
func Hang(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

// DialContext dials address, a "host:port" of this network. The connection is a [*Conn], and
// an error is a [*net.OpError] with Op "dial".
func (n *Network) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := n.dial(ctx, strings.ToLower(address))
	if err == nil {
		return c, nil
	}
	if op := (*net.OpError)(nil); errors.As(err, &op) {
		return nil, err
	}
	return nil, &net.OpError{Op: "dial", Net: network, Addr: addr(address), Err: err}
}

func (n *Network) dial(ctx context.Context, address string) (*Conn, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if fault := n.fault(address, host); fault != nil {
		ctx, cancel := n.whileOpen(ctx)
		defer cancel()
		if err := fault(ctx); err != nil {
			return nil, err
		}
	}
	l := n.listener(address, host)
	if l == nil {
		return nil, Refuse(ctx)
	}
	if roundTrip := l.up + l.down; roundTrip > 0 {
		t := time.NewTimer(roundTrip)
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-l.done:
		}
	}
	return l.connect(address)
}

func (n *Network) fault(address, host string) func(context.Context) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if f := n.faults[address]; f != nil {
		return f
	}
	return n.faults[host]
}

func (n *Network) listener(address, host string) *listener {
	n.mu.Lock()
	defer n.mu.Unlock()
	if l := n.hosts[address]; l != nil {
		return l
	}
	return n.hosts[host]
}

// whileOpen returns a context that also ends when n is closed.
func (n *Network) whileOpen(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.life == nil {
		n.life, n.end = context.WithCancel(context.Background())
		if n.closed {
			n.end()
		}
	}
	stop := context.AfterFunc(n.life, cancel)
	return ctx, func() { stop(); cancel() }
}

// clientAddr returns a new client address, from the block that RFC 5737 reserves for
// documentation.
func (n *Network) clientAddr() addr {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.clients++
	return addr(fmt.Sprintf("192.0.2.1:%d", 1024+n.clients%(1<<16-1024)))
}

// Close closes the idle connections of the network's transports and all listeners, resets all
// other connections, and ends blocked dials. Later dials fail with ECONNREFUSED. Close does
// not wait for servers; [Server.Close] does.
func (n *Network) Close() {
	n.mu.Lock()
	n.closed = true
	if n.end != nil {
		n.end()
	}
	transports := n.transports
	n.transports = nil
	var listeners []*listener
	for _, l := range n.hosts {
		listeners = append(listeners, l)
	}
	n.mu.Unlock()

	for _, t := range transports {
		t.CloseIdleConnections()
	}
	for _, l := range listeners {
		_ = l.Close() // fails if it is closed already
		l.abort()
	}
}

// listener listens on one host of a network.
type listener struct {
	network  *Network
	host     string
	up, down time.Duration
	done     chan struct{} // closed by Close

	mu      sync.Mutex
	wake    sync.Cond // Accept waits for it
	backlog []*Conn
	closed  bool
	opened  int
	open    map[*Conn]bool // client ends that are not closed
}

// connect makes a connection and adds its server end to the backlog.
func (l *listener) connect(address string) (*Conn, error) {
	c, s := newConns(l.network.clientAddr(), addr(address), l.up, l.down)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, Refuse(context.Background())
	}
	c.onClose = func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.open, c)
	}
	l.opened++
	l.open[c] = true
	l.backlog = append(l.backlog, s)
	l.wake.Signal()
	return c, nil
}

func (l *listener) Accept() (net.Conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.backlog) == 0 && !l.closed {
		l.wake.Wait()
	}
	if l.closed {
		return nil, &net.OpError{Op: "accept", Net: "tcp", Addr: l.Addr(), Err: net.ErrClosed}
	}
	c := l.backlog[0]
	l.backlog = l.backlog[1:]
	return c, nil
}

func (l *listener) Addr() net.Addr { return addr(l.host) }

func (l *listener) Close() error {
	l.network.mu.Lock()
	if l.network.hosts[l.host] == l {
		delete(l.network.hosts, l.host)
	}
	l.network.mu.Unlock()

	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return &net.OpError{Op: "close", Net: "tcp", Addr: l.Addr(), Err: net.ErrClosed}
	}
	l.closed = true
	backlog := l.backlog
	l.backlog = nil
	close(l.done)
	l.wake.Broadcast()
	l.mu.Unlock()

	// Not under the lock, because closing a connection calls onClose, which takes it.
	for _, c := range backlog {
		Reset(c)
	}
	return nil
}

// abort resets all connections that their clients have not closed. The server reads the end
// of the others.
func (l *listener) abort() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.open {
		c.abort()
	}
}

func (l *listener) conns() (opened, open int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.opened, len(l.open)
}
