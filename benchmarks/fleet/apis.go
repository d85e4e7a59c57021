package fleet

import (
	"cmp"
	"fmt"
	"time"

	"github.com/resilienthttp/resilienthttp"
)

// modeledAPI is a limiter as an API documents it. Its windows are short, so that a run has
// several.
type modeledAPI struct {
	name    string
	note    string // the kind of limiter, and the APIs that have it
	limit   Limit
	headers HeaderPolicy // AllHeaders, HeadersOnRejections or NoHeaders
	own     bool         // also runs with one Transport per client

	service time.Duration // of a request; 0: 20 ms
}

const usedPart = "used part of the quota"

const (
	apiRow    = 40
	silentRow = 41
)

// modeledAPIs are eight kinds of limiter: full headers, remaining without a reset, limit 0
// and remaining 0, headers only on rejections, tokens and requests, a second limit without
// headers, a token bucket, no headers.
func modeledAPIs() []modeledAPI {
	minute := func(api API, quota int) Limit { return Limit{API: api, Quota: quota, Window: time.Minute} }
	bucket := func(api API, rate float64, burst int) Limit { return Limit{API: api, Rate: rate, Burst: burst} }
	return []modeledAPI{
		{name: "github", note: "full headers (GitHub, GitLab, X, Reddit)", limit: minute(apiGitHub, 600)},
		{name: "zendesk", note: "full headers, reset in seconds (Zendesk, HubSpot's daily)", limit: minute(apiZendesk, 400)},
		{name: "ietf", note: "full headers of the IETF draft", limit: minute(apiIETF, 600)},
		{name: "discord", note: "full headers and a named bucket (Discord)", limit: Limit{API: apiDiscord, Quota: 50, Window: 5 * time.Second}},
		{name: "jira", note: "remaining, reset only on rejections (Jira Cloud)", limit: minute(apiJira, 600)},
		{name: "jira-dc", note: "remaining of a token bucket, no reset (Jira Data Center)", limit: bucket(apiJiraDC, 10, 60)},
		{name: "okta", note: "429 with limit 0 and remaining 0: concurrency limit (Okta)", limit: bucket(apiOkta, 15, 15), service: oktaService},
		{name: "notion", note: "Retry-After only on rejections, token bucket (Notion, Linear)", limit: Limit{Rate: 10, Burst: 30}, headers: HeadersOnRejections, own: true},
		{name: "slack", note: "Retry-After only on rejections, window (Slack)", limit: Limit{Quota: 300, Window: time.Minute, Headers: RetryAfterOnly}, headers: HeadersOnRejections},
		{name: "openai", note: "tokens are exhausted before requests (OpenAI, Groq)", limit: bucket(apiOpenAI, 7, 200)},
		{name: "github-secondary", note: "a second limit, visible only on rejections (GitHub)", limit: minute(apiGitHubSecondary, 600), headers: HeadersOnRejections},
		{name: "azure", note: "a quota per minute, a sixth in each 10 s, Retry-After: 1 (Azure)", limit: Limit{API: apiAzure, Quota: 100, Window: 10 * time.Second}, headers: HeadersOnRejections},
		{name: "anthropic", note: "token bucket, reset when it is full (Anthropic)", limit: bucket(apiAnthropic, 10, 100)},
		{name: "shopify", note: "leaky bucket, header used/limit (Shopify)", limit: bucket(apiShopify, 4, 80)},
		{name: "stripe", note: "window of 1 s, no headers (Stripe, Twilio, HubSpot)", limit: Limit{Quota: 25, Headers: NoHeaders}, headers: NoHeaders, own: true},
		{name: "gateway", note: "token bucket, no headers (AWS API Gateway, Envoy, Spring)", limit: Limit{Rate: 25, Burst: 50, Headers: NoHeaders}, headers: NoHeaders, own: true},
		{name: "nginx", note: "limit_req with status 429, no headers (nginx, Kubernetes)", limit: Limit{Rate: 25, Burst: 6, Headers: NoHeaders}, headers: NoHeaders},
	}
}

