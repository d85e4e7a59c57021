package ratelimitheader

import (
	"cmp"
	"iter"
	"slices"
	"strings"
	"time"
)

const fieldShopify = "X-Shopify-Shop-Api-Call-Limit"

// unnamed reads the quotas that have no name, and those of the IETF drafts, which
// may be the same: RateLimit and RateLimit-Policy of the current draft, the
// RateLimit dictionary of draft -07, and the trio limit, remaining, reset under
// the prefixes RateLimit-, X-RateLimit- and X-Rate-Limit-.
func (p *parser) unnamed() {
	policies := p.policies()
	standard, listed := p.rateLimit(policies)
	fields := quota{
		limit:     p.count("Ratelimit-Limit"),
		remaining: p.count("Ratelimit-Remaining"),
		// GitLab sends both resets, which are the same moment.
		reset: p.reset("Ratelimit-Reset", "Ratelimit-Resettime"),
	}
	if standard.remaining < 0 {
		standard.remaining = fields.remaining
	}
	standard.fill(fields)
	policies = append(p.limitPolicies("Ratelimit-Limit"), policies...)
	if !listed {
		// Else the policies are those of the named axes.
		standard.joinPolicy(policies)
	}

	// Both spellings are one family: Azure OpenAI mixes them
	// (https://github.com/openai/openai-python/issues/937).
	custom := quota{
		limit:     p.count("X-Ratelimit-Limit", "X-Rate-Limit-Limit", "X-Rate-Limit"),
		remaining: p.count("X-Ratelimit-Remaining", "X-Rate-Limit-Remaining"),
		// Reset-After is Discord's, and more exact than its Reset: it has
		// milliseconds, and needs no clock.
		reset: p.reset("X-Ratelimit-Reset-After", "X-Ratelimit-Reset", "X-Rate-Limit-Reset"),
	}
	if custom.limit < 0 {
		// Reddit tells what is used instead of the limit.
		custom.limit = sum(custom.remaining, p.count("X-Ratelimit-Used"))
	}
	custom.joinPolicy(p.limitPolicies("X-Ratelimit-Limit", "X-Rate-Limit-Limit"))

	own := standard
	standard.fill(custom)
	custom.fill(own)
	// Where the two differ they are two quotas, such as a gateway's and the
	// service's behind it.
	p.addUnnamed(custom, "")
	p.addUnnamed(standard, "", "ratelimit")
}

// shopify reads the REST Admin API's field, used/limit. It is a leaky bucket:
// https://shopify.dev/docs/api/admin-rest/usage/rate-limits has 40 requests that leak
// out at 2 a second on the standard plan, and 80 at 4, 400 at 20 on greater ones: a
// full bucket is empty after 20 s.
func (p *parser) shopify() {
	for v := range p.lines(fieldShopify) {
		u, l, ok := strings.Cut(v, "/")
		if !ok {
			continue
		}
		used, okUsed := count(u)
		limit, okLimit := count(l)
		if !okUsed || !okLimit || limit == 0 {
			continue
		}
		const drain = 20 * time.Second // of a full bucket
		wait := time.Duration(min(float64(used)/float64(limit)*float64(drain), float64(MaxReset)))
		p.addUnnamed(quota{
			limit:     limit,
			remaining: max(limit-used, 0),
			reset:     reset{stated: true, wait: wait},
		}, "", "shopify")
		return
	}
}

// family is where in the name of a field the name of its axis stands.
type family struct {
	prefixes []string
	// infix is true for prefix-axis-remaining, false for prefix-remaining-axis.
	infix bool
}

// families are those with an axis in the field name. It is a function, as a
// variable could be written to.
func families() [3]family {
	return [...]family{
		// OpenAI, Azure OpenAI, Groq: x-ratelimit-remaining-tokens; Cerebras:
		// x-ratelimit-remaining-tokens-minute.
		{prefixes: []string{"X-Ratelimit-", "X-Rate-Limit-"}},
		// Anthropic: anthropic-ratelimit-input-tokens-remaining.
		{prefixes: []string{"Anthropic-Ratelimit-"}, infix: true},
		// Such as x-ratelimit-day-remaining.
		{prefixes: []string{"X-Ratelimit-", "X-Rate-Limit-"}, infix: true},
	}
}

// axisOf returns the axis of a field that tells what remains of it.
func (f family) axisOf(name string) (string, bool) {
	for _, prefix := range f.prefixes {
		rest, ok := strings.CutPrefix(name, prefix)
		if !ok {
			continue
		}
		if f.infix {
			rest, ok = strings.CutSuffix(rest, "-Remaining")
		} else {
			rest, ok = strings.CutPrefix(rest, "Remaining-")
		}
		if ok && rest != "" && len(rest) <= MaxName {
			return rest, true
		}
	}
	return "", false
}

// lines returns the lines of the field for that part of the axis, in the first
// spelling that is there.
func (f family) lines(p *parser, axis, part string) iter.Seq[string] {
	for _, prefix := range f.prefixes {
		name := prefix + part + "-" + axis
		if f.infix {
			name = prefix + axis + "-" + part
		}
		if len(p.header[name]) > 0 {
			return p.lines(name)
		}
	}
	return func(func(string) bool) {}
}

// named reads the axes whose names are part of the field names.
func (p *parser) named() {
	type found struct {
		family int
		axis   string
	}
	// The first MaxAxes in sorted order: what comes out must not depend on the
	// order of the map, nor what is kept on the number of fields.
	var axes []found
	all := families()
	for name := range p.header {
		if !relevant(name) {
			continue
		}
		for i, f := range all {
			axis, ok := f.axisOf(name)
			if !ok {
				continue
			}
			a := found{i, axis}
			at, dup := slices.BinarySearchFunc(axes, a, func(x, y found) int {
				return cmp.Or(cmp.Compare(x.family, y.family), cmp.Compare(x.axis, y.axis))
			})
			if dup || at == MaxDimensions {
				continue
			}
			axes = slices.Insert(axes[:min(len(axes), MaxDimensions-1)], at, a)
		}
	}
	for _, a := range axes {
		f := all[a.family]
		name := strings.ToLower(a.axis)
		p.add(name, quota{
			limit:     firstCount(f.lines(p, a.axis, "Limit")),
			remaining: firstCount(f.lines(p, a.axis, "Remaining")),
			reset:     firstReset(f.lines(p, a.axis, "Reset"), p.base),
			costed:    costedName(name),
		})
	}
}
