package statepage

import (
	"cmp"
	_ "embed" // the page and its style
	"fmt"
	"html/template"
	"math"
	"slices"
	"time"
)

//go:embed style.css
var style string

//go:embed page.html
var pageText string

var htmlPage = template.Must(template.New("page").Parse(pageText)) //nolint:gochecknoglobals // never written to

// How many rows the HTML shows: more than that nobody reads.
const (
	mostHeld   = 100
	mostSlow   = 8
	mostQuotas = 50
	mostScopes = 200
)

// sights are what the HTML shows, in its words.
type sights struct {
	Title, Clock, Stamp string
	Style               template.CSS
	Refresh             int
	Part                string
	Tiles               []tile
	Held                section[heldRow]
	Slow                section[slowRow]
	Quotas              section[quotaRow]
	Scopes              section[scopeRow]
	Sources             []sourceSection
}

// section is a table, and how many rows it lacks.
type section[Row any] struct {
	Rows []Row
	Left int
}

type tile struct{ Figure, Text, Class string }

type who struct{ Scope, Client string }

type heldRow struct {
	who
	Class, Word, Until, In, Why string
}

type slowRow struct {
	who
	Took, Why, Ended, Began        string
	Queued, Sent, Waited, WaitedAt float64 // per cent
}

type quotaRow struct {
	who
	Bucket, Class, Remains, Reset, In, Waiting string
	Limited                                    bool
	Used                                       float64 // per cent
}

type scopeRow struct {
	who
	Class, Circuit, Limit, Failed, InFlight, Waiting, Retrying, Room, P50, P95, P99, Samples, Failure string
}

type sourceSection struct {
	Name, Error string
	Entries     []entry
	Left        int
}

// ofClient is a scope, and whose it is.
type ofClient struct {
	*scopeView
	client string
}

func (o ofClient) who() who { return who{o.Scope, o.client} }

// sight puts the page into words.
func sight(p *page, refresh int) *sights {
	s := &sights{
		Title: p.Title, Clock: clockOf(p.At) + " UTC", Stamp: p.At.UTC().Format(time.RFC3339Nano),
		Style: template.CSS(style), Refresh: refresh, Part: p.part, //nolint:gosec // it is ours, and its hash is in the policy
	}
	var all []ofClient
	for i := range p.Transports {
		t := &p.Transports[i]
		for j := range t.Scopes {
			all = append(all, ofClient{&t.Scopes[j], t.Name})
		}
	}
	slices.SortStableFunc(all, func(a, b ofClient) int { return cmp.Compare(b.trouble(), a.trouble()) })
	s.Held = heldSection(all, p.At)
	s.Slow = slowSection(all)
	s.Quotas = quotaSection(all, p.At)
	s.Scopes = rowsOf(all, mostScopes, scopeRowOf)
	s.Tiles = tilesOf(all, s)
	for i := range p.Sources {
		v := &p.Sources[i]
		o := sourceSection{Name: v.Name, Error: v.Error}
		o.Entries, o.Left = entries(v.shown)
		s.Sources = append(s.Sources, o)
	}
	return s
}

// trouble is how much a scope is in trouble.
func (s *scopeView) trouble() int {
	switch {
	case s.Held != nil && s.Held.Refused:
		return 4
	case s.Held != nil:
		return 3
	case s.Waiting+s.Retrying > 0 || s.Breaker.State != "closed":
		return 2
	case s.Breaker.Failures > 0:
		return 1
	}
	return 0
}

// rowsOf are the first rows of some, and how many there are besides.
func rowsOf[From, Row any](all []From, most int, row func(From) Row) section[Row] {
	var s section[Row]
	for _, from := range all[:min(most, len(all))] {
		s.Rows = append(s.Rows, row(from))
	}
	s.Left = len(all) - len(s.Rows)
	return s
}

func heldSection(all []ofClient, now time.Time) section[heldRow] {
	var held []ofClient
	for _, o := range all {
		if o.Held != nil {
			held = append(held, o)
		}
	}
	return rowsOf(held, mostHeld, func(o ofClient) heldRow {
		r := heldRow{who: o.who(), Class: "held", Word: "held back", Why: o.Held.Why, Until: "its turn comes"}
		if o.Held.Refused {
			r.Class, r.Word = "refused", "refused"
		}
		if at := o.Held.Until; !at.IsZero() {
			r.Until, r.In = clockOf(at), inOf(at, now)
		}
		return r
	})
}

func slowSection(all []ofClient) section[slowRow] {
	var slow []ofClient
	for _, o := range all {
		if o.Slowest != nil {
			slow = append(slow, o)
		}
	}
	slices.SortStableFunc(slow, func(a, b ofClient) int { return cmp.Compare(b.Slowest.Latency, a.Slowest.Latency) })
	return rowsOf(slow, mostSlow, func(o ofClient) slowRow {
		c := o.Slowest
		r := slowRow{
			who: o.who(), Took: spanOf(c.Latency), Why: c.Why, Began: clockOf(c.Start),
			Queued: percent(c.Queued, c.Latency), Sent: percent(c.Sent, c.Latency), Waited: percent(c.Waited, c.Latency),
		}
		r.WaitedAt = r.Queued + r.Sent
		r.Ended = endedWith(c.Status, c.Error)
		if c.Attempts != 1 {
			r.Ended += ", " + plural(c.Attempts, "attempt")
		}
		return r
	})
}

