package resilientotel

import (
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// meter creates instruments. Errors go to OpenTelemetry's error handler. The instruments that
// come with an error can be used and do nothing.
type meter struct{ metric.Meter }

func must[T any](instrument T, err error) T {
	if err != nil {
		otel.Handle(err)
	}
	return instrument
}

func (m meter) counter(name, unit, description string) metric.Int64Counter {
	return must(m.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(description)))
}

func (m meter) gauge(name, unit, description string) metric.Int64ObservableGauge {
	return must(m.Int64ObservableGauge(name, metric.WithUnit(unit), metric.WithDescription(description)))
}

func (m meter) upDownCounter(name, unit, description string) metric.Int64ObservableUpDownCounter {
	return must(m.Int64ObservableUpDownCounter(name, metric.WithUnit(unit), metric.WithDescription(description)))
}

// seconds creates a histogram with the bucket boundaries of otelhttp, and longer ones.
func (m meter) seconds(name, description string) metric.Float64Histogram {
	return must(m.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(description), metric.WithExplicitBucketBoundaries(
		0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 30, 60, 120)))
}

// series is a set of attributes in the form of measurement options. It is created once per
// set, not once per measurement.
type series struct {
	record []metric.RecordOption
	add    []metric.AddOption
}

func newSeries(attributes ...attribute.KeyValue) series {
	set := metric.WithAttributeSet(attribute.NewSet(attributes...))
	return series{[]metric.RecordOption{set}, []metric.AddOption{set}}
}

func observed(attributes ...attribute.KeyValue) metric.ObserveOption {
	return metric.WithAttributeSet(attribute.NewSet(attributes...))
}

// seriesTable holds the series of a metric by the values of its attributes, K. Their number
// must be bounded.
type seriesTable[K comparable] struct {
	known      table[K, series]
	attributes func(K) []attribute.KeyValue
}

func (t *seriesTable[K]) of(key K) series {
	if s, ok := t.known.get(key); ok {
		return s
	}
	s, _ := t.known.add(key, -1, func() (K, series) { return key, newSeries(t.attributes(key)...) })
	return s
}
