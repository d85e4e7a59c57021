// Package ratelimitheader parses the quotas that a server advertises in the header of a
// response, in all dialects in common use.
//
//   - One field name has several meanings: X-RateLimit-Reset is an epoch time, a number of
//     seconds, a duration or a date. The value's form decides (see [Parse]).
//   - The client's clock may be wrong. Absolute times are compared with the Date field of
//     the same response. The client's clock is used only without a Date.
//   - A response from a cache (Age > 0) is ignored: it describes a quota of the past.
//   - Each quota of a response (requests and tokens, per minute and per day) is a
//     [Dimension]. A quota that is sent in two dialects is reported once.
//   - A dimension with an invalid value, or with a reset in the past, is dropped: a wrong
//     quota stops a client without need, a missing one costs one 429.
//   - Numbers, lengths and waits are bounded, and nothing overflows.
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
//   - Groq and Cerebras, with OpenAI's names: https://console.groq.com/docs/rate-limits,
//     https://inference-docs.cerebras.ai/support/rate-limits
//   - Anthropic: https://docs.anthropic.com/en/api/rate-limits
//   - Discord: https://discord.com/developers/docs/topics/rate-limits
//   - Reddit: https://www.reddit.com/r/redditdev/comments/1yxrp7/formal_ratelimiting_headers/
//   - Zendesk: https://developer.zendesk.com/documentation/ticketing/using-the-zendesk-api/best-practices-for-avoiding-rate-limiting/
//   - Shopify: https://shopify.dev/docs/api/admin-rest/usage/rate-limits
//   - IETF: https://datatracker.ietf.org/doc/draft-ietf-httpapi-ratelimit-headers/, draft -11
//     (list of policies), -07 (dictionary) and -06 and older (three fields)
//
// All functions are pure and safe for concurrent use.
package ratelimitheader

import (
	"iter"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/retryafter"
)

const (
	// MaxDimensions is the maximum number of dimensions that [Parse] returns. Real servers
	// send at most six.
	MaxDimensions = 16
	// MaxName is the maximum length of a name, in bytes. A longer name of a dimension is
	// truncated; a longer name of a bucket is ignored.
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
	// Reset is the time from the moment when the server wrote the response until the
	// quota is reset, in (0, MaxReset].
	Reset time.Duration
	// Instant is the moment of the reset by the server's clock, in UTC, if the server sent
	// a moment (an epoch time or a date); otherwise zero. Reset is then Instant minus the
	// response's Date, or minus the client's time if there is no Date.
	Instant time.Time
	// Window is the length of the policy's window (w=60), at most MaxReset, or 0 if it is
	// unknown.
	Window time.Duration
	// Costed is true if the quota does not count requests but tokens or bytes. Requests in
	// flight cannot be counted against it.
	Costed bool
}

// State is all that one response says about quotas.
type State struct {
	// Bucket is the server's name for the set of requests that share the quotas
	// (X-RateLimit-Bucket, X-RateLimit-Resource, RateLimit-Name, or the partition keys of
	// the IETF fields). It has at most MaxName bytes and is "" if there is no name.
	Bucket string
	// Global is true if the limit applies to all buckets of the server (Discord's
	// X-RateLimit-Global: true, or X-RateLimit-Scope: global). Bucket is then "".
	Global bool
	// Exhausted is true if a quota has 0 remaining, also if its reset is missing or past
	// and the quota is therefore not in Dimensions.
	Exhausted bool
	// PerID is true if there is a bucket of that name for each id in the path. Discord's
	// X-RateLimit-Bucket names a kind of request; each channel, guild or webhook has its
	// own quota.
	PerID bool
	// Date is the response's Date if a Dimension has an Instant; otherwise zero.
	Date time.Time
	// Dimensions has at most MaxDimensions entries, in an order that depends only on the
	// header.
	Dimensions []Dimension
}

// Parse parses the quotas in the response header h. It uses now, the client's time, only
// for absolute times in a response without a valid Date.
//
// A reset is a duration with units (12ms, 6m0s), an RFC 3339 or HTTP date, or a number:
// above 1e11 epoch milliseconds, above 1e9 epoch seconds, otherwise seconds. A dimension
// needs a valid remaining count and a reset in the future; others, and 0 of a limit of 0,
// are dropped. Of several lines of a field the first valid one counts.
//
// The result is false without any dimension. Bucket, Global and Exhausted are set
// nevertheless, except for a response from a cache (Age > 0).
func Parse(h http.Header, now time.Time) (State, bool) {
	has := find(h)
	if has == 0 || cached(h) {
		return State{}, false
	}
	date := retryafter.Date(h, time.Time{})
	p := parser{header: h, has: has, base: date.UTC()}
	if date.IsZero() {
		p.base = now.UTC()
	}
	p.parse()
	if slices.ContainsFunc(p.state.Dimensions, func(d Dimension) bool { return !d.Instant.IsZero() }) {
		p.state.Date = date
	}
	return p.state, len(p.state.Dimensions) > 0
}

