package resilientotel

import (
	"cmp"
	"context"
	"net/http"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/endpoints"
	"github.com/resilienthttp/resilienthttp/internal/field"
	"github.com/resilienthttp/resilienthttp/internal/idempotencykey"
	"github.com/resilienthttp/resilienthttp/internal/neterr"
	"github.com/resilienthttp/resilienthttp/internal/usualbase"
)

// client is the RoundTripper around a wrapped Transport, and its hooks.
type client struct {
	*instruments

	transport *resilienthttp.Transport
	keyHeader string
}

var _ http.RoundTripper = (*client)(nil)

func newClient(n *instruments, t *resilienthttp.Transport) *client {
	c := &client{instruments: n, transport: t, keyHeader: cmp.Or(t.Idempotency.Header, "Idempotency-Key")}
	t.Base = newAttemptBase(c, baseOf(t))
	hooks := copyOf(t.Trace)
	hooks.QueueWait, hooks.RetryWait = then(c.queueWait, hooks.QueueWait), then(c.retryWait, hooks.RetryWait)
	hooks.Rejected, hooks.CallDone = then(c.rejected, hooks.Rejected), then(c.callDone, hooks.CallDone)
	hooks.BreakerChange = then(c.breakerChange, hooks.BreakerChange)
	t.Trace = hooks
	return c
}

// baseOf returns the RoundTripper that the Transport would use.
func baseOf(t *resilienthttp.Transport) http.RoundTripper {
	if t.Base != nil {
		return t.Base
	}
	if replaced := usualbase.Replaced(t); replaced != nil {
		return replaced
	}
	return &resilienthttp.Connections{}
}

// copyOf returns a copy of the caller's hooks, or of none.
func copyOf[T any](hooks *T) *T {
	own := new(T)
	if hooks != nil {
		*own = *hooks
	}
	return own
}

// then returns a hook that runs both hooks. The second may be nil.
func then[T any](first, second func(T)) func(T) {
	if second == nil {
		return first
	}
	return func(v T) {
		first(v)
		second(v)
	}
}

// call is one call of a wrapped Transport, and the context of its attempts.
type call struct {
	context.Context //nolint:containedctx // call implements context.Context

	client *client
	span   trace.Span
	copies copies

	caller   context.Context //nolint:containedctx // the parent of the call
	response context.Context //nolint:containedctx // the context of Response.Request

	queued     bool   // it has waited in the queue of the circuit or the rate limiter
	queueCause string // of the last wait in a queue
	described  bool   // callDone has set the attributes of the span
}

type callKey struct{}

// Value implements context.Context.
func (c *call) Value(key any) any {
	if key == (callKey{}) {
		return c
	}
	return c.Context.Value(key)
}

// listClient is the RoundTripper around a list of endpoints.
type listClient struct {
	*endpoints.Transport

	client *client
}

// RoundTrip implements http.RoundTripper.
func (l *listClient) RoundTrip(r *http.Request) (*http.Response, error) {
	return l.client.call(l.Transport, r)
}

// callOf returns the call of this client that the context belongs to, or nil.
func (c *client) callOf(ctx context.Context) *call {
	if of, ok := ctx.Value(callKey{}).(*call); ok && of.client == c {
		return of
	}
	return nil
}

// RoundTrip implements http.RoundTripper.
func (c *client) RoundTrip(r *http.Request) (*http.Response, error) { return c.call(c.transport, r) }

// call makes a call of next, which is the Transport or is above it.
func (c *client) call(next http.RoundTripper, r *http.Request) (resp *http.Response, err error) {
	if r == nil {
		return next.RoundTrip(r) // it returns the error for that
	}
	of := &call{client: c, caller: callerOf(r.Context())}
	of.start(r)
	defer func() { // also if a hook panics
		of.copies.decide(resp)
		of.span.End()
	}()
	resp, err = next.RoundTrip(r.WithContext(of))
	if err != nil {
		of.failed(err)
	} else if resp != nil && resp.Request != nil {
		of.response = resp.Request.Context()
	}
	return resp, err
}

// callerOf returns the parent of a new call. If the caller sends a Response.Request again, that
// is the parent of the earlier call. Otherwise a chain of such requests would keep all calls.
func callerOf(ctx context.Context) context.Context {
	if before, ok := ctx.Value(callKey{}).(*call); ok && before.response == ctx {
		return before.caller
	}
	return ctx
}

// CloseIdleConnections closes the idle connections of Base.
func (c *client) CloseIdleConnections() { c.transport.CloseIdleConnections() }

// Unwrap returns the Transport.
func (c *client) Unwrap() http.RoundTripper { return c.transport }

// callKind is what the start of a call's span depends on.
type callKind struct{ host, method string }

// callStart is the name of a call's span and its first attributes.
type callStart struct {
	name    string
	options []trace.SpanStartOption
}

// maxCallKinds is the maximum number of kinds of calls with a stored callStart.
const maxCallKinds = 1024

// start starts the span of the call.
func (c *call) start(r *http.Request) {
	kind := callKind{method: r.Method}
	if r.URL != nil {
		kind.host = r.URL.Host
	}
	start, ok := c.client.starts.get(kind)
	if !ok {
		start = newCallStart(r)
		c.client.starts.add(kind, maxCallKinds, func() (callKind, callStart) {
			return callKind{strings.Clone(kind.host), strings.Clone(kind.method)}, start
		})
	}
	c.Context, c.span = c.client.tracer.Start(c.caller, start.name, start.options...)
}

