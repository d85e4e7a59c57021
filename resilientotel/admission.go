package resilientotel

import (
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/admission"
)

// admissionMetrics are the metrics of package admission.
type admissionMetrics struct {
	rejections     metric.Int64Counter
	limit          metric.Int64ObservableGauge
	active, queued metric.Int64ObservableUpDownCounter

	rejectionSeries seriesTable[rejection]
}

// rejection are the attributes of a rejected request.
type rejection struct {
	reason   admission.Reason
	priority resilienthttp.Priority
}

// namedShedder is a watched Shedder.
type namedShedder struct {
	*admission.Shedder

	name string
}

func newAdmissionMetrics(m *meter) *admissionMetrics {
	a := &admissionMetrics{
		rejections: m.counter(metricAdmission, "{request}", "Requests that a Shedder or a Quota rejected, by reason and priority."),
		limit:      m.gauge(metricConcurrencyLimit, "{request}", "Maximum number of requests that a Shedder admits at the same time."),
		active:     m.upDownCounter(metricActiveRequests, "{request}", "Requests that a Shedder has admitted and that have not ended."),
		queued:     m.upDownCounter(metricQueuedRequests, "{request}", "Requests in the queue of a Shedder."),
	}
	a.rejectionSeries.attributes = func(r rejection) []attribute.KeyValue {
		return []attribute.KeyValue{keyRejectionReason.String(string(r.reason)), keyPriority.String(priorityName(r.priority))}
	}
	return a
}

// TraceAdmission returns hooks for an admission.Quota or Shedder. They count rejected
// requests, and set resilienthttp.rejection.reason on the span of the request. The hooks of
// also run after them. also may be nil.
func (i *Instrumentation) TraceAdmission(also *admission.Trace) *admission.Trace {
	i.start()
	t := copyOf(also)
	t.Rejected = then(i.requestRejected, t.Rejected)
	return t
}

// requestRejected is a hook.
func (i *Instrumentation) requestRejected(e *admission.Event) {
	ctx := contextOf(e.Request)
	i.admission.rejections.Add(ctx, 1, i.admission.rejectionSeries.of(rejection{e.Reason, e.Priority}).add...)
	trace.SpanFromContext(ctx).SetAttributes(keyRejectionReason.String(string(e.Reason)))
}

// WatchShedder exports the rejections of a Shedder, and its limit, active requests and queue
// at each collection. It must be called before the first use of s, and adds a hook to its
// Trace. The name is the attribute resilienthttp.shedder.name. Of Shedders with the same name,
// the one with the lowest limit is exported.
func (i *Instrumentation) WatchShedder(name string, s *admission.Shedder) {
	s.Trace = i.TraceAdmission(s.Trace)
	i.mu.Lock()
	i.shedders = append(i.shedders, namedShedder{s, name})
	i.mu.Unlock()
	i.register()
}

// observe reads the state of each Shedder once.
func (a *admissionMetrics) observe(o metric.Observer, shedders []namedShedder) {
	states := map[string]admission.ShedderState{}
	for _, s := range shedders {
		state := s.State()
		if known, ok := states[s.name]; !ok || state.Limit < known.Limit {
			states[s.name] = state
		}
	}
	for name, state := range states {
		attributes := observed(keyShedder.String(name))
		o.ObserveInt64(a.limit, int64(state.Limit), attributes)
		o.ObserveInt64(a.active, int64(state.InFlight), attributes)
		o.ObserveInt64(a.queued, int64(state.Queued), attributes)
	}
}
