package resilientotel

import (
	"context"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
)

// boundedMeters is a MeterProvider for otelhttp, whose metrics have the server's address:
// beyond so many servers all others are one.
type boundedMeters struct {
	metric.MeterProvider

	servers *servers
}

func (b boundedMeters) Meter(name string, options ...metric.MeterOption) metric.Meter {
	return boundedMeter{b.MeterProvider.Meter(name, options...), b.servers}
}

type boundedMeter struct {
	metric.Meter

	servers *servers
}

func (b boundedMeter) Float64Histogram(name string, options ...metric.Float64HistogramOption) (metric.Float64Histogram, error) {
	h, err := b.Meter.Float64Histogram(name, options...)
	return boundedFloats{h, b.servers}, err
}

func (b boundedMeter) Int64Histogram(name string, options ...metric.Int64HistogramOption) (metric.Int64Histogram, error) {
	h, err := b.Meter.Int64Histogram(name, options...)
	return boundedInts{h, b.servers}, err
}

type boundedFloats struct {
	metric.Float64Histogram

	servers *servers
}

func (b boundedFloats) Record(ctx context.Context, value float64, options ...metric.RecordOption) {
	b.Float64Histogram.Record(ctx, value, b.servers.bound(options)...)
}

type boundedInts struct {
	metric.Int64Histogram

	servers *servers
}

func (b boundedInts) Record(ctx context.Context, value int64, options ...metric.RecordOption) {
	b.Int64Histogram.Record(ctx, value, b.servers.bound(options)...)
}

// server is what otelhttp tells servers apart by.
type server struct {
	scheme, address string
	port            int64
}

// servers are those that have a name of their own.
type servers struct {
	most  int
	known table[server, struct{}]
}

// bound puts "_OTHER" in the place of a server's address where there are too many.
func (s *servers) bound(options []metric.RecordOption) []metric.RecordOption {
	set := metric.NewRecordConfig(options).Attributes()
	if s.knows(serverOf(&set)) {
		return options
	}
	kept := make([]attribute.KeyValue, 0, set.Len())
	for _, a := range set.ToSlice() {
		switch a.Key {
		case semconv.ServerPortKey, semconv.URLSchemeKey:
		case semconv.ServerAddressKey:
			kept = append(kept, semconv.ServerAddress(other))
		default:
			kept = append(kept, a)
		}
	}
	return []metric.RecordOption{metric.WithAttributeSet(attribute.NewSet(kept...))}
}

func serverOf(set *attribute.Set) server {
	address, _ := set.Value(semconv.ServerAddressKey)
	scheme, _ := set.Value(semconv.URLSchemeKey)
	port, _ := set.Value(semconv.ServerPortKey)
	of := server{scheme: scheme.AsString(), address: address.AsString()}
	if port.Type() == attribute.INT64 {
		of.port = port.AsInt64()
	}
	return of
}

func (s *servers) knows(of server) bool {
	if _, known := s.known.get(of); known {
		return true
	}
	_, known := s.known.add(of, s.most, func() (server, struct{}) {
		of.scheme, of.address = strings.Clone(of.scheme), strings.Clone(of.address)
		return of, struct{}{}
	})
	return known
}
