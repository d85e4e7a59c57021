package ratelimitheader

import (
	"slices"
	"strings"
	"time"
)

// policy is a member of RateLimit-Policy. Up to draft -07 the member is the
// quota (100;w=60), later the name of the policy ("default";q=100;w=60).
type policy struct {
	named  bool
	name   string
	quota  int64 // or unknown
	window time.Duration
	unit   string // qu; "" is requests
}

// policies reads RateLimit-Policy.
func (p *parser) policies() []policy {
	var all []policy
	for line := range p.lines("Ratelimit-Policy") {
		all = appendPolicies(all, line)
	}
	return all
}

// limitPolicies reads the policies that older drafts, and Envoy to this day,
// have in the limit: "100, 100;w=60, 1000;w=3600". The first member is the
// limit itself.
func (p *parser) limitPolicies(fields ...string) []policy {
	var all []policy
	for _, f := range fields {
		for line := range p.lines(f) {
			// Nearly always it is a number alone.
			if strings.Contains(line, ";") {
				all = appendPolicies(all, line)
			}
		}
	}
	return all
}

func appendPolicies(all []policy, line string) []policy {
	members, ok := parseList(line)
	if !ok {
		return all
	}
	for _, m := range members {
		if len(all) == MaxDimensions {
			break
		}
		pol := policy{quota: unknown}
		switch m.value.kind {
		case kindString, kindToken:
			pol.named, pol.name = true, m.value.text
			pol.quota = m.param("q").count()
		case kindNumber:
			pol.quota = m.value.count()
		default:
		}
		pol.unit = m.param("qu").text
		w := m.param("w")
		if w.count() <= 0 {
			// What the name was before draft -03 settled on w.
			w = m.param("window")
		}
		if w.count() > 0 {
			pol.window = w.number.Duration(time.Second)
		}
		if pol.window > 0 || pol.quota >= 0 {
			all = append(all, pol)
		}
	}
	return all
}

// rateLimit reads RateLimit: the named axes of the current draft go straight to
// the state, the one quota of draft -07 is returned. With listed it tells that
// the field was a list.
func (p *parser) rateLimit(policies []policy) (q quota, listed bool) {
	q = quota{limit: unknown, remaining: unknown}
	var partitions []string
	for line := range p.lines("Ratelimit") {
		// "limit=100, remaining=50" is no list, and "default";r=50 is no
		// dictionary. A line that is neither is ignored as a whole, as RFC 9651
		// has it; the other lines are not, as they may be another hop's.
		if members, ok := parseList(line); ok {
			listed = listed || len(members) > 0
			for _, m := range members {
				partitions = p.serviceLimit(m, policies, partitions)
			}
			continue
		}
		members, _ := parseDictionary(line)
		for _, m := range members {
			switch m.key {
			case "limit":
				q.limit = m.value.count()
			case "remaining":
				q.remaining = m.value.count()
			case "reset":
				if q.reset = (reset{}); m.value.kind == kindNumber && !m.value.negative {
					q.reset = numericReset(m.value.number, p.base)
				}
			}
		}
	}
	if name := strings.Join(partitions, ","); len(name) <= MaxName {
		p.state.Bucket = strings.Clone(name)
	}
	return q, listed
}

// serviceLimit adds the axis of one member of RateLimit, and returns the
// partition keys with its own.
func (p *parser) serviceLimit(m member, policies []policy, partitions []string) []string {
	if m.value.kind != kindString && m.value.kind != kindToken {
		return partitions
	}
	q := quota{
		limit:     unknown,
		remaining: m.param("r").count(),
		costed:    costedName(m.value.text),
	}
	if t := m.param("t"); t.kind == kindNumber && !t.negative {
		q.reset = numericReset(t.number, p.base)
	}
	for _, pol := range policies {
		if pol.named && pol.name == m.value.text {
			q.limit, q.window = pol.quota, pol.window
			if pol.unit != "" {
				// The draft's text says "requests", its registry "request".
				// Concurrent requests are no such unit: those in flight are the
				// very thing that the server has counted already.
				q.costed = pol.unit != "requests" && pol.unit != "request"
			}
			break
		}
	}
	p.add(m.value.text, q)
	// "Quotas are allocated per partition key": what is exhausted for one says
	// nothing of another. Both halves of the quota's name are the server's.
	if pk := m.param("pk"); pk.kind == kindBytes && pk.text != "" && len(partitions) < MaxDimensions {
		if !slices.Contains(partitions, pk.text) {
			partitions = append(partitions, pk.text)
		}
	}
	return partitions
}

// joinPolicy gives a quota without a name the window of its policy, and the
// limit where that is missing: the policy of the same quota ("Two quota
// policies MUST NOT be associated with the same quota units value", draft -07,
// section 3.5), or the only one.
func (o *quota) joinPolicy(policies []policy) {
	for _, pol := range policies {
		if pol.quota == o.limit && pol.quota >= 0 && pol.window > 0 {
			o.window = pol.window
			return
		}
	}
	if len(policies) == 1 {
		o.window = policies[0].window
		if o.limit < 0 {
			o.limit = policies[0].quota
		}
	}
}
