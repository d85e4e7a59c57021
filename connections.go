package resilienthttp

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/neterr"
	"github.com/resilienthttp/resilienthttp/internal/outcome"
)

// Connections sends requests by net/http's Transport. A connection that is silent gets no new
// requests, and MaxAge renews connections. A nil Transport.Base means a Connections.
//
// An HTTP/2 connection is silent if it has delivered nothing since an attempt got it, until the
// attempt timed out, lost against a later one, or was slow without a second attempt. New requests
// use another connection while it is silent. Second attempts, hedges and retries after a timeout
// always do.
//
// The zero value is ready for use. Connections is safe for concurrent use, and its fields must not
// change after the first use. See docs/configuration.md.
type Connections struct {
	// Transport makes the connections. It is not modified: Connections uses clones, so limits such
	// as MaxConnsPerHost are per clone. A host with slow or silent HTTP/2 connections may use
	// up to three. A clone has no protocols of RegisterProtocol: calls of their schemes fail. nil means NewBase().
	Transport *http.Transport

	// MaxAge is the age from which connections get no new requests, for example to follow DNS. The
	// last quarter is random, so that clients do not reconnect together. Zero or a negative duration
	// means no limit.
	MaxAge time.Duration

	once sync.Once
	base *http.Transport // Transport, or NewBase()

	mu    sync.Mutex // guards the creation of pools
	pools atomic.Pointer[pools]
}

var _ http.RoundTripper = (*Connections)(nil)

// RoundTrip implements http.RoundTripper.
func (c *Connections) RoundTrip(req *http.Request) (*http.Response, error) {
	p, number := c.current(), 0
	if req.URL == nil {
		return p.transport(number).RoundTrip(req) // its error says so
	}
	attempt, _ := req.Context().Value(attemptKey{}).(*attempt)
	switch {
	case !p.watched:
	case attempt == nil:
		number = p.choose(poolKey{scheme: req.URL.Scheme, host: req.URL.Host}, 0)
	default:
		number = p.choose(attempt.poolKey(), attempt.call.avoid.Load())
		attempt.sending.pool.Store(uint32(number) + 1)
	}
	resp, err := p.transport(number).RoundTrip(req)
	if err != nil && !p.shared && req.URL.Scheme != "http" && req.URL.Scheme != "https" {
		err = fmt.Errorf("%w: Connections sends http and https only (want the Transport of RegisterProtocol as Base): %w", neterr.ErrMalformed, err)
	}
	return resp, err
}

// CloseIdleConnections closes the connections of its clones that are not in use. Transport's own method does not
// reach them, and this one closes no connection that another user of Transport has opened.
func (c *Connections) CloseIdleConnections() {
	if p := c.pools.Load(); p != nil {
		p.closeIdle()
	}
}

// Unwrap returns Transport, or the result of NewBase that is used in its place.
func (c *Connections) Unwrap() http.RoundTripper { return c.transport() }

func (c *Connections) transport() *http.Transport {
	c.once.Do(func() {
		if c.base = c.Transport; c.base == nil {
			c.base = NewBase()
		}
	})
	return c.base
}

