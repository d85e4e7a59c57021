package resilientotel

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"

	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/internal/neterr"
)

// attemptBase is the Base of a wrapped Transport: otelhttp around the Base that it had.
type attemptBase struct {
	otel *otelhttp.Transport
	base http.RoundTripper
}

// newAttemptBase puts otelhttp around a base. A base that is otelhttp is returned as it is, so
// that an attempt has one CLIENT span.
func newAttemptBase(c *client, base http.RoundTripper) http.RoundTripper {
	if _, ok := base.(*otelhttp.Transport); ok {
		return base
	}
	options := append(slices.Clone(c.options),
		otelhttp.WithTracerProvider(attemptTracers{c.tracers, c}), otelhttp.WithMeterProvider(attemptMeters{c.meters, &c.attempts}))
	if c.propagator != nil {
		options = append(options, otelhttp.WithPropagators(c.propagator))
	}
	return &attemptBase{otelhttp.NewTransport(sender{base, c}, options...), base}
}

// RoundTrip implements http.RoundTripper.
func (a *attemptBase) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := a.otel.RoundTrip(r)
	if err == errNoResponse {
		return nil, nil //nolint:nilnil // the result of the base, which the Transport judges
	}
	return resp, err
}

// CloseIdleConnections calls that of the base, which otelhttp does not.
func (a *attemptBase) CloseIdleConnections() {
	if closer, ok := a.base.(interface{ CloseIdleConnections() }); ok {
		closer.CloseIdleConnections()
	}
}

// Unwrap returns the Base that the Transport had.
func (a *attemptBase) Unwrap() http.RoundTripper { return a.base }

// sender is the base below otelhttp. It observes the errors of attempts, because otelhttp
// reports only their Go types.
type sender struct {
	base   http.RoundTripper
	client *client
}

// errNoResponse replaces the result of a broken base without a response and an error.
var errNoResponse = errors.New("neither a response nor an error")

// RoundTrip implements http.RoundTripper. The request is a copy that otelhttp made.
func (s sender) RoundTrip(r *http.Request) (*http.Response, error) {
	span := s.client.attemptOf(r.Context())
	if span == nil { // a filter has excluded the request
		return s.base.RoundTrip(r)
	}
	returned := false
	defer func() {
		if !returned { // the base panics or ends the goroutine, and otelhttp does not end the span
			span.Span.SetAttributes(semconv.ErrorTypeOther)
			span.Span.SetStatus(codes.Error, "panic in the base")
			span.returned(nil)
			span.End()
		}
	}()
	resp, err := s.base.RoundTrip(r)
	returned = true
	if err == nil && resp == nil {
		err = errNoResponse
	}
	if err != nil {
		span.failure.Store(newFailure(span.Context, err, false))
		span.returned(nil)
		return resp, err
	}
	span.returned(resp)
	if resp.Body == nil {
		resp.Body = http.NoBody
	}
	span.wrapBody(resp)
	return resp, nil
}

// failure is the error of an attempt, or of the body of its response.
type failure struct {
	errorType string // "": the attempt was canceled because another copy had its response first
	text      string
	inBody    bool
}

// newFailure describes an error of an attempt with this context. If the Transport has ended
// the context, its reason counts, as in the attempt's Err.
func newFailure(ctx context.Context, err error, inBody bool) *failure {
	cause, reason := context.Cause(ctx), err
	switch {
	case is(cause, neterr.ErrSuperseded):
		return &failure{inBody: inBody}
	case is(cause, resilienthttp.ErrReadTimeout):
		reason = cause
	case ctx.Err() != nil:
		reason = ctx.Err()
	}
	return &failure{resilienthttp.ErrorType(reason), neterr.SafeText(err), inBody}
}

// wrapBody makes the span observe the errors of the body.
func (s *attemptSpan) wrapBody(resp *http.Response) {
	if resp.Body == http.NoBody {
		return
	}
	s.body = resp.Body
	if _, writable := resp.Body.(io.Writer); writable {
		resp.Body = (*upgradedBody)(s)
	} else {
		resp.Body = (*attemptBody)(s)
	}
}

// attemptBody is the body of a response.
type attemptBody attemptSpan

// Read implements io.Reader.
func (b *attemptBody) Read(p []byte) (int, error) {
	n, err := b.body.Read(p)
	if err != nil && err != io.EOF {
		b.failure.Store(newFailure(b.Context, err, true))
	}
	return n, err
}

// Close implements io.Closer.
func (b *attemptBody) Close() error { return b.body.Close() }

// upgradedBody is the body of a response with the status 101.
type upgradedBody attemptSpan

// Read implements io.Reader.
func (b *upgradedBody) Read(p []byte) (int, error) { return (*attemptBody)(b).Read(p) }

// Write implements io.Writer.
func (b *upgradedBody) Write(p []byte) (int, error) {
	n, err := b.body.(io.Writer).Write(p) //nolint:errcheck // wrapBody has checked the type
	if err != nil {
		b.failure.Store(newFailure(b.Context, err, true))
	}
	return n, err
}

// Close implements io.Closer.
func (b *upgradedBody) Close() error { return b.body.Close() }
