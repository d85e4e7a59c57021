// Package ratelimitheader parses the quotas that a server advertises in the header of a
// response, in all dialects in common use. All functions are pure and safe for concurrent use.
//
// A field has several meanings: X-RateLimit-Reset is an epoch time, a number of seconds, a
// duration or a date. The value's form decides (see [Parse]). A wrong quota stops a client
// without need, and a missing one costs one 429, so all that is malformed, past or from a cache
// is ignored. Numbers, lengths and waits are bounded, and nothing overflows.
//
// The dialects and their sources:
//
//   - GitHub: https://docs.github.com/rest/using-the-rest-api/rate-limits-for-the-rest-api
//   - GitLab: https://docs.gitlab.com/administration/settings/user_and_ip_rate_limits/
//   - X: https://docs.x.com/x-api/fundamentals/rate-limits, and its limits of 24 hours
//   - HubSpot: https://developers.hubspot.com/docs/developer-tooling/platform/usage-guidelines
//   - Atlassian: https://developer.atlassian.com/cloud/jira/platform/rate-limiting/
//   - Cloudflare: https://developers.cloudflare.com/fundamentals/api/reference/limits/
//   - Okta: https://developer.okta.com/docs/reference/rl-best-practices/
//   - OpenAI: https://platform.openai.com/docs/guides/rate-limits
//   - Azure OpenAI: https://github.com/openai/openai-dotnet/issues/838 (-1 and 0 mean unknown)
//   - RapidAPI: https://docs.rapidapi.com/v1.0/docs/response-headers
//   - Groq and Cerebras, with OpenAI's names: https://console.groq.com/docs/rate-limits,
//     https://inference-docs.cerebras.ai/support/rate-limits
//   - Anthropic: https://docs.anthropic.com/en/api/rate-limits
//   - Discord: https://discord.com/developers/docs/topics/rate-limits
//   - Reddit: https://www.reddit.com/r/redditdev/comments/1yxrp7/formal_ratelimiting_headers/
//   - Zendesk: https://developer.zendesk.com/documentation/ticketing/using-the-zendesk-api/best-practices-for-avoiding-rate-limiting/
//   - Shopify: https://shopify.dev/docs/api/admin-rest/usage/rate-limits
//   - IETF: https://datatracker.ietf.org/doc/draft-ietf-httpapi-ratelimit-headers/, draft -11
//     (list of policies), its open change (https://github.com/ietf-wg-httpapi/ratelimit-headers/pull/164), -07 (dictionary) and -06 and older (three fields)
package ratelimitheader

import (
	"net/http"
	"slices"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/retryafter"
)

const (
	// MaxDimensions is the maximum number of dimensions that [Parse] returns. Real servers send at most six.
	MaxDimensions = 16
	// MaxName is the maximum length of a name, in bytes. What has a longer name is ignored.
	MaxName = 128
	// MaxReset is the maximum Reset and Window. Longer ones are reduced to it.
	MaxReset = retryafter.Max
)

// Dimension is one independent quota, as the server describes it.
type Dimension struct {
	// Name is unique within a State: "" for an unnamed quota, "requests", "tokens",
	// "input-tokens" and the like, or the name of an IETF policy.
	Name string
	// Limit is the quota per window, or 0 if it is unknown.
	Limit int64
	// Remaining is the remaining quota, at least 0, without its fraction.
	Remaining int64
	// Reset is the time from the moment when the server wrote the response until the quota is reset, in (0, MaxReset].
	Reset time.Duration
	// Instant is the moment of the reset by the server's clock, in UTC, if the server sent
	// a moment (an epoch time or a date); otherwise zero. Reset is then Instant minus the
	// response's Date, or minus the client's time if there is no Date.
	Instant time.Time
	// Window is the length of the policy's window (w=60), at most MaxReset, or 0 if it is unknown.
	Window time.Duration
	// Costed is true if the quota does not count requests but tokens or bytes, or if the request
	// took more than one of it. Requests in flight cannot be counted against it.
	Costed bool
}

// State is all that one response says about quotas.
type State struct {
	// Bucket is the server's name for the set of requests that share the quotas
	// (X-RateLimit-Bucket, X-RateLimit-Resource, RateLimit-Name, the partition keys of the
	// IETF fields, or Zendesk's endpoint). It has at most MaxName bytes; "" means no name.
	Bucket string
	// Global is true if the limit applies to all buckets of the server (Discord's
	// X-RateLimit-Global: true, or X-RateLimit-Scope: global). Bucket is then "".
	Global bool
	// Exhausted is true if a quota has 0 remaining, also if its reset is missing or past
	// and the quota is therefore not in Dimensions.
	Exhausted bool
	// PerID is true if there is a bucket of that name for each id in the path. Discord's X-RateLimit-Bucket names a
	// kind of request; each channel, guild or webhook has its own quota.
	PerID bool
	// Date is the response's Date if a Dimension has an Instant; otherwise zero.
	Date time.Time
	// Dimensions has at most MaxDimensions entries, in an order that depends only on the
	// header. A quota that is sent in two dialects is one entry.
	Dimensions []Dimension
}

// Parse parses the quotas in the response header h. It uses now, the client's time, only for absolute times in a
// response without a valid Date. It is meant for every response, and allocates nothing for one without quotas.
//
// A reset is a duration with units (12ms, 6m0s), an RFC 3339 or HTTP date, or a number: above 1e11 epoch milliseconds,
// above 1e9 epoch seconds, otherwise seconds. Times are compared with the Date of the response, because the client's
// clock may be wrong. A reset of now beside a count above 0 is rounded down, so it comes within a second. A dimension
// needs a valid remaining count and a reset in the future; others, and 0 of a limit of 0, are dropped. Of several lines
// of a quota the one with the least left counts, and else the first valid one.
//
// The result is false without any dimension. Bucket, Global and Exhausted are set
// nevertheless, except for a response from a cache (Age > 0).
//
// The order of a map is random, so Parse reads the fields in the order of their names. Of two that mean
// the same, the last valid one counts.
func Parse(h http.Header, now time.Time) (State, bool) {
	var buffer [MaxDimensions]string // nearly always enough
	names := buffer[:0]
	for name := range h {
		if mayLimit(name) {
			names = append(names, name)
		}
	}
	if len(names) == 0 || len(names) > 2*MaxDimensions || cached(h) { // above so many fields a response has no quotas
		return State{}, false
	}
	slices.Sort(names)
	p := parser{header: h, now: now, custom: newQuota(custom), standard: newQuota(standard)}
	for _, name := range names {
		if lines := h[name]; len(lines) > 1 { // rare
			p.chooseLine(meaningOf(name), lines)
		}
	}
	for _, name := range names {
		if m := meaningOf(name); m.part != nothing {
			p.readField(m, h[name])
		}
	}
	p.finish()
	return p.state, len(p.state.Dimensions) > 0
}

// cached reports whether the response comes from a cache: the fields "SHOULD be ignored on responses that come from
// cache" (IETF draft, section 7.3). The first valid Age counts (RFC 9111, section 5.1).
func cached(h http.Header) bool {
	for _, v := range h["Age"] {
		if n, ok := number(v); ok {
			return n.Whole > 0 || n.Nanos > 0
		}
	}
	return false
}
