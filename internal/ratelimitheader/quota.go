package ratelimitheader

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/retryafter"
)

// maxNamed is the maximum number of quotas with a name. Two have none.
const maxNamed = MaxDimensions - 2

// unknown is a count or a wait that the server did not send.
const unknown = -1

// quota is a dimension that may be incomplete.
type quota struct {
	name                   string
	listed                 bool              // it is a member of RateLimit or RateLimit-Policy
	limit, remaining, used int64             // or unknown
	reset                  retryafter.Moment // its Wait may be unknown
	window                 time.Duration
	cost                   int64  // of the request; 0: unknown
	line                   int    // of its fields with several lines, the one that is read
	unit                   string // what a listed quota counts; "" means requests, unless its name says otherwise
}

func newQuota(name string) quota {
	return quota{name: name, limit: unknown, remaining: unknown, used: unknown, reset: retryafter.Moment{Wait: unknown}}
}

func (p *parser) quota(name string, listed bool) *quota {
	switch name {
	case custom:
		return &p.custom
	case standard:
		return &p.standard
	}
	for i := range p.count {
		if q := &p.named[i]; q.name == name {
			return q
		}
	}
	if len(name) > MaxName || p.count == maxNamed {
		return new(quota) // to be ignored
	}
	q := &p.named[p.count]
	p.count++
	*q = newQuota(name)
	q.listed = listed
	return q
}

// set sets a part of q, if the value is valid.
func (p *parser) set(q *quota, part part, value string) (ok bool) {
	switch part {
	case partLimit:
		return setCount(&q.limit, value)
	case partRemaining:
		return setCount(&q.remaining, value)
	case partUsed:
		return setCount(&q.used, value)
	case partReset, partResetTime:
		if part == partResetTime && q.reset.Wait >= 0 {
			return true
		}
		m, ok := retryafter.ParseMoment(value, p.written)
		if ok {
			q.reset = m
		}
		return ok
	case partWindow:
		if n, ok := number(value); ok {
			q.window = n.Duration(time.Second)
		}
	case partInterval:
		n, ok := number(value)
		if ok {
			q.window = n.Duration(time.Millisecond)
			q.reset = retryafter.Moment{Wait: q.window}
		}
		return ok
	case partUsage:
		return q.setUsage(value)
	case partUnit:
		q.unit = strings.Trim(value, `"`)
	case partCost:
		return setCount(&q.cost, value)
	case partPartition: // each has quotas of its own
		if key := strings.Trim(value, `:"`); key != "" && len(p.partitions) < MaxDimensions && !slices.Contains(p.partitions, key) {
			p.partitions = append(p.partitions, key)
		}
	default: // a part of several quotas, or of none
	}
	return false
}

// setCount sets a count without its fraction. Reddit's Remaining is a float.
func setCount(count *int64, value string) (ok bool) {
	n, ok := number(value)
	if ok {
		*count = n.Whole
	}
	return ok
}

// setUsage parses Shopify's "used/limit", which is a leaky bucket. On every plan a full bucket is
// empty after 20 s: 40 requests leak at 2/s, 80 at 4/s and 400 at 20/s.
func (q *quota) setUsage(value string) (ok bool) {
	const drain = 20 * time.Second
	var used, limit int64
	u, l, _ := strings.Cut(value, "/")
	if !setCount(&used, u) || !setCount(&limit, l) || limit == 0 {
		return false
	}
	wait := time.Duration(min(float64(used)/float64(limit)*float64(drain), float64(MaxReset)))
	q.limit, q.remaining, q.reset = limit, max(limit-used, 0), retryafter.Moment{Wait: wait}
	return true
}

// fill copies what q lacks from other, unless that has a count, and so is a quota of its own. Zendesk sends half of its quota as
// X-Rate-Limit and half as RateLimit.
func (q *quota) fill(other *quota) {
	if other.remaining >= 0 {
		return
	}
	if q.limit < 0 {
		q.limit = other.limit
	}
	if q.reset.Wait < 0 {
		q.reset = other.reset
	}
	if q.window == 0 {
		q.window = other.window
	}
}

