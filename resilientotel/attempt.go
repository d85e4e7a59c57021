package resilientotel

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/internal/neterr"
)

// attempts is the Base of an instrumented Transport: otelhttp around the Base that it had,
// with what otelhttp leaves out.
type attempts struct {
	otel *otelhttp.Transport
	base http.RoundTripper
}

// newAttempts puts otelhttp around a base, unless that is what it is already: then its
// options are the caller's, and there is one CLIENT span for an attempt all the same.
func newAttempts(c *client, base http.RoundTripper) http.RoundTripper {
	if _, already := base.(*otelhttp.Transport); already {
		return base
	}
	options := []otelhttp.Option{
		otelhttp.WithTracerProvider(attemptTracers{c.tracers, c}), otelhttp.WithMeterProvider(boundedMeters{c.meters, &c.servers}),
	}
	if c.propagator != nil {
		options = append(options, otelhttp.WithPropagators(c.propagator))
	}
	return &attempts{otelhttp.NewTransport(sender{base}, options...), base}
}

// RoundTrip implements http.RoundTripper.
func (a *attempts) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := a.otel.RoundTrip(r)
	if err == errNothing {
		return nil, nil //nolint:nilnil // which is what the base has returned, and the Transport judges
	}
	return resp, err
}

// CloseIdleConnections is forwarded: otelhttp does not do it.
func (a *attempts) CloseIdleConnections() {
	if closer, ok := a.base.(interface{ CloseIdleConnections() }); ok {
		closer.CloseIdleConnections()
	}
}

// Unwrap lets the Transport see what its Base is made of.
func (a *attempts) Unwrap() http.RoundTripper { return a.base }

// sender is the base as otelhttp sees it.
type sender struct{ base http.RoundTripper }

// errNothing stands for what a broken base returns: neither a response nor an error.
var errNothing = errors.New("neither a response nor an error")

// RoundTrip implements http.RoundTripper. The request is otelhttp's own copy.
func (s sender) RoundTrip(r *http.Request) (*http.Response, error) {
	span, _ := r.Context().Value(attemptKey{}).(*attemptSpan)
	back := false
	defer func() {
		if !back && span != nil { // it panics, or ends the goroutine: otelhttp leaves the span open
			span.Span.SetStatus(codes.Error, "panicked")
			span.End()
		}
	}()
	resp, err := s.base.RoundTrip(r)
	back = true
	switch {
	case err != nil:
		if span != nil {
			span.failed = err
		}
	case resp == nil:
		return nil, errNothing
	case resp.Body == nil:
		resp.Body = http.NoBody
	}
	return resp, err
}

// attemptTracers is a TracerProvider for otelhttp, whose spans say which attempt it is,
// and less of the URL.
type attemptTracers struct {
	trace.TracerProvider

	client *client
}

func (t attemptTracers) Tracer(name string, options ...trace.TracerOption) trace.Tracer {
	return attemptTracer{t.TracerProvider.Tracer(name, options...), t.client}
}

type attemptTracer struct {
	trace.Tracer

	client *client
}

func (t attemptTracer) Start(ctx context.Context, name string, options ...trace.SpanStartOption) (context.Context, trace.Span) {
	number, hedge := resilienthttp.AttemptFromContext(ctx)
	resent := number - 1
	if c := t.client.callOf(ctx); c != nil {
		resent = int(c.sent.Add(1)) - 1 // hedges, too, are requests that were sent again
	}
	ctx, span := t.Tracer.Start(ctx, name, options...)
	if resent > 0 {
		span.SetAttributes(semconv.HTTPRequestResendCount(resent))
	}
	if hedge {
		span.SetAttributes(hedgeKey.Bool(true))
	}
	s := &attemptSpan{Span: span, Context: ctx}
	return s, s
}

const hedgeKey = attribute.Key("resilienthttp.hedge")

// attemptSpan is an attempt's span, as otelhttp sees it, and the context that leads to it.
type attemptSpan struct {
	trace.Span
	context.Context //nolint:containedctx // it is one

	failed error // what the base has returned
}

type attemptKey struct{}

// Value implements context.Context.
func (s *attemptSpan) Value(key any) any {
	if key == (attemptKey{}) {
		return s
	}
	return s.Context.Value(key)
}

// SetAttributes cuts a URL behind its host. The attributes are otelhttp's own.
func (s *attemptSpan) SetAttributes(attributes ...attribute.KeyValue) {
	for i := range attributes {
		if attributes[i].Key == semconv.URLFullKey {
			attributes[i] = semconv.URLFull(origin(attributes[i].Value.AsString()))
		}
	}
	s.Span.SetAttributes(attributes...)
}

// origin is a URL up to its path.
func origin(url string) string {
	scheme, rest, ok := strings.Cut(url, "://")
	if !ok {
		scheme, _, _ = strings.Cut(url, ":")
		return scheme + ":" // an opaque one
	}
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		return url[:len(scheme)+len("://")+i]
	}
	return url
}

// SetStatus tells of an error what may be told.
func (s *attemptSpan) SetStatus(code codes.Code, description string) {
	if description != "" {
		err := s.failed
		if err == nil {
			err = errors.New(description)
		}
		description = neterr.SafeText(err)
	}
	s.Span.SetStatus(code, description)
}
