package resilienthttp

import (
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/neterr"
	"github.com/resilienthttp/resilienthttp/internal/scope"
)

// Transport is an http.RoundTripper that makes the requests of any http.Client
// resilient. Its zero value is ready to use and has every mechanism on but
// hedging:
//
//	client := &http.Client{Transport: &resilienthttp.Transport{}}
//
// An attempt passes the breaker, the rate limit, its timeout, its headers and Base, in this
// order. A transient failure of a request that may be repeated is retried after a wait
// with jitter, as long as attempts, deadline, breaker and budget allow it. A response is
// never an error, whatever its status: if the last attempt got one, it is returned with
// its body unread. An error of RoundTrip is always an *Error.
//
// A Transport is safe for concurrent use and is made to be shared: breaker,
// budget and limits know only the calls that go through them. Its fields are
// read at the first call and must not be changed after it; a Transport must not
// be copied after it either. It has no goroutine of its own, and needs no Close.
type Transport struct {
	// Base makes the attempts. nil means a private clone of
	// http.DefaultTransport that keeps up to 100 idle connections to a host and
	// pings silent HTTP/2 connections; or http.DefaultTransport itself where a
	// program has replaced it by another type. A Transport may replace
	// http.DefaultTransport; one that is wrapped there needs a Base.
	//
	// An http.Transport by itself sends a request that it holds for idempotent, a
	// keyed one among them, again on another connection when one that it had kept
	// idle turns out to be dead. No gate sees those copies, and no more of them are
	// made than there are idle connections: they are what keeps a server's restart
	// from failing a call for each.
	//
	// What signs requests or fetches tokens belongs outside of the Transport, as
	// oauth2.Transport{Base: &resilienthttp.Transport{}}: then it runs once for a
	// call, and its failures are its own. As a Base it runs for each attempt. A Base
	// that fails for good is asked once, and nothing is charged to the Breaker of the
	// request's scope: the RetrieveError of golang.org/x/oauth2 is known, and so is a
	// proxy that answers CONNECT with 403 or 407, or SOCKS5 with a no; of others, an error with a method
	// Permanent() bool that returns true, anywhere in the chain that errors.As walks.
	//
	// A Base that only looks at what another one does, as instrumentation does, should
	// have a method Unwrap() http.RoundTripper that returns the other. Where that is an
	// http.Transport in the end, its failures of unkeyed POSTs are told apart as closely as
	// without it. What asks others on the way, for a token say, should have none.
	//
	// The deprecated CancelRequest method of a Base is never called: contexts, and
	// Request.Cancel, do what it did.
	Base http.RoundTripper

	// Policy says how often and when a call is retried, and how long an attempt may take.
	Policy Policy

	// Idempotency attaches the keys that make POST and PATCH repeatable.
	Idempotency Idempotency

	// Deadline tells servers how long the call may still take.
	Deadline Deadline

	// Budget limits retries by a bucket of tokens. nil means a private one with the
	// defaults; share one to limit several Transports together.
	Budget *Budget

	// RateLimit limits the rate of requests. nil means a private one with the defaults.
	RateLimit *RateLimit

	// Breaker rejects calls to a scope that only fails. nil means a private one with the
	// defaults.
	Breaker *Breaker

	// Hedge sends a second request beside one that is slower than usual: up to 5 % more
	// load for a zero Hedge. nil means no hedging.
	Hedge *Hedge

	// Scope names what shares one breaker, budget, limiter and latency record.
	// nil means Request.URL.Host. At most some 4096 scopes are remembered, the
	// idle ones forgotten first. It must be safe for concurrent use.
	Scope func(*http.Request) string

	// OwnsRetries says that this Transport is the one layer that retries. It
	// sends X-Retry-Owner: caller, upon which servers behind Deadline.Handler
	// make single attempts, and tell those behind them. A client above that is known to
	// retry (stripe-go, azcore, Vault's) gets all retries only with this: set it where
	// the client's own are off. See docs/under-your-sdk.md.
	OwnsRetries bool

	// Trace tells what happens. nil means nobody listens.
	Trace *Trace

	once   sync.Once
	used   atomic.Bool // once is over
	config config
}

var _ http.RoundTripper = (*Transport)(nil)

// NewClient returns an http.Client on a Transport of its own with all defaults.
// It has no Timeout: give each request a context with a deadline, or set one. (When
// a Client.Timeout has passed, net/http puts an error of its own in the place of the
// *Error, with "Client.Timeout exceeded" behind its text; a context's deadline leaves
// the *Error.)
func NewClient() *http.Client { return &http.Client{Transport: &Transport{}} }

