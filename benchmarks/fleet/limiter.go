package fleet

import (
	"cmp"
	"maps"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/resilienthttp/resilienthttp/benchmarks/limiter"
	"github.com/resilienthttp/resilienthttp/faulttest"
)

// Limit is the rate limit of a server. The zero value is unlimited.
type Limit struct {
	Quota  int           // requests per Window of the clock
	Window time.Duration // 0: a second

	Rate  float64 // or: tokens per second of a token bucket
	Burst int     // and its capacity

	Status  int          // of rejections; 0: 429
	Headers HeaderPolicy // which headers the server sends

	API API // the limiter of a modeled API, instead of the above
}

// HeaderPolicy tells which headers a limit sends.
type HeaderPolicy string

// The header policies.
const (
	AllHeaders          HeaderPolicy = ""                        // quota: GitHub's headers on each response, and Retry-After; bucket: Retry-After: 1
	HeadersOnRejections HeaderPolicy = "all, only on rejections" // the same, only on rejections
	RetryAfterOnly      HeaderPolicy = "Retry-After"             // only Retry-After
	NoHeaders           HeaderPolicy = "none"                    // only a status
)

// perSecond is the mean permitted rate.
func (l Limit) perSecond() float64 {
	if l.Quota > 0 {
		return float64(l.Quota) / l.window().Seconds()
	}
	return l.Rate
}

func (l Limit) window() time.Duration { return cmp.Or(l.Window, time.Second) }
func (l Limit) status() int           { return cmp.Or(l.Status, http.StatusTooManyRequests) }

// granted is the maximum number of permitted requests in the time.
func (l Limit) granted(length time.Duration) float64 {
	if l.Quota > 0 {
		return float64(l.Quota) * float64(length/l.window())
	}
	return float64(l.Burst) + l.Rate*length.Seconds()
}

// API is the limiter of an API, as the API documents it.
// The zero value is the limiter that Limit describes.
type API string

// The kinds of limiter.
const (
	apiGitHub          API = "github"           // a window; limit, remaining and reset (epoch) on every response
	apiZendesk         API = "zendesk"          // a window; the same with a reset in seconds
	apiIETF            API = "ietf"             // a window; RateLimit and RateLimit-Policy
	apiDiscord         API = "discord"          // a window; the bucket's name and a reset in fractions of a second
	apiJira            API = "jira"             // a window; limit and remaining on every response, the reset on rejections
	apiJiraDC          API = "jira-dc"          // a token bucket; limit and remaining, never a reset
	apiOkta            API = "okta"             // a window that is never exhausted, and a concurrency limit that sends limit 0, remaining 0
	apiOpenAI          API = "openai"           // token buckets of requests and of tokens; the tokens are exhausted first
	apiGitHubSecondary API = "github-secondary" // a window that is never exhausted, and a second one, visible only on rejections
	apiAzure           API = "azure"            // a quota per minute; a sixth may be used in each ten seconds
	apiAnthropic       API = "anthropic"        // a token bucket; its reset is when it is full
	apiShopify         API = "shopify"          // a leaky bucket: used/limit
	apiRejections      API = "rejections"       // a token bucket; limit, remaining and reset only on rejections
)

// Constants of the models.
const (
	callTokens  = 150         // tokens per OpenAI call
	farQuota    = 1000        // factor of a quota that is never exhausted
	oktaService = time.Second // time for which a request holds one of Okta's slots
)

// limit enforces a Limit. It is not safe for concurrent use.
type limit struct {
	Limit
	meter limiter.Meter // nil: all requests are permitted
	cost  int           // units of a request
	whole int           // permitted since the start
}

func newLimiter(l Limit) *limit {
	m := &limit{Limit: l, cost: 1}
	if l.API == apiOpenAI {
		m.cost = callTokens
	}
	switch {
	case l.API == apiOkta:
		m.meter = limiter.New(limiter.Limit{Kind: limiter.Concurrency, Quota: l.Burst})
	case l.Quota > 0: // a window of an API starts with its first request, others by the clock
		m.meter = limiter.New(limiter.Limit{Kind: limiter.FixedWindow, Quota: l.Quota, Window: l.window(), Clock: l.API == ""})
	case l.Rate > 0:
		m.meter = limiter.New(limiter.Limit{Kind: limiter.TokenBucket, Quota: m.cost, Window: seconds(1 / l.Rate), Burst: m.cost * l.Burst})
	}
	return m
}

// admit reports whether a request is permitted, and returns the response's headers.
func (l *limit) admit(now time.Time) (header http.Header, ok bool) {
	if l.meter == nil {
		return nil, true
	}
	at, late := now.Sub(Epoch()), time.Duration(0)
	if l.API != "" && l.Quota > 0 { // a window starts at a whole second
		late = at % time.Second
		at -= late
	}
	if ok = l.meter.Earliest(at, l.cost) <= at; ok {
		l.meter.Take(at, at+oktaService, l.cost)
		l.whole++
	}
	s := state{now: now, ok: ok, wait: l.meter.Earliest(at, l.cost) - at - late}
	s.remaining, s.reset = l.meter.Left(at)
	s.reset -= late
	switch {
	case l.API != "":
		return l.tell(s), ok
	case l.Quota > 0:
		return l.tellQuota(s), ok
	case ok || l.Headers == NoHeaders:
		return nil, ok
	}
	return http.Header{"Retry-After": {"1"}}, false // as many gateways do
}

