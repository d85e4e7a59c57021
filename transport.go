package resilienthttp

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"
)

// Transport is an http.RoundTripper that makes the requests of any http.Client
// resilient. Its zero value is ready to use and has every mechanism on but
// hedging:
//
//	client := &http.Client{Transport: &resilienthttp.Transport{}}
//
// One call goes breaker, rate limit, attempt timeout, headers, Base; a failure
// that may pass, of a request that may be repeated, is retried after a backoff
// with full jitter, as long as attempts, deadline, breaker and budget allow it.
// A response is never an error, whatever its status: when the last attempt got
// one, it is returned with its body unread. What RoundTrip returns as an error
// is always an *Error.
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
	// An http.Transport by itself sends a request that it holds for idempotent
	// again, unseen by every gate, when a connection that it had kept idle turns
	// out to be reset. For keyed requests with a body over plain HTTP/1 that is
	// prevented: it gets them without GetBody. Another Base gets GetBody always.
	Base http.RoundTripper

	// Policy says how often, how long and how far apart a call is attempted.
	Policy Policy

	// Idempotency attaches the keys that make POST and PATCH repeatable.
	Idempotency Idempotency

	// Deadline tells servers how long the call may still take.
	Deadline Deadline

	// Budget caps retries and hedges as a share of calls. nil means a private
	// one with the defaults; share one to cap several Transports together.
	Budget *Budget

	// RateLimit paces the calls. nil means a private one with the defaults.
	RateLimit *RateLimit

	// Breaker refuses calls to what is failing. nil means a private one with
	// the defaults.
	Breaker *Breaker

	// Hedge sends a second copy of a slow request. nil means no hedging.
	Hedge *Hedge

	// Scope names what shares one breaker, budget, limiter and latency record.
	// nil means Request.URL.Host. At most some 4096 scopes are remembered, the
	// idle ones forgotten first. It must be safe for concurrent use.
	Scope func(*http.Request) string

	// OwnsRetries says that this Transport is the one layer that retries. It
	// sends X-Retry-Owner: caller, upon which servers behind Deadline.Handler
	// make single attempts, and tell those behind them.
	OwnsRetries bool

	// Trace tells what happens. nil means nobody listens.
	Trace *Trace

	once   sync.Once
	config config
}

var _ http.RoundTripper = (*Transport)(nil)

// NewClient returns an http.Client on a Transport of its own with all defaults.
// It has no Timeout: set one, or give each request a context with a deadline.
func NewClient() *http.Client { return &http.Client{Transport: &Transport{}} }

