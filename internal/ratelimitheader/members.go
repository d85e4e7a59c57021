package ratelimitheader

import (
	"strings"

	"github.com/resilienthttp/resilienthttp/internal/field"
	"github.com/resilienthttp/resilienthttp/internal/retryafter"
)

// This file reads the structured fields of the IETF's drafts (RFC 9651): lists and dictionaries. It ignores a malformed
// member, and not its whole line, because the others may be all that a server says about its quotas.

// readMembers reads a line of RateLimit or RateLimit-Policy, or a limit with policies. The members
// have one of three forms: a named quota or its policy ("burst";r=9;t=40), a part of q (limit=10),
// or a policy that may be q's (10;w=60). A malformed member is ignored.
func (p *parser) readMembers(q *quota, line, unit string) {
	alone := strings.IndexByte(line, ',') < 0
	for line != "" {
		var member string
		member, line = cut(line, ',')
		head, params := cut(retryafter.Trim(member), ';')
		if name, ok := nameOf(head); ok {
			named := p.quota(name, true)
			named.unit = unit
			p.setAll(named, params)
		} else if key, value, ok := strings.Cut(head, "="); ok {
			p.set(q, partOf(key), value)
		} else if policy := newQuota(""); p.set(&policy, partLimit, head) {
			p.setAll(&policy, params)
			q.join(&policy, alone)
		}
	}
}

// setAll sets the parts of q, such as "q=100;w=60". Beside what remains, a window without a reset is the
// reset: the draft's open change has a=50;w=30 for r=50;t=30, and the policy has the window.
func (p *parser) setAll(q *quota, pairs string) {
	var remaining, reset bool
	window := q.window
	q.window = 0
	for pairs != "" {
		var pair string
		pair, pairs = cut(pairs, ';')
		key, value, _ := strings.Cut(retryafter.Trim(pair), "=")
		part := partOf(key)
		p.set(q, part, value)
		remaining = remaining || part == partRemaining
		reset = reset || part == partReset
	}
	switch {
	case q.window == 0:
		q.window = window
	case remaining && !reset:
		q.window, q.reset = window, retryafter.Moment{Wait: q.window}
	}
}

func nameOf(head string) (name string, ok bool) {
	if name, rest, ok := field.String(head); ok {
		return name, rest == ""
	}
	return head, head >= "A" && strings.IndexByte(head, '=') < 0 // no number and no parameter
}

// cut is strings.Cut with a separator outside of strings (RFC 9651).
func cut(s string, separator byte) (before, after string) {
	quoted := false
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '"':
			quoted = !quoted
		case s[i] == '\\':
			i++
		case s[i] == separator && !quoted:
			return s[:i], s[i+1:]
		}
	}
	return s, ""
}

// join gives q the window of its policy, and the policy's limit if q has none. Its policy is the
// one with the same limit (draft -07, section 3.5), or the only one.
func (q *quota) join(policy *quota, alone bool) {
	if policy.limit == q.limit || alone && q.window == 0 {
		q.window = policy.window
		if q.limit < 0 {
			q.limit = policy.limit
		}
	}
}

// number parses a number, or the first one of a list, without its parameters: "100, 100;w=60", two
// lines that a proxy has joined, and Docker Hub's "76;w=21600".
func number(s string) (n retryafter.Number, ok bool) {
	if end := strings.IndexAny(s, ",;"); end >= 0 {
		s = s[:end]
	}
	return retryafter.ParseNumber(s)
}
