package resilienthttp

import (
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/neterr"
	"github.com/resilienthttp/resilienthttp/internal/scope"
)

// Transport is an http.RoundTripper that makes the calls of any http.Client resilient. The
// zero value retries, limits and protects calls. Hedges, AdaptiveTimeout, ReadTimeout, a fixed
// rate limit and OwnsRetries must be set.
//
//	client := &http.Client{Transport: &resilienthttp.Transport{}}
//
// A Transport is safe for concurrent use and should be shared: breaker, budget and limits
// know only the calls that use them. Its fields are read at the first call and must not
// change after it. A Transport must not be copied. It has no goroutine and needs no Close.
type Transport struct {
	// Base makes the attempts. nil means NewBase(), or http.DefaultTransport if the program
	// has replaced that by another type. A Transport that is http.DefaultTransport itself
	// needs a Base. Request signing and OAuth belong outside of the Transport, and a Base
	// that wraps another should have Unwrap() http.RoundTripper: see docs/under-your-sdk.md.
	Base http.RoundTripper

	// Policy controls the retries and timeouts of a call.
	Policy Policy

	// Idempotency attaches the keys that make POST and PATCH repeatable.
	Idempotency Idempotency

	// Deadline sends the deadline of a call to the server.
	Deadline Deadline

	// Budget limits retries by a bucket of tokens. nil means a private one with the
	// defaults. Share one to limit several Transports together.
	Budget *Budget

	// RateLimit limits the rate of requests. nil means a private one with the defaults.
	RateLimit *RateLimit

	// Breaker rejects calls to a scope that only fails. nil means a private one with the
	// defaults.
	Breaker *Breaker

	// Hedge sends a second request if one is slower than usual. nil means no hedging. A zero
	// Hedge adds up to 5 % of requests.
	Hedge *Hedge

	// Scope returns the name of the state that calls share: breaker, budget, quotas and
	// latencies. nil means Request.URL.Host. Some 4096 scopes are remembered, and idle ones
	// are forgotten first. It must be safe for concurrent use.
	Scope func(*http.Request) string

	// OwnsRetries makes this Transport the one layer that retries. It sends X-Retry-Owner:
	// caller, and servers behind Deadline.Handler then make single attempts. Below stripe-go,
	// azcore and Vault's client a call makes at most two attempts. OwnsRetries lifts that;
	// disable their retries first. See docs/under-your-sdk.md.
	OwnsRetries bool

	// Trace is called at the events of a call. nil means no hooks.
	Trace *Trace

	once   sync.Once
	used   atomic.Bool // once is over
	config config
}

var _ http.RoundTripper = (*Transport)(nil)

// NewClient returns an http.Client on a Transport of its own with all defaults. It has no
// Timeout: give each request a context with a deadline. (A Client.Timeout works too, but
// net/http then replaces the *Error by an error of its own.)
func NewClient() *http.Client { return &http.Client{Transport: &Transport{}} }

// RoundTrip makes one call, of as many attempts as it needs and is allowed. It implements
// http.RoundTripper: the request is not modified, its Body is closed in every case, and
// exactly one of response and error is non-nil. The error is always an *Error. The caller
// must close the response's Body.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	c := &call{config: t.configured(), request: req}
	defer c.cleanUp()
	if err := c.begin(); err != nil {
		return nil, err
	}
	if err := c.prepare(&c.first); err != nil {
		c.fail(err)
		return c.finish()
	}
	c.exchange(&c.first)
	if c.last.report.Verdict.retryable() {
		c.retry()
	}
	return c.finish()
}

// CloseIdleConnections closes the idle connections of Base, if Base has such a method. It
// does nothing if the configuration is invalid.
func (t *Transport) CloseIdleConnections() {
	config := t.configured()
	if config.invalid != nil {
		return // Base may be a nil pointer, or the Transport itself
	}
	if closer, ok := config.base.(interface{ CloseIdleConnections() }); ok {
		closer.CloseIdleConnections()
	}
}

// config is the configuration of a Transport at its first call, with the defaults.
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
	invalid     error // why it is invalid; every call returns it

	native bool // Base is net/http's own Transport

	origin      time.Time // the records count time from here
	records     *scope.Map[scope.Key, record]
	failedCalls *failedCalls
}

func (t *Transport) configured() *config {
	if !t.used.Load() {
		t.once.Do(t.configure)
	}
	return &t.config
}

func (t *Transport) configure() {
	c := &t.config
	*c = config{
		base: t.Base, policy: t.Policy.withDefaults(), budget: t.Budget, rateLimit: t.RateLimit, breaker: t.Breaker,
		hedge: t.Hedge, scope: t.Scope, ownsRetries: t.OwnsRetries, trace: t.Trace,
		origin: time.Now(), failedCalls: newFailedCalls(),
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
	c.records = c.newRecords()
	c.invalid = t.Validate()
	t.used.Store(true)
}

// native reports whether a Base is net/http's own Transport, or wraps one and says so by
// Unwrap.
func native(base http.RoundTripper) bool {
	const deepest = 16 // a RoundTripper may unwrap itself
	for range deepest {
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

// defaultBase is what a nil Base means. A Transport that is http.DefaultTransport cannot be
// its own Base.
func (t *Transport) defaultBase() http.RoundTripper {
	if _, ok := http.DefaultTransport.(*http.Transport); !ok && http.DefaultTransport != http.RoundTripper(t) {
		return http.DefaultTransport
	}
	return NewBase()
}

// NewBase returns what a nil Transport.Base means: a clone of http.DefaultTransport for many
// calls to few hosts, with its own connections. It keeps up to 100 idle connections to a
// host, pings silent HTTP/2 connections, and reports the status of a proxy's response to
// CONNECT, so that a 403 or 407 is not retried.
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
		// Without pings a connection to a peer that has vanished fails every call for a
		// quarter of an hour, until the kernel closes it.
		base.HTTP2 = &http.HTTP2Config{SendPingTimeout: 15 * time.Second, PingTimeout: 10 * time.Second}
	}
	return base
}