// cached reports whether the response comes from a cache: the fields "SHOULD be ignored
// on responses that come from cache" (IETF draft, section 7.3). The first valid Age counts
// (RFC 9111, section 5.1).
func cached(h http.Header) bool {
	for _, v := range h["Age"] {
		if n, ok := retryafter.ParseNumber(first(v)); ok {
			return n.Whole > 0 || n.Nanos > 0
		}
	}
	return false
}

// unknown is a count that the server did not send.
const unknown = -1

// parser builds a State from one header.
type parser struct {
	header http.Header
	has    group     // the groups of fields in header
	base   time.Time // when the server wrote the response, by its clock
	state  State
}

const (
	// maxLines is the maximum number of lines of a field that are read.
	maxLines = MaxDimensions
	// maxField is the maximum number of bytes of a field that are read. A line with
	// MaxDimensions policies takes about 1 KiB. A line that exceeds it is skipped.
	maxField = 8 << 10
)

// lines returns the lines of the field that are read. After those of X-RateLimit- come
// those of X-Rate-Limit-: Azure OpenAI mixes both spellings
// (https://github.com/openai/openai-python/issues/937).
func (p *parser) lines(field string) iter.Seq[string] {
	return func(yield func(string) bool) {
		all, left := p.header[field], maxField
		if suffix, ok := strings.CutPrefix(field, prefixCustom); ok && p.has&groupHyphen != 0 {
			all = slices.Concat(all, p.header[prefixHyphen+suffix])
		}
		for _, line := range all[:min(len(all), maxLines)] {
			if len(line) > left {
				continue
			}
			if left -= len(line); !yield(line) {
				return
			}
		}
	}
}

// quota is a dimension that may be incomplete.
type quota struct {
	limit, remaining int64 // or unknown
	reset            reset
	window           time.Duration
	costed           bool
}

// fill copies what q lacks from other, if the two may be the same quota: at most one of
// them has a remaining count, or both have the same. Zendesk sends half of its quota as
// X-Rate-Limit and half as RateLimit.
func (q *quota) fill(other quota) {
	if q.remaining >= 0 && other.remaining >= 0 && q.remaining != other.remaining {
		return
	}
	if q.limit < 0 {
		q.limit = other.limit
	}
	if !q.reset.valid {
		q.reset = other.reset
	}
	if q.window == 0 {
		q.window = other.window
	}
}

// add adds a dimension, unless q lacks an essential part.
func (p *parser) add(name string, q quota) {
	if q.remaining < 0 || q.remaining == 0 && q.limit == 0 {
		return // Okta sends 0 of 0 if too many requests are in flight, which is not a quota
	}
	if q.remaining == 0 {
		p.state.Exhausted = true
	}
	if q.reset.wait <= 0 {
		return
	}
	d := Dimension{
		// A clone, because the name would keep the whole field alive.
		Name:      strings.Clone(name[:min(len(name), MaxName)]),
		Limit:     max(q.limit, 0),
		Remaining: q.remaining,
		Reset:     q.reset.wait,
		Instant:   q.reset.instant,
		Window:    q.window,
		Costed:    q.costed,
	}
	if i := p.index(d.Name); i >= 0 {
		// Two partitions of one policy, or two names that are equal after truncation.
		// The tighter quota is kept.
		if same := p.state.Dimensions[i]; d.Remaining < same.Remaining || d.Remaining == same.Remaining && d.Reset > same.Reset {
			p.state.Dimensions[i] = d
		}
	} else if len(p.state.Dimensions) < MaxDimensions {
		p.state.Dimensions = append(p.state.Dimensions, d)
	}
}

// index returns the index of the dimension with that name, or -1.
func (p *parser) index(name string) int {
	return slices.IndexFunc(p.state.Dimensions, func(d Dimension) bool { return d.Name == name })
}

// rounding is the maximum difference of two spellings of one reset. A delta, an epoch
// time and a Date are each rounded to a second.
const rounding = 2 * time.Second

// addUnnamed adds an unnamed quota under the first free one of names. If another dialect
// has described the same quota already, it only completes that dimension.
func (p *parser) addUnnamed(q quota, names ...string) {
	for i := range p.state.Dimensions {
		d := &p.state.Dimensions[i]
		if d.Remaining == q.remaining && (d.Limit == 0 || q.limit <= 0 || d.Limit == q.limit) &&
			(d.Reset-q.reset.wait).Abs() <= rounding {
			if d.Limit == 0 {
				d.Limit = max(q.limit, 0)
			}
			if d.Window == 0 {
				d.Window = q.window
			}
			return
		}
	}
	name := names[0]
	for _, name = range names {
		if p.index(name) < 0 {
			break
		}
	}
	p.add(name, q)
}
