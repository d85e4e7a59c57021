package resilientotel

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/internal/bubble"
)

// The Options of the caller apply to the attempts. The providers and the propagator of the
// Instrumentation replace theirs. T3: what the options do not export is not exported.
func TestOptions(t *testing.T) {
	byPath := otelhttp.WithSpanNameFormatter(func(_ string, r *http.Request) string { return r.Method + " " + r.URL.Path })
	for _, row := range []struct {
		name    string
		options []otelhttp.Option
		check   func(t *testing.T, r *recording, base *scripted)
	}{
		{
			name:    "filter: no CLIENT span and no otelhttp metric, and the call is recorded",
			options: []otelhttp.Option{otelhttp.WithFilter(func(*http.Request) bool { return false })},
			check: func(t *testing.T, r *recording, base *scripted) {
				require.Len(t, r.spans.Ended(), 1)
				all := r.metrics(t)
				require.Zero(t, total(all, "#http.client.request.duration"))
				near(t, 1, total(all, "#"+metricCallDuration))
				require.Equal(t, []string{"", ""}, base.parent)
			},
		},
		{
			name: "span names: as formatted", options: []otelhttp.Option{byPath},
			check: func(t *testing.T, r *recording, _ *scripted) {
				require.Equal(t, "GET /v1/items", r.spans.Ended()[0].Name())
				require.Equal(t, "https://api.test:8443", valueOf(r.spans.Ended()[0], "url.full"))
			},
		},
		{
			name: "metric attributes: added to otelhttp's metrics",
			options: []otelhttp.Option{otelhttp.WithMetricAttributesFn(func(r *http.Request) []attribute.KeyValue { //nolint:staticcheck // callers may use it
				return []attribute.KeyValue{attribute.String("route", r.URL.Path)}
			})},
			check: func(t *testing.T, r *recording, _ *scripted) {
				const rest = " http.request.method=GET http.response.status_code=503 network.protocol.name=http network.protocol.version=1.1 route=/v1/items server.address=api.test server.port=8443 url.scheme=https}"
				near(t, 1, r.metrics(t)["#http.client.request.duration{error.type=503"+rest])
			},
		},
		{
			name: "span options: added", options: []otelhttp.Option{otelhttp.WithSpanOptions(trace.WithAttributes(attribute.String("team", "a")))},
			check: func(t *testing.T, r *recording, _ *scripted) {
				require.Equal(t, "a", valueOf(r.spans.Ended()[0], "team"))
				require.Equal(t, "client", r.spans.Ended()[0].SpanKind().String())
			},
		},
		{
			name: "providers and propagator: the Instrumentation's",
			options: []otelhttp.Option{
				otelhttp.WithTracerProvider(sdktrace.NewTracerProvider()), otelhttp.WithMeterProvider(metric.NewMeterProvider()), otelhttp.WithPropagators(propagation.Baggage{}),
			},
			check: func(t *testing.T, r *recording, base *scripted) {
				require.Len(t, r.spans.Ended(), 3)
				near(t, 2, total(r.metrics(t), "#http.client.request.duration"))
				r.clientSpansAreOnTheWire(t, base)
			},
		},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			r, base := record(), script(answer{status: 503}, answer{status: 200})
			r.Options = row.options
			rt := r.Wrap(&resilienthttp.Transport{Base: base, Policy: every(time.Second)})
			require.NoError(t, called(t, rt, get(t, t.Context(), "https://api.test:8443/v1/items?s3cr3t=1")))
			r.allEnded(t)
			row.check(t, r, base)
			require.NotContains(t, r.everything(t), "s3cr3t")
		})
	}
	bubble.Run(t, "no propagator of the Instrumentation: the options'", func(t *testing.T) {
		r, base := record(), script(answer{status: 200})
		r.Propagator, r.Options = nil, []otelhttp.Option{otelhttp.WithPropagators(propagation.TraceContext{})}
		require.NoError(t, called(t, r.Wrap(&resilienthttp.Transport{Base: base}), get(t, t.Context(), url)))
		r.clientSpansAreOnTheWire(t, base)
	})
}
