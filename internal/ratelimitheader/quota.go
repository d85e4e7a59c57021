package ratelimitheader

import (
	"cmp"
	"iter"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/retryafter"
)

// unknown is a count that the server did not send.
const unknown = -1

// quota is a dimension that may be incomplete.
type quota struct {
	form                   form
	name                   string
	limit, remaining, used int64 // or unknown
	reset                  reset
	window                 time.Duration
	costed                 bool
	limitLines             []string     // of the field with the limit, which may have policies too
	rank                   [parts]uint8 // 1 + the rank of the field that each part is from
}

func newQuota(form form, name string) quota {
	return quota{form: form, name: name, limit: unknown, remaining: unknown, used: unknown}
}

const (
	// maxQuotas is the maximum number of quotas that are collected; some may be invalid.
	maxQuotas = 2 * MaxDimensions
	// maxLines is the maximum number of lines of a field that are read.
	maxLines = MaxDimensions
	// maxField is the maximum number of bytes of a field that are read. A line with
	// MaxDimensions policies takes about 1 KiB. A line that exceeds it is skipped.
	maxField = 8 << 10
)

// readable returns the lines of a field that are read.
func readable(lines []string) iter.Seq[string] {
	return func(yield func(string) bool) {
		left := maxField
		for _, line := range lines[:min(len(lines), maxLines)] {
			if len(line) > left {
				continue
			}
			if left -= len(line); !yield(line) {
				return
			}
		}
	}
}

// quota returns the quota that a field describes, or nil if there are too many. The ones that are
// kept do not depend on the order of the fields.
func (p *parser) quota(form form, name string) *quota {
	switch form {
	case formCustom:
		return &p.custom
	case formStandard:
		return &p.standard
	case formNamed, formAnthropic, formAlone, formZendesk, formOther, formList: // those with names
	}
	if p.quotas == nil {
		p.quotas = make([]quota, 0, 2) // as most responses with names have
	}
	i, found := slices.BinarySearchFunc(p.quotas, newQuota(form, name), func(q, other quota) int {
		return cmp.Or(cmp.Compare(q.form, other.form), strings.Compare(q.name, other.name))
	})
	if i == maxQuotas {
		return nil
	}
	if !found {
		p.quotas = slices.Insert(p.quotas[:min(len(p.quotas), maxQuotas-1)], i, newQuota(form, name))
	}
	return &p.quotas[i]
}

// readPart reads a part of a quota. The first valid line counts.
func (p *parser) readPart(m meaning, lines []string) {
	q := p.quota(m.form, m.name)
	if q == nil || m.rank < q.rank[m.part] {
		return
	}
	for line := range readable(lines) {
		if p.setPart(q, m.part, line) {
			if q.rank[m.part] = m.rank + 1; m.part == partLimit {
				q.limitLines = lines
			}
			return
		}
	}
}

// setPart sets a part of q, if the line is valid.
func (p *parser) setPart(q *quota, part part, line string) (ok bool) {
	switch part {
	case partLimit, partRemaining, partUsed:
		n := parseCount(line)
		if n >= 0 {
			*[...]*int64{&q.limit, &q.remaining, &q.used}[part-partLimit] = n
		}
		return n >= 0
	case partReset:
		r := p.parseReset(line)
		if r.valid {
			q.reset = r
		}
		return r.valid
	case partInterval:
		n, ok := retryafter.ParseNumber(line)
		if ok {
			q.window = n.Duration(time.Millisecond)
			q.reset = reset{valid: true, wait: q.window}
		}
		return ok
	case partUsage:
		return q.setUsage(line)
	default:
		return p.setEndpoint(q, line)
	}
}

// setUsage parses Shopify's "used/limit", which is a leaky bucket. On every plan a full bucket is
// empty after 20 s: 40 requests leak at 2/s, 80 at 4/s and 400 at 20/s.
func (q *quota) setUsage(line string) (ok bool) {
	const drain = 20 * time.Second
	u, l, _ := strings.Cut(line, "/")
	used, limit := parseCount(u), parseCount(l)
	if used < 0 || limit <= 0 {
		return false
	}
	wait := time.Duration(min(float64(used)/float64(limit)*float64(drain), float64(MaxReset)))
	q.limit, q.remaining, q.reset = limit, max(limit-used, 0), reset{valid: true, wait: wait}
	return true
}

// setEndpoint parses Zendesk's quota of an endpoint: "total=100; remaining=99; resets=41".
func (p *parser) setEndpoint(q *quota, line string) (ok bool) {
	q.limit, q.reset = unknown, reset{} // of an invalid line
	for part := range strings.SplitSeq(line, ";") {
		switch key, value, _ := strings.Cut(strings.Trim(part, " \t"), "="); key {
		case "total":
			q.limit = parseCount(value)
		case "remaining":
			q.remaining = parseCount(value)
		case "resets":
			q.reset = p.parseReset(value)
		}
	}
	return q.remaining >= 0
}

// fill copies what q lacks from other, if the two may be the same quota: at most one of
// them has a remaining count, or both have the same. Zendesk sends half of its quota as
// X-Rate-Limit and half as RateLimit.
func (q *quota) fill(other *quota) {
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

// policies returns the policies that follow the limit in its field.
func (q *quota) policies() []policy {
	if slices.ContainsFunc(q.limitLines, func(line string) bool { return strings.Contains(line, ";") }) {
		return policiesIn(q.limitLines)
	}
	return nil // a limit alone
}

// complete sets a limit that the server sends as the used count.
func (q *quota) complete() {
	if q.limit < 0 && q.remaining >= 0 && q.used >= 0 {
		q.limit = q.remaining + min(q.used, math.MaxInt64-q.remaining)
	}
}

// add adds a dimension, unless q lacks an essential part.
func (p *parser) add(q *quota) {
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
		Name:      q.name[:min(len(q.name), MaxName)],
		Limit:     max(q.limit, 0),
		Remaining: q.remaining,
		Reset:     q.reset.wait,
		Instant:   q.reset.instant,
		Window:    q.window,
		Costed:    q.costed,
	}
	if q.form == formList {
		d.Name = strings.Clone(d.Name) // it would keep the whole line alive
	}
	if i := p.index(d.Name); i >= 0 {
		// Two partitions of one policy, or two names that are equal after truncation.
		// The tighter quota is kept.
		if same := p.state.Dimensions[i]; d.Remaining < same.Remaining || d.Remaining == same.Remaining && d.Reset > same.Reset {
			p.state.Dimensions[i] = d
		}
	} else if len(p.state.Dimensions) < MaxDimensions {
		if p.state.Dimensions == nil {
			p.state.Dimensions = make([]Dimension, 0, max(len(p.quotas), 1))
		}
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

// addUnnamed adds a quota without its name, or with it if there is one without. If another dialect
// has described the same quota already, it only completes that dimension.
func (p *parser) addUnnamed(q *quota) {
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
	if p.index("") < 0 {
		q.name = ""
	}
	p.add(q)
}