// RoundTrip makes one call: as many attempts as it takes and is allowed. It
// implements http.RoundTripper: the request is not modified, its Body is closed
// in every case, and exactly one of response and error is non-nil. The response's
// Body must be closed by the caller.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	var c *call
	defer func() {
		if c == nil || !c.first.handed {
			closeRequestBody(req) // also where a function of the user's panics
		}
	}()
	c, err := t.plan(req)
	if err != nil {
		return nil, err
	}
	defer c.unwind()
	if err := c.prepare(&c.first); err != nil {
		c.fail(err)
		return c.finish()
	}
	c.exchange(&c.first)
	if c.last.record.Verdict.retryable() {
		c.retry()
	}
	return c.finish()
}

// CloseIdleConnections closes the idle connections of Base, if Base can.
// http.Client.CloseIdleConnections calls it. Where the configuration is wrong, and
// each call says so, it does nothing.
func (t *Transport) CloseIdleConnections() {
	config := t.settled()
	if config.err != nil {
		return // Base may be nil in its type, or the Transport itself
	}
	if closer, ok := config.base.(interface{ CloseIdleConnections() }); ok {
		closer.CloseIdleConnections()
	}
}

// config is the Transport's configuration as its first call found it, with the
// defaults in their places.
type config struct {
	base        http.RoundTripper
	policy      Policy
	idempotency Idempotency
	deadline    Deadline
	budget      *Budget
	rateLimit   *RateLimit
	breaker     *Breaker
	hedge       *Hedge
	scope       func(*http.Request) string
	ownsRetries bool
	trace       *Trace
	err         error // what is wrong with it; every call returns it

	native bool // Base is net/http's own Transport

	since  time.Time // what scopes remember is counted from here
	scopes *scope.Map[scope.Key, scopeRecord]
	failed *failedCalls
}

func (t *Transport) settled() *config {
	t.once.Do(t.settle)
	return &t.config
}

func (t *Transport) settle() {
	c := &t.config
	*c = config{
		base: t.Base, policy: t.Policy.withDefaults(), budget: t.Budget, rateLimit: t.RateLimit, breaker: t.Breaker,
		hedge: t.Hedge, scope: t.Scope, ownsRetries: t.OwnsRetries, trace: t.Trace,
		since: time.Now(), scopes: &scope.Map[scope.Key, scopeRecord]{Clone: scope.Key.Clone}, failed: newFailedCalls(),
	}
	if c.base == nil {
		c.base = t.defaultBase()
	}
	c.native = native(c.base)
	if c.budget == nil {
		c.budget = &Budget{}
	}
	if c.rateLimit == nil {
		c.rateLimit = &RateLimit{}
	}
	if c.breaker == nil {
		c.breaker = &Breaker{}
	}
	c.idempotency, c.deadline = t.Idempotency.withDefaults(), t.Deadline.withDefaults()
	c.err = t.Validate()
	t.used.Store(true)
}

// native reports whether a Base is net/http's own, or made of one: what is put around it
// for measurements says so by Unwrap.
func native(base http.RoundTripper) bool {
	for range deepestBase {
		switch b := base.(type) {
		case *http.Transport:
			return true
		case interface{ Unwrap() http.RoundTripper }:
			base = b.Unwrap()
		default:
			return false
		}
	}
	return false
}

// deepestBase is how many RoundTrippers may be around an http.Transport: one that unwraps
// itself must not be looked into for ever.
const deepestBase = 16

// defaultBase is what a nil Base means. A Transport that is http.DefaultTransport
// cannot be its own Base.
func (t *Transport) defaultBase() http.RoundTripper {
	if _, ok := http.DefaultTransport.(*http.Transport); !ok && http.DefaultTransport != http.RoundTripper(t) {
		return http.DefaultTransport
	}
	return NewBase()
}

// NewBase returns what a nil Transport.Base means, for those who wrap it: a clone
// of http.DefaultTransport, or of what net/http has there at first, that is made
// for talking to few hosts a lot. It keeps up to 100 idle connections to a host (two,
// net/http's default, make every burst dial anew), pings silent HTTP/2 connections,
// and tells a proxy's answer to CONNECT by its status, so that a 403 or 407 is not
// asked for again. Each call returns a new one, with connections of its own.
func NewBase() *http.Transport {
	original, ok := http.DefaultTransport.(*http.Transport)
	if !ok {
		original = &http.Transport{
			Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true, IdleConnTimeout: 90 * time.Second,
			TLSHandshakeTimeout: 10 * time.Second, ExpectContinueTimeout: time.Second,
		}
	}
	base := original.Clone()
	base.MaxIdleConns = 1000
	base.MaxIdleConnsPerHost = 100
	if base.OnProxyConnectResponse == nil {
		base.OnProxyConnectResponse = neterr.ConnectAnswer
	}
	if base.HTTP2 == nil {
		// A connection whose peer has vanished would otherwise fail every call
		// until the kernel gives up on it, a quarter of an hour later.
		base.HTTP2 = &http.HTTP2Config{SendPingTimeout: 15 * time.Second, PingTimeout: 10 * time.Second}
	}
	return base
}
