package statepage

import (
	"cmp"
	_ "embed" // the page and its style
	"fmt"
	"html/template"
	"math"
	"slices"
	"strings"
	"time"
)

//go:embed style.css
var style string

//go:embed page.html
var pageText string

var htmlPage = template.Must(template.New("page").Funcs(template.FuncMap{ //nolint:gochecknoglobals // never written to
	"clock": clock, "until": timeUntil, "ago": timeSince, "seconds": formatSeconds,
	"count": count, "grouped": grouped, "plural": plural, "ratio": ratioOf, "percent": percentOf, "remaining": formatRemaining,
	"part": percent, "sum": func(a, b float64) float64 { return a + b }, "ended": endedWith,
	"history": func(o ownedScope, now time.Time) *picture { return newPicture([]ownedScope{o}, now) },
}).Parse(pageText))

// The maximum numbers of rows of the HTML. The JSON has all.
const (
	maxFailing = 500
	maxBlocked = 100
	maxSlow    = 8
	maxQuotas  = 50
	maxScopes  = 200
)

// pageData is what the template shows beside the page.
type pageData struct {
	*page

	Filter, Stamp                  string
	Style                          template.CSS
	Refresh                        int
	Stats                          []stat
	History                        *picture // of all scopes; nil: no call
	Failing, Blocked, Slow, Scopes section[ownedScope]
	Quotas                         section[ownedQuota]
}

// section is a table. Left is the number of rows that are not shown.
type section[Row any] struct {
	Rows []Row
	Left int
}

func newSection[Row any](all []Row, most int) section[Row] {
	shown := min(most, len(all))
	return section[Row]{all[:shown], len(all) - shown}
}

// stat is a figure at the top of the page.
type stat struct{ Figure, Text, Class string }

// ownedScope is a scope with the name of its Transport.
type ownedScope struct {
	*scopeView

	Client string
}

// newPageData makes the page's text.
func newPageData(p *page, refresh int) *pageData {
	d := &pageData{
		page: p, Filter: p.filter, Stamp: p.At.UTC().Format(time.RFC3339Nano), Refresh: refresh,
		Style: template.CSS(style), //nolint:gosec // a constant, and its hash is in the policy
	}
	var all []ownedScope
	for i := range p.Transports {
		t := &p.Transports[i]
		for j := range t.Scopes {
			all = append(all, ownedScope{&t.Scopes[j], t.Name})
		}
	}
	slices.SortStableFunc(all, func(a, b ownedScope) int { return a.compare(b.scopeView) })
	only := func(keep func(ownedScope) bool) []ownedScope {
		return slices.DeleteFunc(slices.Clone(all), func(o ownedScope) bool { return !keep(o) })
	}
	blocked := only(func(o ownedScope) bool { return o.Blocked != nil && o.Blocked.Rejecting })
	blocked = append(blocked, only(func(o ownedScope) bool { return o.Blocked != nil && !o.Blocked.Rejecting })...)
	slow := only(func(o ownedScope) bool { return o.Slowest != nil })
	slices.SortStableFunc(slow, func(a, b ownedScope) int { return cmp.Compare(b.Slowest.Latency, a.Slowest.Latency) })
	d.Failing = newSection(only(func(o ownedScope) bool { return o.Health != healthOK }), maxFailing)
	d.Blocked, d.Slow, d.Scopes = newSection(blocked, maxBlocked), newSection(slow, maxSlow), newSection(all, maxScopes)
	d.Quotas = newSection(quotasOf(all), maxQuotas)
	d.Stats = statsOf(all, d)
	d.History = newPicture(all, p.At)
	return d
}

// compare orders the scopes: the worst comes first.
func (s *scopeView) compare(other *scopeView) int {
	return cmp.Or(
		cmp.Compare(other.severity(), s.severity()),
		cmp.Compare(failureRatio(other.LastMinute.Failures, other.LastMinute.Calls), failureRatio(s.LastMinute.Failures, s.LastMinute.Calls)),
		cmp.Compare(failureRatio(other.Responses.Failures, other.Responses.Calls), failureRatio(s.Responses.Failures, s.Responses.Calls)),
		cmp.Compare(other.Responses.Failures, s.Responses.Failures))
}

// severity is higher for scopes that come first.
func (s *scopeView) severity() int {
	switch {
	case s.Health == healthFailing:
		return 6
	case s.Blocked != nil && s.Blocked.Rejecting:
		return 5
	case s.Health == healthSlow:
		return 4
	case s.Health == healthDegraded:
		return 3
	case s.Blocked != nil:
		return 2
	case s.Queued+s.RetryWaiting > 0:
		return 1
	}
	return 0
}

func failureRatio(failures, calls int) float64 { return float64(failures) / float64(max(calls, 1)) }

// Class returns the CSS class of a health.
func (h health) Class() string {
	switch h {
	case healthFailing:
		return "bad"
	case healthDegraded, healthSlow:
		return "warn"
	default:
		return "good"
	}
}

