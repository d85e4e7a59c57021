package limiter

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Each dialect as its API documents it: 40 of 100 requests remain, the reset is in 29.5 s.
func TestDialects(t *testing.T) {
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).Add(500 * time.Millisecond)
	requests := Shown{Name: "requests", Unit: Requests, Limit: 100, Remaining: 40, Reset: 29500 * time.Millisecond, Window: time.Minute}
	tokens := Shown{Name: "tokens", Unit: Tokens, Limit: 9000, Remaining: 8000, Reset: 2250 * time.Millisecond, Window: time.Minute}
	const reset = "1767225630"
	want := map[string]map[string]string{
		"github": {"X-Ratelimit-Limit": "100", "X-Ratelimit-Remaining": "40", "X-Ratelimit-Used": "60", "X-Ratelimit-Reset": reset, "X-Ratelimit-Resource": "path-1"},
		"gitlab": {
			"Ratelimit-Limit": "100", "Ratelimit-Remaining": "40", "Ratelimit-Observed": "60", "Ratelimit-Reset": reset,
			"Ratelimit-Resettime": "Thu, 01 Jan 2026 00:00:30 GMT", "Ratelimit-Name": "path-1",
		},
		"okta": {"X-Rate-Limit-Limit": "100", "X-Rate-Limit-Remaining": "40", "X-Rate-Limit-Reset": reset},
		"x": {
			"X-Rate-Limit-Limit": "100", "X-Rate-Limit-Remaining": "40", "X-Rate-Limit-Reset": reset,
			"X-App-Limit-24hour-Limit": "9000", "X-App-Limit-24hour-Remaining": "8000", "X-App-Limit-24hour-Reset": "1767225603",
		},
		"openai": {
			"X-Ratelimit-Limit-Requests": "100", "X-Ratelimit-Remaining-Requests": "40", "X-Ratelimit-Reset-Requests": "29.5s",
			"X-Ratelimit-Limit-Tokens": "9000", "X-Ratelimit-Remaining-Tokens": "8000", "X-Ratelimit-Reset-Tokens": "2.25s",
		},
		"azure": {
			"X-Ratelimit-Limit-Requests": "100", "X-Ratelimit-Remaining-Requests": "40", "X-Ratelimit-Reset-Requests": "30",
			"X-Ratelimit-Limit-Tokens": "9000", "X-Ratelimit-Remaining-Tokens": "8000", "X-Ratelimit-Reset-Tokens": "3",
		},
		"anthropic": {
			"Anthropic-Ratelimit-Requests-Limit": "100", "Anthropic-Ratelimit-Requests-Remaining": "40", "Anthropic-Ratelimit-Requests-Reset": "2026-01-01T00:00:30Z",
			"Anthropic-Ratelimit-Tokens-Limit": "9000", "Anthropic-Ratelimit-Tokens-Remaining": "8000", "Anthropic-Ratelimit-Tokens-Reset": "2026-01-01T00:00:03Z",
		},
		"discord": {
			"X-Ratelimit-Limit": "100", "X-Ratelimit-Remaining": "40", "X-Ratelimit-Reset": reset + ".000", "X-Ratelimit-Reset-After": "29.500", "X-Ratelimit-Bucket": "path-1",
		},
		"reddit":         {"X-Ratelimit-Used": "60", "X-Ratelimit-Remaining": "40.0", "X-Ratelimit-Reset": "30"},
		"zendesk":        {"X-Rate-Limit": "100", "X-Rate-Limit-Remaining": "40", "Ratelimit-Reset": "30"},
		"zendesk-list":   {"Zendesk-Ratelimit-Tickets-Index": "total=100; remaining=40; resets=30"},
		"shopify":        {"X-Shopify-Shop-Api-Call-Limit": "60/100"},
		"jira":           {"X-Ratelimit-Limit": "100", "X-Ratelimit-Remaining": "40", "X-Ratelimit-Reset": "2026-01-01T00:00:30Z"},
		"atlassian":      {"X-Ratelimit-Limit": "100", "X-Ratelimit-Remaining": "40", "X-Ratelimit-Reset": "2026-01-01T00:01Z"},
		"atlassian-beta": {"Beta-Ratelimit-Policy": `"requests";q=100;w=60, "tokens";q=9000;w=60;qu="tokens"`, "Beta-Ratelimit": `"requests";r=40;t=30, "tokens";r=8000;t=3`},
		"ietf": {
			"Ratelimit-Policy": `"requests";q=100;w=60;pk=:cGF0aC0x:, "tokens";q=9000;w=60;qu="tokens";pk=:cGF0aC0x:`,
			"Ratelimit":        `"requests";r=40;t=30;pk=:cGF0aC0x:, "tokens";r=8000;t=3;pk=:cGF0aC0x:`,
		},
		"ietf-07": {"Ratelimit": "limit=100, remaining=40, reset=30"},
		"ietf-06": {"Ratelimit-Limit": "100", "Ratelimit-Remaining": "40", "Ratelimit-Reset": "30"},
		"hubspot": {
			"X-Hubspot-Ratelimit-Max": "100", "X-Hubspot-Ratelimit-Remaining": "40", "X-Hubspot-Ratelimit-Interval-Milliseconds": "60000",
			"X-Hubspot-Ratelimit-Daily": "9000", "X-Hubspot-Ratelimit-Daily-Remaining": "8000",
		},
		"cloudflare": {"Ratelimit-Policy": `"burst";q=100;w=60`, "Ratelimit": `"default";r=40;t=30`},
	}
	require.Len(t, Dialects(), len(want))
	for _, l := range Dialects() {
		t.Run(l.Name, func(t *testing.T) {
			p := Page{Quotas: []Shown{requests}, Date: at}
			if l.Many {
				p.Quotas = append(p.Quotas, tokens)
			}
			if l.Paths {
				p.Bucket = "path-1"
			}
			h := http.Header{}
			l.Write(h, p)
			got := map[string]string{}
			for name := range h {
				got[name] = h.Get(name)
			}
			require.Equal(t, want[l.Name], got)

			h, p.NoReset = http.Header{}, true
			l.Write(h, p)
			for name, values := range h {
				require.NotContains(t, name, "Reset")
				require.NotRegexp(t, `reset|;t=|Z$`, values[0], name)
			}
		})
	}
}