func endedWith(status int, err string) string {
	if status != 0 {
		return fmt.Sprintf("status %d", status)
	}
	return err
}

// ofQuota is a quota, and whose it is.
type ofQuota struct {
	*quotaView
	of ofClient
}

func (q ofQuota) used() float64 {
	if q.Limit <= 0 {
		return 100 // it is on the page because it is closed
	}
	return percent(float64(q.Limit-q.Remaining), float64(q.Limit))
}

func quotaSection(all []ofClient, now time.Time) section[quotaRow] {
	var quotas []ofQuota
	for _, o := range all {
		for i := range o.scopeView.Quotas {
			quotas = append(quotas, ofQuota{&o.scopeView.Quotas[i], o})
		}
	}
	slices.SortStableFunc(quotas, func(a, b ofQuota) int { return cmp.Compare(b.used(), a.used()) })
	return rowsOf(quotas, mostQuotas, func(q ofQuota) quotaRow {
		r := quotaRow{who: q.of.who(), Bucket: q.Bucket, Used: q.used(), Limited: q.Limit > 0, Waiting: figure(q.of.Waiting)}
		if r.Bucket == "" {
			r.Bucket = "requests"
		}
		if r.Limited {
			r.Remains = grouped(q.Remaining) + " of " + grouped(q.Limit)
		}
		switch {
		case q.BlockedUntil.After(now):
			r.Class, r.Reset, r.In = "refused", "closed until "+clockOf(q.BlockedUntil), inOf(q.BlockedUntil, now)
		case q.Reset.After(now):
			r.Reset, r.In = clockOf(q.Reset), inOf(q.Reset, now)
		}
		if r.Class == "" && r.Used >= 90 {
			r.Class = "held"
		}
		return r
	})
}

func scopeRowOf(o ofClient) scopeRow {
	r := scopeRow{
		who: o.who(), Circuit: o.Breaker.State, Class: "well", InFlight: figure(o.InFlight), Waiting: figure(o.Waiting), Retrying: figure(o.Retrying),
		Failed: "–", Room: "no cap", P50: "–", P95: "–", P99: "–", Samples: figure(o.Latency.Samples),
	}
	switch o.Breaker.State {
	case "open":
		r.Class = "refused"
	case "half-open":
		r.Class = "held"
	}
	if o.Breaker.Limit > 0 {
		r.Limit = "at most " + spare(o.Breaker.Limit) + " at once"
	}
	if o.Breaker.Calls > 0 {
		r.Failed = grouped(int64(o.Breaker.Failures)) + " of " + grouped(int64(o.Breaker.Calls))
	}
	if o.Budget.Remaining >= 0 {
		r.Room = spare(o.Budget.Remaining)
	}
	if o.Latency.Samples > 0 {
		r.P50, r.P95, r.P99 = spanOf(o.Latency.P50), spanOf(o.Latency.P95), spanOf(o.Latency.P99)
	}
	if f := o.scopeView.Failure; f != nil {
		r.Failure = endedWith(f.Status, f.Error) + " at " + clockOf(f.At)
	}
	return r
}

// tilesOf answers the first questions in a figure each.
func tilesOf(all []ofClient, s *sights) []tile {
	refused, held, flying, waiting := 0, 0, 0, 0
	for _, o := range all {
		switch o.trouble() {
		case 4:
			refused++
		case 3:
			held++
		}
		flying += o.InFlight
		waiting += o.Waiting + o.Retrying
	}
	class := func(n int, class string) string {
		if n == 0 {
			return "well"
		}
		return class
	}
	tiles := []tile{
		{figure(refused), hosts(refused) + " refused", class(refused, "refused")},
		{figure(held), hosts(held) + " held back", class(held, "held")},
		{figure(waiting), "calls wait; " + figure(flying) + " attempts are in flight", class(waiting, "held")},
	}
	if len(s.Quotas.Rows) > 0 {
		q := s.Quotas.Rows[0]
		tiles = append(tiles, tile{fmt.Sprintf("%.0f %%", math.Floor(q.Used)), "of the fullest quota used, " + q.Scope, q.Class})
	}
	if len(s.Slow.Rows) > 0 {
		c := s.Slow.Rows[0]
		tiles = append(tiles, tile{c.Took, "the slowest call of the last minute, " + c.Scope, ""})
	}
	return tiles
}

func hosts(n int) string {
	if n == 1 {
		return "host"
	}
	return "hosts"
}

func figure(n int) string { return grouped(int64(n)) }

// spare is a number of which the whole part matters, or nothing does.
func spare(x float64) string {
	if x < 1 {
		return fmt.Sprintf("%.2g", x)
	}
	return grouped(int64(min(x, math.MaxInt64/2)))
}

// percent is a share of whole, from 0 to 100, to a tenth.
func percent(part, whole float64) float64 {
	if !(whole > 0) {
		return 0
	}
	return math.Round(min(max(part/whole, 0), 1)*1000) / 10
}

func clockOf(t time.Time) string { return t.UTC().Format("15:04:05.0") }

func inOf(t, now time.Time) string { return "in " + spanOf(t.Sub(now).Seconds()) }
