package resilientotel

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/resilienthttp/resilienthttp/durable"
)

// serverMetrics are the metrics of the packages idempotency and durable.
type serverMetrics struct {
	requests metric.Int64Counter // of package idempotency
	unknown  metric.Int64Counter
	attempts metric.Int64Counter // of package durable
	intents  metric.Int64ObservableGauge
	doubt    metric.Int64ObservableGauge
	oldest   metric.Float64ObservableGauge
	held     metric.Int64ObservableGauge

	codes         *names
	requestSeries seriesTable[string]
	attemptSeries seriesTable[attemptResult]
}

// attemptResult are the attributes of a finished attempt of package durable. The code may be
// empty.
type attemptResult struct{ class, code string }

// maxCodes is the maximum number of codes. Providers choose them.
const maxCodes = 64

func newServerMetrics(m *meter) *serverMetrics {
	s := &serverMetrics{
		requests: m.counter(metricIdempotency, "{request}", "Requests and messages with an idempotency key, by disposition."),
		unknown:  m.counter(metricUnknown, "{record}", "Reports that a record of an idempotency key became unknown, or may have; two may concern one record."),
		attempts: m.counter(metricDurableAttempts, "{attempt}", "Finished sends and status queries, by class and code."),
		intents: m.gauge(metricIntents, "{intent}",
			"Intents in the store, by state. Processes with the same store export the same number."),
		doubt: m.gauge(metricDeadInDoubt, "{intent}",
			"Dead intents of which the provider may have done the work. Processes with the same store export the same number."),
		oldest: m.floatGauge(metricOldestDue, "s", "Time since the oldest due intent became due. 0: no intent is due."),
		held:   m.gauge(metricGatewaysHeld, "{gateway}", "Held gateways, by gateway and holder."),
		codes:  &names{limit: maxCodes},
	}
	s.requestSeries.attributes = func(d string) []attribute.KeyValue { return []attribute.KeyValue{keyDisposition.String(d)} }
	s.attemptSeries.attributes = func(r attemptResult) []attribute.KeyValue {
		return with([]attribute.KeyValue{keyClass.String(r.class)}, keyCode, r.code)
	}
	return s
}

// statsTimeout is the maximum time for the queries of one collection.
const statsTimeout = 5 * time.Second

// engineSum is the state of all watched Engines.
type engineSum struct {
	known  bool
	counts map[durable.State]int64
	doubt  int64
	oldest time.Duration
	held   map[attribute.Set]bool
}

// observe queries each Engine once, and adds up the results.
func (m *serverMetrics) observe(ctx context.Context, o metric.Observer, engines []*durable.Engine) error {
	if len(engines) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, statsTimeout)
	defer cancel()
	var failed error
	sum := engineSum{counts: map[durable.State]int64{}, held: map[attribute.Set]bool{}}
	for _, e := range engines {
		failed = errors.Join(failed, sum.add(ctx, e))
	}
	for attributes := range sum.held {
		o.ObserveInt64(m.held, 1, metric.WithAttributeSet(attributes))
	}
	if sum.known {
		for state, count := range sum.counts {
			o.ObserveInt64(m.intents, count, observed(keyState.String(state.String())))
		}
		o.ObserveInt64(m.doubt, sum.doubt)
		o.ObserveFloat64(m.oldest, sum.oldest.Seconds())
	}
	return failed
}

func (s *engineSum) add(ctx context.Context, e *durable.Engine) error {
	stats, err := e.Stats(ctx)
	if err != nil {
		return err
	}
	s.known = true
	for state := durable.StatePending; state <= durable.StateCanceled; state++ {
		s.counts[state] += int64(stats.States[state])
	}
	s.doubt += int64(stats.DeadInDoubt)
	if !stats.Oldest.IsZero() {
		s.oldest = max(s.oldest, stats.Now.Sub(stats.Oldest))
	}
	holds, err := e.Holds(ctx)
	for i := range holds {
		s.held[attribute.NewSet(keyGateway.String(holds[i].Gateway), keyHolder.String(holds[i].Holder()))] = true
	}
	return err
}
