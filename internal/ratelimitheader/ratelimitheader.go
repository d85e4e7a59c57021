// Package ratelimitheader reads what a server says about its quotas in the
// header of a response, in every dialect in common use.
//
// What goes wrong with such fields in practice, and what this package makes of
// it:
//
//   - One field name, several meanings: X-RateLimit-Reset is an epoch time at
//     GitHub, seconds at Reddit, a duration at OpenAI and a date elsewhere. The
//     value tells which (see [Parse]).
//   - The client's clock is wrong. Absolute times are judged against the Date
//     field of the same response, never against the local clock while there is
//     a Date.
//   - The response comes from a cache and tells the quota of somebody else's
//     past. A response with a positive Age says nothing.
//   - Several independent quotas in one response (requests and tokens, per
//     minute and per day). Each is an [Axis] of its own.
//   - The same quota twice, in an old and a new dialect, as servers do that
//     migrate. It is reported once.
//   - "-1", "unknown", NaN, a reset in the past. The axis is dropped: a wrong
//     quota stops a client for nothing, a missing one costs a 429 at worst.
//   - Hostile headers: thousands of policies, names of a megabyte, resets in
//     the year 9999. Numbers, lengths and waits are bounded, the work is linear
//     in the size of the header, and nothing overflows.
//
// The dialects, with their sources:
//
//   - GitHub: https://docs.github.com/rest/using-the-rest-api/rate-limits-for-the-rest-api
//   - GitLab: https://docs.gitlab.com/administration/settings/user_and_ip_rate_limits/
//   - X: https://docs.x.com/x-api/fundamentals/rate-limits
//   - Okta: https://developer.okta.com/docs/reference/rl-best-practices/
//   - OpenAI: https://platform.openai.com/docs/guides/rate-limits
//   - Azure OpenAI: https://github.com/openai/openai-dotnet/issues/838 (the -1 and 0 that mean unknown)
//   - Groq and Cerebras, who took over OpenAI's names: https://console.groq.com/docs/rate-limits,
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
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/retryafter"
)

const (
	// MaxAxes is the most axes that [Parse] returns. Real servers send up to
	// half a dozen.
	MaxDimensions = 16
	// MaxName is the length, in bytes, of the longest name of an axis or a
	// bucket. Axis names are cut to it; a longer bucket name is no name.
	MaxName = 128
	// MaxReset is the longest Reset and the longest Window. Longer ones are cut
	// to it.
	MaxReset = retryafter.Max
)

// Axis is one independent quota as the server described it.
type Dimension struct {
	// Name tells the axes of one server apart, and is unique within a State:
	// "" for the quota of a server that has one, "requests", "tokens",
	// "input-tokens" and the like, or the name of an IETF policy.
	Name string
	// Limit is the whole quota, per window; 0 where the server does not tell.
	Limit int64
	// Remaining is what is left of it, never negative. Fractions are cut off.
	Remaining int64
	// Reset is the time until the quota is whole again, from the moment at
	// which the server wrote the response, in (0, MaxReset].
	Reset time.Duration
	// Instant is the moment of the reset by the server's clock, in UTC, where
	// the server named a moment (an epoch time or a date), else zero. Reset is
	// then Instant minus the response's Date, or minus the client's present
	// time where there is no Date.
	Instant time.Time
	// Window is the length of the policy's window where the server tells it
	// (w=60), at most MaxReset, else 0.
	Window time.Duration
	// Costed is true when a request does not take 1 of it (tokens, bytes), so
	// that requests in flight cannot be counted against it.
	Costed bool
}

// State is everything that one response says about its quotas.
type State struct {
	// Bucket is the server's name for what the quotas belong to
	// (X-RateLimit-Bucket, X-RateLimit-Resource, RateLimit-Name, or the
	// partition keys of the IETF fields), at most MaxName bytes; "" when
	// unnamed.
	Bucket string
	// Global is true when the server says that the limit which the request ran
	// into is that of all its buckets (Discord's X-RateLimit-Global: true, or
	// X-RateLimit-Scope: global). Bucket is "" then.
	Global bool
	// Exhausted is true when a quota stands at zero, one included whose reset
	// is missing or due and which is therefore not among the Axes.
	Exhausted bool
	// PerID is true when there is a bucket of that name for each id in the path
	// (Discord's X-RateLimit-Bucket is that of a kind of request, and each channel,
	// guild or webhook has its own).
	PerID bool
	// Date is when the server wrote the response, by its clock, where an Axis has
	// an Instant and the response a Date; else zero.
	Date time.Time
	// Axes are the quotas, at most MaxAxes, in an order that depends on the
	// fields alone.
	Dimensions []Dimension
}

