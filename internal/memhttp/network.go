package memhttp

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// Network is a set of hosts that can be dialed by name. [NewNetwork] makes one. A Network is safe
// for concurrent use, but only inside the bubble in which it was made.
type Network struct {
	mu      sync.Mutex           // also of the listeners
	hosts   map[string]*listener // some may be closed
	clients int                  // number of connections so far
}

// NewNetwork returns an empty Network that is closed when tb ends.
func NewNetwork(tb testing.TB) *Network {
	n := &Network{hosts: make(map[string]*listener)}
	tb.Cleanup(n.Close)
	return n
}

// Listen returns a listener for a host, with or without a port. A host without a port has all ports that never had a
// listener of their own. Listen panics if the host has a listener that is not closed. As with TCP, a dial succeeds
// before Accept. Closing the listener resets connections that were not accepted.
func (n *Network) Listen(host string) net.Listener { return n.listen(host) }

func (n *Network) listen(host string) *listener {
	key := strings.ToLower(host)
	n.mu.Lock()
	defer n.mu.Unlock()
	if l := n.hosts[key]; l != nil && !l.closed {
		panic(fmt.Sprintf("memhttp: %s is listening already", host))
	}
	l := &listener{network: n, host: host, open: make(map[*Conn]bool)}
	l.wake.L = &n.mu
	n.hosts[key] = l
	return l
}

// Known reports whether a host:port has, or has had, a listener.
func (n *Network) Known(address string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	l, _ := n.find(address)
	return l != nil
}

// find returns the listener of an address, or nil. The mutex is held.
func (n *Network) find(address string) (*listener, error) {
	address = strings.ToLower(address)
	host, _, err := net.SplitHostPort(address)
	return cmp.Or(n.hosts[address], n.hosts[host]), err
}

// Transport returns a new http.Transport that dials this network.
func (n *Network) Transport() *http.Transport { return &http.Transport{DialContext: n.DialContext} }

// DialContext dials address, a "host:port" of this network. It does not wait. The connection is a [*Conn], and an error is
// a [*net.OpError] with Op "dial". Without a listener the dial is refused.
func (n *Network) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	l, err := n.find(address)
	switch {
	case err != nil:
	case ctx.Err() != nil:
		err = ctx.Err()
	case l == nil || l.closed:
		err = os.NewSyscallError("connect", syscall.ECONNREFUSED)
	default:
		return l.connect(strings.ToLower(address)), nil
	}
	return nil, &net.OpError{Op: "dial", Net: network, Addr: addr(address), Err: err}
}

// Close closes all listeners and resets all connections. Later dials fail.
// Close does not wait for servers; [Server.Close] does.
func (n *Network) Close() {
	n.mu.Lock()
	listeners := slices.Collect(maps.Values(n.hosts))
	n.mu.Unlock()
	for _, l := range listeners {
		_ = l.Close() // fails if it is closed already
		l.abort()
	}
}

type listener struct {
	network *Network
	host    string

	wake    sync.Cond // Accept waits for it
	backlog []*Conn
	closed  bool
	opened  int
	open    map[*Conn]bool // client ends that are not closed
}

// connect makes a connection that Accept returns. The mutex is held.
func (l *listener) connect(address string) *Conn {
	// The client's address is from the block that RFC 5737 reserves for documentation.
	l.network.clients++
	client := fmt.Sprintf("192.0.2.1:%d", 1024+l.network.clients%(1<<16-1024))
	c, s := newConns(addr(client), addr(address))
	c.onClose = func() {
		l.network.mu.Lock()
		defer l.network.mu.Unlock()
		delete(l.open, c)
	}
	l.opened++
	l.open[c] = true
	l.backlog = append(l.backlog, s)
	l.wake.Signal()
	return c
}

func (l *listener) Accept() (net.Conn, error) {
	l.network.mu.Lock()
	defer l.network.mu.Unlock()
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
	defer l.network.mu.Unlock()
	if l.closed {
		return &net.OpError{Op: "close", Net: "tcp", Addr: l.Addr(), Err: net.ErrClosed}
	}
	l.closed = true
	l.wake.Broadcast()
	for _, c := range l.backlog {
		Reset(c) // a server's end: it has no onClose, which would wait for the mutex
	}
	return nil
}

// abort resets all connections that their clients have not closed. The server reads the end of the others.
func (l *listener) abort() {
	l.network.mu.Lock()
	defer l.network.mu.Unlock()
	for c := range l.open {
		c.abort()
	}
}
