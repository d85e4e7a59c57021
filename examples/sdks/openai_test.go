package sdks

import (
	"net/http"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/faulttest"
	"github.com/resilienthttp/resilienthttp/vendors"
)

func openaiClient(transport http.RoundTripper, url string, options ...option.RequestOption) openai.Client {
	return openai.NewClient(append([]option.RequestOption{
		option.WithBaseURL(url), option.WithAPIKey("sk-1"), option.WithHTTPClient(&http.Client{Transport: transport}),
	}, options...)...)
}

// A 429 of billing is not retried, and a 429 of a rate limit is. The error is the SDK's.
func TestOpenAI(t *testing.T) {
	quota := faulttest.Reply{Status: 429, Body: `{"error":{"message":"You exceeded your current quota.","type":"insufficient_quota","code":"insufficient_quota"}}`}
	busy := faulttest.Reply{Status: 429, Body: `{"error":{"type":"requests","code":"rate_limit_exceeded"}}`}
	models := faulttest.OK(`{"object":"list","data":[{"id":"gpt","object":"model"}]}`)
	for _, row := range []struct {
		name     string
		script   http.Handler
		requests int
		code     string // of the error; "" means none
	}{
		{"insufficient quota: one request", quota, 1, "insufficient_quota"},
		{"rate limit: retry", faulttest.Sequence(busy, models), 2, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			api := start(t, row.script)
			transport := vendors.OpenAI(api.URL[len("http://"):])
			transport.Policy.Backoff = quick().Backoff
			client := openaiClient(transport, api.URL, option.WithMaxRetries(0))
			page, err := client.Models.List(t.Context())
			api.AssertRequests(t, row.requests)
			if row.code == "" {
				require.NoError(t, err)
				assert.Len(t, page.Data, 1)
				return
			}
			var failed *openai.Error
			require.ErrorAs(t, err, &failed)
			assert.Equal(t, row.code, failed.Code)
		})
	}
}

// The SDK counts its retries in a header, so they are single attempts: six attempts of the Transport,
// and then two retries of the SDK, instead of 18 attempts.
func TestOpenAIRetries(t *testing.T) {
	for _, row := range []struct {
		name     string
		options  []option.RequestOption
		policy   resilienthttp.Policy
		requests int
	}{
		{"both retry: six and two", nil, quick(), 8},
		{"no retries of the SDK: six", []option.RequestOption{option.WithMaxRetries(0)}, quick(), 6},
		{"no retries of the Transport: three", nil, resilienthttp.Policy{MaxAttempts: -1}, 3},
	} {
		t.Run(row.name, func(t *testing.T) {
			api := start(t, faulttest.Reply{Status: 500, Header: http.Header{"Retry-After-Ms": {"1"}}, Body: `{"error":{}}`})
			transport := plain(nil)
			transport.Policy = row.policy
			client := openaiClient(transport, api.URL, row.options...)
			_, err := client.Models.List(t.Context())
			require.Error(t, err)
			api.AssertRequests(t, row.requests)
		})
	}
}