func (c *Connections) current() *pools {
	p := c.pools.Load()
	if p != nil && (p.life == 0 || time.Since(p.start) < p.life) {
		return p
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := c.pools.Load(); now != p {
		return now
	}
	renewed := newPools(c.transport(), c.MaxAge)
	c.pools.Store(renewed)
	if p != nil {
		time.AfterFunc(0, func() { p.drain(time.Second) })
	}
	return renewed
}

// maxPools is the maximum number of connections of an HTTP/2 host that a call tries: its own, a
// spare one, and a new one in case that both are silent.
const maxPools = 3

// pools are clones of a Transport. The first serves all hosts. The others serve hosts with HTTP/2
// while a connection is silent or in use by an earlier attempt of the same call.
type pools struct {
	source  *http.Transport
	watched bool // the connections are watched; otherwise there is one pool
	shared  bool // the pool is the Transport itself, because a clone would not behave like it

	start time.Time
	life  time.Duration // zero means no limit

	all [maxPools]onePool

	open    atomic.Int64 // watched connections
	suspect atomic.Int64 // entries of silent
	silent  sync.Map     // poolKey to *watchedConn
}

// onePool is a clone, which its first use creates.
type onePool struct {
	once      sync.Once
	transport atomic.Pointer[http.Transport]
}

type poolKey struct {
	scheme, host string
	pool         int
}

func newPools(t *http.Transport, maxAge time.Duration) *pools {
	p := &pools{source: t, start: time.Now()}
	if maxAge > 0 {
		p.life = maxAge - rand.N(maxAge/4+1)
	}
	p.shared = t.Clone().TLSNextProto["h2"] != nil                       // of golang.org/x/net/http2: a clone shares the connections of t
	p.watched = !p.shared && t.DialTLSContext == nil && t.DialTLS == nil //nolint:staticcheck // a deprecated field may be set
	return p
}

// cloneOf returns a clone that uses HTTP/2 if t does. A clone has t's "h2" for ALPN. Without
// ForceAttemptHTTP2, it would not use the HTTP/2 that it negotiates.
func cloneOf(t *http.Transport) *http.Transport {
	c := t.Clone()
	if c.TLSClientConfig != nil && slices.Contains(c.TLSClientConfig.NextProtos, "h2") {
		c.ForceAttemptHTTP2 = true
	}
	return c
}

func (p *pools) transport(number int) *http.Transport {
	one := &p.all[number]
	one.once.Do(func() { one.transport.Store(p.newTransport(number)) })
	return one.transport.Load()
}

func (p *pools) newTransport(number int) *http.Transport {
	t := p.source
	if !p.shared {
		t = cloneOf(t)
	}
	if p.watched {
		t.DialContext = p.dial(t, number)
	}
	return t
}

// choose returns the number of the pool for a request: the first without a silent connection to
// the host that is not in a set of pools to avoid.
func (p *pools) choose(key poolKey, avoid uint32) int {
	if avoid == 0 && p.suspect.Load() == 0 {
		return 0
	}
	for key.pool = range maxPools {
		if avoid&(1<<key.pool) == 0 && !p.isSilent(key) {
			return key.pool
		}
	}
	return bits.TrailingZeros32(^avoid) % maxPools
}

func (p *pools) isSilent(key poolKey) bool {
	found, ok := p.silent.Load(key)
	if !ok {
		return false
	}
	conn := found.(*watchedConn) //nolint:errcheck // leave stores nothing else
	if conn.isSilent() {
		return true
	}
	p.forget(key, conn)
	return false
}

func (p *pools) forget(key poolKey, conn *watchedConn) {
	if p.silent.CompareAndDelete(key, conn) {
		p.suspect.Add(-1)
	}
}

// leave takes a silent connection out of use. It returns false if it was out of use before.
func (p *pools) leave(key poolKey, conn *watchedConn) bool {
	if conn.isSilent() {
		return false
	}
	key.pool = conn.pool
	conn.key.Store(&key)
	conn.silentAt.Store(conn.reads.Load() + 1)
	if _, replaced := p.silent.Swap(key, conn); !replaced {
		p.suspect.Add(1)
	}
	return true
}

func (p *pools) closeIdle() {
	for i := range p.all {
		if t := p.all[i].transport.Load(); t != nil {
			t.CloseIdleConnections()
		}
	}
}

// drain closes the connections of pools that are too old, each when its requests have ended. A
// Transport does not report that, so drain looks again after pauses that double, until responses must have come.
func (p *pools) drain(pause time.Duration) {
	p.closeIdle()
	drained := p.watched && p.open.Load() == 0
	if drained || p.shared || pause > maxResponseTime {
		return
	}
	time.AfterFunc(pause, func() { p.drain(2 * pause) })
}

// The protocol of a scope's last connection.
const (
	protocolUnknown uint32 = iota
	protocolHTTP1
	protocolHTTP2
)

func watchedBelow(conn net.Conn) (watched *watchedConn, protocol uint32) {
	outermost, _ := conn.(*tls.Conn)
	for conn != nil {
		if watched, ok := conn.(*watchedConn); ok {
			protocol = watched.protocolBelow(outermost)
			return watched, protocol
		}
		wrapper, ok := conn.(interface{ NetConn() net.Conn })
		if !ok {
			break
		}
		conn = wrapper.NetConn()
	}
	return nil, protocolUnknown
}

func (a *attempt) poolKey() poolKey {
	return poolKey{scheme: a.request.URL.Scheme, host: a.request.URL.Host}
}

// leaveSilent takes the attempt's connection out of use if it has delivered nothing since the
// attempt got it. It returns false if it has, or if it was out of use before.
func (a *attempt) leaveSilent() bool {
	if !a.sending.isSilent() {
		return false
	}
	conn := a.sending.conn.Load()
	return conn.pools.leave(a.poolKey(), conn)
}

// noteConnection leaves a silent connection after the attempt has ended. A retry after a timeout
// or a 421 avoids the pool.
func (a *attempt) noteConnection() {
	c := a.call
	switch {
	case a.timedOut(), a.wasOvertaken():
		// A connection that was silent meanwhile may be dead, and each request on it would time out.
		if a.leaveSilent() {
			runHooks(c, connectionLeft, a.soFar())
		}
	case a.misdirected():
		// The connection is good for other hosts, so only this call avoids it.
		c.avoid.Or(1 << (a.sending.pool.Load() - 1))
	default:
		if conn := a.sending.conn.Load(); conn != nil {
			// It has answered, so a retry may use it.
			c.avoid.And(^(uint32(1) << conn.pool))
		}
	}
}

// wasOvertaken reports whether an attempt that began later had its response first.
func (a *attempt) wasOvertaken() bool {
	if a.came != outcome.Superseded && a.came != outcome.Overtaken {
		return false
	}
	a.call.mu.Lock()
	defer a.call.mu.Unlock()
	return a.hedged != nil && a.hedged.winner != nil && a.hedged.winner.report.Start.After(a.report.Start)
}

// misdirected reports whether the server rejects the connection for this host. Another one may reach a server that does not.
func (a *attempt) misdirected() bool {
	return a.came == http.StatusMisdirectedRequest && a.sending.pool.Load() > 0
}

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
	return io.Copy(c.Conn, r)
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