// state is the state of a limit after a request.
type state struct {
	now         time.Time
	ok          bool // it was permitted
	remaining   int
	wait, reset time.Duration // until the next request is permitted, and until all are
}

func (s state) epoch(of time.Duration) string {
	return strconv.FormatInt(s.now.Add(of+time.Second-1).Unix(), 10)
}

// until is the time until the next multiple of d.
func (s state) until(d time.Duration) time.Duration { return s.now.Truncate(d).Add(d).Sub(s.now) }

func whole(d time.Duration) string { return strconv.Itoa(int(math.Ceil(d.Seconds()))) }

// tellQuota sends GitHub's headers.
func (l *limit) tellQuota(s state) http.Header {
	h := http.Header{}
	if l.Headers == AllHeaders || l.Headers == HeadersOnRejections && !s.ok {
		h.Set("Date", s.now.UTC().Format(http.TimeFormat))
		quotaFields(h, l.Quota, s.remaining, s.epoch(s.reset))
	}
	if !s.ok && l.Headers != NoHeaders {
		h.Set("Retry-After", whole(s.reset))
	}
	return h
}

// dialects are those of package faulttest that APIs write.
var dialects = map[API]faulttest.Dialect{ //nolint:gochecknoglobals // a table
	apiGitHub: faulttest.GitHub, apiGitHubSecondary: faulttest.GitHub, apiZendesk: faulttest.Zendesk, apiIETF: faulttest.IETF,
	apiDiscord: faulttest.Discord, apiAnthropic: faulttest.Anthropic, apiShopify: faulttest.Shopify, apiOpenAI: faulttest.OpenAI,
}

// tell sends the headers of an API.
func (l *limit) tell(s state) http.Header {
	h := http.Header{"Date": {s.now.UTC().Format(http.TimeFormat)}}
	retryAfter := whole(s.wait)
	dialect, ok := dialects[l.API]
	if !ok {
		dialect = faulttest.NoHeaders // its fields are written below
	}
	quota := faulttest.RateLimit{Dialect: dialect, Limit: max(l.Quota, l.Burst), Remaining: s.remaining, Reset: s.reset, Window: l.window()}
	switch l.API {
	case apiGitHub, apiZendesk, apiIETF, apiDiscord, apiAnthropic: // the dialect has all fields
	case apiShopify:
		retryAfter = "2.0"
	case apiGitHubSecondary:
		quota.Limit, quota.Remaining, quota.Reset = farQuota*l.Quota, farQuota*l.Quota-l.whole, s.until(time.Hour)
	case apiOpenAI: // each call takes callTokens tokens
		tokens := faulttest.RateLimit{Dialect: faulttest.OpenAI, Name: "Tokens", Limit: callTokens * l.Burst, Remaining: s.remaining, Reset: s.reset}
		maps.Copy(h, tokens.Header(s.now))
		quota.Limit, quota.Remaining, quota.Reset = 10*l.Burst, 9*l.Burst+s.remaining/callTokens, s.reset/10
		retryAfter = ""
	case apiJira:
		reset := ""
		if !s.ok {
			reset = s.now.Add(s.reset).UTC().Format("2006-01-02T15:04Z")
		}
		quotaFields(h, l.Quota, s.remaining, reset)
	case apiJiraDC:
		quotaFields(h, l.Burst, s.remaining, "")
		h.Set("Retry-After", retryAfter)
	case apiAzure: // a minute has six windows
		quotaFields(h, 6*l.Quota, 5*l.Quota+s.remaining, whole(s.until(time.Minute)))
		retryAfter = "1"
	case apiRejections:
		if !s.ok {
			quotaFields(h, l.Burst, s.remaining, whole(s.reset))
		}
	case apiOkta:
		limit, remaining := farQuota*l.Burst, farQuota*l.Burst-l.whole
		if !s.ok {
			limit, remaining = 0, 0
		}
		quotaFields(h, limit, remaining, s.epoch(s.until(time.Minute)))
		retryAfter = ""
	}
	maps.Copy(h, quota.Header(s.now))
	if !s.ok && retryAfter != "" {
		h.Set("Retry-After", retryAfter)
	}
	return h
}

// quotaFields sets the usual headers; it omits an empty reset.
func quotaFields(h http.Header, limit, remaining int, reset string) {
	h.Set("X-Ratelimit-Limit", strconv.Itoa(limit))
	h.Set("X-Ratelimit-Remaining", strconv.Itoa(remaining))
	if reset != "" {
		h.Set("X-Ratelimit-Reset", reset)
	}
}

func seconds(v float64) time.Duration { return time.Duration(v * float64(time.Second)) }
