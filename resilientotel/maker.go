package resilientotel

import (
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// maker makes instruments. An error is told to OpenTelemetry's handler: what it comes with
// can be used all the same.
type maker struct{ metric.Meter }

func must[T any](instrument T, err error) T {
	if err != nil {
		otel.Handle(err)
	}
	return instrument
}

func (m maker) counter(name, unit, text string) metric.Int64Counter {
	return must(m.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(text)))
}

func (m maker) seconds(name, text string) metric.Float64Histogram {
	return must(m.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(text), metric.WithExplicitBucketBoundaries(
		0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 30, 60, 120))) // otelhttp's, and longer
}

// series is a set of attributes as measurements want it: made once, and not for each.
type series struct {
	record []metric.RecordOption
	add    []metric.AddOption
}

func newSeries(attributes ...attribute.KeyValue) series {
	set := metric.WithAttributeSet(attribute.NewSet(attributes...))
	return series{[]metric.RecordOption{set}, []metric.AddOption{set}}
}

// labels are series by what their attributes are made of, K.
type labels[K comparable] struct {
	made       table[K, series]
	attributes func(K) []attribute.KeyValue
}

func (l *labels[K]) of(key K) series {
	if s, ok := l.made.get(key); ok {
		return s
	}
	s, _ := l.made.add(key, -1, func() (K, series) { return key, newSeries(l.attributes(key)...) })
	return s
}