// Kinds lists the kinds of failures with their counts.
func (r *responsesView) Kinds() string {
	var kinds []string
	answers := r.ClientErrors - r.Throttled
	if r.Failures <= r.Rejected+r.NetworkErrors+r.Timeouts+r.ServerErrors+r.Throttled {
		answers = 0 // not failures
	}
	for _, kind := range []struct {
		n    int
		name string
	}{{r.Rejected, "rejected"}, {r.NetworkErrors, "network"}, {r.Timeouts, "timeout"}, {r.ServerErrors, "5xx"}, {r.Throttled, "throttled"}, {answers, "4xx"}} {
		if kind.n > 0 {
			kinds = append(kinds, count(kind.n)+" × "+kind.name)
		}
	}
	return strings.Join(kinds, ", ")
}

// Ended says with what a call ended.
func (c *callView) Ended() string {
	text := endedWith(c.Status, "", c.Error)
	if c.Attempts != 1 {
		text += ", " + plural(c.Attempts, "attempt")
	}
	return text
}

// ownedQuota is a quota with its scope.
type ownedQuota struct {
	*quotaView

	Of ownedScope
}

// quotasOf returns the quotas of all scopes, the most used one first.
func quotasOf(all []ownedScope) []ownedQuota {
	var quotas []ownedQuota
	for _, o := range all {
		for i := range o.scopeView.Quotas {
			quotas = append(quotas, ownedQuota{&o.scopeView.Quotas[i], o})
		}
	}
	slices.SortStableFunc(quotas, func(a, b ownedQuota) int { return cmp.Compare(b.Used(), a.Used()) })
	return quotas
}

// Used is the used part in per cent. A quota of unknown limit is known because it blocks.
func (q ownedQuota) Used() float64 {
	if q.Limit <= 0 {
		return 100
	}
	return percent(float64(q.Limit-q.Remaining), float64(q.Limit))
}

// Class returns the CSS class of a quota.
func (q ownedQuota) Class(now time.Time) string {
	switch {
	case q.BlockedUntil.After(now):
		return "bad"
	case q.Used() >= 90:
		return "warn"
	}
	return ""
}

// statsOf returns the figures at the top.
func statsOf(all []ownedScope, d *pageData) []stat {
	failing, degraded, blocked, inFlight, waiting := 0, 0, 0, 0, 0
	var minute minuteView
	for _, o := range all {
		switch o.Health {
		case healthFailing:
			failing++
		case healthDegraded, healthSlow:
			degraded++
		default:
		}
		if o.Blocked != nil {
			blocked++
		}
		inFlight += o.InFlight
		waiting += o.Queued + o.RetryWaiting
		minute.Calls += o.LastMinute.Calls
		minute.Failures += o.LastMinute.Failures
	}
	stats := []stat{
		scopesStat(failing, degraded, len(all)),
		callsStat(minute),
		{count(blocked), agree(blocked, "scope is", "scopes are") + " blocked", classIf(blocked > 0, "warn")},
		{count(waiting), agree(waiting, "call waits", "calls wait") + "; " + plural(inFlight, "attempt") + " in flight", classIf(waiting > 0, "warn")},
	}
	if len(d.Quotas.Rows) > 0 {
		q := d.Quotas.Rows[0]
		stats = append(stats, stat{fmt.Sprintf("%.0f %%", math.Floor(q.Used())), "of a quota used, " + q.Of.Name(), q.Class(d.At)})
	}
	if len(d.Slow.Rows) > 0 {
		c := d.Slow.Rows[0]
		stats = append(stats, stat{formatSeconds(c.Slowest.Latency), "the slowest call of the last minute, " + c.Name(), ""})
	}
	return stats
}

// scopesStat counts the scopes that fail. It is not green while one is degraded.
func scopesStat(failing, degraded, scopes int) stat {
	of := "of " + plural(scopes, "scope") + " "
	switch {
	case scopes == 0:
		return stat{"0", "scopes", ""}
	case failing > 0 && degraded > 0:
		return stat{count(failing), of + agree(failing, "fails", "fail") + "; " + count(degraded) + agree(degraded, " is", " are") + " degraded", "bad"}
	case failing > 0:
		return stat{count(failing), of + agree(failing, "fails", "fail"), "bad"}
	case degraded > 0:
		return stat{count(degraded), of + agree(degraded, "is", "are") + " degraded", "warn"}
	}
	return stat{"0", of + "fail", "good"}
}

// callsStat is the part of the calls that failed.
func callsStat(r minuteView) stat {
	if r.Calls == 0 {
		return stat{"0", "calls in the last minute", ""}
	}
	s := stat{percentOf(r.Failures, r.Calls), "of " + plural(r.Calls, "call") + " in the last minute failed", classIf(r.Failures > 0, "warn")}
	if 2*r.Failures > r.Calls {
		s.Class = "bad"
	}
	return s
}

// classIf returns the class, and good if it is not so.
func classIf(is bool, class string) string {
	if is {
		return class
	}
	return "good"
}
