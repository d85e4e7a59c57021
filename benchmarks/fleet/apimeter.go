package fleet

import (
	"fmt"
	"math"
	"net/http"
	"strconv"
	"time"
)

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

// apiMeter counts requests as one API does. It is not safe for concurrent use.
type apiMeter struct {
	limit  Limit
	begins time.Time // of the window
	used   int       // in it
	whole  int       // used since the start, of a quota that is never exhausted
	tokens float64   // of the bucket
	last   time.Time // time of tokens
	ends   []time.Time
}

func newAPIMeter(l Limit, start time.Time) *apiMeter {
	return &apiMeter{limit: l, tokens: float64(l.Burst), last: start, begins: start.Add(-l.window())}
}

// admit reports whether a request is permitted, and returns the response's headers.
func (m *apiMeter) admit(now time.Time) (http.Header, bool) {
	h := http.Header{}
	h.Set("Date", now.UTC().Format(http.TimeFormat))
	switch m.limit.API {
	case apiOkta:
		return h, m.slot(h, now)
	case apiJiraDC, apiAnthropic, apiShopify, apiRejections, apiOpenAI:
		ok := m.take(now)
		m.describeBucket(h, now, ok)
		return h, ok
	default:
		ok := m.count(now)
		m.describeWindow(h, now, ok)
		return h, ok
	}
}

// count takes one request of the window. A window starts with its first request.
func (m *apiMeter) count(now time.Time) bool {
	if now.Sub(m.begins) >= m.limit.window() {
		m.begins, m.used = now.Truncate(time.Second), 0
	}
	if m.used >= m.limit.Quota {
		return false
	}
	m.used++
	m.whole++
	return true
}

func (m *apiMeter) describeWindow(h http.Header, now time.Time, ok bool) {
	limit, left := m.limit.Quota, m.limit.Quota-m.used
	end := m.begins.Add(m.limit.window())
	wait := math.Ceil(end.Sub(now).Seconds())
	if !ok {
		h.Set("Retry-After", decimal(wait))
	}
	switch m.limit.API {
	case apiGitHub:
		quotaFields(h, limit, left, strconv.FormatInt(end.Unix(), 10))
	case apiZendesk:
		quotaFields(h, limit, left, "")
		h.Set("Ratelimit-Reset", decimal(wait))
	case apiIETF:
		h.Set("Ratelimit-Policy", fmt.Sprintf(`"default";q=%d;w=%d`, limit, int(m.limit.window().Seconds())))
		h.Set("Ratelimit", fmt.Sprintf(`"default";r=%d;t=%d`, left, int(wait)))
	case apiDiscord:
		quotaFields(h, limit, left, strconv.FormatFloat(float64(end.UnixMilli())/1000, 'f', 3, 64))
		h.Set("X-Ratelimit-Reset-After", strconv.FormatFloat(end.Sub(now).Seconds(), 'f', 3, 64))
		h.Set("X-Ratelimit-Bucket", "abcd1234")
	case apiJira:
		reset := ""
		if !ok {
			reset = end.UTC().Format("2006-01-02T15:04Z")
		}
		quotaFields(h, limit, left, reset)
	case apiGitHubSecondary:
		hour := now.Truncate(time.Hour).Add(time.Hour)
		quotaFields(h, farQuota*limit, farQuota*limit-m.whole, strconv.FormatInt(hour.Unix(), 10))
	case apiAzure: // a minute has six windows
		minute := now.Truncate(time.Minute).Add(time.Minute)
		quotaFields(h, 6*limit, 6*limit-m.used, "")
		h.Set("X-Ratelimit-Reset", decimal(math.Ceil(minute.Sub(now).Seconds())))
		if !ok {
			h.Set("Retry-After", "1")
		}
	default: // not this kind
	}
}

// take takes one token of the bucket.
func (m *apiMeter) take(now time.Time) bool {
	m.tokens = min(m.tokens+now.Sub(m.last).Seconds()*m.limit.Rate, float64(m.limit.Burst))
	m.last = now
	if m.tokens < 1-1e-9 {
		return false
	}
	m.tokens--
	return true
}

func (m *apiMeter) describeBucket(h http.Header, now time.Time, ok bool) {
	limit, left := m.limit.Burst, max(int(m.tokens), 0)
	full := (float64(limit) - m.tokens) / m.limit.Rate
	next := max(1-m.tokens, 0) / m.limit.Rate
	switch m.limit.API {
	case apiJiraDC:
		quotaFields(h, limit, left, "")
		h.Set("Retry-After", decimal(math.Ceil(next)))
	case apiAnthropic:
		h.Set("Anthropic-Ratelimit-Requests-Limit", strconv.Itoa(limit))
		h.Set("Anthropic-Ratelimit-Requests-Remaining", strconv.Itoa(left))
		h.Set("Anthropic-Ratelimit-Requests-Reset", now.Add(seconds(full)).UTC().Format(time.RFC3339))
		if !ok {
			h.Set("Retry-After", decimal(math.Ceil(next)))
		}
	case apiShopify:
		h.Set("X-Shopify-Shop-Api-Call-Limit", fmt.Sprintf("%d/%d", limit-left, limit))
		if !ok {
			h.Set("Retry-After", "2.0")
		}
	case apiRejections:
		if !ok {
			quotaFields(h, limit, left, decimal(math.Ceil(full)))
			h.Set("Retry-After", decimal(math.Ceil(next)))
		}
	case apiOpenAI: // one bucket of calls; each call takes callTokens tokens
		h.Set("X-Ratelimit-Limit-Requests", strconv.Itoa(10*limit))
		h.Set("X-Ratelimit-Remaining-Requests", strconv.Itoa(9*limit+left))
		h.Set("X-Ratelimit-Reset-Requests", seconds(full/10).Round(time.Millisecond).String())
		h.Set("X-Ratelimit-Limit-Tokens", strconv.Itoa(callTokens*limit))
		h.Set("X-Ratelimit-Remaining-Tokens", strconv.Itoa(max(int(callTokens*m.tokens), 0)))
		h.Set("X-Ratelimit-Reset-Tokens", seconds(full).Round(time.Millisecond).String())
	default: // not this kind
	}
}

// slot takes one of the slots for requests in flight.
func (m *apiMeter) slot(h http.Header, now time.Time) bool {
	for len(m.ends) > 0 && !m.ends[0].After(now) {
		m.ends = m.ends[1:]
	}
	minute := now.Truncate(time.Minute).Add(time.Minute).Unix()
	if len(m.ends) >= m.limit.Burst {
		quotaFields(h, 0, 0, strconv.FormatInt(minute, 10))
		return false
	}
	m.ends = append(m.ends, now.Add(oktaService))
	m.whole++
	quotaFields(h, farQuota*m.limit.Burst, farQuota*m.limit.Burst-m.whole, strconv.FormatInt(minute, 10))
	return true
}

// quotaFields sets the usual headers; it omits an empty reset.
func quotaFields(h http.Header, limit, remaining int, reset string) {
	h.Set("X-Ratelimit-Limit", strconv.Itoa(limit))
	h.Set("X-Ratelimit-Remaining", strconv.Itoa(max(remaining, 0)))
	if reset != "" {
		h.Set("X-Ratelimit-Reset", reset)
	}
}

func decimal(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }

func seconds(v float64) time.Duration { return time.Duration(v * float64(time.Second)) }
