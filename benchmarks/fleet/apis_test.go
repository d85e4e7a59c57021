package fleet

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Headers of the first permitted request and of a rejection.
func TestLimiter_fieldsOfAPIs(t *testing.T) {
	for _, row := range []struct {
		api           API
		quota, burst  int
		admitted      map[string]string
		rejected      map[string]string
		rejectedLacks string
	}{
		{api: apiGitHub, quota: 1, admitted: map[string]string{"X-Ratelimit-Limit": "1", "X-Ratelimit-Remaining": "0", "X-Ratelimit-Reset": "1767225660"}, rejected: map[string]string{"Retry-After": "60"}},
		{api: apiZendesk, quota: 1, admitted: map[string]string{"Ratelimit-Reset": "60"}, rejected: map[string]string{"Retry-After": "60"}},
		{api: apiIETF, quota: 1, admitted: map[string]string{"Ratelimit": `"default";r=0;t=60`, "Ratelimit-Policy": `"default";q=1;w=60`}, rejected: map[string]string{"Ratelimit": `"default";r=0;t=60`}},
		{api: apiDiscord, quota: 1, admitted: map[string]string{"X-Ratelimit-Bucket": "bucket", "X-Ratelimit-Reset-After": "60.000"}, rejected: map[string]string{"X-Ratelimit-Remaining": "0"}},
		{api: apiJira, quota: 1, admitted: map[string]string{"X-Ratelimit-Remaining": "0", "X-Ratelimit-Reset": ""}, rejected: map[string]string{"X-Ratelimit-Reset": "2026-01-01T00:01Z"}},
		{api: apiJiraDC, burst: 1, admitted: map[string]string{"X-Ratelimit-Remaining": "0"}, rejected: map[string]string{"Retry-After": "1"}, rejectedLacks: "X-Ratelimit-Reset"},
		{api: apiOkta, burst: 1, admitted: map[string]string{"X-Ratelimit-Limit": "1000"}, rejected: map[string]string{"X-Ratelimit-Limit": "0", "X-Ratelimit-Remaining": "0"}},
		{api: apiOpenAI, burst: 1, admitted: map[string]string{"X-Ratelimit-Remaining-Requests": "9", "X-Ratelimit-Remaining-Tokens": "0"}, rejected: map[string]string{"X-Ratelimit-Reset-Tokens": "1s"}, rejectedLacks: "Retry-After"},
		{api: apiGitHubSecondary, quota: 1, admitted: map[string]string{"X-Ratelimit-Remaining": "999"}, rejected: map[string]string{"Retry-After": "60", "X-Ratelimit-Remaining": "999"}},
		{api: apiAzure, quota: 1, admitted: map[string]string{"X-Ratelimit-Remaining": "5"}, rejected: map[string]string{"Retry-After": "1"}},
		{api: apiAnthropic, burst: 1, admitted: map[string]string{"Anthropic-Ratelimit-Requests-Remaining": "0", "Anthropic-Ratelimit-Requests-Reset": "2026-01-01T00:00:01Z"}, rejected: map[string]string{"Retry-After": "1"}},
		{api: apiShopify, burst: 1, admitted: map[string]string{"X-Shopify-Shop-Api-Call-Limit": "1/1"}, rejected: map[string]string{"Retry-After": "2.0"}},
		{api: apiRejections, burst: 1, admitted: map[string]string{"X-Ratelimit-Limit": ""}, rejected: map[string]string{"X-Ratelimit-Limit": "1", "X-Ratelimit-Reset": "1"}},
	} {
		t.Run(string(row.api), func(t *testing.T) {
			m := newLimiter(Limit{API: row.api, Quota: row.quota, Window: time.Minute, Rate: float64(row.burst), Burst: row.burst})
			check := func(want map[string]string, h http.Header) {
				for name, value := range want {
					require.Equal(t, value, h.Get(name), name)
				}
			}
			h, ok := m.admit(Epoch())
			require.True(t, ok)
			check(row.admitted, h)
			h, ok = m.admit(Epoch())
			require.False(t, ok)
			check(row.rejected, h)
			if row.rejectedLacks != "" {
				require.Empty(t, h.Get(row.rejectedLacks))
			}
			_, ok = m.admit(Epoch().Add(time.Minute))
			require.True(t, ok, "a minute later")
		})
	}
}
