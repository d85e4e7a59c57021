package resilientotel

import (
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/resilienthttp/resilienthttp"
)

// stateMetrics are what Transports know whenever metrics are collected.
type stateMetrics struct {
	breaker   metric.Int64ObservableGauge
	room      metric.Float64ObservableGauge
	remaining metric.Int64ObservableGauge
	inFlight  metric.Int64ObservableUpDownCounter

	buckets *names
}

// mostBuckets is how many names of quotas are told, of all scopes together: servers choose
// them.
const mostBuckets = 64

func newStateMetrics(m maker) *stateMetrics {
	return &stateMetrics{
		breaker: must(m.Int64ObservableGauge("resilienthttp.client.breaker.state",
			metric.WithDescription("The circuit: 0 closed, 1 half-open, 2 open. Short openings are in resilienthttp.client.breaker.transitions."))),
		room: must(m.Float64ObservableGauge("resilienthttp.client.budget.room", metric.WithUnit("{retry}"),
			metric.WithDescription("Tokens that remain for retries."))),
		remaining: must(m.Int64ObservableGauge("resilienthttp.client.quota.remaining", metric.WithUnit("{request}"),
			metric.WithDescription("What is left of a quota, as its server says, those in flight taken off."))),
		inFlight: must(m.Int64ObservableUpDownCounter("resilienthttp.client.in_flight", metric.WithUnit("{attempt}"),
			metric.WithDescription("Attempts that were sent and have neither response headers nor an error yet."))),
		buckets: &names{most: mostBuckets},
	}
}

func (m *stateMetrics) all() []metric.Observable {
	return []metric.Observable{m.breaker, m.room, m.remaining, m.inFlight}
}

// scopeSum is what is told of one scope.
type scopeSum struct {
	breaker  int64
	room     float64
	capped   bool // room means something
	inFlight int64
	left     map[string]int64 // by bucket
}

func (s *scopeSum) add(of *resilienthttp.ScopeState, buckets *names) {
	s.breaker = max(s.breaker, int64(of.Breaker.State))
	s.inFlight += int64(of.InFlight)
	if room := of.Budget.Remaining; room >= 0 {
		if !s.capped || room < s.room {
			s.room = room
		}
		s.capped = true
	}
	for i := range of.Quotas {
		q := &of.Quotas[i]
		if q.Limit == 0 {
			continue
		}
		bucket := buckets.of(q.Bucket)
		if left, known := s.left[bucket]; !known || q.Remaining < left {
			if s.left == nil {
				s.left = map[string]int64{}
			}
			s.left[bucket] = q.Remaining
		}
	}
}

// observe asks each Transport once.
func (m *stateMetrics) observe(o metric.Observer, transports []*resilienthttp.Transport, scopes *names) {
	sums := map[string]*scopeSum{}
	for _, t := range transports {
		state := t.State()
		for i := range state.Scopes {
			name := scopes.of(state.Scopes[i].Scope)
			if sums[name] == nil {
				sums[name] = &scopeSum{}
			}
			sums[name].add(&state.Scopes[i], m.buckets)
		}
	}
	for name, sum := range sums {
		scope := metric.WithAttributeSet(attribute.NewSet(scopeKey.String(name)))
		o.ObserveInt64(m.breaker, sum.breaker, scope)
		o.ObserveInt64(m.inFlight, sum.inFlight, scope)
		if sum.capped {
			o.ObserveFloat64(m.room, sum.room, scope)
		}
		for bucket, left := range sum.left {
			o.ObserveInt64(m.remaining, left, metric.WithAttributeSet(attribute.NewSet(scopeKey.String(name), attribute.String("bucket", bucket))))
		}
	}
}
