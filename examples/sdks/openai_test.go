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

// TestOpenAI: a 429 that no waiting mends is asked once, and one that passes again; the
// error is the SDK's as ever.
func TestOpenAI(t *testing.T) {
	quota := faulttest.Reply{Status: 429, Body: `{"error":{"message":"You exceeded your current quota.","type":"insufficient_quota","code":"insufficient_quota"}}`}
	busy := faulttest.Reply{Status: 429, Body: `{"error":{"type":"requests","code":"rate_limit_exceeded"}}`}
	models := faulttest.OK(`{"object":"list","data":[{"id":"gpt","object":"model"}]}`)
	for _, row := range []struct {
		name     string
		script   http.Handler
		requests int
		code     string // of the error; "": none
	}{
		{"no money", quota, 1, "insufficient_quota"},
		{"busy", faulttest.Sequence(busy, models), 2, ""},
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
			var refused *openai.Error
			require.ErrorAs(t, err, &refused)
			assert.Equal(t, row.code, refused.Code)
		})
	}
}

// TestOpenAIRetries: the SDK counts its repeats in a header, so they are single attempts:
// six of ours, and then two of its own, where there would be 18.
func TestOpenAIRetries(t *testing.T) {
	for _, row := range []struct {
		name     string
		options  []option.RequestOption
		policy   resilienthttp.Policy
		requests int
	}{
		{"both", nil, quick(), 8},
		{"the SDK's off", []option.RequestOption{option.WithMaxRetries(0)}, quick(), 6},
		{"the Transport's off", nil, resilienthttp.Policy{MaxAttempts: -1}, 3},
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
