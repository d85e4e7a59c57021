package resilientotel

import (
	"context"
	"net/http"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/internal/idempotencykey"
	"github.com/resilienthttp/resilienthttp/internal/neterr"
)

// client is a Transport that is instrumented: the RoundTripper around it, and its hooks.
type client struct {
	*instruments

	transport *resilienthttp.Transport
	keyHeader string
}

var _ http.RoundTripper = (*client)(nil)

func newClient(n *instruments, t *resilienthttp.Transport) *client {
	c := &client{instruments: n, transport: t, keyHeader: t.Idempotency.Header}
	if c.keyHeader == "" {
		c.keyHeader = "Idempotency-Key"
	}
	t.Base = newAttempts(c, baseOf(t))
	theirs := t.Trace
	if theirs == nil {
		theirs = &resilienthttp.Trace{}
	}
	t.Trace = &resilienthttp.Trace{
		AttemptStart: theirs.AttemptStart, AttemptDone: theirs.AttemptDone,
		QueueWait: then(c.queued, theirs.QueueWait), RetryWait: then(c.retryWait, theirs.RetryWait),
		Rejected: then(c.refused, theirs.Rejected), CallDone: then(c.callDone, theirs.CallDone),
		BreakerChange: then(c.breakerChange, theirs.BreakerChange),
	}
	return c
}

// baseOf is what the Transport would send with.
func baseOf(t *resilienthttp.Transport) http.RoundTripper {
	if t.Base != nil {
		return t.Base
	}
	if _, ok := http.DefaultTransport.(*http.Transport); ok || http.DefaultTransport == http.RoundTripper(t) {
		return resilienthttp.NewBase()
	}
	return http.DefaultTransport // which a program has replaced
}

// then is a hook, and another one after it if there is one.
func then[T any](ours, theirs func(T)) func(T) {
	if theirs == nil {
		return ours
	}
	return func(v T) {
		ours(v)
		theirs(v)
	}
}

// call is one call of an instrumented Transport, and the context that leads to it.
type call struct {
	context.Context //nolint:containedctx // it is one

	client   *client
	span     trace.Span
	caller   context.Context //nolint:containedctx // what it was made of
	answered context.Context //nolint:containedctx // that of its Response.Request
	sent     atomic.Int32    // attempts
	stood    bool            // it has waited in line
	line     bool            // and that for RateLimit.Limit, at last
	told     bool            // the span knows what came of it
}

type callKey struct{}

// Value implements context.Context.
func (c *call) Value(key any) any {
	if key == (callKey{}) {
		return c
	}
	return c.Context.Value(key)
}

// callOf is the call of this client that a context belongs to; nil: it belongs to none.
func (c *client) callOf(ctx context.Context) *call {
	if of, ok := ctx.Value(callKey{}).(*call); ok && of.client == c {
		return of
	}
	return nil
}

// RoundTrip implements http.RoundTripper.
func (c *client) RoundTrip(r *http.Request) (*http.Response, error) {
	if r == nil {
		return c.transport.RoundTrip(r) // which says what it thinks of that
	}
	of := &call{client: c, caller: callerOf(r.Context())}
	defer func() {
		if of.span != nil {
			of.span.End() // also where a hook panics
		}
	}()
	of.start(r)
	resp, err := c.transport.RoundTrip(r.WithContext(of))
	if err != nil {
		of.failed(err)
	} else if resp != nil && resp.Request != nil {
		of.answered = resp.Request.Context()
	}
	return resp, err
}

// callerOf is the context that a call begins with. That of a Response.Request leads to an
// earlier call: to begin there again and again would keep them all.
func callerOf(ctx context.Context) context.Context {
	if before, ok := ctx.Value(callKey{}).(*call); ok && before.answered == ctx {
		return before.caller
	}
	return ctx
}

// CloseIdleConnections closes those of the Base, if it can.
func (c *client) CloseIdleConnections() { c.transport.CloseIdleConnections() }

// Unwrap is the Transport.
func (c *client) Unwrap() http.RoundTripper { return c.transport }

// start begins the call's span.
func (c *call) start(r *http.Request) {
	method := methodName(r.Method)
	attributes := make([]attribute.KeyValue, 0, 4)
	attributes = append(serverAttributes(attributes, r), semconv.HTTPRequestMethodKey.String(method))
	if method == other {
		method = "HTTP"
	}
	c.Context, c.span = c.client.tracer.Start(c.caller, "call "+method, trace.WithSpanKind(trace.SpanKindInternal), trace.WithAttributes(attributes...))
}

// failed tells of a call that failed before it was one, or was cut short.
func (c *call) failed(err error) {
	if !c.told {
		c.span.SetAttributes(semconv.ErrorTypeKey.String(kindOf(err)))
		c.span.SetStatus(codes.Error, neterr.SafeText(err))
	}
}

