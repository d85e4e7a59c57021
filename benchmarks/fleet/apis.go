package fleet

import (
	"fmt"
	"time"

	"github.com/resilienthttp/resilienthttp"
)

// modeledAPI is a limiter as an API documents it, at a size that shows several windows
// within a run.
type modeledAPI struct {
	name  string
	note  string // the kind of limiter, and the APIs that have it
	limit Limit
	tells telling
	own   bool // also by one client for each caller

	service time.Duration // of a request; 0: 20 ms
}

// telling is which responses show what the limiter counts.
type telling int

const (
	allTell telling = iota
	rejectionsTell
	silent
)

const (
	apiRow    = 40
	silentRow = 41
)

// modeledAPIs are eight kinds of limiter: full headers, remaining without a reset,
// limit 0 and remaining 0, told on rejections only, tokens beside requests, a second
// limit that is not told, a token bucket, silent.
func modeledAPIs() []modeledAPI {
	minute := func(api API, quota int) Limit { return Limit{API: api, Quota: quota, Window: time.Minute} }
	bucket := func(api API, rate float64, burst int) Limit { return Limit{API: api, Rate: rate, Burst: burst} }
	return []modeledAPI{
		{name: "github", note: "full headers (GitHub, GitLab, X, Reddit)", limit: minute(apiGitHub, 600)},
		{name: "zendesk", note: "full headers, reset in seconds (Zendesk, HubSpot's daily)", limit: minute(apiZendesk, 400)},
		{name: "ietf", note: "full headers of the IETF draft", limit: minute(apiIETF, 600)},
		{name: "discord", note: "full headers and a named bucket (Discord)", limit: Limit{API: apiDiscord, Quota: 50, Window: 5 * time.Second}},
		{name: "jira", note: "remaining without a reset, but on rejections (Jira Cloud)", limit: minute(apiJira, 600)},
		{name: "jira-dc", note: "remaining of a token bucket, never a reset (Jira Data Center)", limit: bucket(apiJiraDC, 10, 60)},
		{name: "okta", note: "429 with limit 0 and remaining 0: too many in flight (Okta)", limit: bucket(apiOkta, 15, 15), service: oktaService},
		{name: "notion", note: "Retry-After on rejections only, a bucket (Notion, Linear)", limit: Limit{Rate: 10, Burst: 30}, tells: rejectionsTell, own: true},
		{name: "slack", note: "Retry-After on rejections only, a window (Slack)", limit: Limit{Quota: 300, Window: time.Minute, Says: SaysRetryAfter}, tells: rejectionsTell},
		{name: "openai", note: "tokens end before requests (OpenAI, Groq)", limit: bucket(apiOpenAI, 7, 200)},
		{name: "github-secondary", note: "a second limit that only rejections show (GitHub)", limit: minute(apiGitHubSecondary, 600), tells: rejectionsTell},
		{name: "azure", note: "a minute's quota, a sixth in each 10 s, and Retry-After: 1 (Azure)", limit: Limit{API: apiAzure, Quota: 100, Window: 10 * time.Second}, tells: rejectionsTell},
		{name: "anthropic", note: "a token bucket; the reset is when it is full (Anthropic)", limit: bucket(apiAnthropic, 10, 100)},
		{name: "shopify", note: "a leaky bucket: used/limit (Shopify)", limit: bucket(apiShopify, 4, 80)},
		{name: "stripe", note: "a window of a second, silent (Stripe, Twilio, HubSpot)", limit: Limit{Quota: 25, Says: SaysNothing}, tells: silent, own: true},
		{name: "gateway", note: "a token bucket, silent (AWS API gateway, Envoy, Spring)", limit: Limit{Rate: 25, Burst: 50, Says: SaysNothing}, tells: silent, own: true},
		{name: "nginx", note: "limit_req with status 429, silent (nginx, Kubernetes)", limit: Limit{Rate: 25, Burst: 6, Says: SaysNothing}, tells: silent},
	}
}

// apis are rows 39 to 41: each limiter at 1.3 times what it grants, and met by 20
// workers.
func apis() (all []Scenario) {
	for _, api := range modeledAPIs() {
		rate := 1.3 * api.limit.perSecond()
		all = append(all,
			api.scenario("open", fmt.Sprintf("%.3g calls a second", rate), Load{Rate: rate, Clients: 20}),
			api.scenario("workers", "20 workers", Load{Workers: 20, Think: 10 * time.Millisecond}),
		)
	}
	return append(append(all, rejectedOnly()...), spareRequests()...)
}

