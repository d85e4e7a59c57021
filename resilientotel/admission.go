package resilientotel

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/admission"
)

// admissionMetrics are those of package admission.
type admissionMetrics struct {
	refusals metric.Int64Counter
	limit    metric.Int64ObservableGauge

	refused labels[refusedAs]
}

// refusedAs is what refusals are told apart by.
type refusedAs struct {
	kind     admission.Reason
	priority resilienthttp.Priority
}

// shedder is a Shedder that is watched, and what it is called.
type shedder struct {
	*admission.Shedder

	name string
}

func newAdmissionMetrics(m maker) *admissionMetrics {
	a := &admissionMetrics{
		refusals: m.counter("resilienthttp.admission.refusals", "{request}", "Requests that a Shedder or a Quota refused, by why."),
		limit: must(m.Int64ObservableGauge("resilienthttp.admission.limit", metric.WithUnit("{request}"),
			metric.WithDescription("How many requests a Shedder lets be in flight."))),
	}
	a.refused.attributes = func(r refusedAs) []attribute.KeyValue {
		return []attribute.KeyValue{attribute.String("kind", string(r.kind)), attribute.String("priority", priorityName(r.priority))}
	}
	return a
}

func priorityName(p resilienthttp.Priority) string {
	switch p {
	case resilienthttp.PriorityBatch, resilienthttp.PriorityDefault, resilienthttp.PriorityCritical:
		return p.String()
	}
	return other
}

// TraceAdmission returns hooks for an admission.Quota or Shedder. They count, and tell the
// span of a request that is refused why: resilienthttp.refused. also are hooks that are
// called after them; nil: none.
func (i *Instrumentation) TraceAdmission(also *admission.Trace) *admission.Trace {
	i.start()
	t := admission.Trace{}
	if also != nil {
		t = *also
	}
	t.Rejected = then(i.shed, t.Rejected)
	return &t
}

// shed is a hook.
func (i *Instrumentation) shed(e *admission.Event) {
	ctx := context.Background()
	if e.Request != nil {
		ctx = e.Request.Context()
	}
	i.admission.refusals.Add(ctx, 1, i.admission.refused.of(refusedAs{e.Reason, e.Priority}).add...)
	trace.SpanFromContext(ctx).SetAttributes(attribute.String("resilienthttp.refused", string(e.Reason)))
}

// WatchShedder makes a Shedder tell what it refuses, and its limit whenever metrics are
// collected. It must be called before s's first use, and adds a hook to its Trace. Its name
// tells it from others; two of one name are told as one, the one with the lower limit.
func (i *Instrumentation) WatchShedder(name string, s *admission.Shedder) {
	s.Trace = i.TraceAdmission(s.Trace)
	i.watchShedder(shedder{s, name})
	i.observe()
}

func (i *Instrumentation) watchShedder(s shedder) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.shedders = append(i.shedders, s)
}

// observe asks each Shedder once.
func (a *admissionMetrics) observe(o metric.Observer, shedders []shedder) {
	limits := map[string]int{}
	for _, s := range shedders {
		limit := s.State().Limit
		if told, known := limits[s.name]; !known || limit < told {
			limits[s.name] = limit
		}
	}
	for name, limit := range limits {
		o.ObserveInt64(a.limit, int64(limit), metric.WithAttributeSet(attribute.NewSet(attribute.String("shedder", name))))
	}
}