// complete sets a limit that the server sends as the used count, and the wait until an absolute reset.
// If that is more than MaxReset ahead, instant is reduced too, so that wait and instant agree.
func (p *parser) complete(q *quota) {
	if q.limit < 0 && q.used >= 0 && q.remaining >= 0 {
		q.limit = q.remaining + min(q.used, math.MaxInt64-q.remaining)
	}
	if r := &q.reset; !r.Instant.IsZero() {
		if r.Wait = retryafter.Until(r.Instant, p.written()); r.Wait > 0 {
			r.Instant = p.written().Add(r.Wait)
		}
	}
}

func (p *parser) addNamed(listed bool) {
	for i := range p.count {
		q := &p.named[i]
		if q.listed != listed {
			continue
		}
		switch {
		case listed:
			q.name = strings.Clone(q.name) // it would keep the whole line alive
		case q.name == "Requests": // the usual names need no memory
			q.name, q.unit = "requests", cmp.Or(q.unit, "requests")
		case q.name == "Tokens":
			q.name, q.unit = "tokens", cmp.Or(q.unit, "tokens")
		default:
			q.name = strings.ToLower(q.name)
		}
		p.complete(q)
		p.add(q)
	}
}

// add adds a dimension, unless q lacks an essential part.
func (p *parser) add(q *quota) {
	if q.remaining < 0 || q.limit == 0 {
		return // Okta sends 0 of 0 if too many requests are in flight, which is not a quota
	}
	if q.remaining == 0 {
		p.state.Exhausted = true
	}
	p.roundUp(q)
	if q.reset.Wait <= 0 || p.has(q.name) {
		return
	}
	if !q.reset.Instant.IsZero() {
		p.state.Date = p.date
	}
	if p.state.Dimensions == nil {
		p.state.Dimensions = make([]Dimension, 0, max(p.count, 1))
	}
	p.state.Dimensions = append(p.state.Dimensions, Dimension{
		Name:      q.name,
		Limit:     max(q.limit, 0),
		Remaining: q.remaining,
		Reset:     q.reset.Wait,
		Instant:   q.reset.Instant,
		Window:    q.window,
		Costed:    q.costed() || q.cost > 1,
	})
}

// roundUp reads a reset of now as one within the next second, because it is rounded down: in the last second of a window, and by a
// bucket that refills within less than a second.
func (p *parser) roundUp(q *quota) {
	switch r := &q.reset; {
	case r.Wait != 0:
	case r.Instant.IsZero():
		r.Wait = time.Second
	case r.Instant.Equal(p.written()):
		r.Wait, r.Instant = time.Second, r.Instant.Add(time.Second)
	}
}

func (p *parser) has(name string) bool {
	return slices.ContainsFunc(p.state.Dimensions, func(d Dimension) bool { return d.Name == name })
}

// rounding is the maximum difference of two spellings of one reset. A delta, an epoch
// time and a Date are each rounded to a second.
const rounding = 2 * time.Second

// addUnnamed adds a quota without a name, or with the given one if there is one without. If another
// dialect has described the same quota already, it only completes that dimension.
func (p *parser) addUnnamed(q *quota, name string) {
	for i := range p.state.Dimensions {
		d := &p.state.Dimensions[i]
		sameLimit := d.Limit == 0 || q.limit <= 0 || d.Limit == q.limit
		sameReset := (d.Reset - q.reset.Wait).Abs() <= rounding
		if d.Remaining == q.remaining && sameLimit && sameReset {
			d.Limit, d.Window = max(d.Limit, q.limit), max(d.Window, q.window)
			return
		}
	}
	if q.name = custom; p.has(custom) {
		q.name = name
	}
	p.add(q)
}

// costed reports whether q does not count requests, by its unit or else by its name. Concurrent
// requests are costed, because the server has counted the ones in flight already.
func (q *quota) costed() bool {
	switch q.unit {
	case "request", "requests": // the draft's registry, and its text
		return false
	case "":
		for word := range strings.FieldsFuncSeq(strings.ToLower(q.name), func(r rune) bool { return r < 'a' || r > 'z' }) {
			switch strings.TrimSuffix(word, "s") {
			case "token", "byte", "character", "credit", "point", "cost", "complexity":
				return true
			}
		}
		return false
	}
	return true
}
