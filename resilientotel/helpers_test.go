package resilientotel

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"sort"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	promexporter "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/resilienthttp/resilienthttp"
)

// recording is an Instrumentation that keeps all spans and metrics.
type recording struct {
	Instrumentation

	spans  *tracetest.SpanRecorder
	reader *metric.ManualReader
}

func record() *recording {
	r := &recording{spans: tracetest.NewSpanRecorder(), reader: metric.NewManualReader()}
	r.TracerProvider = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(r.spans))
	r.MeterProvider = metric.NewMeterProvider(metric.WithReader(r.reader))
	r.Propagator = propagation.TraceContext{}
	return r
}

// allEnded requires that each span has ended once.
func (r *recording) allEnded(tb testing.TB) {
	tb.Helper()
	ended := map[string]bool{}
	for _, s := range r.spans.Ended() {
		id := s.SpanContext().SpanID().String()
		require.False(tb, ended[id], "a span has ended twice")
		ended[id] = true
	}
	for _, s := range r.spans.Started() {
		require.True(tb, ended[s.SpanContext().SpanID().String()], "open: %s", s.Name())
	}
}

// tree returns all ended spans as text: children below their parents, in the order of their
// starts, with attributes, events and the time since the first start.
func (r *recording) tree() string {
	spans := r.spans.Ended()
	sort.SliceStable(spans, func(i, j int) bool { return spans[i].StartTime().Before(spans[j].StartTime()) })
	var b strings.Builder
	var below func(parent, indent string)
	below = func(parent, indent string) {
		for _, s := range spans {
			of := ""
			if s.Parent().SpanID().IsValid() {
				of = s.Parent().SpanID().String()
			}
			if of != parent {
				continue
			}
			since := func(t time.Time) time.Duration { return t.Sub(spans[0].StartTime()) }
			fmt.Fprintf(&b, "%s%s %s %v–%v", indent, s.SpanKind(), s.Name(), since(s.StartTime()), since(s.EndTime()))
			if s.Status().Code != codes.Unset {
				fmt.Fprintf(&b, " %s %q", s.Status().Code, s.Status().Description)
			}
			fmt.Fprintf(&b, "\n%s  %s\n", indent, pairs(s.Attributes()))
			for _, e := range s.Events() {
				fmt.Fprintf(&b, "%s  * %v %s %s\n", indent, since(e.Time), e.Name, pairs(e.Attributes))
			}
			below(s.SpanContext().SpanID().String(), indent+"  ")
		}
	}
	below("", "")
	return b.String()
}

func pairs(attributes []attribute.KeyValue) string {
	texts := make([]string, 0, len(attributes))
	for _, a := range attributes {
		texts = append(texts, string(a.Key)+"="+a.Value.String())
	}
	slices.Sort(texts)
	return strings.Join(texts, " ")
}

// metrics returns the value of each series, by "name{attributes}". The value of a histogram is
// its sum. Its count has the key "#name{attributes}".
func (r *recording) metrics(tb testing.TB) map[string]float64 {
	tb.Helper()
	var all metricdata.ResourceMetrics
	require.NoError(tb, r.reader.Collect(tb.Context(), &all))
	found := map[string]float64{}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			switch data := m.Data.(type) {
			case metricdata.Sum[int64]:
				points(found, m.Name, data.DataPoints)
			case metricdata.Gauge[int64]:
				points(found, m.Name, data.DataPoints)
			case metricdata.Gauge[float64]:
				points(found, m.Name, data.DataPoints)
			case metricdata.Histogram[float64]:
				buckets(found, m.Name, data.DataPoints)
			case metricdata.Histogram[int64]:
				buckets(found, m.Name, data.DataPoints)
			default:
				require.Fail(tb, "unknown data", "%T", data)
			}
		}
	}
	return found
}

func points[N int64 | float64](to map[string]float64, name string, from []metricdata.DataPoint[N]) {
	for _, p := range from {
		to[name+"{"+pairs(p.Attributes.ToSlice())+"}"] = float64(p.Value)
	}
}