func newCallStart(r *http.Request) callStart {
	method := methodName(r.Method)
	attributes := append(serverAttributes(r), semconv.HTTPRequestMethodKey.String(method))
	if method == other {
		method = "HTTP"
	}
	return callStart{"call " + method, []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindInternal), trace.WithAttributes(attributes...)}}
}

// failed describes a call for which CallDone was not called.
func (c *call) failed(err error) {
	if !c.described {
		c.span.SetAttributes(semconv.ErrorTypeKey.String(resilienthttp.ErrorType(err)))
		c.span.SetStatus(codes.Error, neterr.SafeText(err))
	}
}

// queueWait is a hook.
func (c *client) queueWait(a *resilienthttp.Attempt) {
	of := c.callOf(a.Request.Context())
	if of == nil {
		return
	}
	of.queued, of.queueCause = true, queueCause(a)
	if of.span.IsRecording() {
		of.span.AddEvent(eventQueued, trace.WithAttributes(
			keyAttemptNumber.Int(a.Number), keyWaitCause.String(queueCause(a)), seconds(keyEstimatedWait, a.RetryWait)))
	}
}

// retryWait is a hook.
func (c *client) retryWait(a *resilienthttp.Attempt) {
	of := c.callOf(a.Request.Context())
	if of == nil || !of.span.IsRecording() {
		return
	}
	of.span.AddEvent(eventRetry, trace.WithAttributes(
		keyAttemptNumber.Int(a.Number), keyRetryReason.String(failureOf(a)), seconds(keyRetryWait, a.RetryWait)))
}

// rejected is a hook.
func (c *client) rejected(done *resilienthttp.Call) {
	ctx, gate := done.Request.Context(), gateOf(done)
	c.calls.rejections.count(ctx, scoped{scope: c.scopes.of(done.Scope), value: gate})
	if of := c.callOf(ctx); of != nil {
		of.span.AddEvent(eventRejected, trace.WithAttributes(keyRejectedBy.String(gate)))
	}
}

// breakerChange is a hook.
func (c *client) breakerChange(change resilienthttp.BreakerChange) {
	c.calls.breakers.count(context.Background(), scoped{c.scopes.of(change.Scope), stateName(change.To), field.FormatPriority(int8(change.Priority))})
}

// callDone is a hook.
func (c *client) callDone(done *resilienthttp.Call) {
	ctx := done.Request.Context()
	of := c.callOf(ctx)
	s := summarize(done, of)
	c.calls.record(ctx, done, c.scopes.of(done.Scope), &s)
	if of != nil {
		of.described = true
		if of.span.IsRecording() {
			of.describe(done, &s)
		}
	}
}

// summary is what the metrics and the span of a call have in common.
type summary struct {
	outcome, errorType             string
	queueWait, inFlight, retryWait time.Duration // see Call.Timings
	quota, fixedLimit, circuit     time.Duration // the parts of queueWait, by cause
}

func summarize(done *resilienthttp.Call, of *call) summary {
	s := summary{outcome: outcomeOf(done), errorType: errorTypeOf(done)}
	s.queueWait, s.inFlight, s.retryWait = done.Timings()
	if of == nil || !of.queued {
		return s
	}
	rest := s.queueWait // after the last attempt
	for i := range done.Attempts {
		a := &done.Attempts[i]
		rest -= a.QueueWait
		s.addQueueWait(queueCause(a), a.QueueWait)
	}
	s.addQueueWait(of.queueCause, rest)
	return s
}

func (s *summary) addQueueWait(cause string, d time.Duration) {
	switch cause {
	case waitCircuit:
		s.circuit += d
	case waitFixedLimit:
		s.fixedLimit += d
	default:
		s.quota += d
	}
}

// describe sets the attributes and the status of the span.
func (c *call) describe(done *resilienthttp.Call, s *summary) {
	attributes := append(make([]attribute.KeyValue, 0, 6), keyOutcome.String(s.outcome), keyAttemptCount.Int(len(done.Attempts)),
		seconds(keyQueueWait, s.queueWait), seconds(keyInFlight, s.inFlight), seconds(keyRetryWait, s.retryWait))
	if done.Scope != done.Request.URL.Host {
		attributes = append(attributes, keyScope.String(done.Scope))
	}
	if done.Response != nil {
		attributes = append(attributes, semconv.HTTPResponseStatusCode(done.Response.StatusCode))
	}
	attributes = with(attributes, semconv.ErrorTypeKey, s.errorType)
	for i := range done.Attempts {
		if stop := done.Attempts[i].StopReason; stop != nil {
			attributes = append(attributes, keyStopReason.String(stopReason(stop)))
		}
	}
	c.span.SetAttributes(with(attributes, keyKeyHash, c.keyHash(done))...)
	switch {
	case done.Err != nil:
		c.span.SetStatus(codes.Error, neterr.SafeText(done.Err))
	case s.errorType != "":
		c.span.SetStatus(codes.Error, "")
	}
}

// keyHash returns the hash of the idempotency key of the attempts, or "".
func (c *call) keyHash(done *resilienthttp.Call) string {
	if len(done.Attempts) == 0 {
		return ""
	}
	field := done.Attempts[0].Request.Header.Get(c.client.keyHeader)
	if field == "" {
		return ""
	}
	key, err := idempotencykey.Parse(field)
	if err != nil {
		key = field
	}
	return idempotencykey.Hash(key)
}

func seconds(key attribute.Key, d time.Duration) attribute.KeyValue {
	return key.Float64(d.Seconds())
}
