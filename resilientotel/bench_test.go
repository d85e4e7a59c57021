package resilientotel

import (
	"context"
	"net/http"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/resilienthttp/resilienthttp"
)

// telling is an Instrumentation over the SDK, whose spans are sampled and go nowhere.
func telling() *Instrumentation {
	return &Instrumentation{
		TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.AlwaysSample())),
		MeterProvider:  metric.NewMeterProvider(metric.WithReader(metric.NewManualReader())),
		Propagator:     propagation.TraceContext{},
	}
}

// quick is a Base that answers at once.
func quick() http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusOK, ProtoMajor: 1, ProtoMinor: 1, Proto: "HTTP/1.1", Header: http.Header{}, Body: http.NoBody, Request: r}, nil
	})
}

// bases are otelhttp alone, and as an instrumented Transport has it, and a request as an
// attempt sends it: its context leads to the attempt, and to its call's span.
func bases(tb testing.TB) (alone, ours http.RoundTripper, req *http.Request) {
	tb.Helper()
	i := telling()
	alone = otelhttp.NewTransport(quick(), otelhttp.WithTracerProvider(i.TracerProvider), otelhttp.WithMeterProvider(i.MeterProvider), otelhttp.WithPropagators(i.Propagator))
	tr := &resilienthttp.Transport{Base: quick()}
	rt, _ := i.Wrap(tr).(*client)
	ours = tr.Base
	tr.Base = roundTripper(func(r *http.Request) (*http.Response, error) {
		req = r
		return ours.RoundTrip(r)
	})
	require.NoError(tb, called(tb, rt, get(tb, context.Background(), "http://api.test/v1/things?page=2")))
	return alone, ours, req
}

// BenchmarkAttempt is an attempt's span: otelhttp alone, and ours on it.
func BenchmarkAttempt(b *testing.B) {
	alone, ours, req := bases(b)
	for name, rt := range map[string]http.RoundTripper{"otelhttp": alone, "ours": ours} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				attempt(b, rt, req)
			}
		})
	}
}

// attempt is a first one.
func attempt(tb testing.TB, rt http.RoundTripper, req *http.Request) {
	tb.Helper()
	if of, ok := req.Context().Value(callKey{}).(*call); ok {
		of.sent.Store(0)
	}
	resp, err := rt.RoundTrip(req)
	if err != nil {
		tb.Fatal(err)
	}
	_ = resp.Body.Close()
}

// TestAttemptAllocations: at most four more than otelhttp's own.
func TestAttemptAllocations(t *testing.T) {
	if raceEnabled {
		t.Log("the race detector allocates, too")
		return
	}
	alone, ours, req := bases(t)
	base := testing.AllocsPerRun(200, func() { attempt(t, alone, req) })
	more := testing.AllocsPerRun(200, func() { attempt(t, ours, req) })
	t.Logf("otelhttp %v, ours %v", base, more)
	require.LessOrEqual(t, more, base+4)
}

// BenchmarkCall is a whole call: without instrumentation, with otelhttp alone, with ours,
// and with ours where nobody listens.
func BenchmarkCall(b *testing.B) {
	i := telling()
	alone := otelhttp.NewTransport(quick(), otelhttp.WithTracerProvider(i.TracerProvider), otelhttp.WithMeterProvider(i.MeterProvider), otelhttp.WithPropagators(i.Propagator))
	for name, rt := range map[string]http.RoundTripper{
		"bare":         &resilienthttp.Transport{Base: quick()},
		"instrumented": telling().Wrap(&resilienthttp.Transport{Base: quick()}),
		"nobody":       new(Instrumentation).Wrap(&resilienthttp.Transport{Base: quick()}),
		"otelhttp":     &resilienthttp.Transport{Base: alone},
	} {
		b.Run(name, func(b *testing.B) {
			req := get(b, context.Background(), "http://api.test/v1/things?page=2")
			b.ReportAllocs()
			for b.Loop() {
				resp, err := rt.RoundTrip(req)
				if err != nil {
					b.Fatal(err)
				}
				_ = resp.Body.Close()
			}
		})
	}
}

// BenchmarkCollect is what an exporter's question costs, of a Transport that knows a
// thousand scopes.
func BenchmarkCollect(b *testing.B) {
	r := record()
	rt := r.Wrap(&resilienthttp.Transport{Base: quick()})
	for i := range 1000 {
		req := get(b, context.Background(), "http://api.test/")
		req.URL.Host = "host-" + strconv.Itoa(i) + ".test"
		if err := called(b, rt, req); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		var all metricdata.ResourceMetrics
		if err := r.reader.Collect(context.Background(), &all); err != nil {
			b.Fatal(err)
		}
	}
}
