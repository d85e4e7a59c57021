package resilientotel

import (
	"context"
	"net/http"
	"slices"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/resilienthttp/resilienthttp/durable"
	"github.com/resilienthttp/resilienthttp/idempotency"
)

// TraceIdempotency returns hooks for an idempotency.Handler, Executor or Sweeper. They count
// requests by disposition, and records that become unknown. On the span of a request, such as that
// of otelhttp.NewHandler, they set resilienthttp.disposition and the hash of the key. The hooks of
// also run after them. also may be nil.
func (i *Instrumentation) TraceIdempotency(also *idempotency.Trace) *idempotency.Trace {
	i.start()
	t := copyOf(also)
	t.Done, t.Unknown = then(i.requestDone, t.Done), then(i.becameUnknown, t.Unknown)
	// An alert on an increase does not see the first value of a counter.
	i.server.unknown.Add(context.Background(), 0)
	for _, rare := range []idempotency.Disposition{idempotency.OutcomeUnknown, idempotency.StoreFailed} {
		i.server.requests.Add(context.Background(), 0, i.server.requestSeries.of(string(rare)).add...)
	}
	return t
}

// becameUnknown is a hook.
func (i *Instrumentation) becameUnknown(e *idempotency.Event) {
	i.server.unknown.Add(contextOf(e.Request), 1)
}

// contextOf returns the context of an event's request. Those of a Sweeper and of Quota.Take have none.
func contextOf(r *http.Request) context.Context {
	if r == nil {
		return context.Background()
	}
	return r.Context()
}

// requestDone is a hook.
func (i *Instrumentation) requestDone(e *idempotency.Event) {
	ctx := contextOf(e.Request)
	i.server.requests.Add(ctx, 1, i.server.requestSeries.of(string(e.Disposition)).add...)
	if span := trace.SpanFromContext(ctx); span.IsRecording() {
		span.SetAttributes(with([]attribute.KeyValue{keyDisposition.String(string(e.Disposition))}, keyKeyHash, e.KeyHash())...)
	}
}

// Watch exports the attempts of an Engine, and the contents of its Store, which it queries at
// each collection. It must be called before the first use of e. It adds a hook to e.Trace,
// which runs before those that e has. It wraps each of e.Gateways, so that each send and each
// status query has a span above those of its calls.
func (i *Instrumentation) Watch(e *durable.Engine) {
	i.start()
	i.mu.Lock()
	watched := slices.Contains(i.engines, e)
	i.mu.Unlock()
	if watched {
		return
	}
	e.Trace = copyOf(e.Trace)
	e.Trace.Changed = then(i.intentChanged, e.Trace.Changed)
	gateways := make(map[string]durable.Gateway, len(e.Gateways))
	for name, g := range e.Gateways {
		gateways[name] = i.gateway(name, g, e.Policy)
	}
	e.Gateways = gateways
	i.mu.Lock()
	i.engines = append(i.engines, e) // a collection may use it from now on
	i.mu.Unlock()
	i.register()
}

// intentChanged is a hook.
func (i *Instrumentation) intentChanged(c *durable.Change) {
	finished := c.FinishedAttempt
	if finished == nil {
		return
	}
	result := attemptResult{class: finished.Class.String()}
	if finished.Code != "" {
		result.code = i.server.codes.of(finished.Code)
	}
	i.server.attempts.Add(context.Background(), 1, i.server.attemptSeries.of(result).add...)
}
