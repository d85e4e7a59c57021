package resilientotel

import (
	"slices"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/internal/field"
)

// stateMetrics are the metrics that are read from Transport.State at each collection.
type stateMetrics struct {
	breaker, remaining, limit metric.Int64ObservableGauge
	budget                    metric.Float64ObservableGauge
	active, waiting           metric.Int64ObservableUpDownCounter

	buckets *names
}

// maxBuckets is the maximum number of quota names of all scopes. Servers choose the names.
const maxBuckets = 64

func newStateMetrics(m *meter) *stateMetrics {
	return &stateMetrics{
		breaker: m.gauge(metricBreakerState, "",
			"State of the circuit breaker: 0 closed, 1 half-open, 2 open. Short openings are in "+metricTransitions+"."),
		budget:    m.floatGauge(metricRetryBudget, "{retry}", "Tokens that remain for retries."),
		remaining: m.gauge(metricQuotaRemaining, "{request}", "Requests that remain of a quota, without those in flight."),
		limit:     m.gauge(metricQuotaLimit, "{request}", "Limit of a quota."),
		active:    m.upDownCounter(metricActiveAttempts, "{attempt}", "Attempts without response headers or an error yet."),
		waiting:   m.upDownCounter(metricWaitingCalls, "{call}", "Calls that wait now, by cause."),
		buckets:   &names{limit: maxBuckets},
	}
}

// scopeSum is the state of one scope in all wrapped Transports.
type scopeSum struct {
	breaker                            int64
	budget                             float64
	hasBudget                          bool
	active, held, queued, retryWaiting int64
	quotas                             map[string]quotaSum // by bucket
}

type quotaSum struct{ limit, remaining int64 }

// isFuller reports whether a larger part of q is used than of p.
func (q quotaSum) isFuller(p quotaSum) bool {
	return float64(q.remaining)*float64(p.limit) < float64(p.remaining)*float64(q.limit)
}

func (s *scopeSum) add(of *resilienthttp.ScopeState, buckets *names) {
	s.breaker = max(s.breaker, int64(of.Breaker.State))
	s.active += int64(of.InFlight)
	s.held += int64(of.Breaker.Waiting)
	s.queued += int64(max(of.Queued-of.Breaker.Waiting, 0)) // the two are read one after the other
	s.retryWaiting += int64(of.RetryWaiting)
	if remaining := of.Budget.Remaining; remaining >= 0 {
		if !s.hasBudget || remaining < s.budget {
			s.budget = remaining
		}
		s.hasBudget = true
	}
	for i := range of.Quotas {
		q := &of.Quotas[i]
		if q.Limit == 0 {
			continue
		}
		bucket, sum := buckets.of(q.Bucket), quotaSum{q.Limit, q.Remaining}
		if known, ok := s.quotas[bucket]; ok && !sum.isFuller(known) {
			continue
		}
		if s.quotas == nil {
			s.quotas = map[string]quotaSum{}
		}
		s.quotas[bucket] = sum
	}
}

// observe reads the state of each Transport once.
func (m *stateMetrics) observe(o metric.Observer, transports []*resilienthttp.Transport, scopes *names) {
	type series struct{ scope, priority string }
	sums := map[series]*scopeSum{}
	for _, t := range transports {
		state := t.State()
		for i := range state.Scopes {
			name := series{scopes.of(state.Scopes[i].Scope), field.FormatPriority(int8(state.Scopes[i].Priority))}
			if sums[name] == nil {
				sums[name] = &scopeSum{}
			}
			sums[name].add(&state.Scopes[i], m.buckets)
		}
	}
	for name, sum := range sums {
		m.observeScope(o, scopeAttributes(name.scope, name.priority), sum)
	}
}

func (m *stateMetrics) observeScope(o metric.Observer, scope []attribute.KeyValue, sum *scopeSum) {
	attributes := observed(scope...)
	o.ObserveInt64(m.breaker, sum.breaker, attributes)
	o.ObserveInt64(m.active, sum.active, attributes)
	o.ObserveInt64(m.waiting, sum.queued, observed(append(slices.Clip(scope), keyWaitCause.String(waitRateLimit))...))
	o.ObserveInt64(m.waiting, sum.held, observed(append(slices.Clip(scope), keyWaitCause.String(waitCircuit))...))
	o.ObserveInt64(m.waiting, sum.retryWaiting, observed(append(slices.Clip(scope), keyWaitCause.String(waitBackoff))...))
	if sum.hasBudget {
		o.ObserveFloat64(m.budget, sum.budget, attributes)
	}
	for bucket, q := range sum.quotas {
		attributes := observed(append(slices.Clip(scope), keyQuotaBucket.String(bucket))...)
		o.ObserveInt64(m.remaining, q.remaining, attributes)
		o.ObserveInt64(m.limit, q.limit, attributes)
	}
}
