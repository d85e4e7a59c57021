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

// TestAdmission: refusals are counted by why and by priority, the limits told, and the
// span of a refused request says why.
func TestAdmission(t *testing.T) {
	r, told := record(), 0
	quota := &admission.Quota{
		Limit: 2, Key: func(*http.Request) (string, error) { return "s3cr3t", nil },
		Trace: r.TraceAdmission(&admission.Trace{Rejected: func(*admission.Event) { told++ }}),
	}
	server := otelhttp.NewHandler(quota.Handler(http.NotFoundHandler()), "GET /", otelhttp.WithTracerProvider(r.TracerProvider), otelhttp.WithMeterProvider(r.MeterProvider))
	for range 5 {
		server.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil))
	}
	require.Equal(t, 3, told)

	shedder := &admission.Shedder{
		Initial: 1, Min: 1, Max: 1, Queue: -1, MaxWait: -1,
		Priority: func(*http.Request) resilienthttp.Priority { return resilienthttp.PriorityBatch },
	}
	r.WatchShedder("front", shedder)
	r.WatchShedder("front", &admission.Shedder{Initial: 7})
	r.WatchShedder("uploads", &admission.Shedder{Initial: 7})
	gate := http.Handler(nil)
	gate = shedder.Handler(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) { // one inside finds no place
		gate.ServeHTTP(httptest.NewRecorder(), req)
	}))
	gate.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil))

	all := r.metrics(t)
	near(t, 3, all["resilienthttp.admission.refusals{kind=quota_exceeded priority=default}"])
	near(t, 1, all["resilienthttp.admission.refusals{kind=queue_full priority=batch}"])
	near(t, 1, all["resilienthttp.admission.limit{shedder=front}"])
	near(t, 7, all["resilienthttp.admission.limit{shedder=uploads}"])
	require.Contains(t, r.tree(), "resilienthttp.refused=quota_exceeded")
	require.NotContains(t, r.everything(t), "s3cr3t")
	require.Equal(t, []string{"batch", "default", "critical", other}, []string{
		priorityName(resilienthttp.PriorityBatch), priorityName(resilienthttp.PriorityDefault), priorityName(resilienthttp.PriorityCritical), priorityName(9),
	})
	r.Unregister()
	require.NotContains(t, r.metrics(t), "resilienthttp.admission.limit{shedder=front}")
}
