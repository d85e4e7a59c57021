package resilientotel

import (
	"context"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/attribute"
	otelmetric "go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/internal/interleave"
)

// sampled returns an Instrumentation over the SDK. All spans are sampled and none exported.
func sampled() *Instrumentation {
	return &Instrumentation{
		TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.AlwaysSample())),
		MeterProvider:  metric.NewMeterProvider(metric.WithReader(metric.NewManualReader())),
		Propagator:     propagation.TraceContext{},
	}
}

// otelhttpAlone returns otelhttp's Transport with the providers of i.
func otelhttpAlone(i *Instrumentation) http.RoundTripper {
	return otelhttp.NewTransport(immediate(), otelhttp.WithTracerProvider(i.TracerProvider),
		otelhttp.WithMeterProvider(i.MeterProvider), otelhttp.WithPropagators(i.Propagator))
}

// immediate returns a Base that responds at once.
func immediate() http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusOK, ProtoMajor: 1, ProtoMinor: 1, Proto: "HTTP/1.1", Header: http.Header{}, Body: http.NoBody, Request: r}, nil
	})
}

// attemptBases returns otelhttp alone, the Base of a wrapped Transport, and a request of an
// attempt, with a context that leads to the attempt and to the span of its call.
func attemptBases(tb testing.TB) (alone, wrapped http.RoundTripper, req *http.Request) {
	tb.Helper()
	i := sampled()
	tr := &resilienthttp.Transport{Base: immediate()}
	rt := i.Wrap(tr)
	base := tr.Base
	tr.Base = roundTripper(func(r *http.Request) (*http.Response, error) {
		req = r
		return base.RoundTrip(r)
	})
	require.NoError(tb, called(tb, rt, get(tb, context.Background(), "http://api.test/v1/things?page=2")))
	of, _ := req.Context().Value(callKey{}).(*call)
	return otelhttpAlone(i), roundTripper(func(r *http.Request) (*http.Response, error) {
		of.copies.started = 0 // a first attempt each time
		return base.RoundTrip(r)
	}), req
}

// contender sends n requests per round, and returns the CPU time that they took.
func contender(b *testing.B, name string, n int, rt http.RoundTripper, req *http.Request) interleave.Contender {
	b.Helper()
	return interleave.Contender{Name: name, Work: func() (int, time.Duration) {
		start := cpuTime()
		for range n {
			send(b, rt, req)
		}
		return n, cpuTime() - start
	}}
}

// withSpan returns a RoundTripper that records only an INTERNAL span and a duration of a call,
// with as many attributes as a wrapped Transport has for a success.
func withSpan(tb testing.TB, i *Instrumentation, rt http.RoundTripper) http.RoundTripper {
	tb.Helper()
	tracer := i.TracerProvider.Tracer("test")
	duration, err := i.MeterProvider.Meter("test").Float64Histogram("duration")
	require.NoError(tb, err)
	text := func(key attribute.Key) attribute.KeyValue { return key.String("text") }
	start := trace.WithAttributes(text("1"), text("2"))
	set := otelmetric.WithAttributeSet(attribute.NewSet(text("1"), text("2"), text("3")))
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		ctx, span := tracer.Start(r.Context(), "call", start)
		defer span.End()
		resp, err := rt.RoundTrip(r.WithContext(ctx))
		span.SetAttributes(text("3"), text("4"), text("5"), text("6"), text("7"), text("8"))
		duration.Record(ctx, 1, set)
		return resp, err
	})
}

