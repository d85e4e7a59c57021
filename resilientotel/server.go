package resilientotel

import (
	"context"
	"slices"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/resilienthttp/resilienthttp/durable"
	"github.com/resilienthttp/resilienthttp/durable/driver"
	"github.com/resilienthttp/resilienthttp/idempotency"
)

// TraceIdempotency returns hooks for an idempotency.Handler, Executor or Sweeper. They
// count, and tell the span of the request, otelhttp.NewHandler's say, what was done with it:
// resilienthttp.disposition, and the hash of its key. also are hooks that are called after
// them; nil: none.
func (i *Instrumentation) TraceIdempotency(also *idempotency.Trace) *idempotency.Trace {
	i.start()
	t := idempotency.Trace{}
	if also != nil {
		t = *also
	}
	t.Done = then(i.keyed, t.Done)
	return &t
}

// keyed is a hook.
func (i *Instrumentation) keyed(e *idempotency.Event) {
	ctx := context.Background()
	if e.Request != nil {
		ctx = e.Request.Context()
	}
	i.server.requests.Add(ctx, 1, i.server.dispositions.of(string(e.Disposition)).add...)
	if span := trace.SpanFromContext(ctx); span.IsRecording() {
		attributes := []attribute.KeyValue{attribute.String("resilienthttp.disposition", string(e.Disposition))}
		if hash := e.KeyHash(); hash != "" {
			attributes = append(attributes, keyHashKey.String(hash))
		}
		span.SetAttributes(attributes...)
	}
}

// Watch makes an Engine tell what it does, and what its Store holds whenever metrics are
// collected, which asks the Store to count. It must be called before e's first use, and
// changes two of its fields: Trace gets a hook more, which runs before those that it has,
// and each of Gateways one around it that makes a span of each send and each question,
// above those of the calls that it makes.
func (i *Instrumentation) Watch(e *durable.Engine) {
	i.start()
	if i.watches(e) {
		return
	}
	t := durable.Trace{}
	if e.Trace != nil {
		t = *e.Trace
	}
	t.Changed = then(i.changed, t.Changed)
	e.Trace = &t
	gateways := make(map[string]durable.Gateway, len(e.Gateways))
	for name, g := range e.Gateways {
		gateways[name] = i.gateway(name, g, e.Policy)
	}
	e.Gateways = gateways
	i.watch(e) // which may use it at once
	i.observe()
}

func (i *Instrumentation) watches(e *durable.Engine) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return slices.Contains(i.watched, e)
}

func (i *Instrumentation) watch(e *durable.Engine) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.watched = append(i.watched, e)
}

// changed is a hook.
func (i *Instrumentation) changed(c *driver.Change) {
	ended := c.FinishedAttempt
	if ended == nil {
		return
	}
	end := attemptEnd{class: ended.Class.String()}
	if ended.Code != "" {
		end.code = i.server.codes.of(ended.Code)
	}
	i.server.attempts.Add(context.Background(), 1, i.server.ends.of(end).add...)
}