// Parse reads the quotas out of the response header h. The time now is the
// client's, and is used only where absolute times meet a response without a
// valid Date.
//
// A reset is read as a duration with units (12ms, 6m0s, 1h2m), else as an RFC
// 3339 or HTTP date, else as a number: above 1e11 epoch milliseconds, above 1e9
// epoch seconds (above 9e8, where now is before that), else seconds to go; fractions are
// allowed.
//
// An axis needs a valid remaining quota and a reset that lies ahead; others are
// dropped, for there would be nothing to wait for. So is 0 of a limit of 0. Counts and resets that are
// negative or malformed count as absent. In a field with several lines the
// first valid one is taken, so that the fields of one server stay together
// where a gateway has added its own.
//
// The result is false when no axis is left. Bucket, Global and Exhausted are
// filled in nevertheless, save for a response out of a cache (Age > 0), which
// says nothing at all.
func Parse(h http.Header, now time.Time) (State, bool) {
	if cached(h) {
		return State{}, false
	}
	date := retryafter.Date(h, time.Time{})
	p := parser{header: h, base: date.UTC()}
	if date.IsZero() {
		p.base = now.UTC()
	}
	p.unnamed()
	p.named()
	p.shopify()
	p.bucket()
	if slices.ContainsFunc(p.state.Dimensions, func(a Dimension) bool { return !a.Instant.IsZero() }) {
		p.state.Date = date
	}
	return p.state, len(p.state.Dimensions) > 0
}

// Present reports whether h has a field that [Parse] looks at; where it reports
// false, Parse finds nothing. It is meant for every response, and allocates
// nothing. It is one pass over the names: for ten fields that costs somewhat
// more than looking up each of the fixed names (BenchmarkPresent), but it alone
// finds the open-ended ones, such as X-RateLimit-Remaining-Tokens-Day.
func Present(h http.Header) bool {
	for name := range h {
		if relevant(name) {
			return true
		}
	}
	return false
}

// relevant reports whether the field may bear on quotas. It errs on the side of
// true.
func relevant(name string) bool {
	// The length of "Ratelimit", the shortest; it makes the slices below safe.
	if len(name) < 9 {
		return false
	}
	switch name[0] {
	case 'X':
		// X-Ratelimit-… and X-Rate-Limit-…
		return name[:6] == "X-Rate" || name == fieldShopify
	case 'R':
		return name[:9] == "Ratelimit"
	case 'A':
		return strings.HasPrefix(name, "Anthropic-Ratelimit-")
	}
	return false
}

// cached reports whether the response comes out of a cache: "they SHOULD be
// ignored on responses that come from cache", says section 7.3 of the IETF
// draft. Of several Age values the first counts, and an invalid one is ignored
// (RFC 9111, section 5.1).
func cached(h http.Header) bool {
	for _, v := range h["Age"] {
		if n, ok := retryafter.ParseNumber(first(v)); ok {
			return n.Whole > 0 || n.Nanos > 0
		}
	}
	return false
}

// unknown stands for a count that the server does not tell.
const unknown = -1

// parser gathers a State from one header.
type parser struct {
	header http.Header
	base   time.Time // when the server wrote the response, by its clock
	state  State
}

const (
	// maxLines is how many lines of a field are looked at.
	maxLines = MaxDimensions
	// maxField is how many bytes of them are read. A line with MaxAxes policies
	// takes about one KiB; one that does not fit any more is passed over.
	maxField = 8 << 10
)