func (a modeledAPI) scenario(load, what string, l Load) Scenario {
	s := Scenario{
		Row: apiRow, Name: "api-" + a.name + "-" + load, Note: what + " on " + a.note,
		During: 3 * time.Minute, Load: l, Topologies: []Topology{Shared}, Shows: "used",
		Server: Server{Workers: -1, Service: a.service, GiveUp: -1, Limit: a.limit},
	}
	if s.Server.Service == 0 {
		s.Server.Service = 20 * time.Millisecond
	}
	if a.own {
		s.Topologies = nil
	}
	used := atLeast("used", quotaUsed, 0.95, "%.4f")
	if a.tells == silent {
		s.Row, s.During = silentRow, time.Minute
		s.Goals = append(s.Goals, atLeast("used", quotaUsed, 0.95, "%.4f").timesBare(quotaUsed))
		if load == "open" {
			s.Goals = append(s.Goals, atMost("429s", tooMany, 3, "%.0f").timesBare(tooMany), atMost("429s for the aim", tooMany, 2, "%.0f").timesBare(tooMany).aim())
		}
		return s
	}
	s.Goals = append(s.Goals, used.orBare())
	most, windows := 2.0, s.During.Seconds()/max(a.limit.window().Seconds(), float64(a.limit.Burst)/max(a.limit.Rate, 1))
	if a.tells == rejectionsTell {
		most = 4 + inFlight(l, s.Server.Service)
	}
	s.Goals = append(s.Goals, atMost("429s a window", func(r Result) float64 { return tooMany(r) / windows }, most, "%.1f"))
	return s
}

// inFlight is how many requests of the load are in flight when a limit is reached.
func inFlight(l Load, service time.Duration) float64 {
	if l.Workers > 0 {
		return float64(l.Workers)
	}
	return max(1, l.Rate*service.Seconds())
}

// rejectedOnly are limits of which only rejections tell, at loads near the limit.
func rejectedOnly() []Scenario {
	const served = "used"
	row := func(name string, rate float64, limit Limit) Scenario {
		return Scenario{
			Row: 39, Name: name, Note: fmt.Sprintf("%g/s on 68/s, with quota headers on 429s only", rate),
			During: time.Minute, Load: Load{Rate: rate}, Topologies: []Topology{Shared}, Shows: served,
			Server: Server{Workers: -1, Service: 20 * time.Millisecond, GiveUp: -1, Limit: limit},
			Goals:  []Goal{atLeast(served, quotaUsed, 0.95, "%.4f").orBare()},
		}
	}
	return []Scenario{
		row("rejections-only-small-72", 72, Limit{API: apiRejections, Rate: 68, Burst: 10}),
		row("rejections-only-small-88", 88, Limit{API: apiRejections, Rate: 68, Burst: 10}),
		row("rejections-only-bucket-72", 72, Limit{API: apiRejections, Rate: 68, Burst: 68}),
		row("rejections-only-bucket-88", 88, Limit{API: apiRejections, Rate: 68, Burst: 68}),
		row("rejections-only-window-72", 72, Limit{Quota: 68, Says: SaysRefused}),
		row("rejections-only-window-88", 88, Limit{Quota: 68, Says: SaysRefused}),
	}
}

// spareRequests are hedges while a quota is short. The calls alone need four fifths of
// each minute's quota; with a hedge for each they would need one and a half of it.
func spareRequests() []Scenario {
	return []Scenario{{
		Row: 44, Name: "hedge-short-quota", Note: "a hedge for each of 240 calls a minute, on a quota of 300 a minute",
		During: 3 * time.Minute, Load: Load{Rate: 4}, Topologies: []Topology{Shared},
		Server: Server{Workers: -1, Service: 300 * time.Millisecond, GiveUp: -1, Limit: Limit{API: apiGitHub, Quota: 300, Window: time.Minute}},
		Configure: func(t *resilienthttp.Transport) {
			t.Hedge = &resilienthttp.Hedge{Delay: 50 * time.Millisecond, MaxRatio: 1}
		},
		Goals: []Goal{
			atLeast("success", Result.Success, 0.99, "%.4f"),
			atMost("p99, ms", p99, 15000, "%.0f"),
			atMost("429s", tooMany, 3, "%.0f"),
		},
	}}
}
