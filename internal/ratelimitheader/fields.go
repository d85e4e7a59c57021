package ratelimitheader

import (
	"cmp"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/retryafter"
)

const (
	prefixCustom    = "X-Ratelimit-"
	prefixHyphen    = "X-Rate-Limit-"
	prefixAnthropic = "Anthropic-Ratelimit-"
	fieldShopify    = "X-Shopify-Shop-Api-Call-Limit"
	prefixHubSpot   = "X-Hubspot-Ratelimit-"
	prefixZendesk   = "Zendesk-Ratelimit-"
	prefixX         = "X-App-Limit-24hour-"
	prefixXUser     = "X-User-Limit-24hour-"
	fieldBeta       = "Beta-Ratelimit"
	fieldName       = "Ratelimit-Name"
)

// group is a set of groups of fields that are parsed together.
type group uint16

const (
	groupIETF   group = 1 << iota // the IETF's fields
	groupCustom                   // limit, remaining and reset
	groupNamed                    // the same with a name in the field's name
	groupShopify
	groupHubSpot
	groupZendesk
	groupX
	groupBeta
	groupBucket // the name of a bucket
	groupHyphen // X-Rate-Limit-, beside groupCustom
)

// find returns the groups of which h has a field. All further look-ups are in these groups.
func find(h http.Header) (all group) {
	for name := range h {
		all |= groupOf(name)
	}
	return all
}

// groupOf returns the group of a field; 0: none.
func groupOf(name string) group {
	switch name[:min(len(name), 1)] { // most fields of a response begin with another letter
	case "R":
		switch {
		case name == fieldName:
			return groupIETF | groupBucket
		case strings.HasPrefix(name, "Ratelimit"):
			return groupIETF
		}
	case "A":
		if strings.HasPrefix(name, prefixAnthropic) {
			return groupNamed
		}
	case "B":
		if strings.HasPrefix(name, fieldBeta) {
			return groupBeta
		}
	case "Z":
		if strings.HasPrefix(name, prefixZendesk) {
			return groupZendesk
		}
	case "X":
		return groupOfX(name)
	}
	return 0
}

func groupOfX(name string) group {
	switch {
	case strings.HasPrefix(name, prefixCustom):
		return groupCustom | groupOfSuffix(name[len(prefixCustom):])
	case strings.HasPrefix(name, prefixHyphen):
		return groupCustom | groupHyphen | groupOfSuffix(name[len(prefixHyphen):])
	case strings.HasPrefix(name, "X-Rate"):
		return groupCustom
	case name == fieldShopify:
		return groupShopify
	case strings.HasPrefix(name, prefixHubSpot):
		return groupHubSpot
	case strings.HasPrefix(name, prefixX), strings.HasPrefix(name, prefixXUser):
		return groupX
	}
	return 0
}

// groupOfSuffix returns the groups that a field with one of the prefixes also belongs to.
func groupOfSuffix(suffix string) group {
	switch suffix {
	case "Bucket", "Resource", "Global", "Scope":
		return groupBucket
	}
	if strings.Contains(suffix, "-") {
		return groupNamed // it may have a name
	}
	return 0
}

// parse parses the groups that the header has. Function values would need memory.
func (p *parser) parse() {
	has := func(g group) bool { return p.has&g != 0 }
	if has(groupIETF | groupCustom) {
		p.unnamed()
	}
	if has(groupNamed) {
		p.named()
	}
	if has(groupShopify) {
		p.shopify()
	}
	if has(groupHubSpot) {
		p.hubSpot()
	}
	if has(groupZendesk) {
		p.zendesk()
	}
	if has(groupX) {
		p.x()
	}
	if has(groupBeta) {
		p.beta()
	}
	if has(groupBucket) {
		p.bucket()
	}
}

