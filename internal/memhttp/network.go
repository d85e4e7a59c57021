package memhttp

import (
	"context"
	"errors"
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
	life context.Context // ends with Close
	end  context.CancelFunc

	mu      sync.Mutex           // also of the listeners
	hosts   map[string]*listener // some may be closed
	faults  map[string]func(context.Context) error
	clients int // number of connections so far
}

// NewNetwork returns an empty Network that is closed when tb ends.
func NewNetwork(tb testing.TB) *Network {
	n := &Network{hosts: make(map[string]*listener), faults: make(map[string]func(context.Context) error)}
	n.life, n.end = context.WithCancel(context.Background())
	tb.Cleanup(n.Close)
	return n
}

// Listen returns a listener for a host, with or without a port. A host without a port has all ports that never had a
// listener of their own. Listen panics if the host has a listener that is not closed. As with TCP, a dial succeeds
// before Accept. Closing the listener resets connections that were not accepted.
func (n *Network) Listen(host string) net.Listener { return n.listen(host) }

func (n *Network) listen(host string) *listener {
	host = strings.ToLower(host)
	n.mu.Lock()
	defer n.mu.Unlock()
	if l := n.hosts[host]; l != nil && !l.closed {
		panic(fmt.Sprintf("memhttp: %s is listening already", host))
	}
	l := &listener{network: n, host: host, open: make(map[*Conn]bool)}
	l.wake.L = &n.mu
	n.hosts[host] = l
	return l
}

// Known reports whether a host:port has, or has had, a listener.
func (n *Network) Known(address string) bool {
	l, _ := find(n, n.hosts, address)
	return l != nil
}

func find[V any](n *Network, m map[string]V, address string) (found V, err error) {
	host, _, err := net.SplitHostPort(address)
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, key := range []string{host, address} {
		if v, ok := m[strings.ToLower(key)]; ok {
			found = v
		}
	}
	return found, err
}

// Transport returns a new http.Transport that dials this network.
func (n *Network) Transport() *http.Transport { return &http.Transport{DialContext: n.DialContext} }

// SetDialFault sets a fault for all later dials of host, a name or a "host:port", also without a listener. If f returns
// an error, the dial fails with it, wrapped in a [*net.OpError] if necessary. f may block until its context ends, and
// must be safe for concurrent use. A nil f removes the fault. See [Refuse] and [Hang].
func (n *Network) SetDialFault(host string, f func(ctx context.Context) error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if host = strings.ToLower(host); f != nil {
		n.faults[host] = f
	} else {
		delete(n.faults, host)
	}
}

// Refuse is a fault for [Network.SetDialFault]: the dial fails with ECONNREFUSED. A dial of
// a host without a listener fails in the same way.
func Refuse(context.Context) error {
	return os.NewSyscallError("connect", syscall.ECONNREFUSED)
}

// Hang is a fault for [Network.SetDialFault]: the dial blocks until its context ends or the network is closed.
// http.Transport detaches dials from their requests, so a dial may last longer than its request.
func Hang(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

// DialContext dials address, a "host:port" of this network. The connection is a [*Conn], and
// an error is a [*net.OpError] with Op "dial".
func (n *Network) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := n.dial(ctx, address)
	if err == nil {
		return c, nil
	}
	if op := (*net.OpError)(nil); errors.As(err, &op) {
		return nil, err
	}
	return nil, &net.OpError{Op: "dial", Net: network, Addr: addr(address), Err: err}
}

func (n *Network) dial(ctx context.Context, address string) (*Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(n.life, cancel)
	defer stop()
	fault, err := find(n, n.faults, address)
	if err != nil {
		return nil, err
	}
	if fault != nil {
		if err := fault(ctx); err != nil {
			return nil, err
		}
	}
	l, _ := find(n, n.hosts, address)
	if l == nil {
		return nil, Refuse(ctx)
	}
	return l.connect(strings.ToLower(address))
}

// Close closes all listeners, resets all connections, and ends blocked dials. Later dials fail.
// Close does not wait for servers; [Server.Close] does.
func (n *Network) Close() {
	n.end()
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

func (l *listener) connect(address string) (*Conn, error) {
	l.network.mu.Lock()
	defer l.network.mu.Unlock()
	if l.closed {
		return nil, Refuse(context.Background())
	}
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
	return c, nil
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