// apis are rows 39 to 41: each limiter at 1.3 times what it grants, and met by 20
// workers.
func apis() (all []Scenario) {
	for _, api := range modeledAPIs() {
		rate := 1.3 * api.limit.perSecond()
		all = append(all,
			api.scenario("open", fmt.Sprintf("%.3g calls/s", rate), Load{Rate: rate, Clients: 20}),
			api.scenario("workers", "20 workers", Load{Workers: 20, Think: 10 * time.Millisecond}),
		)
	}
	return append(append(all, rejectedOnly()...), spareRequests()...)
}

func (a modeledAPI) scenario(load, what string, l Load) Scenario {
	s := Scenario{
		Row: apiRow, Name: "api-" + a.name + "-" + load, Note: what + "; " + a.note,
		During: 3 * time.Minute, Load: l, Topologies: []Topology{Shared}, Shows: usedPart,
		Server: Server{Workers: -1, Service: cmp.Or(a.service, 20*time.Millisecond), AttemptTimeout: -1, Limit: a.limit},
	}
	if a.own {
		s.Topologies = nil
	}
	used := atLeast(usedPart, quotaUsed, 0.95, "%.4f")
	if a.headers == NoHeaders {
		s.Row, s.During = silentRow, time.Minute
		s.Targets = append(s.Targets, atLeast(usedPart, quotaUsed, 0.95, "%.4f").timesBare(quotaUsed))
		if load == "open" {
			s.Targets = append(s.Targets, atMost("429s", tooMany, 3, "%.0f").timesBare(tooMany), atMost("429s, goal", tooMany, 2, "%.0f").timesBare(tooMany).goal())
		}
		return s
	}
	s.Targets = append(s.Targets, used.orBare())
	most, windows := 2.0, s.During.Seconds()/max(a.limit.window().Seconds(), float64(a.limit.Burst)/max(a.limit.Rate, 1))
	if a.headers == HeadersOnRejections {
		most = 4 + inFlight(l, s.Server.Service)
	}
	s.Targets = append(s.Targets, atMost("429s per window", func(r Result) float64 { return tooMany(r) / windows }, most, "%.1f"))
	return s
}

// inFlight is the number of requests in flight when the limit is reached.
func inFlight(l Load, service time.Duration) float64 {
	if l.Workers > 0 {
		return float64(l.Workers)
	}
	return max(1, l.Rate*service.Seconds())
}

// rejectedOnly are limits with headers only on rejections, at loads near the limit.
func rejectedOnly() (all []Scenario) {
	for _, v := range []struct {
		name  string
		limit Limit
	}{
		{"small", Limit{API: apiRejections, Rate: 68, Burst: 10}},
		{"bucket", Limit{API: apiRejections, Rate: 68, Burst: 68}},
		{"window", Limit{Quota: 68, Headers: HeadersOnRejections}},
	} {
		all = append(all, each(func(rate float64) Scenario {
			return Scenario{
				Row: 39, Name: fmt.Sprintf("rejections-only-%s-%g", v.name, rate), Note: fmt.Sprintf("%g calls/s, limit 68/s; quota headers only on 429", rate),
				During: time.Minute, Load: Load{Rate: rate}, Topologies: []Topology{Shared}, Shows: usedPart,
				Server:  Server{Workers: -1, Service: 20 * time.Millisecond, AttemptTimeout: -1, Limit: v.limit},
				Targets: []Target{atLeast(usedPart, quotaUsed, 0.95, "%.4f").orBare()},
			}
		}, 72, 88)...)
	}
	return all
}

// spareRequests tests hedges with a small quota. The calls need 80 % of the quota of a
// minute. With a hedge for each call they would need 160 %.
func spareRequests() []Scenario {
	return []Scenario{{
		Row: 44, Name: "hedge-short-quota", Note: "240 calls/min with a hedge each, quota 300/min",
		During: 3 * time.Minute, Load: Load{Rate: 4}, Topologies: []Topology{Shared},
		Server: Server{Workers: -1, Service: 300 * time.Millisecond, AttemptTimeout: -1, Limit: Limit{API: apiGitHub, Quota: 300, Window: time.Minute}},
		Configure: func(t *resilienthttp.Transport) {
			t.Hedge = &resilienthttp.Hedge{Delay: 50 * time.Millisecond, MaxRatio: 1}
		},
		Targets: []Target{
			atLeast("success", Result.Success, 0.99, "%.4f"),
			atMost("p99, ms", p99, 15000, "%.0f"),
			atMost("429s", tooMany, 3, "%.0f"),
		},
	}}
}
