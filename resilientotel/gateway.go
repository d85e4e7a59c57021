package resilientotel

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/resilienthttp/resilienthttp/durable"
	"github.com/resilienthttp/resilienthttp/internal/idempotencykey"
)

// gateway is a Gateway with a span around each send. It is a Policy, as the Engine asks
// whether one is, and a Protector.
type gateway struct {
	durable.Gateway
	durable.Policy

	instruments *instruments
	name        string
}

// finder is one that can be asked.
type finder struct {
	gateway

	find durable.Finder
}

var (
	_ durable.Protector = gateway{}
	_ durable.Finder    = finder{}
)

// gateway puts spans around a Gateway of an Engine with a Policy.
func (i *Instrumentation) gateway(name string, of durable.Gateway, policy durable.Policy) durable.Gateway {
	if of == nil {
		return nil // which the Engine complains of
	}
	g := gateway{Gateway: of, Policy: policy, instruments: i.instruments, name: name}
	if own, ok := of.(durable.Policy); ok {
		g.Policy = own
	}
	if g.Policy == nil {
		g.Policy = durable.Schedule{}
	}
	if asks, ok := of.(durable.Finder); ok {
		return finder{g, asks}
	}
	return g
}

// KeyPolicy implements durable.Protector.
func (g gateway) KeyPolicy() (keyLife, settles time.Duration) {
	if p, ok := g.Gateway.(durable.Protector); ok {
		return p.KeyPolicy()
	}
	return 0, 0 // as the Engine has it
}

// Concurrency returns the Gateway's own number of workers, or 0.
func (g gateway) Concurrency() int {
	if own, ok := g.Gateway.(interface{ Concurrency() int }); ok {
		return own.Concurrency()
	}
	return 0
}

// Send implements durable.Gateway.
func (g gateway) Send(ctx context.Context, s *durable.Send) durable.Outcome {
	return g.within(ctx, "durable send", s, g.Gateway.Send)
}

// Find implements durable.Finder.
func (f finder) Find(ctx context.Context, s *durable.Send) durable.Outcome {
	return f.within(ctx, "durable find", s, f.find.Find)
}

func (g gateway) within(ctx context.Context, name string, s *durable.Send, do func(context.Context, *durable.Send) durable.Outcome) durable.Outcome {
	ctx, span := g.instruments.tracer.Start(ctx, name, trace.WithSpanKind(trace.SpanKindInternal))
	defer span.End() // also where it panics
	o := do(ctx, s)
	if span.IsRecording() {
		span.SetAttributes(attribute.String("resilienthttp.gateway", g.name), attribute.Int("resilienthttp.attempt", s.Number),
			keyHashKey.String(idempotencykey.Hash(s.Key)), attribute.String("resilienthttp.class", o.Class.String()))
		if o.Code != "" {
			span.SetAttributes(attribute.String("resilienthttp.code", o.Code))
		}
		if o.Status != 0 {
			span.SetAttributes(semconv.HTTPResponseStatusCode(o.Status))
		}
		if o.Class != durable.ClassSucceeded {
			span.SetAttributes(semconv.ErrorTypeKey.String(o.Class.String()))
			span.SetStatus(codes.Error, "")
		}
	}
	return o
}
