package resilienthttp

import (
	"cmp"
	"iter"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/neterr"
	"github.com/resilienthttp/resilienthttp/internal/outerclient"
	"github.com/resilienthttp/resilienthttp/internal/scope"
	"github.com/resilienthttp/resilienthttp/internal/usualbase"
)

// Transport is an http.RoundTripper that makes the calls of any http.Client resilient. The zero
// value has the defaults of each mechanism.
//
// A Transport is safe for concurrent use and should be shared: breaker, budget and limits know
// only the calls that use them. Its fields are read at the first call and must not change after
// it; SetPolicy changes the policy. A Transport must not be copied. It needs no Close.
type Transport struct {
	// Base sends the attempts. nil means a Connections, or http.DefaultTransport if the program has
	// replaced that by another type. A signer of requests belongs into Base, and OAuth around
	// the Transport. A Base that wraps another should have Unwrap() http.RoundTripper: see
	// docs/sdks.md.
	Base http.RoundTripper

	Policy         Policy         // retries and timeouts; SetPolicy replaces it
	Idempotency    Idempotency    // idempotency keys, with which POST and PATCH are retried
	DeadlineHeader DeadlineHeader // sends the deadline of a call to the server
	Budget         *Budget        // limits retries; nil: a new one with the defaults
	RateLimit      *RateLimit     // limits the rate of requests; nil: a new one with the defaults
	Breaker        *Breaker       // calls wait for a failing scope; nil: a new one with the defaults
	Hedge          *Hedge         // sends a second request if one is slow; nil: no hedges
	Trace          *Trace         // hooks for the events of a call; nil: no hooks

	// Scope returns the name of the scope of a call. Calls of one scope share breaker, budget,
	// quotas and latencies. nil means Request.URL.Host. It must be safe for concurrent use.
	Scope func(*http.Request) string

	// MaxScopes is the maximum number of scopes that the Transport keeps, 1 to 1,000,000. Zero
	// means 16,384. Any other number is an error of Validate. A new scope replaces an idle one that
	// has no failure or quota. A healthy scope takes 2 KB, or 4 KB if it is busy.
	MaxScopes int

	// OwnsRetries makes this Transport the one layer that retries. It sends X-Retry-Owner:
	// caller, and servers behind a DeadlineHandler then make single attempts. Without it, an outer
	// client that retries (by its header, or because it sends a failed request again within 10 s)
	// gets fewer attempts. Disable its retries before you set it. See docs/sdks.md.
	OwnsRetries bool

	once   sync.Once
	used   atomic.Bool // once is done
	config config
}

var _ http.RoundTripper = (*Transport)(nil)

// NewClient returns an http.Client with a new Transport that has all defaults. It has no Timeout:
// give each request a context with a deadline.
func NewClient() *http.Client { return &http.Client{Transport: &Transport{}} }