// unnamed parses the quotas without a name: the trio limit, remaining and reset with the
// prefixes RateLimit-, X-RateLimit- and X-Rate-Limit-. It also parses RateLimit and
// RateLimit-Policy of the IETF drafts, because they may describe the same quota.
func (p *parser) unnamed() {
	custom := p.custom()
	if p.has&groupIETF == 0 {
		p.addUnnamed(custom, "")
		return
	}
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
	before := standard
	standard.fill(custom)
	custom.fill(before)
	// If the two differ they are two quotas, such as a gateway's and its backend's.
	p.addUnnamed(custom, "")
	p.addUnnamed(standard, "", "ratelimit")
}

// custom parses the fields X-RateLimit- and X-Rate-Limit- without a name.
func (p *parser) custom() quota {
	if p.has&groupCustom == 0 {
		return quota{limit: unknown, remaining: unknown}
	}
	custom := quota{
		limit:     p.count("X-Ratelimit-Limit", "X-Rate-Limit"),
		remaining: p.count("X-Ratelimit-Remaining"),
		// Discord's Reset-After is more exact than its Reset: it has milliseconds and
		// needs no clock.
		reset: p.reset("X-Ratelimit-Reset-After", "X-Ratelimit-Reset"),
	}
	if custom.limit < 0 && custom.remaining >= 0 {
		// Reddit sends the used count instead of the limit.
		if used := p.count("X-Ratelimit-Used"); used >= 0 {
			custom.limit = custom.remaining + min(used, math.MaxInt64-custom.remaining)
		}
	}
	custom.joinPolicy(p.policies("X-Ratelimit-Limit"))
	return custom
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

// hubSpot parses the quota of an interval of some seconds. That of the day has no reset.
func (p *parser) hubSpot() {
	q := quota{limit: p.count(prefixHubSpot + "Max"), remaining: p.count(prefixHubSpot + "Remaining")}
	for line := range p.lines(prefixHubSpot + "Interval-Milliseconds") {
		if n, ok := retryafter.ParseNumber(line); ok {
			q.window = n.Duration(time.Millisecond)
			q.reset = reset{valid: true, wait: q.window}
			break
		}
	}
	p.addUnnamed(q, "", "hubspot")
	p.add("daily", quota{limit: p.count(prefixHubSpot + "Daily"), remaining: p.count(prefixHubSpot + "Daily-Remaining")})
}

// zendesk parses the quota of an endpoint: "total=100; remaining=99; resets=41". The endpoint is the
// bucket: its quota must not stop requests to others.
func (p *parser) zendesk() {
	var fields []string
	for field := range p.header {
		if name, ok := strings.CutPrefix(field, prefixZendesk); ok && name != "" && len(name) <= MaxName {
			fields = append(fields, field)
		}
	}
	slices.Sort(fields) // the result must not depend on the order of the map
	if len(fields) == 1 {
		p.state.Bucket = strings.ToLower(strings.TrimPrefix(fields[0], prefixZendesk))
	}
	for _, field := range fields[:min(len(fields), MaxDimensions)] {
		for line := range p.lines(field) {
			q := quota{limit: unknown, remaining: unknown}
			for part := range strings.SplitSeq(line, ";") {
				switch key, value, _ := strings.Cut(strings.Trim(part, " \t"), "="); key {
				case "total":
					q.limit = parseCount(value)
				case "remaining":
					q.remaining = parseCount(value)
				case "resets":
					q.reset = parseReset(value, p.base)
				}
			}
			p.add(strings.ToLower(strings.TrimPrefix(field, prefixZendesk)), q)
		}
	}
}

// x parses X's limits of 24 hours, of the app and of the user.
func (p *parser) x() {
	for _, g := range [...]struct{ name, prefix string }{{"app-24hour", prefixX}, {"user-24hour", prefixXUser}} {
		p.add(g.name, quota{
			limit: p.count(g.prefix + "Limit"), remaining: p.count(g.prefix + "Remaining"), reset: p.reset(g.prefix + "Reset"),
		})
	}
}

// beta parses Atlassian's quotas of points, which have the form of the current IETF draft.
func (p *parser) beta() {
	policies := p.policies(fieldBeta + "-Policy")
	for line := range p.lines(fieldBeta) {
		list, _ := parseList(line)
		for _, m := range list {
			p.addNamed(m, policies, true)
		}
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
