package sdks

import (
	"io"
	"log"
	"net/http"
	"testing"
	"time"

	"github.com/hashicorp/go-retryablehttp"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/faulttest"
)

// The client of Vault is recognized by its header field, and others by the repeated request.
func TestRetryableHTTP(t *testing.T) {
	const own, ours = 3, 4
	for _, row := range []struct {
		name, field string
		requests    int
	}{
		{"Vault: one attempt more than its own", "X-Vault-Request", own + 1},
		{"others: all attempts in the first call", "X-Other", own + ours - 1},
	} {
		t.Run(row.name, func(t *testing.T) {
			api := start(t, faulttest.Status(http.StatusInternalServerError))
			transport := plain(nil)
			transport.Policy.MaxAttempts = ours
			client := retryablehttp.NewClient()
			client.HTTPClient = &http.Client{Transport: transport}
			client.RetryMax, client.RetryWaitMin, client.RetryWaitMax = own-1, time.Millisecond, time.Millisecond
			client.Logger = log.New(io.Discard, "", 0)
			client.ErrorHandler = retryablehttp.PassthroughErrorHandler
			req, err := retryablehttp.NewRequestWithContext(t.Context(), http.MethodGet, api.URL, nil)
			require.NoError(t, err)
			req.Header.Set(row.field, "true")
			resp, err := client.Do(req)
			close1(t, resp, err)
			api.AssertRequests(t, row.requests)
		})
	}
}