// lines are those lines of the field that are read. A server that sends megabytes
// of them costs no more than one that sends a few.
func (p *parser) lines(field string) iter.Seq[string] {
	return func(yield func(string) bool) {
		all, left := p.header[field], maxField
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

// quota is an axis in the making.
type quota struct {
	limit, remaining int64 // or unknown
	reset            reset
	window           time.Duration
	costed           bool
}

// fill takes from q what o lacks, if the two can be the same quota: when at
// most one of them tells what remains, or both the same. Zendesk for one spells
// half of its quota X-Rate-Limit and half RateLimit.
func (o *quota) fill(q quota) {
	if o.remaining >= 0 && q.remaining >= 0 && o.remaining != q.remaining {
		return
	}
	if o.limit < 0 {
		o.limit = q.limit
	}
	if !o.reset.stated {
		o.reset = q.reset
	}
	if o.window == 0 {
		o.window = q.window
	}
}

// add makes an axis of q, unless something essential is missing.
func (p *parser) add(name string, q quota) {
	if q.remaining < 0 || q.remaining == 0 && q.limit == 0 {
		return // Okta says 0 of 0 when too many requests are in flight: that is no quota
	}
	if q.remaining == 0 {
		p.state.Exhausted = true
	}
	if q.reset.wait <= 0 {
		return
	}
	if len(name) > MaxName {
		name = name[:MaxName]
	}
	a := Dimension{
		Name:      name,
		Limit:     max(q.limit, 0),
		Remaining: q.remaining,
		Reset:     q.reset.wait,
		Instant:   q.reset.instant,
		Window:    q.window,
		Costed:    q.costed,
	}
	for i, b := range p.state.Dimensions {
		if b.Name == name {
			// Twice the same name: two partitions of one policy, or names that
			// have become equal by the cut. The tighter one speaks for both.
			if a.Remaining < b.Remaining || a.Remaining == b.Remaining && a.Reset > b.Reset {
				a.Name = b.Name // not the one that is a part of the field
				p.state.Dimensions[i] = a
			}
			return
		}
	}
	if len(p.state.Dimensions) < MaxDimensions {
		// A name is a part of a field, and would keep the whole of it alive.
		a.Name = strings.Clone(name)
		p.state.Dimensions = append(p.state.Dimensions, a)
	}
}

// addUnnamed adds the quota of a family of fields that has no name for it,
// under the first of names that is free, unless it is there already in another
// dialect.
func (p *parser) addUnnamed(q quota, names ...string) {
	name := names[0]
	for _, name = range names {
		if !p.has(name) {
			break
		}
	}
	for i := range p.state.Dimensions {
		a := &p.state.Dimensions[i]
		if a.Remaining != q.remaining ||
			a.Limit > 0 && q.limit > 0 && a.Limit != q.limit ||
			(a.Reset-q.reset.wait).Abs() > rounding {
			continue
		}
		if a.Limit == 0 {
			a.Limit = max(q.limit, 0)
		}
		if a.Window == 0 {
			a.Window = q.window
		}
		return
	}
	p.add(name, q)
}

// rounding is how far two spellings of one reset may lie apart: each of a
// delta, an epoch time and a Date is rounded to the second on its own.
const rounding = 2 * time.Second

// has reports whether there is an axis of that name.
func (p *parser) has(name string) bool {
	return slices.ContainsFunc(p.state.Dimensions, func(a Dimension) bool { return a.Name == name })
}

// count returns the first valid count in the first of the fields that has one,
// or unknown.
func (p *parser) count(fields ...string) int64 {
	for _, f := range fields {
		if n := firstCount(p.lines(f)); n >= 0 {
			return n
		}
	}
	return unknown
}

// reset returns the first valid reset in the first of the fields that has one.
func (p *parser) reset(fields ...string) reset {
	for _, f := range fields {
		if r := firstReset(p.lines(f), p.base); r.stated {
			return r
		}
	}
	return reset{}
}

// bucket names the bucket.
func (p *parser) bucket() {
	if p.is("X-Ratelimit-Global", "true") || p.is("X-Ratelimit-Scope", "global") {
		p.state.Bucket, p.state.Global = "", true
		return
	}
	for _, f := range [...]string{"X-Ratelimit-Bucket", "X-Ratelimit-Resource", "Ratelimit-Name"} {
		for v := range p.lines(f) {
			// Half a name would put two buckets into one. Without a name the
			// quotas are those of the whole server, which is the careful
			// reading.
			if v = strings.Trim(v, " \t"); v != "" && len(v) <= MaxName {
				p.state.Bucket, p.state.PerID = strings.Clone(v), f == "X-Ratelimit-Bucket"
				return
			}
		}
	}
}

// is reports whether the field has the given value, in letters of any case.
func (p *parser) is(field, value string) bool {
	for v := range p.lines(field) {
		if strings.EqualFold(strings.Trim(v, " \t"), value) {
			return true
		}
	}
	return false
}

// sum adds two counts, of which either may be unknown.
func sum(a, b int64) int64 {
	if a < 0 || b < 0 {
		return unknown
	}
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}
