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

	"github.com/resilienthttp/resilienthttp"
)

//go:embed style.css
var style string

//go:embed page.html
var pageText string

var htmlPage = template.Must(template.New("page").Parse(pageText)) //nolint:gochecknoglobals // never written to

// The maximum numbers of rows of the HTML. The JSON has all.
const (
	maxFailing = 500
	maxBlocked = 100
	maxSlow    = 8
	maxQuotas  = 50
	maxScopes  = 200
)

// pageData is what the template shows.
type pageData struct {
	Title, Clock, Stamp string
	Style               template.CSS
	Refresh             int
	Filter              string
	Headline            headline
	Errors              []string // of configurations
	Stats               []stat
	History             *picture // of all scopes; nil: no call
	Failing             section[failingRow]
	Blocked             section[blockedRow]
	Slow                section[slowRow]
	Quotas              section[quotaRow]
	Scopes              section[scopeRow]
	Sources             []sourceSection
}

// section is a table. Left is the number of rows that are not shown, or "".
type section[Row any] struct {
	Rows []Row
	Left string
}

func leftOut(n int) string {
	if n == 0 {
		return ""
	}
	return count(n)
}

// stat is a figure at the top of the page.
type stat struct{ Figure, Text, Class string }

// owner is the scope and the Transport of a row.
type owner struct{ Scope, Client string }

type failingRow struct {
	owner
	Class, Word                              string
	MinuteRatio, Minute, Ratio, Calls, Kinds string
	Last, LastAt, Since, Ago, Action         string
	History                                  *picture
}

type blockedRow struct {
	owner
	Class, Word, Until, In, Reason string
}

type slowRow struct {
	owner
	Took, Explanation, Ended, Began           string
	QueueWait, InFlight, RetryWait, RetryFrom float64 // per cent
}

type quotaRow struct {
	owner
	Bucket, Class, Remaining, Reset, In, Queued string
	Limited                                     bool
	Used                                        float64 // per cent
}

type scopeRow struct {
	owner
	Class, Health, Circuit, SlowStart, Failed, InFlight, Queued, RetryWaiting, Budget, P50, P95, P99, Samples string
	UsualP50, UsualP99                                                                                        string
}

type sourceSection struct {
	Name, Error string
	Entries     []entry
	Left        string
}

// ownedScope is a scope with the name of its Transport.
type ownedScope struct {
	*scopeView
	client string
}

func (o ownedScope) owner() owner { return owner{o.name(), o.client} }