func buckets[N int64 | float64](to map[string]float64, name string, from []metricdata.HistogramDataPoint[N]) {
	for _, p := range from {
		series := name + "{" + pairs(p.Attributes.ToSlice()) + "}"
		to[series], to["#"+series] = float64(p.Sum), float64(p.Count)
	}
}

// total returns the sum of all series of a metric. With "#name" it is the sum of the counts.
func total(all map[string]float64, name string) (sum float64) {
	for series, value := range all {
		if strings.HasPrefix(series, name+"{") {
			sum += value
		}
	}
	return sum
}

// seriesOf returns the number of series of a metric.
func seriesOf(all map[string]float64, name string) (n int) {
	for series := range all {
		if strings.HasPrefix(series, name+"{") {
			n++
		}
	}
	return n
}

// exporting returns an Instrumentation that exports to a registry of Prometheus.
func exporting(tb testing.TB) (*Instrumentation, *prometheus.Registry) {
	tb.Helper()
	registry := prometheus.NewRegistry()
	exporter, err := promexporter.New(promexporter.WithRegisterer(registry))
	require.NoError(tb, err)
	return &Instrumentation{MeterProvider: metric.NewMeterProvider(metric.WithReader(exporter))}, registry
}

// near requires that two numbers are equal, except for rounding.
func near(tb testing.TB, want, got float64, what ...any) {
	tb.Helper()
	require.InDelta(tb, want, got, 1e-6, what...)
}

// everything returns all spans and metrics as text.
func (r *recording) everything(tb testing.TB) string {
	tb.Helper()
	var all metricdata.ResourceMetrics
	require.NoError(tb, r.reader.Collect(tb.Context(), &all))
	text, err := json.Marshal(struct {
		Spans   tracetest.SpanStubs
		Metrics metricdata.ResourceMetrics
	}{tracetest.SpanStubsFromReadOnlySpans(r.spans.Ended()), all})
	require.NoError(tb, err)
	return string(text) + r.tree()
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// answer is a step of a script: a status or an error after some time.
type answer struct {
	after  time.Duration
	status int
	err    error
	header []string // in pairs
}

// script returns a Base that gives each request the next answer, and the last one to all later
// requests. It returns when the context ends.
func script(answers ...answer) *scripted { return &scripted{answers: answers} }

type scripted struct {
	answers []answer

	mu     sync.Mutex
	parent []string // traceparent
}

func (s *scripted) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		_ = r.Body.Close()
	}
	s.mu.Lock()
	a := s.answers[min(len(s.parent), len(s.answers)-1)]
	s.parent = append(s.parent, r.Header.Get("Traceparent"))
	s.mu.Unlock()
	select {
	case <-time.After(a.after):
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
	if a.err != nil {
		return nil, a.err
	}
	return respond(r, a.status, a.header...), nil
}

func respond(r *http.Request, status int, header ...string) *http.Response {
	h := http.Header{}
	for i := 0; i+1 < len(header); i += 2 {
		h.Set(header[i], header[i+1])
	}
	return &http.Response{
		StatusCode: status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: h, Body: http.NoBody, Request: r,
	}
}

func get(tb testing.TB, ctx context.Context, url string) *http.Request {
	tb.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	require.NoError(tb, err)
	return req
}

// called makes a call and closes the body of its response.
func called(tb testing.TB, rt http.RoundTripper, req *http.Request) error {
	tb.Helper()
	resp, err := rt.RoundTrip(req)
	if err == nil {
		require.NoError(tb, resp.Body.Close())
	}
	return err
}

// every returns a Policy with a constant backoff.
func every(d time.Duration) resilienthttp.Policy {
	return resilienthttp.Policy{Backoff: resilienthttp.Constant(d)}
}

func never() *resilienthttp.Breaker { return &resilienthttp.Breaker{FailureRatio: -1} }

// errOf is the error of a call. The value does not matter.
func errOf[T any](_ T, err error) error { return err }
