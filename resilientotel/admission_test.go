package resilientotel

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/admission"
)

// T12: rejections are counted by reason and priority. The limit, the active requests and the
// queue of a Shedder are gauges. The span of a rejected request has the reason.
func TestAdmission(t *testing.T) {
	r, hooks := record(), 0
	quota := &admission.Quota{
		Limit: 2, Key: func(*http.Request) (string, error) { return "s3cr3t", nil },
		Trace: r.TraceAdmission(&admission.Trace{Rejected: func(*admission.Event) { hooks++ }}),
	}
	server := otelhttp.NewHandler(quota.Handler(http.NotFoundHandler()), "GET /", otelhttp.WithTracerProvider(r.TracerProvider), otelhttp.WithMeterProvider(r.MeterProvider))
	for range 5 {
		server.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil))
	}
	require.Equal(t, 3, hooks)

	shedder := &admission.Shedder{
		Initial: 1, Min: 1, Max: 1, Queue: -1, MaxWait: -1,
		Priority: func(*http.Request) resilienthttp.Priority { return resilienthttp.PriorityBatch },
	}
	r.WatchShedder("front", shedder)
	r.WatchShedder("front", &admission.Shedder{Initial: 7})
	r.WatchShedder("uploads", &admission.Shedder{Initial: 7})
	gate := http.Handler(nil)
	gate = shedder.Handler(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		gate.ServeHTTP(httptest.NewRecorder(), req) // no permit is free
		near(t, 1, r.metrics(t)["resilienthttp.admission.active_requests{resilienthttp.shedder.name=front}"])
		near(t, 0, r.metrics(t)["resilienthttp.admission.queued_requests{resilienthttp.shedder.name=front}"])
	}))
	gate.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil))

	all := r.metrics(t)
	near(t, 3, all["resilienthttp.admission.rejections{resilienthttp.priority=default resilienthttp.rejection.reason=quota_exceeded}"])
	near(t, 1, all["resilienthttp.admission.rejections{resilienthttp.priority=batch resilienthttp.rejection.reason=queue_full}"])
	near(t, 1, all["resilienthttp.admission.concurrency_limit{resilienthttp.shedder.name=front}"])
	near(t, 7, all["resilienthttp.admission.concurrency_limit{resilienthttp.shedder.name=uploads}"])
	require.Contains(t, r.tree(), "resilienthttp.rejection.reason=quota_exceeded")
	require.NotContains(t, r.everything(t), "s3cr3t")
	require.Equal(t, []string{"batch", "default", "critical", other}, []string{
		priorityName(resilienthttp.PriorityBatch), priorityName(resilienthttp.PriorityDefault), priorityName(resilienthttp.PriorityCritical), priorityName(9),
	})
	r.Unregister()
	require.NotContains(t, r.metrics(t), "resilienthttp.admission.concurrency_limit{resilienthttp.shedder.name=front}")
}