// newPageData makes the page's text.
func newPageData(p *page, refresh int) *pageData {
	d := &pageData{
		Title: p.Title, Clock: clock(p.At) + " UTC", Stamp: p.At.UTC().Format(time.RFC3339Nano),
		Style: template.CSS(style), Refresh: refresh, Filter: p.filter, Headline: p.Headline, //nolint:gosec // a constant, and its hash is in the policy
	}
	var all []ownedScope
	for i := range p.Transports {
		t := &p.Transports[i]
		if t.Error != "" {
			d.Errors = append(d.Errors, "Each call of "+t.Name+" fails: "+t.Error)
		}
		for j := range t.Scopes {
			all = append(all, ownedScope{&t.Scopes[j], t.Name})
		}
	}
	slices.SortStableFunc(all, func(a, b ownedScope) int { return a.compare(b.scopeView) })
	d.Failing = failingSection(all, p.At)
	d.Blocked = blockedSection(all, p.At)
	d.Slow = slowSection(all)
	d.Quotas = quotaSection(all, p.At)
	d.Scopes = newSection(all, maxScopes, newScopeRow)
	d.Stats = statsOf(all, d)
	d.History = newPicture(all, p.At)
	for i := range p.Sources {
		v := &p.Sources[i]
		o := sourceSection{Name: v.Name, Error: v.Error}
		shown, left := entries(v.shown)
		o.Entries, o.Left = shown, leftOut(left)
		d.Sources = append(d.Sources, o)
	}
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

// class returns the CSS class of a health.
func (h health) class() string {
	switch h {
	case healthFailing:
		return "bad"
	case healthDegraded, healthSlow:
		return "warn"
	default:
		return "good"
	}
}

// newSection makes the first rows of all.
func newSection[From, Row any](all []From, most int, row func(From) Row) section[Row] {
	var s section[Row]
	for _, from := range all[:min(most, len(all))] {
		s.Rows = append(s.Rows, row(from))
	}
	s.Left = leftOut(len(all) - len(s.Rows))
	return s
}

// failingSection lists the scopes that are not healthy, in the order of all.
func failingSection(all []ownedScope, now time.Time) section[failingRow] {
	var failing []ownedScope
	for _, o := range all {
		if o.Health != healthOK {
			failing = append(failing, o)
		}
	}
	return newSection(failing, maxFailing, func(o ownedScope) failingRow {
		r := failingRow{owner: o.owner(), Class: o.Health.class(), Word: string(o.Health), Kinds: kindsOf(&o.Responses), Action: o.Action}
		r.MinuteRatio, r.Minute = failedOf(o.LastMinute.Failures, o.LastMinute.Calls)
		r.Ratio, r.Calls = failedOf(o.Responses.Failures, o.Responses.Calls)
		r.History = newPicture([]ownedScope{o}, now)
		if r.Last = o.slowness(); r.Last != "" {
			return r
		}
		if f := o.scopeView.Failure; f != nil {
			r.Last, r.LastAt = endedWith(f.Status, f.ErrorType, f.Error), clock(f.At)
		}
		if since := o.Responses.Since; !since.IsZero() {
			r.Since, r.Ago = clock(since), timeSince(since, now)
		}
		return r
	})
}

// failedOf returns "61.6 %" and "154 of 250".
func failedOf(failures, calls int) (ratio, failed string) {
	if calls == 0 {
		return "no call", ""
	}
	return percentOf(failures, calls), ratioOf(failures, calls)
}

// kindsOf lists the kinds of failures with their counts.
func kindsOf(r *responsesView) string {
	var kinds []string
	answers := r.ClientErrors - r.Throttled
	if r.Failures <= r.Rejected+r.NetworkErrors+r.Timeouts+r.ServerErrors+r.Throttled {
		answers = 0 // not failures
	}
	for _, kind := range []struct {
		n    int
		name string
	}{{r.Rejected, "rejected"}, {r.NetworkErrors, "network"}, {r.Timeouts, "timeout"}, {r.ServerErrors, "5xx"}, {r.Throttled, "408 or 429"}, {answers, "4xx"}} {
		if kind.n > 0 {
			kinds = append(kinds, count(kind.n)+" × "+kind.name)
		}
	}
	return strings.Join(kinds, ", ")
}

func blockedSection(all []ownedScope, now time.Time) section[blockedRow] {
	var blocked []ownedScope
	for _, o := range all {
		if o.Blocked != nil {
			blocked = append(blocked, o)
		}
	}
	slices.SortStableFunc(blocked, func(a, b ownedScope) int {
		if a.Blocked.Rejecting == b.Blocked.Rejecting {
			return 0
		}
		if a.Blocked.Rejecting {
			return -1
		}
		return 1
	})
	return newSection(blocked, maxBlocked, func(o ownedScope) blockedRow {
		r := blockedRow{owner: o.owner(), Class: "warn", Word: "waiting", Reason: o.Blocked.Reason, Until: "a permit is free"}
		switch {
		case o.Blocked.Rejecting:
			r.Class, r.Word = "bad", "rejecting"
		case o.Breaker.State == resilienthttp.StateHalfOpen.String():
			r.Word, r.Until = "probing", "the probes succeed"
		}
		if at := o.Blocked.Until; !at.IsZero() {
			r.Until, r.In = clock(at), timeUntil(at, now)
		}
		return r
	})
}

func slowSection(all []ownedScope) section[slowRow] {
	var slow []ownedScope
	for _, o := range all {
		if o.Slowest != nil {
			slow = append(slow, o)
		}
	}
	slices.SortStableFunc(slow, func(a, b ownedScope) int { return cmp.Compare(b.Slowest.Latency, a.Slowest.Latency) })
	return newSection(slow, maxSlow, func(o ownedScope) slowRow {
		c := o.Slowest
		r := slowRow{
			owner: o.owner(), Took: formatSeconds(c.Latency), Explanation: c.Explanation, Began: clock(c.Start),
			QueueWait: percent(c.QueueWait, c.Latency), InFlight: percent(c.InFlight, c.Latency), RetryWait: percent(c.RetryWait, c.Latency),
		}
		r.RetryFrom = r.QueueWait + r.InFlight
		r.Ended = endedWith(c.Status, "", c.Error)
		if c.Attempts != 1 {
			r.Ended += ", " + plural(c.Attempts, "attempt")
		}
		return r
	})
}

// ownedQuota is a quota with its scope.
type ownedQuota struct {
	*quotaView
	of ownedScope
}

// used is the used part in per cent. A quota of unknown limit is known because it blocks.
func (q ownedQuota) used() float64 {
	if q.Limit <= 0 {
		return 100
	}
	return percent(float64(q.Limit-q.Remaining), float64(q.Limit))
}

func quotaSection(all []ownedScope, now time.Time) section[quotaRow] {
	var quotas []ownedQuota
	for _, o := range all {
		for i := range o.scopeView.Quotas {
			quotas = append(quotas, ownedQuota{&o.scopeView.Quotas[i], o})
		}
	}
	slices.SortStableFunc(quotas, func(a, b ownedQuota) int { return cmp.Compare(b.used(), a.used()) })
	return newSection(quotas, maxQuotas, func(q ownedQuota) quotaRow {
		r := quotaRow{owner: q.of.owner(), Bucket: q.Bucket, Used: q.used(), Limited: q.Limit > 0, Queued: count(q.of.Queued)}
		if r.Bucket == "" {
			r.Bucket = "requests"
		}
		if q.Key != "" {
			r.Bucket += " of " + q.Key
		}
		if r.Limited {
			r.Remaining = grouped(q.Remaining) + " of " + grouped(q.Limit)
		}
		switch {
		case q.BlockedUntil.After(now):
			r.Class, r.Reset, r.In = "bad", "blocked until "+clock(q.BlockedUntil), timeUntil(q.BlockedUntil, now)
		case q.Reset.After(now):
			r.Reset, r.In = clock(q.Reset), timeUntil(q.Reset, now)
		}
		if r.Class == "" && r.Used >= 90 {
			r.Class = "warn"
		}
		return r
	})
}

func newScopeRow(o ownedScope) scopeRow {
	r := scopeRow{
		owner: o.owner(), Health: string(o.Health), Class: o.Health.class(), Circuit: o.Breaker.State,
		InFlight: count(o.InFlight), Queued: count(o.Queued), RetryWaiting: count(o.RetryWaiting),
		Failed: "–", Budget: "no limit", P50: "–", P95: "–", P99: "–", Samples: count(o.Latency.Samples),
	}
	if n := o.Breaker.Openings; n > 0 {
		r.SlowStart = "opened " + plural(n, "time") + " in 5 min"
	}
	if since := o.Breaker.FailingSince; !since.IsZero() {
		r.SlowStart = "fails since " + clock(since)
	}
	if o.Breaker.SlowStartLimit > 0 {
		r.SlowStart = "at most " + formatRemaining(o.Breaker.SlowStartLimit) + " in flight"
	}
	if o.Responses.Calls > 0 {
		r.Failed = ratioOf(o.Responses.Failures, o.Responses.Calls)
	}
	if o.Budget.Remaining >= 0 {
		r.Budget = formatRemaining(o.Budget.Remaining)
	}
	if o.Latency.Samples > 0 {
		r.P50, r.P95, r.P99 = formatSeconds(o.Latency.P50), formatSeconds(o.Latency.P95), formatSeconds(o.Latency.P99)
	}
	if o.Latency.UsualP50 > 0 {
		r.UsualP50, r.UsualP99 = "usually "+formatSeconds(o.Latency.UsualP50), "usually "+formatSeconds(o.Latency.UsualP99)
	}
	return r
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
		stats = append(stats, stat{fmt.Sprintf("%.0f %%", math.Floor(q.Used)), "of a quota used, " + q.Scope, q.Class})
	}
	if len(d.Slow.Rows) > 0 {
		c := d.Slow.Rows[0]
		stats = append(stats, stat{c.Took, "the slowest call of the last minute, " + c.Scope, ""})
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