// queued is a hook.
func (c *client) queued(a *resilienthttp.Attempt) {
	of := c.callOf(a.Request.Context())
	if of == nil {
		return
	}
	of.stood, of.line = true, a.LocalLimit
	if of.span.IsRecording() {
		of.span.AddEvent("queued", trace.WithAttributes(
			attemptNumber(a), attribute.String("resilienthttp.for", forWhat(a.LocalLimit)), secondsOf("resilienthttp.likely_wait", a.RetryWait)))
	}
}

// retryWait is a hook.
func (c *client) retryWait(a *resilienthttp.Attempt) {
	of := c.callOf(a.Request.Context())
	if of == nil || !of.span.IsRecording() {
		return
	}
	of.span.AddEvent("retry", trace.WithAttributes(
		attemptNumber(a), attribute.String("resilienthttp.reason", failureOf(a)), secondsOf("resilienthttp.wait", a.RetryWait)))
}

// refused is a hook.
func (c *client) refused(done *resilienthttp.Call) {
	ctx, gate := done.Request.Context(), gateOf(done)
	c.calls.refused(ctx, gate, c.scopes.of(done.Scope))
	if of := c.callOf(ctx); of != nil {
		of.span.AddEvent("refused", trace.WithAttributes(attribute.String("resilienthttp.gate", gate)))
	}
}

// breakerChange is a hook.
func (c *client) breakerChange(change resilienthttp.BreakerChange) {
	c.calls.changed(change, c.scopes.of(change.Scope))
}

// ended is what is told of a call that is over.
type ended struct {
	outcome, errorType   string
	queued, sent, waited time.Duration // see Call.Timings
	quota, line          time.Duration // of queued, what was spent in line
}

// callDone is a hook.
func (c *client) callDone(done *resilienthttp.Call) {
	ctx := done.Request.Context()
	of := c.callOf(ctx)
	e := end(done, of)
	c.calls.done(ctx, done, c.scopes.of(done.Scope), e)
	if of != nil {
		of.told = true
		if of.span.IsRecording() {
			of.tell(done, e)
		}
	}
}

func end(done *resilienthttp.Call, of *call) *ended {
	e := &ended{outcome: outcomeOf(done), errorType: errorType(done)}
	e.queued, e.sent, e.waited = done.Timings()
	if of == nil || !of.stood {
		return e
	}
	last := e.queued
	for i := range done.Attempts {
		a := &done.Attempts[i]
		last -= a.QueueWait
		if a.LocalLimit {
			e.line += a.QueueWait
		} else {
			e.quota += a.QueueWait
		}
	}
	if of.line { // at which gate it stood when it gave up
		e.line += last
	} else {
		e.quota += last
	}
	return e
}

// tell tells the span what came of the call.
func (c *call) tell(done *resilienthttp.Call, e *ended) {
	attributes := make([]attribute.KeyValue, 0, 10)
	attributes = append(attributes,
		attribute.String("resilienthttp.outcome", e.outcome), attribute.Int("resilienthttp.attempts", len(done.Attempts)),
		secondsOf("resilienthttp.queued", e.queued), secondsOf("resilienthttp.sent", e.sent), secondsOf("resilienthttp.waited", e.waited))
	if done.Scope != done.Request.URL.Host {
		attributes = append(attributes, attribute.String("resilienthttp.scope", done.Scope))
	}
	if done.Response != nil {
		attributes = append(attributes, semconv.HTTPResponseStatusCode(done.Response.StatusCode))
	}
	if e.errorType != "" {
		attributes = append(attributes, semconv.ErrorTypeKey.String(e.errorType))
	}
	for i := range done.Attempts {
		if stop := done.Attempts[i].StopReason; stop != nil {
			attributes = append(attributes, attribute.String("resilienthttp.stop", sentinelName(stop)))
		}
	}
	if hash := c.keyHash(done); hash != "" {
		attributes = append(attributes, keyHashKey.String(hash))
	}
	c.span.SetAttributes(attributes...)
	switch {
	case done.Err != nil:
		c.span.SetStatus(codes.Error, neterr.SafeText(done.Err))
	case e.errorType != "":
		c.span.SetStatus(codes.Error, "")
	}
}

const keyHashKey = attribute.Key("resilienthttp.idempotency_key_hash")

// keyHash is a hash of the key that the attempts have sent.
func (c *call) keyHash(done *resilienthttp.Call) string {
	if len(done.Attempts) == 0 {
		return ""
	}
	return hashOf(done.Attempts[0].Request.Header.Get(c.client.keyHeader))
}

func hashOf(field string) string {
	if field == "" {
		return ""
	}
	key, err := idempotencykey.Parse(field)
	if err != nil {
		key = field
	}
	return idempotencykey.Hash(key)
}

func attemptNumber(a *resilienthttp.Attempt) attribute.KeyValue {
	return attribute.Int("resilienthttp.attempt", a.Number)
}

func secondsOf(key attribute.Key, d time.Duration) attribute.KeyValue {
	return key.Float64(d.Seconds())
}

// forWhat is which line a call stands in.
func forWhat(own bool) string {
	if own {
		return "line"
	}
	return "quota"
}
