package sdks

import (
	"cmp"
	"net/http"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/faulttest"
)

// azcore makes four attempts with copies of the request, and does not report them. So the Transport
// makes one attempt more.
func TestAzureRetries(t *testing.T) {
	for _, row := range []struct {
		name     string
		retries  int32
		owns     bool
		policy   resilienthttp.Policy
		requests int
	}{
		{"both retry: one attempt more than the SDK", 3, false, quick(), 4 + 1},
		{"no retries of the SDK: one retry", -1, false, quick(), 2},
		{"no retries of the SDK, OwnsRetries: attempts of the Transport", -1, true, quick(), 4},
		{"no retries of the Transport: attempts of the SDK", 3, false, resilienthttp.Policy{MaxAttempts: -1}, 4},
	} {
		t.Run(row.name, func(t *testing.T) {
			api := start(t, faulttest.Status(http.StatusServiceUnavailable))
			transport := plain(nil)
			transport.Policy, transport.OwnsRetries = row.policy, row.owns
			transport.Policy.MaxAttempts = cmp.Or(row.policy.MaxAttempts, 4)
			pipeline := runtime.NewPipeline("azthings", "v1.0.0", runtime.PipelineOptions{}, &policy.ClientOptions{
				Transport: &http.Client{Transport: transport},
				Retry:     policy.RetryOptions{MaxRetries: row.retries, RetryDelay: time.Millisecond},
			})
			req, err := runtime.NewRequest(t.Context(), http.MethodGet, api.URL+"/things")
			require.NoError(t, err)
			resp, err := pipeline.Do(req)
			close1(t, resp, err)
			api.AssertRequests(t, row.requests)
		})
	}
}
