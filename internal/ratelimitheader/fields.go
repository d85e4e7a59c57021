package ratelimitheader

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"
)

const (
	prefixCustom    = "X-Ratelimit-"
	prefixHyphen    = "X-Rate-Limit-"
	prefixAnthropic = "Anthropic-Ratelimit-"
	fieldShopify    = "X-Shopify-Shop-Api-Call-Limit"
)

// unnamed parses the quotas without a name: the trio limit, remaining and reset with the
// prefixes RateLimit-, X-RateLimit- and X-Rate-Limit-. It also parses RateLimit and
// RateLimit-Policy of the IETF drafts, because they may describe the same quota.
func (p *parser) unnamed() {
	policies := p.policies(fieldPolicy)
	standard, isList := p.rateLimit(policies)
	fields := quota{
		limit:     p.count("Ratelimit-Limit"),
		remaining: p.count("Ratelimit-Remaining"),
		// GitLab sends both resets, for the same moment.
		reset: p.reset("Ratelimit-Reset", "Ratelimit-Resettime"),
	}
	if standard.remaining < 0 {
		standard.remaining = fields.remaining
	}
	standard.fill(fields)
	policies = append(p.policies("Ratelimit-Limit"), policies...)
	if !isList { // otherwise the policies belong to the named dimensions
		standard.joinPolicy(policies)
	}

	custom := quota{
		limit:     p.count("X-Ratelimit-Limit", "X-Rate-Limit"),
		remaining: p.count("X-Ratelimit-Remaining"),
		// Discord's Reset-After is more exact than its Reset: it has milliseconds and
		// needs no clock.
		reset: p.reset("X-Ratelimit-Reset-After", "X-Ratelimit-Reset"),
	}
	if used := p.count("X-Ratelimit-Used"); custom.limit < 0 && custom.remaining >= 0 && used >= 0 {
		// Reddit sends the used count instead of the limit.
		custom.limit = custom.remaining + min(used, math.MaxInt64-custom.remaining)
	}
	custom.joinPolicy(p.policies("X-Ratelimit-Limit"))

	before := standard
	standard.fill(custom)
	custom.fill(before)
	// If the two differ they are two quotas, such as a gateway's and its backend's.
	p.addUnnamed(custom, "")
	p.addUnnamed(standard, "", "ratelimit")
}

// shopify parses the field of the REST Admin API, "used/limit", which is a leaky bucket.
// On every plan a full bucket is empty after 20 s: 40 requests leak at 2/s, 80 at 4/s and
// 400 at 20/s (https://shopify.dev/docs/api/admin-rest/usage/rate-limits).
func (p *parser) shopify() {
	const drain = 20 * time.Second
	for line := range p.lines(fieldShopify) {
		u, l, _ := strings.Cut(line, "/")
		used, limit := parseCount(u), parseCount(l)
		if used < 0 || limit <= 0 {
			continue
		}
		wait := time.Duration(min(float64(used)/float64(limit)*float64(drain), float64(MaxReset)))
		p.addUnnamed(quota{limit: limit, remaining: max(limit-used, 0), reset: reset{valid: true, wait: wait}}, "", "shopify")
		return
	}
}

// form is a form of field names that contain the name of a dimension.
type form struct {
	prefix string
	infix  bool // prefix-name-remaining instead of prefix-remaining-name
}

// forms is a function because a variable could be modified.
func forms() [3]form {
	return [...]form{
		{prefix: prefixCustom},                 // x-ratelimit-remaining-tokens: OpenAI, Azure OpenAI, Groq, Cerebras
		{prefix: prefixAnthropic, infix: true}, // anthropic-ratelimit-input-tokens-remaining
		{prefix: prefixCustom, infix: true},    // x-ratelimit-day-remaining
	}
}

// dimension returns the dimension of a field with a remaining count, or "".
func (f form) dimension(field string) string {
	name, ok := strings.CutPrefix(field, f.prefix)
	if ok && f.infix {
		name, ok = strings.CutSuffix(name, "-Remaining")
	} else if ok {
		name, ok = strings.CutPrefix(name, "Remaining-")
	}
	if !ok || len(name) > MaxName {
		return ""
	}
	return name
}

// field returns the name of the field with that part of the dimension.
func (f form) field(dimension, part string) string {
	if f.infix {
		return f.prefix + dimension + "-" + part
	}
	return f.prefix + part + "-" + dimension
}

// named parses the dimensions that are named in the field names.
func (p *parser) named() {
	type found struct {
		form      int
		dimension string
	}
	var all []found
	for field := range p.header {
		if suffix, ok := strings.CutPrefix(field, prefixHyphen); ok {
			field = prefixCustom + suffix
		}
		for i, f := range forms() {
			if d := f.dimension(field); d != "" {
				all = append(all, found{i, d})
			}
		}
	}
	// The result must not depend on the order of the map.
	slices.SortFunc(all, func(x, y found) int {
		return cmp.Or(cmp.Compare(x.form, y.form), cmp.Compare(x.dimension, y.dimension))
	})
	all = slices.Compact(all)
	for _, d := range all[:min(len(all), MaxDimensions)] {
		f, name := forms()[d.form], strings.ToLower(d.dimension)
		p.add(name, quota{
			limit:     p.count(f.field(d.dimension, "Limit")),
			remaining: p.count(f.field(d.dimension, "Remaining")),
			reset:     p.reset(f.field(d.dimension, "Reset")),
			costed:    costedName(name),
		})
	}
}

// bucket sets the bucket's name.
func (p *parser) bucket() {
	if p.is("X-Ratelimit-Global", "true") || p.is("X-Ratelimit-Scope", "global") {
		p.state.Bucket, p.state.Global = "", true
		return
	}
	for _, f := range [...]string{"X-Ratelimit-Bucket", "X-Ratelimit-Resource", "Ratelimit-Name"} {
		for line := range p.lines(f) {
			// A name that is too long is ignored: a part of it could be the same for two
			// buckets. Without a name the quotas are those of the whole server, which is
			// the careful interpretation.
			if name := strings.Trim(line, " \t"); name != "" && len(name) <= MaxName {
				p.state.Bucket, p.state.PerID = strings.Clone(name), f == "X-Ratelimit-Bucket"
				return
			}
		}
	}
}

// is reports whether the field has that value, in any letter case.
func (p *parser) is(field, value string) bool {
	for line := range p.lines(field) {
		if strings.EqualFold(strings.Trim(line, " \t"), value) {
			return true
		}
	}
	return false
}
