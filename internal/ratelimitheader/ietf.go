package ratelimitheader

import (
	"slices"
	"strings"
	"time"
)

const fieldPolicy = "Ratelimit-Policy"

// policy is a member of RateLimit-Policy. Up to draft -07 the member's value is the quota
// (100;w=60), later it is the policy's name ("default";q=100;w=60).
type policy struct {
	named  bool
	name   string
	quota  int64 // or unknown
	window time.Duration
	unit   string // parameter qu; "" means requests
}

// policies parses RateLimit-Policy, or fields with a limit. Older drafts, and Envoy today,
// send policies after the limit: "100, 100;w=60, 1000;w=3600".
func (p *parser) policies(fields ...string) []policy {
	var all []policy
	for _, f := range fields {
		for line := range p.lines(f) {
			if !strings.HasSuffix(f, "-Policy") && !strings.Contains(line, ";") {
				continue // only a limit
			}
			members, _ := parseList(line)
			for _, m := range members {
				if pol, ok := m.policy(); ok && len(all) < MaxDimensions {
					all = append(all, pol)
				}
			}
		}
	}
	return all
}

// policy returns the policy that a list member describes. ok is false if the member has
// neither a quota nor a window.
func (m member) policy() (pol policy, ok bool) {
	pol = policy{quota: m.value.count(), unit: m.param("qu").text}
	if m.hasName() {
		pol.named, pol.name, pol.quota = true, m.value.text, m.param("q").count()
	}
	w := m.param("w")
	if w.count() <= 0 {
		w = m.param("window") // its name before draft -03
	}
	if w.count() > 0 {
		pol.window = w.number.Duration(time.Second)
	}
	return pol, pol.window > 0 || pol.quota >= 0
}

// rateLimit parses RateLimit. It adds the named dimensions of the current draft to the
// state, and returns the one quota of draft -07. isList reports whether the field has a
// list of the current draft.
func (p *parser) rateLimit(policies []policy) (q quota, isList bool) {
	q = quota{limit: unknown, remaining: unknown}
	var partitions []string
	for line := range p.lines("Ratelimit") {
		// "limit=100, remaining=50" is not a list, and "default";r=50 is not a dictionary.
		// A line that is neither is ignored, as RFC 9651 demands; another line may come
		// from another hop.
		list, ok := parseList(line)
		for _, m := range list {
			isList = true
			if len(list) == 1 && len(policies) == 1 && policies[0].named {
				policies[0].name = m.value.text // Cloudflare's two names differ
			}
			p.addNamed(m, policies, false)
			// Each partition key has quotas of its own.
			pk := m.param("pk")
			if m.hasName() && pk.kind == kindBytes && pk.text != "" && len(partitions) < MaxDimensions && !slices.Contains(partitions, pk.text) {
				partitions = append(partitions, pk.text)
			}
		}
		if ok {
			continue
		}
		dictionary, _ := parseDictionary(line)
		for _, m := range dictionary {
			switch m.key {
			case "limit":
				q.limit = m.value.count()
			case "remaining":
				q.remaining = m.value.count()
			case "reset":
				q.reset = p.resetOf(m.value)
			}
		}
	}
	if name := strings.Join(partitions, ","); len(name) <= MaxName {
		p.state.Bucket = strings.Clone(name)
	}
	return q, isList
}

// hasName reports whether the value is the name of a policy.
func (m member) hasName() bool { return m.value.kind == kindString || m.value.kind == kindToken }

func (p *parser) resetOf(b bare) reset {
	if b.count() < 0 {
		return reset{}
	}
	return numericReset(b.number, p.base)
}

// addNamed adds the dimension of one member of RateLimit. costed is true if it counts no requests.
func (p *parser) addNamed(m member, policies []policy, costed bool) {
	if !m.hasName() {
		return
	}
	name := m.value.text
	q := quota{limit: unknown, remaining: m.param("r").count(), reset: p.resetOf(m.param("t")), costed: costed || costedName(name)}
	i := slices.IndexFunc(policies, func(pol policy) bool { return pol.named && pol.name == name })
	if i >= 0 {
		pol := policies[i]
		q.limit, q.window = pol.quota, pol.window
		if pol.unit != "" && !costed {
			// The draft's text says "requests", its registry "request". A quota of
			// concurrent requests is costed: the server has counted the requests in
			// flight already.
			q.costed = pol.unit != "requests" && pol.unit != "request"
		}
	}
	p.add(name, q)
}

// joinPolicy gives an unnamed quota the window of its policy, and the policy's quota if
// the limit is missing. Its policy is the only one, or the one with the same quota: two
// policies must not have the same quota (draft -07, section 3.5).
func (q *quota) joinPolicy(policies []policy) {
	for _, pol := range policies {
		if pol.quota == q.limit && pol.quota >= 0 && pol.window > 0 {
			q.window = pol.window
			return
		}
	}
	if len(policies) == 1 {
		q.window = policies[0].window
		if q.limit < 0 {
			q.limit = policies[0].quota
		}
	}
}