// BenchmarkWrap measures the CPU time of Wrap in turns with otelhttp alone. "%-more" is the
// time that Wrap adds, in percent of the time of otelhttp.
//
// "attempt" is one request in the Base of a wrapped Transport. "call" is a call of a wrapped
// Transport, compared with a Transport with otelhttp as its Base. The time of the Transport itself
// is subtracted from both. "%-more-span" is the same for withSpan, which is what a span and a
// histogram cost in the SDK.
func BenchmarkWrap(b *testing.B) {
	const rounds, size = 60, 5000
	n := interleave.Size(size)
	measure := func(b *testing.B, contenders ...interleave.Contender) [][]float64 {
		b.Helper()
		left := 0
		rates := interleave.Turns(func() bool {
			if left--; left >= 0 {
				return true
			}
			left = rounds - 1
			return b.Loop()
		}, contenders...)
		for i := range rates {
			b.ReportMetric(1e9/interleave.Quantile(rates[i], 0.5), contenders[i].Name+"-cpu-ns")
		}
		b.ReportMetric(0, "ns/op") // it would be the time of all contenders together
		return rates
	}
	// more returns the median of the rounds.
	more := func(rates, over []float64, transport func(round int) float64) float64 {
		percents := make([]float64, len(rates))
		for i := range rates {
			percents[i] = 100 * ((1/rates[i]-transport(i))/(1/over[i]-transport(i)) - 1)
		}
		return interleave.Quantile(percents, 0.5)
	}
	b.Run("attempt", func(b *testing.B) {
		alone, wrapped, req := attemptBases(b)
		rates := measure(b, contender(b, "otelhttp", n, alone, req), contender(b, "wrapped", n, wrapped, req))
		b.ReportMetric(more(rates[1], rates[0], func(int) float64 { return 0 }), "%-more")
	})
	b.Run("call", func(b *testing.B) {
		req, i := get(b, context.Background(), "http://api.test/v1/things?page=2"), sampled()
		rates := measure(b,
			contender(b, "transport", n, &resilienthttp.Transport{Base: immediate()}, req),
			contender(b, "otelhttp", n, &resilienthttp.Transport{Base: otelhttpAlone(sampled())}, req),
			contender(b, "span", n, withSpan(b, i, &resilienthttp.Transport{Base: otelhttpAlone(i)}), req),
			contender(b, "wrapped", n, sampled().Wrap(&resilienthttp.Transport{Base: immediate()}), req))
		transport := func(round int) float64 { return 1 / rates[0][round] }
		b.ReportMetric(more(rates[2], rates[1], transport), "%-more-span")
		b.ReportMetric(more(rates[3], rates[1], transport), "%-more")
		b.ReportMetric(more(rates[3], rates[1], func(int) float64 { return 0 }), "%-more-with-transport")
	})
}

func send(tb testing.TB, rt http.RoundTripper, req *http.Request) {
	tb.Helper()
	resp, err := rt.RoundTrip(req)
	if err != nil {
		tb.Fatal(err)
	}
	_ = resp.Body.Close()
}

// An attempt allocates at most four objects more than otelhttp alone.
func TestWrap_attemptAllocations(t *testing.T) {
	if raceEnabled {
		t.Log("the race detector allocates, too")
		return
	}
	alone, wrapped, req := attemptBases(t)
	base := testing.AllocsPerRun(200, func() { send(t, alone, req) })
	got := testing.AllocsPerRun(200, func() { send(t, wrapped, req) })
	t.Logf("otelhttp %v, wrapped %v", base, got)
	require.LessOrEqual(t, got, base+4)
}

// BenchmarkCall measures a call: without instrumentation, with otelhttp as Base, wrapped, and
// wrapped without an SDK.
func BenchmarkCall(b *testing.B) {
	for name, rt := range map[string]http.RoundTripper{
		"bare":         &resilienthttp.Transport{Base: immediate()},
		"instrumented": sampled().Wrap(&resilienthttp.Transport{Base: immediate()}),
		"no SDK":       new(Instrumentation).Wrap(&resilienthttp.Transport{Base: immediate()}),
		"otelhttp":     &resilienthttp.Transport{Base: otelhttpAlone(sampled())},
	} {
		b.Run(name, func(b *testing.B) {
			req := get(b, context.Background(), "http://api.test/v1/things?page=2")
			b.ReportAllocs()
			for b.Loop() {
				send(b, rt, req)
			}
		})
	}
}

// BenchmarkCollect measures a collection of the state of a Transport with a thousand scopes.
func BenchmarkCollect(b *testing.B) {
	r := record()
	rt := r.Wrap(&resilienthttp.Transport{Base: immediate()})
	for i := range 1000 {
		req := get(b, context.Background(), "http://api.test/")
		req.URL.Host = "host-" + strconv.Itoa(i) + ".test"
		if err := called(b, rt, req); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		if err := r.reader.Collect(context.Background(), new(metricdata.ResourceMetrics)); err != nil {
			b.Fatal(err)
		}
	}
}
