package resilientotel

import (
	"context"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// meter creates instruments. Errors go to OpenTelemetry's error handler. The instruments that
// come with an error can be used and do nothing.
type meter struct {
	metric.Meter

	observables []metric.Observable // to which collect adds what it reads
}

func must[T any](instrument T, err error) T {
	if err != nil {
		otel.Handle(err)
	}
	return instrument
}

func (m *meter) counter(name, unit, description string) metric.Int64Counter {
	return must(m.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(description)))
}

func (m *meter) gauge(name, unit, description string) metric.Int64ObservableGauge {
	return observable(m, must(m.Int64ObservableGauge(name, metric.WithUnit(unit), metric.WithDescription(description))))
}

func (m *meter) floatGauge(name, unit, description string) metric.Float64ObservableGauge {
	return observable(m, must(m.Float64ObservableGauge(name, metric.WithUnit(unit), metric.WithDescription(description))))
}

func (m *meter) upDownCounter(name, unit, description string) metric.Int64ObservableUpDownCounter {
	return observable(m, must(m.Int64ObservableUpDownCounter(name, metric.WithUnit(unit), metric.WithDescription(description))))
}

func observable[T metric.Observable](m *meter, instrument T) T {
	m.observables = append(m.observables, instrument)
	return instrument
}

// seconds creates a histogram with the bucket boundaries of otelhttp, and longer ones.
func (m *meter) seconds(name, description string) metric.Float64Histogram {
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

// scopedCounter counts by scope and the value of a second attribute.
type scopedCounter struct {
	metric.Int64Counter

	series seriesTable[scoped]
}

// scopedCounter creates one with this key of the second attribute.
func (m *meter) scopedCounter(key attribute.Key, name, unit, description string) *scopedCounter {
	c := &scopedCounter{Int64Counter: m.counter(name, unit, description)}
	c.series.attributes = scopedBy(key)
	return c
}

func (c *scopedCounter) count(ctx context.Context, s scoped) { c.Add(ctx, 1, c.series.of(s).add...) }

// scoped is a scope, the value of a second attribute, and for circuits the priority if it is not
// the default.
type scoped struct{ scope, value, priority string }

func scopedBy(key attribute.Key) func(scoped) []attribute.KeyValue {
	return func(s scoped) []attribute.KeyValue {
		return append(scopeAttributes(s.scope, s.priority), key.String(s.value))
	}
}

// seriesTable holds the series of a metric by the values of its attributes, K. Their number
// must be bounded.
type seriesTable[K comparable] struct {
	known      table[K, series]
	attributes func(K) []attribute.KeyValue
}

func (t *seriesTable[K]) of(key K) series {
	s, _ := t.known.add(key, -1, func() (K, series) { return key, newSeries(t.attributes(key)...) })
	return s
}
