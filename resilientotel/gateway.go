package resilientotel

import (
	"cmp"
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/durable"
	"github.com/resilienthttp/resilienthttp/internal/idempotencykey"
)

// gateway is a Gateway with a span for each send. It is also a Policy and a Protector, because
// the Engine checks whether a Gateway is.
type gateway struct {
	durable.Gateway
	durable.Policy

	instruments *instruments
	name        string
}

// finder is a gateway that is also a Finder.
type finder struct {
	gateway

	find durable.Finder
}

var (
	_ durable.Protector = gateway{}
	_ durable.Finder    = finder{}
)

// gateway wraps a Gateway of an Engine with this Policy.
func (i *Instrumentation) gateway(name string, of durable.Gateway, policy durable.Policy) durable.Gateway {
	if of == nil {
		return nil // Engine.Validate reports it
	}
	g := gateway{Gateway: of, Policy: cmp.Or[durable.Policy](policy, durable.Schedule{}), instruments: i.instruments, name: name}
	if own, ok := of.(durable.Policy); ok {
		g.Policy = own
	}
	if f, ok := of.(durable.Finder); ok {
		return finder{g, f}
	}
	return g
}

// KeyPolicy implements durable.Protector.
func (g gateway) KeyPolicy() (keyTTL, visibilityDelay time.Duration) {
	if p, ok := g.Gateway.(durable.Protector); ok {
		return p.KeyPolicy()
	}
	return 0, 0 // the Engine's values
}

// Concurrency returns the Gateway's own number of workers, or 0.
func (g gateway) Concurrency() int {
	if own, ok := g.Gateway.(interface{ Concurrency() int }); ok {
		return own.Concurrency()
	}
	return 0
}

// LimitsPerScope reports whether the provider limits each scope.
func (g gateway) LimitsPerScope() bool {
	own, ok := g.Gateway.(interface{ LimitsPerScope() bool })
	return ok && own.LimitsPerScope()
}

// Send implements durable.Gateway.
func (g gateway) Send(ctx context.Context, s *durable.Send) durable.Outcome {
	return g.trace(ctx, "durable send", s, g.Gateway.Send)
}

// Find implements durable.Finder.
func (f finder) Find(ctx context.Context, s *durable.Send) durable.Outcome {
	return f.trace(ctx, "durable find", s, f.find.Find)
}

func (g gateway) trace(ctx context.Context, name string, s *durable.Send, do func(context.Context, *durable.Send) durable.Outcome) durable.Outcome {
	ctx, span := g.instruments.tracer.Start(ctx, name, trace.WithSpanKind(trace.SpanKindInternal))
	defer span.End() // also if the Gateway panics
	o := do(ctx, s)
	if span.IsRecording() {
		g.describe(span, s, &o)
	}
	return o
}

// describe sets the attributes and the status of the span.
func (g gateway) describe(span trace.Span, s *durable.Send, o *durable.Outcome) {
	attributes := []attribute.KeyValue{
		keyGateway.String(g.name), keyAttemptNumber.Int(s.Number), keyKeyHash.String(idempotencykey.Hash(s.Key)), keyClass.String(o.Class.String()),
	}
	attributes = with(attributes, keyCode, o.Code)
	if o.Status != 0 {
		attributes = append(attributes, semconv.HTTPResponseStatusCode(o.Status))
	}
	if o.Class != durable.ClassSucceeded {
		attributes = append(attributes, semconv.ErrorTypeKey.String(errorTypeOfOutcome(o)))
		span.SetStatus(codes.Error, "")
	}
	span.SetAttributes(attributes...)
}

// errorTypeOfOutcome returns the status code of an outcome that is no success, or the
// error.type of its error.
func errorTypeOfOutcome(o *durable.Outcome) string {
	if name := errorTypeOfStatus(o.Status); name != "" {
		return name
	}
	return cmp.Or(resilienthttp.ErrorType(o.Err), other)
}
