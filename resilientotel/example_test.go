package resilientotel_test

import (
	"context"
	"fmt"
	"net/http"
	"sort"

	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/admission"
	"github.com/resilienthttp/resilienthttp/durable"
	"github.com/resilienthttp/resilienthttp/faulttest"
	"github.com/resilienthttp/resilienthttp/idempotency"
	"github.com/resilienthttp/resilienthttp/resilientotel"
)

// The spans of one call with two attempts, and the names of its metrics.
func Example() {
	api := faulttest.New(nil, faulttest.Sequence(faulttest.Status(http.StatusServiceUnavailable), faulttest.OK("")))
	defer api.Close()
	spans, reader := tracetest.NewSpanRecorder(), metric.NewManualReader()
	tracerProvider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
	meterProvider := metric.NewMeterProvider(metric.WithReader(reader))

	transport := &resilienthttp.Transport{}
	instrumentation := &resilientotel.Instrumentation{TracerProvider: tracerProvider, MeterProvider: meterProvider}
	client := &http.Client{Transport: instrumentation.Wrap(transport)} // set Trace before, and call after

	resp, err := client.Get(api.URL)
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = resp.Body.Close()
	for _, span := range spans.Ended() {
		fmt.Println(span.SpanKind(), span.Name())
	}
	var metrics metricdata.ResourceMetrics
	if err := reader.Collect(context.Background(), &metrics); err != nil {
		fmt.Println(err)
	}
	var names []string
	for _, scope := range metrics.ScopeMetrics {
		if scope.Scope.Name != resilientotel.ScopeName {
			continue // the metrics of otelhttp
		}
		for _, m := range scope.Metrics {
			names = append(names, m.Name)
		}
	}
	sort.Strings(names)
	for _, name := range names {
		fmt.Println(name)
	}
	// Unordered output:
	// client HTTP GET
	// client HTTP GET
	// internal call GET
	// resilienthttp.client.active_attempts
	// resilienthttp.client.breaker.state
	// resilienthttp.client.call.duration
	// resilienthttp.client.retries
	// resilienthttp.client.retry_budget.remaining
	// resilienthttp.client.wait.duration
	// resilienthttp.client.waiting_calls
}

// The server-side packages.
func ExampleInstrumentation_server() {
	instrumentation := &resilientotel.Instrumentation{}
	handler := &idempotency.Handler{}
	engine := &durable.Engine{}
	shedder, quota := &admission.Shedder{}, &admission.Quota{Limit: 100}

	handler.Trace = instrumentation.TraceIdempotency(idempotency.LogTrace(nil)) // package idempotency
	instrumentation.Watch(engine)                                               // package durable, before its first use
	instrumentation.WatchShedder("front", shedder)                              // package admission
	shedder.Trace = instrumentation.TraceAdmission(nil)
	quota.Trace = instrumentation.TraceAdmission(nil)

	fmt.Println(handler.Trace != nil, engine.Trace != nil, shedder.Trace != nil, quota.Trace != nil, quota.Validate())
	instrumentation.Unregister()
	// Output: true true true true <nil>
}