// RoundTrip makes one call: as many attempts as it takes and is allowed. It
// implements http.RoundTripper: the request is not modified, its Body is closed
// in every case, and exactly one of response and error is non-nil. The response's
// Body must be closed by the caller.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	c, err := t.plan(req)
	if err != nil {
		closeRequestBody(req)
		return nil, err
	}
	defer c.unwind()
	if err := c.prepare(&c.first); err != nil {
		closeRequestBody(req)
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
// http.Client.CloseIdleConnections calls it.
func (t *Transport) CloseIdleConnections() {
	if closer, ok := t.settled().base.(interface{ CloseIdleConnections() }); ok {
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

	// native says that Base is net/http's own Transport, resends that over plain
	// HTTP/1 it sends a request which it holds for idempotent again, at once and as
	// often as it has idle connections that turn out to be reset. No gate sees those
	// copies. Without GetBody it cannot, and leaves repeating to us. (HTTP/2 needs
	// GetBody: it sends again what a server that goes away has provably not seen.)
	native, resends bool
}

func (t *Transport) settled() *config {
	t.once.Do(t.settle)
	return &t.config
}

func (t *Transport) settle() {
	c := &t.config
	*c = config{
		base: t.Base, policy: t.Policy.resolved(), budget: t.Budget, rateLimit: t.RateLimit, breaker: t.Breaker,
		hedge: t.Hedge, scope: t.Scope, ownsRetries: t.OwnsRetries, trace: t.Trace,
	}
	if c.base == nil {
		c.base = t.defaultBase()
	}
	base, native := c.base.(*http.Transport)
	c.native = native
	c.resends = native && (base.Protocols == nil || !base.Protocols.UnencryptedHTTP2())
	if c.budget == nil {
		c.budget = &Budget{}
	}
	if c.rateLimit == nil {
		c.rateLimit = &RateLimit{}
	}
	if c.breaker == nil {
		c.breaker = &Breaker{}
	}
	if c.idempotency, c.err = t.Idempotency.resolved(); c.err != nil {
		return
	}
	c.deadline, c.err = t.Deadline.resolved()
}

// defaultBase is http.DefaultTransport for talking to few hosts a lot: two idle
// connections to a host, net/http's default, make every burst dial anew.
func (t *Transport) defaultBase() http.RoundTripper {
	original, ok := http.DefaultTransport.(*http.Transport)
	switch {
	case ok:
	case http.DefaultTransport != http.RoundTripper(t):
		return http.DefaultTransport
	default:
		// A Transport that is the default cannot be its own Base. What net/http
		// had there is gone: this is the like of it.
		original = &http.Transport{
			Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true, IdleConnTimeout: 90 * time.Second,
			TLSHandshakeTimeout: 10 * time.Second, ExpectContinueTimeout: time.Second,
		}
	}
	base := original.Clone()
	base.MaxIdleConns = 1000
	base.MaxIdleConnsPerHost = 100
	if base.HTTP2 == nil {
		// A connection whose peer has vanished would otherwise fail every call
		// until the kernel gives up on it, a quarter of an hour later.
		base.HTTP2 = &http.HTTP2Config{SendPingTimeout: 15 * time.Second, PingTimeout: 10 * time.Second}
	}
	return base
}

// call is one RoundTrip: what its attempts have in common. The first attempt
// lives in it, so that a call which needs no second one is one allocation.
type call struct {
	*config
	ctx      context.Context
	request  *http.Request // the caller's: read, never written
	header   http.Header   // what every attempt sends; the caller's own map when nothing is added
	scope    string
	key      string
	perCall  *Policy // the policy in force
	options  *options
	deadline time.Time // zero: none
	start    time.Time
	single   bool // another layer owns retries
	telling  bool // attempts bear a deadline header
	finished bool
	depth    uint8 // of calls of this Transport around this one

	last    *attempt // the one whose outcome is the call's so far; nil: none was sent
	failure *Error   // why the call ends without a response
	more    *further // nil as long as one attempt was enough
	first   attempt
}

// further is what only calls with more than one attempt need.
type further struct {
	sent     []*attempt    // after the first, in the order of their starts
	next     *attempt      // prepared by the retry loop, not sent yet
	due      time.Time     // when it is to be sent: the drain of the last response is a part of the wait
	previous time.Duration // what Backoff gave the last time
	token    budgetToken   // taken for a retry that is not sent yet
}

func (c *call) further() *further {
	if c.more == nil {
		c.more = &further{}
	}
	return c.more
}

// plan finds out everything about a call that does not change between its
// attempts, and refuses what cannot be sent.
func (t *Transport) plan(req *http.Request) (*call, error) {
	config := t.settled()
	if err := checkRequest(req); err != nil {
		return nil, &Error{Err: err}
	}
	if config.err != nil {
		return nil, &Error{Err: config.err}
	}
	ctx := req.Context()
	c := &call{config: config, ctx: ctx, request: req, perCall: &config.policy, options: optionsOf(ctx), start: time.Now()}
	if c.options.policy != nil {
		c.perCall = c.options.policy
	}
	c.single = c.options.single
	if c.options == nestedOptions || c.options == nestedOwned {
		if outer, ok := ctx.Value(callKey{}).(*call); ok && outer.config == config {
			if c.depth = outer.depth + 1; c.depth > deepest {
				return nil, &Error{Err: errInsideItself}
			}
		}
	}
	c.deadline, c.telling = ctx.Deadline()
	c.telling = c.telling && !config.deadline.Off
	if err := c.callerGone(); err != nil {
		return nil, c.ended(err)
	}
	c.scope = req.URL.Host
	if config.scope != nil {
		c.scope = config.scope(req)
	}
	key, send, err := config.idempotency.keyFor(req, c.options)
	if err != nil {
		return nil, &Error{Err: err}
	}
	c.key = key
	c.header = c.commonHeader(send)
	c.first.call = c
	c.first.record.Number = 1
	return c, nil
}

// commonHeader is what all attempts send: the caller's header, and a copy only
// where something joins it.
func (c *call) commonHeader(sendKey bool) http.Header {
	owned := c.ownsRetries || c.options.owned
	if !sendKey && !owned && c.request.Header != nil {
		return c.request.Header
	}
	h := cloneHeader(c.request.Header)
	if sendKey {
		h[c.idempotency.Header] = []string{c.key}
	}
	if owned {
		h[retryOwnerHeader] = []string{retryOwnerCaller}
	}
	return h
}

// cloneHeader never returns nil, and leaves room for what is about to be added.
func cloneHeader(h http.Header) http.Header {
	if h == nil {
		return make(http.Header)
	}
	return h.Clone()
}

// checkRequest refuses what no RoundTripper could send.
func checkRequest(req *http.Request) error {
	switch {
	case req == nil:
		return fmt.Errorf("%w: nil Request", errMalformed)
	case req.URL == nil:
		return fmt.Errorf("%w: nil Request.URL", errMalformed)
	case req.Body == nil && req.ContentLength != 0:
		return fmt.Errorf("%w: ContentLength %d with nil Body", errMalformed, req.ContentLength)
	}
	return nil
}

func closeRequestBody(req *http.Request) {
	if req != nil && req.Body != nil {
		_ = req.Body.Close() // there is nobody to tell
	}
}

// errInsideItself is a Transport that sends to itself, because it is a part of
// the http.DefaultTransport that is its Base, say.
var errInsideItself = fmt.Errorf("%w: the Transport is its own Base", errMalformed)

// deepest is how many calls of one Transport may be inside each other. One that
// fetches a token by way of itself needs two; to exhaust the stack takes more.
const deepest = 8

// replayable reports whether the request's body can be had again.
func (c *call) replayable() bool {
	return c.request.Body == nil || c.request.Body == http.NoBody || c.request.GetBody != nil
}

// repeatable reports whether a second copy of the request does no harm, whatever
// became of the first.
func (c *call) repeatable() bool { return c.key != "" || idempotentMethod(c.request.Method) }

// callerGone is the context's error once the caller has cancelled or the call's
// deadline has passed, by the context or by the older Request.Cancel.
func (c *call) callerGone() error {
	if err := c.ctx.Err(); err != nil {
		return err
	}
	select {
	case <-c.request.Cancel:
		return context.Canceled
	default:
		return nil
	}
}

// ended is the error of a call that the caller's cancellation or deadline ends.
func (c *call) ended(err error) *Error {
	e := &Error{Err: err}
	if errors.Is(err, context.DeadlineExceeded) {
		e.Reason = ErrDeadline
	}
	if cause := context.Cause(c.ctx); cause != nil && !errors.Is(err, cause) {
		e.Err = &joined{err, cause}
	}
	return e
}

// fail ends the call with an error that is not an attempt's: a gate's refusal,
// or the caller's cancellation while a retry was waited for.
func (c *call) fail(err *Error) {
	if c.last != nil {
		c.last.record.Stop = err.Reason
	}
	err.Attempts = c.attempts()
	c.failure = err
}

// finish is the call's end: the last response as it came, or one *Error.
func (c *call) finish() (*http.Response, error) {
	if c.more != nil {
		c.more.token.refund() // of a retry that was not sent after all
	}
	var resp *http.Response
	if c.failure == nil {
		if resp = c.last.record.Response; resp == nil {
			c.failure = c.lastError()
		}
	}
	if c.trace != nil || len(c.options.traces) > 0 {
		c.traceDone(resp)
	}
	c.finished = true
	if resp != nil {
		return resp, nil
	}
	return nil, c.failure
}

// unwind lets go of what a call holds that a panic has cut short, or the end of
// its goroutine: of a hook, of Backoff, of GetBody.
func (c *call) unwind() {
	if c.finished {
		return
	}
	if c.more != nil {
		c.more.token.refund()
		if c.more.next != nil {
			c.more.next.abandon()
		}
	}
	if c.last != nil && c.last.body != nil {
		_ = c.last.closeBody()
	}
}

// lastError is the *Error of a call whose last attempt ended in an error.
func (c *call) lastError() *Error {
	last := &c.last.record
	e := &Error{Reason: last.Stop, Err: last.Err, Attempts: c.attempts()}
	switch {
	case last.Stop == ErrBreakerOpen:
		e.NotBefore, _ = c.breaker.wouldRefuse(c.scope, time.Now())
	case last.Stop == ErrDeadline:
	case c.last.fate == fateDeadline:
		e.Reason = ErrDeadline
	case c.last.fate == fateTimeout:
		e.Reason = ErrAttemptTimeout
	}
	return e
}

// attempts are the records of the attempts so far.
func (c *call) attempts() []Attempt {
	if c.last == nil {
		return nil
	}
	if c.more == nil {
		return []Attempt{c.first.record}
	}
	records := make([]Attempt, 0, 1+len(c.more.sent))
	records = append(records, c.first.record)
	for _, a := range c.more.sent {
		records = append(records, a.record)
	}
	return records
}
