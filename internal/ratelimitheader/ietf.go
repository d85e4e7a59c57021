package ratelimitheader

import (
	"slices"
	"strings"
	"time"
)

// policy is a member of RateLimit-Policy. Up to draft -07 the member's value is the quota
// (100;w=60), later it is the policy's name ("default";q=100;w=60).
type policy struct {
	named  bool
	name   string
	limit  int64 // or unknown
	window time.Duration
	unit   string // "" means requests
}

func policyOf(m member) policy {
	pol := policy{named: m.hasName(), name: m.value.text, limit: m.value.count()}
	for key, value := range m.parameters() {
		switch {
		case key == "q" && pol.named:
			pol.limit = value.count()
		case key == "w" && value.count() > 0, key == "window" && value.count() > 0: // the name before draft -03
			pol.window = value.number.Duration(time.Second)
		case key == "qu":
			pol.unit = value.text
		}
	}
	return pol
}

// hasName reports whether the value is the name of a policy.
func (m member) hasName() bool { return m.value.kind == kindName }

// policiesIn parses the lines of RateLimit-Policy, or of a field with a limit: older drafts, and
// Envoy today, send policies after the limit: "100, 100;w=60, 1000;w=3600".
func policiesIn(lines []string) (policies []policy) {
	for line := range readable(lines) {
		members, _ := parseMembers(line, false)
		for _, m := range members {
			if pol := policyOf(m); len(policies) < MaxDimensions && (pol.window > 0 || pol.limit >= 0) {
				policies = append(policies, pol)
			}
		}
	}
	return policies
}

// join gives an unnamed quota the window of its policy, and the policy's quota if the limit is
// missing. Its policy is the only one, or the one with the same quota: two policies must not
// have the same quota (draft -07, section 3.5).
func (q *quota) join(policies []policy) {
	for _, pol := range policies {
		if pol.limit == q.limit && q.limit >= 0 && pol.window > 0 {
			q.window = pol.window
			return
		}
	}
	if len(policies) == 1 {
		q.window = policies[0].window
		if q.limit < 0 {
			q.limit = policies[0].limit
		}
	}
}

// addList parses the lines of RateLimit or Beta-RateLimit. It adds the quotas of a list of the
// current draft, and returns the one quota of a dictionary of draft -07. isList reports whether
// there is a list. costed is true if the quotas count no requests.
func (p *parser) addList(lines []string, policies []policy, costed bool) (q quota, isList bool) {
	q = newQuota(formStandard, "ratelimit")
	var partitions []string
	for line := range readable(lines) {
		// "limit=100, remaining=50" is not a list, and "default";r=50 is not a dictionary.
		// A line that is neither is ignored, as RFC 9651 demands; another line may come
		// from another hop.
		list, ok := parseMembers(line, false)
		if !ok {
			dictionary, _ := parseMembers(line, true)
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
			continue
		}
		isList = isList || len(list) > 0
		if len(list) == 1 && len(policies) == 1 && policies[0].named {
			policies[0].name = list[0].value.text // Cloudflare's two names differ
		}
		for _, m := range list {
			// Each partition key has quotas of its own. Atlassian's points have none.
			pk := p.addMember(m, policies, costed)
			if pk != "" && !costed && len(partitions) < MaxDimensions && !slices.Contains(partitions, pk) {
				partitions = append(partitions, pk)
			}
		}
	}
	if name := strings.Join(partitions, ","); name != "" && len(name) <= MaxName && p.bucketRank == 0 {
		p.state.Bucket = strings.Clone(name)
	}
	return q, isList
}

// addMember adds the quota of one member of a list, and returns its partition key.
func (p *parser) addMember(m member, policies []policy, costed bool) (partition string) {
	if !m.hasName() {
		return ""
	}
	q := newQuota(formList, m.value.text)
	for key, value := range m.parameters() {
		switch key {
		case "r":
			q.remaining = value.count()
		case "t":
			q.reset = p.resetOf(value)
		case "pk":
			if partition = ""; value.kind == kindBytes {
				partition = value.text
			}
		}
	}
	unit := ""
	if i := slices.IndexFunc(policies, func(pol policy) bool { return pol.named && pol.name == q.name }); i >= 0 {
		q.limit, q.window, unit = policies[i].limit, policies[i].window, policies[i].unit
	}
	switch unit {
	case "":
		q.costed = costed || costedName(q.name)
	case "request", "requests": // the draft's registry, and its text
		q.costed = costed
	default: // also concurrent requests: the server has counted the requests in flight already
		q.costed = true
	}
	p.add(&q)
	return partition
}

func (p *parser) resetOf(b bare) reset {
	if b.count() < 0 {
		return reset{}
	}
	return p.numericReset(b.number)
}