// RoundTrip makes one call, of one or more attempts. It implements http.RoundTripper: it does not
// modify the request, closes its Body in every case, and returns either a response or an *Error.
// The caller must close the response's Body. It is safe for concurrent use.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	c := &call{facts: facts{config: t.configured(), request: req}}
	defer c.cleanUp()
	if err := c.begin(); err != nil {
		err.before = c.before
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

// CloseIdleConnections closes the idle connections of Base, or of the first RoundTripper below it
// that has this method, as far as each has Unwrap. It does nothing if the configuration is invalid.
func (t *Transport) CloseIdleConnections() {
	config := t.configured()
	if config.invalid != nil {
		return // Base may be a nil pointer, or the Transport itself
	}
	for rt := range layers(config.base) {
		if closer, ok := rt.(interface{ CloseIdleConnections() }); ok {
			closer.CloseIdleConnections()
			return
		}
	}
}

// layers returns a Base and the RoundTrippers below it, as far as each has Unwrap.
func layers(base http.RoundTripper) iter.Seq[http.RoundTripper] {
	return func(yield func(http.RoundTripper) bool) {
		for range maxDepth { // a RoundTripper may unwrap itself
			if !yield(base) {
				return
			}
			wrapper, ok := base.(interface{ Unwrap() http.RoundTripper })
			if !ok {
				return
			}
			base = wrapper.Unwrap()
		}
	}
}

// config is the configuration of a Transport at its first call, with the defaults applied.
type config struct {
	base           http.RoundTripper
	policy         atomic.Pointer[Policy] // SetPolicy replaces it; what it points to does not change
	idempotency    Idempotency
	deadlineHeader DeadlineHeader
	budget         *Budget
	rateLimit      *RateLimit
	breaker        *Breaker
	hedge          *Hedge
	scope          func(*http.Request) string
	ownsRetries    bool
	trace          *Trace
	invalid        error // the error of Validate; every call returns it

	native bool // Base is net/http's own Transport

	// own are the parts that the Transport has made: no other one uses them.
	own struct{ breaker, budget, rateLimit bool }

	origin      time.Time // zero point of the times in the records
	records     *scope.Map[string, scopeRecords]
	failedCalls *outerclient.FailedCalls
}

func (t *Transport) configured() *config {
	t.once.Do(t.configure)
	return &t.config
}

func (t *Transport) configure() {
	c := &t.config
	*c = config{
		base:   cmp.Or[http.RoundTripper](t.Base, usualbase.Replaced(t), &Connections{}),
		budget: cmp.Or(t.Budget, &Budget{}), rateLimit: cmp.Or(t.RateLimit, &RateLimit{}), breaker: cmp.Or(t.Breaker, &Breaker{}),
		hedge: t.Hedge, scope: t.Scope, ownsRetries: t.OwnsRetries, trace: t.Trace,
		origin: time.Now(), failedCalls: outerclient.NewFailedCalls(),
	}
	c.own.budget = t.Budget == nil
	c.own.rateLimit = t.RateLimit == nil
	c.own.breaker = t.Breaker == nil
	c.policy.Store(new(t.Policy.withDefaults()))
	c.idempotency, c.deadlineHeader = t.Idempotency.withDefaults(), t.DeadlineHeader.withDefaults()
	c.records = &scope.Map[string, scopeRecords]{
		Max: cmp.Or(t.MaxScopes, scope.DefaultMax), Init: func(name string, s *scopeRecords) { s.init(c, name) },
		Keep: (*scopeRecords).keep, Evicted: (*scopeRecords).evict,
	}
	if c.invalid = t.Validate(); c.invalid == nil {
		c.native = native(c.base) // an invalid Base may be a nil pointer
	}
	t.used.Store(true)
}

// native reports whether a Base is net/http's Transport, or wraps one and has an Unwrap method.
func native(base http.RoundTripper) bool {
	for rt := range layers(base) {
		if _, ok := rt.(*http.Transport); ok {
			return true
		}
	}
	return false
}

// NewBase returns the Transport that a nil Connections.Transport means: a clone of
// http.DefaultTransport with its own connections. It keeps up to 100 idle connections to a host
// and pings silent HTTP/2 connections. It also reports the status of a proxy's response to
// CONNECT, so that a 403 or 407 is not retried.
func NewBase() *http.Transport {
	original, ok := http.DefaultTransport.(*http.Transport)
	if !ok {
		original = &http.Transport{
			Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true, IdleConnTimeout: 90 * time.Second,
			TLSHandshakeTimeout: 10 * time.Second, ExpectContinueTimeout: time.Second,
		}
	}
	base := cloneOf(original)
	base.MaxIdleConns = 1000
	base.MaxIdleConnsPerHost = 100
	if base.OnProxyConnectResponse == nil {
		base.OnProxyConnectResponse = neterr.ConnectAnswer
	}
	if base.HTTP2 == nil {
		// Without pings, every call on a connection to a dead peer fails, until the kernel closes
		// the connection after a quarter of an hour.
		base.HTTP2 = &http.HTTP2Config{SendPingTimeout: 15 * time.Second, PingTimeout: 10 * time.Second}
	}
	return base
}
