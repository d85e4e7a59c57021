package resilientotel

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/resilienthttp/resilienthttp/durable"
)

// serverMetrics are those of the server parts.
type serverMetrics struct {
	requests metric.Int64Counter // of package idempotency
	attempts metric.Int64Counter // of package durable
	intents  metric.Int64ObservableGauge
	oldest   metric.Float64ObservableGauge
	held     metric.Int64ObservableGauge

	codes        *names
	dispositions labels[string]
	ends         labels[attemptEnd]
}

// attemptEnd is what durable's attempts are told apart by. A code may be missing.
type attemptEnd struct{ class, code string }

// mostCodes is how many codes are told: the other side chooses them.
const mostCodes = 64

func newServerMetrics(m maker) *serverMetrics {
	s := &serverMetrics{
		requests: m.counter("resilienthttp.server.idempotency.requests", "{request}", "Requests and messages with a key, by what was done with them."),
		attempts: m.counter("resilienthttp.durable.attempts", "{attempt}", "Sends and questions that are over, by what came of them."),
		intents: must(m.Int64ObservableGauge("resilienthttp.durable.intents", metric.WithUnit("{intent}"),
			metric.WithDescription("Intents in the store, by their state. All who share a store tell the same."))),
		oldest: must(m.Float64ObservableGauge("resilienthttp.durable.oldest_due", metric.WithUnit("s"),
			metric.WithDescription("For how long the intent has been due that has been due longest; 0: none is."))),
		held: must(m.Int64ObservableGauge("resilienthttp.durable.gateways.held", metric.WithUnit("{gateway}"),
			metric.WithDescription("Gateways that a person or the Engine holds, by gateway and holder."))),
		codes: &names{most: mostCodes},
	}
	s.dispositions.attributes = func(d string) []attribute.KeyValue { return []attribute.KeyValue{attribute.String("disposition", d)} }
	s.ends.attributes = func(e attemptEnd) []attribute.KeyValue {
		attributes := []attribute.KeyValue{attribute.String("class", e.class)}
		if e.code != "" {
			attributes = append(attributes, attribute.String("code", e.code))
		}
		return attributes
	}
	return s
}

func (m *serverMetrics) all() []metric.Observable {
	return []metric.Observable{m.intents, m.oldest, m.held}
}

// statsTime is how long a store may take to count.
const statsTime = 5 * time.Second

// observe asks each Engine once. What several have is added up.
func (m *serverMetrics) observe(ctx context.Context, o metric.Observer, engines []*durable.Engine) error {
	if len(engines) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, statsTime)
	defer cancel()
	var (
		failed error
		counts = map[durable.State]int64{}
		held   = map[attribute.Set]int64{}
		oldest time.Duration
		known  bool
	)
	for _, e := range engines {
		stats, err := e.Stats(ctx)
		if err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		holds, err := e.Holds(ctx)
		failed = errors.Join(failed, err)
		for i := range holds {
			by := "person"
			if holds[i].By == "" {
				by = "engine"
			}
			held[attribute.NewSet(attribute.String("gateway", holds[i].Gateway), attribute.String("holder", by))] = 1
		}
		known = true
		for state := durable.StatePending; state <= durable.StateCancelled; state++ {
			counts[state] += int64(stats.States[state])
		}
		if !stats.Oldest.IsZero() {
			oldest = max(oldest, stats.Now.Sub(stats.Oldest))
		}
	}
	for attributes, n := range held {
		o.ObserveInt64(m.held, n, metric.WithAttributeSet(attributes))
	}
	if known {
		for state, count := range counts {
			o.ObserveInt64(m.intents, count, metric.WithAttributeSet(attribute.NewSet(attribute.String("state", state.String()))))
		}
		o.ObserveFloat64(m.oldest, oldest.Seconds())
	}
	return failed
}
