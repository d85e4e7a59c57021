package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/exporters/stdout/stdoutmetric"
	"go.opentelemetry.io/otel/exporters/stdout/stdouttrace"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/resilientotel"
	"github.com/resilienthttp/resilienthttp/statepage"
)

// watch is the observability of the program: a logger, OpenTelemetry, and the page.
type watch struct {
	logger          *slog.Logger
	instrumentation *resilientotel.Instrumentation

	lines  lines // of the log
	spans  lines // of the stdout exporter
	traces *sdktrace.TracerProvider
	meters *metric.MeterProvider
	reader *metric.ManualReader
}

func newWatch() *watch {
	w := &watch{reader: metric.NewManualReader()}
	w.logger = slog.New(slog.NewTextHandler(&w.lines, nil))
	exporter, err := stdouttrace.New(stdouttrace.WithWriter(&w.spans))
	if err != nil {
		panic(err) // the writer is its only option
	}
	w.traces = sdktrace.NewTracerProvider(sdktrace.WithResource(resource.Empty()), sdktrace.WithSyncer(slowCalls{exporter}))
	w.meters = metric.NewMeterProvider(metric.WithResource(resource.Empty()), metric.WithReader(w.reader))
	w.instrumentation = &resilientotel.Instrumentation{TracerProvider: w.traces, MeterProvider: w.meters, Propagator: propagation.TraceContext{}}
	return w
}

// page returns the state page of the shop's Transport.
func (w *watch) page(t *resilienthttp.Transport) http.Handler {
	return &statepage.Handler{Title: "the shop", Transports: map[string]*resilienthttp.Transport{"shop": t}}
}

func (w *watch) close(ctx context.Context) error {
	w.instrumentation.Unregister()
	return errors.Join(w.traces.Shutdown(ctx), w.meters.Shutdown(ctx))
}

// writeMetrics writes all metrics with OpenTelemetry's stdout exporter.
func (w *watch) writeMetrics(ctx context.Context, out io.Writer) error {
	exporter, err := stdoutmetric.New(stdoutmetric.WithWriter(out), stdoutmetric.WithPrettyPrint())
	if err != nil {
		return err
	}
	var all metricdata.ResourceMetrics
	if err := w.reader.Collect(ctx, &all); err != nil {
		return err
	}
	return exporter.Export(ctx, &all)
}

// slow is the duration from which a call is exported.
const slow = 500 * time.Millisecond

// slowCalls exports the spans of slow calls only.
type slowCalls struct{ sdktrace.SpanExporter }

func (s slowCalls) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	for _, span := range spans {
		if strings.HasPrefix(span.Name(), "call ") && span.EndTime().Sub(span.StartTime()) >= slow {
			if err := s.SpanExporter.ExportSpans(ctx, []sdktrace.ReadOnlySpan{span}); err != nil {
				return err
			}
		}
	}
	return nil
}

// lines keeps a text that is written to it.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// last returns the last line with all of these words.
func (l *lines) last(words ...string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	found := ""
	for line := range strings.Lines(l.text.String()) {
		fits := true
		for _, word := range words {
			fits = fits && strings.Contains(line, word)
		}
		if fits {
			found = strings.TrimSpace(line)
		}
	}
	return found
}
