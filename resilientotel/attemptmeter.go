package resilientotel

import (
	"context"
	"slices"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
)

// attemptMeters is the MeterProvider of otelhttp. Its histograms limit the number of servers,
// and replace the Go types of errors.
type attemptMeters struct {
	metric.MeterProvider

	attributes *attemptAttributes
}

func (p attemptMeters) Meter(name string, options ...metric.MeterOption) metric.Meter {
	return attemptMeter{p.MeterProvider.Meter(name, options...), p.attributes}
}

type attemptMeter struct {
	metric.Meter

	attributes *attemptAttributes
}

func (m attemptMeter) Float64Histogram(name string, options ...metric.Float64HistogramOption) (metric.Float64Histogram, error) {
	h, err := m.Meter.Float64Histogram(name, options...)
	return attemptFloats{h, m.attributes}, err
}

func (m attemptMeter) Int64Histogram(name string, options ...metric.Int64HistogramOption) (metric.Int64Histogram, error) {
	h, err := m.Meter.Int64Histogram(name, options...)
	return attemptInts{h, m.attributes}, err
}

type attemptFloats struct {
	metric.Float64Histogram

	attributes *attemptAttributes
}

func (h attemptFloats) Record(ctx context.Context, value float64, options ...metric.RecordOption) {
	h.Float64Histogram.Record(ctx, value, h.attributes.correct(ctx, options)...)
}

type attemptInts struct {
	metric.Int64Histogram

	attributes *attemptAttributes
}

func (h attemptInts) Record(ctx context.Context, value int64, options ...metric.RecordOption) {
	h.Int64Histogram.Record(ctx, value, h.attributes.correct(ctx, options)...)
}

// attemptAttributes corrects the attributes of otelhttp's metrics.
type attemptAttributes struct {
	maxServers int // negative: no limit
	servers    table[server, struct{}]
	corrected  table[recorded, []metric.RecordOption]
}

// server is what otelhttp distinguishes servers by.
type server struct {
	scheme, address string
	port            int64
}

// recorded is one set of attributes of otelhttp, and the error.type of the attempt.
type recorded struct {
	set       attribute.Distinct
	errorType string
}

// maxCorrected is the maximum number of sets with stored corrections. The caller's own
// attributes may have any number of values.
const maxCorrected = 1024

// correct returns the attributes for a measurement of an attempt.
func (c *attemptAttributes) correct(ctx context.Context, options []metric.RecordOption) []metric.RecordOption {
	set := metric.NewRecordConfig(options).Attributes()
	key := recorded{set: set.Equivalent()}
	if s, ok := ctx.Value(attemptKey{}).(*attemptSpan); ok {
		if failed := s.failure.Load(); failed != nil && !failed.inBody {
			key.errorType = failed.errorType
		}
	}
	if known, ok := c.corrected.get(key); ok {
		return known
	}
	result := []metric.RecordOption{metric.WithAttributeSet(c.correctSet(&set, key.errorType))}
	c.corrected.add(key, maxCorrected, func() (recorded, []metric.RecordOption) { return key, result })
	return result
}

// protocolVersions are those that metrics have: a server may send any.
var protocolVersions = [...]string{"1.0", "1.1", "2", "3"} //nolint:gochecknoglobals // never written to

func (c *attemptAttributes) correctSet(set *attribute.Set, errorType string) attribute.Set {
	known := c.knows(serverOf(set))
	kept := make([]attribute.KeyValue, 0, set.Len()+1)
	for _, a := range set.ToSlice() {
		switch a.Key {
		case semconv.ErrorTypeKey: // the Go type
			continue
		case semconv.HTTPResponseStatusCodeKey:
			errorType = errorTypeOfStatus(int(a.Value.AsInt64()))
			if errorType == other { // a server may send any number
				continue
			}
		case semconv.NetworkProtocolVersionKey:
			if !slices.Contains(protocolVersions[:], a.Value.AsString()) {
				continue
			}
		case semconv.ServerPortKey, semconv.URLSchemeKey:
			if !known {
				continue
			}
		case semconv.ServerAddressKey:
			if !known {
				a = semconv.ServerAddress(other)
			}
		}
		kept = append(kept, a)
	}
	return attribute.NewSet(with(kept, semconv.ErrorTypeKey, errorType)...)
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

// knows reports whether the server has its own attributes.
func (c *attemptAttributes) knows(of server) bool {
	_, known := c.servers.add(of, c.maxServers, func() (server, struct{}) {
		of.scheme, of.address = strings.Clone(of.scheme), strings.Clone(of.address)
		return of, struct{}{}
	})
	return known
}
