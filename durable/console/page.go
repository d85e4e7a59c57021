package console

import (
	_ "embed" // the page and its style
	"encoding/json"
	"fmt"
	"html/template"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/resilienthttp/resilienthttp/durable"
	"github.com/resilienthttp/resilienthttp/idempotency"
)

//go:embed style.css
var style string

//go:embed page.html
var pageText string

var htmlPage = template.Must(template.New("page").Funcs(template.FuncMap{ //nolint:gochecknoglobals // never written to
	"moment":  moment,
	"link":    func(id idempotency.ID) string { return "?" + linkTo(id).Encode() },
	"letters": func(f durable.Filter) string { return "?" + queryOf(&f).Encode() },
	"row":     row,
}).Parse(pageText))

// pageStyle is trusted: the security policy has its hash.
var pageStyle = template.CSS(style) //nolint:gosec,gochecknoglobals // embedded, and never written to

const (
	rowsPerPage  = 50
	newestJobs   = 10
	largestCount = 10

	// mostCounted is the number of dead letters to which the confirmation page counts.
	mostCounted = 10_000
)

// page is what the template renders. One of the pointers is set, or Problem.
type page struct {
	Title    string
	Style    template.CSS
	CanWrite bool
	Message  string // the result of the form that led here
	Problem  string
	Back     string // a link from Problem

	Home    *home
	List    *list
	Intent  *intent
	Confirm *confirm
	Counts  []counts
}

// home is what stands above the first page of a list.
type home struct {
	Tiles    []tile
	Holds    []durable.Hold
	Gateways []string
	Jobs     []durable.Job
	OpenJobs bool
}

type tile struct{ Figure, Text, Class, Link string }

// list is a page of dead letters or of intents.
type list struct {
	Letters []durable.DeadLetter
	Intents []durable.Record

	OfIntents   bool
	State       string
	States      []durable.State
	Filter      []field
	Newest      bool
	Resolved    bool
	First, Next string
	Redrive     string
}

// field is a field of the filter.
type field struct{ Name, Label, Value string }

type intent struct {
	durable.Record

	Facts                            []field
	Payload                          string
	Attempts                         []durable.Attempt
	Letters                          []durable.DeadLetter
	CanRedrive, CanResolve, CanErase bool
}

type confirm struct {
	Filter              []field
	Count, SeenAt, Back string
}

// counts is a table of the counts page.
type counts struct {
	Heading string
	Tiles   []tile
}

// fields returns the fields of the filter, by their names in the address.
func fields(f *durable.Filter, verb string) []field {
	return []field{
		{"scope", "Tenant", f.Scope}, {"operation", "Operation", f.Operation}, {"key", "Key", f.Key}, {"gateway", "Gateway", f.Gateway},
		{"batch", "Batch", f.Batch}, {"code", "Code", f.Code}, {"reason", "Reason", f.Reason},
		{"from", verb + " from", clock(f.From)}, {"until", "and before", clock(f.Until)},
	}
}

// clock formats a time for forms and addresses, in microseconds as stores keep it.
func clock(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02T15:04:05.999999Z07:00")
}

// moment formats a time for people, in milliseconds.
func moment(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02 15:04:05.000 MST")
}

// row formats the place of an intent in a batch.
func row(batch string, row int) string {
	return strings.TrimSpace(batch + " " + number(row))
}

func number(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

func filterOf(query url.Values) (durable.Filter, error) {
	f := durable.Filter{
		Scope: query.Get("scope"), Operation: query.Get("operation"), Key: query.Get("key"), Gateway: query.Get("gateway"),
		Batch: query.Get("batch"), Code: query.Get("code"), Reason: query.Get("reason"),
		IncludeResolved: query.Get("resolved") != "", NewestFirst: query.Get("order") == "newest",
	}
	if name := query.Get("state"); name != "" {
		state := slices.IndexFunc(allStates(), func(s durable.State) bool { return s.String() == name })
		if state < 0 {
			return f, fmt.Errorf("%w: there is no state %q", durable.ErrInvalid, name)
		}
		f.States = allStates()[state : state+1]
	}
	for name, to := range map[string]*time.Time{"from": &f.From, "until": &f.Until} {
		text := strings.TrimSpace(query.Get(name))
		if text == "" {
			continue
		}
		at, err := time.Parse(time.RFC3339, text)
		if err != nil {
			at, err = time.Parse(time.DateOnly, text)
		}
		if err != nil {
			return f, fmt.Errorf("%w: %q is neither 2026-01-31 nor 2026-01-31T12:00:00Z", durable.ErrInvalid, text)
		}
		*to = at
	}
	return f, nil
}

func allStates() (all []durable.State) {
	for s := durable.StatePending; s <= durable.StateCancelled; s++ {
		all = append(all, s)
	}
	return all
}

// queryOf is the inverse of filterOf.
func queryOf(f *durable.Filter) url.Values {
	query := url.Values{}
	for _, field := range fields(f, "") {
		if field.Value != "" {
			query.Set(field.Name, field.Value)
		}
	}
	if len(f.States) > 0 {
		query.Set("state", f.States[0].String())
	}
	if f.IncludeResolved {
		query.Set("resolved", "1")
	}
	if f.NewestFirst {
		query.Set("order", "newest")
	}
	return query
}

func idOf(query url.Values) idempotency.ID {
	return idempotency.ID{Scope: query.Get("scope"), Operation: query.Get("operation"), Key: query.Get("key")}
}

func linkTo(id idempotency.ID) url.Values {
	return url.Values{"view": {"intent"}, "scope": {id.Scope}, "operation": {id.Operation}, "key": {id.Key}}
}

// list is a page of the dead letters or intents that the filter selects. The first page has
// the numbers, holds and jobs above it.
func (h *Handler) list(r *http.Request, query url.Values) (*page, error) {
	filter, err := filterOf(query)
	if err != nil {
		return nil, err
	}
	after, err := cursorOf(query.Get("after"))
	if err != nil {
		return nil, err
	}
	l := &list{
		OfIntents: query.Get("view") == "intents", State: query.Get("state"), States: allStates(),
		Newest: filter.NewestFirst, Resolved: filter.IncludeResolved,
	}
	self, next := queryOf(&filter), (*cursor)(nil)
	if l.OfIntents {
		l.Filter = fields(&filter, "Created")
		self.Set("view", "intents")
		l.Intents, err = h.Engine.Store.Intents(r.Context(), filter, after.intent(), rowsPerPage+1)
		if len(l.Intents) > rowsPerPage {
			l.Intents = l.Intents[:rowsPerPage]
			last := &l.Intents[rowsPerPage-1]
			next = &cursor{last.CreatedAt, last.ID, 0}
		}
	} else {
		l.Filter = fields(&filter, "Died")
		l.Letters, err = h.Engine.Store.DeadLetters(r.Context(), filter, after.letter(), rowsPerPage+1)
		if len(l.Letters) > rowsPerPage {
			l.Letters = l.Letters[:rowsPerPage]
			last := &l.Letters[rowsPerPage-1]
			next = &cursor{last.DeadAt, last.ID, last.Number}
		}
		redrive := queryOf(&filter)
		redrive.Del("resolved")
		redrive.Del("state")
		redrive.Set("view", "redrive")
		l.Redrive = "?" + redrive.Encode()
	}
	if err != nil {
		return nil, err
	}
	p := &page{List: l, Message: message(query)}
	if after != nil {
		l.First = "?" + self.Encode()
	} else if p.Home, err = h.home(r); err != nil {
		return nil, err
	}
	if next != nil {
		self.Set("after", next.String())
		l.Next = "?" + self.Encode()
	}
	return p, nil
}

// cursor is the last row of a page.
type cursor struct {
	At     time.Time
	ID     idempotency.ID
	Number int64
}

func (c *cursor) String() string {
	text, err := json.Marshal(c)
	if err != nil {
		return ""
	}
	return string(text)
}

func (c *cursor) letter() *durable.DeadLetter {
	if c == nil {
		return nil
	}
	return &durable.DeadLetter{ID: c.ID, DeadAt: c.At, Number: c.Number}
}

func (c *cursor) intent() *durable.Record {
	if c == nil {
		return nil
	}
	return &durable.Record{Intent: durable.Intent{ID: c.ID}, CreatedAt: c.At}
}

func cursorOf(text string) (*cursor, error) {
	if text == "" {
		return nil, nil
	}
	c := new(cursor)
	if err := json.Unmarshal([]byte(text), c); err != nil {
		return nil, errForm
	}
	return c, nil
}

// message is the result of the form that redirected to this page.
func message(query url.Values) string {
	job := strings.Map(func(c rune) rune { // anybody can write an address
		if c < '0' || c > '9' {
			return -1
		}
		return c
	}, query.Get("job"))
	return map[string]string{
		"redriven":  "The intent was redriven.",
		"resolved":  "The intent was resolved.",
		"erased":    "The intent was erased.",
		"held":      "The gateway is held.",
		"released":  "The gateway was released.",
		"job":       "Job " + job + " redrives them.",
		"cancelled": "Job " + job + " was cancelled.",
	}[query.Get("did")]
}

func (h *Handler) home(r *http.Request) (*home, error) {
	stats, err := h.Engine.Stats(r.Context())
	if err != nil {
		return nil, err
	}
	holds, err := h.Engine.Holds(r.Context())
	if err != nil {
		return nil, err
	}
	jobs, err := h.Engine.Jobs(r.Context())
	if err != nil {
		return nil, err
	}
	return &home{
		Tiles: tiles(&stats), Holds: holds, Gateways: slices.Sorted(maps.Keys(h.Engine.Gateways)), Jobs: jobs[:min(len(jobs), newestJobs)],
		OpenJobs: slices.ContainsFunc(jobs, func(j durable.Job) bool { return j.FinishedAt.IsZero() }),
	}, nil
}

func tiles(stats *durable.Stats) []tile {
	var all []tile
	for _, state := range allStates() {
		n := stats.States[state]
		all = append(all, tile{strconv.Itoa(n), state.String(), classOf(state, n), stateLink(state, "", "")})
	}
	due := "due"
	if !stats.Oldest.IsZero() {
		due = "due, the longest for " + stats.Now.Sub(stats.Oldest).Round(time.Second).String()
	}
	return append(all, tile{strconv.Itoa(stats.Due), due, "", ""}, tile{strconv.Itoa(stats.Workers), "workers", "", ""})
}

func classOf(state durable.State, n int) string {
	switch {
	case n == 0:
		return ""
	case state == durable.StateDead:
		return "declined"
	case state == durable.StateUnknown:
		return "doubt"
	default:
		return ""
	}
}

// stateLink leads to the intents in a state, or to the dead letters.
func stateLink(state durable.State, name, value string) string {
	query := url.Values{}
	if state != durable.StateDead {
		query.Set("view", "intents")
		query.Set("state", state.String())
	}
	if value != "" {
		query.Set(name, value)
	}
	return "?" + query.Encode()
}

// counts shows how many intents are dead or unknown, by gateway and by tenant.
func (h *Handler) counts(r *http.Request) (*page, error) {
	all, err := h.Engine.Counts(r.Context(), durable.StateDead, durable.StateUnknown)
	if err != nil {
		return nil, err
	}
	p := new(page)
	for _, state := range []durable.State{durable.StateDead, durable.StateUnknown} {
		gateways, tenants := map[string]int{}, map[string]int{}
		for _, c := range all {
			if c.State == state {
				gateways[c.Gateway] += c.N
				tenants[c.Scope] += c.N
			}
		}
		p.Counts = append(p.Counts,
			counts{state.String() + ", by gateway", largest(gateways, state, "gateway")},
			counts{state.String() + ", by tenant", largest(tenants, state, "scope")})
	}
	return p, nil
}

func largest(n map[string]int, state durable.State, field string) (all []tile) {
	names := slices.SortedFunc(maps.Keys(n), func(a, b string) int {
		if n[a] != n[b] {
			return n[b] - n[a]
		}
		return strings.Compare(a, b)
	})
	for _, name := range names[:min(len(names), largestCount)] {
		all = append(all, tile{strconv.Itoa(n[name]), name, classOf(state, n[name]), stateLink(state, field, name)})
	}
	return all
}

// intent shows one intent, attempt by attempt.
func (h *Handler) intent(r *http.Request, query url.Values) (*page, error) {
	id := idOf(query)
	record, err := h.Engine.Find(r.Context(), id)
	if err != nil {
		return nil, err
	}
	attempts, err := h.Engine.Attempts(r.Context(), id)
	if err != nil {
		return nil, err
	}
	const most = 1000
	letters, err := h.Engine.Store.DeadLetters(r.Context(), durable.Filter{Scope: id.Scope, Operation: id.Operation, Key: id.Key, IncludeResolved: true}, nil, most)
	if err != nil {
		return nil, err
	}
	dead := record.State == durable.StateDead
	erased := len(attempts) > 0 && attempts[len(attempts)-1].Kind == durable.KindErase
	i := &intent{
		Record: record, Facts: facts(&record), Attempts: attempts,
		// An empty part of an ID filters nothing.
		Letters:    slices.DeleteFunc(letters, func(l durable.DeadLetter) bool { return l.ID != id }),
		CanRedrive: dead, CanResolve: dead || record.State == durable.StateUnknown,
		CanErase: (record.State.Final() || dead && !record.InDoubt) && !erased,
	}
	if h.Describe != nil && len(record.Payload) > 0 {
		i.Payload = h.Describe(&record)
	}
	return &page{Intent: i, Message: message(query)}, nil
}

func facts(r *durable.Record) []field {
	all := []field{
		{"", "Tenant", r.ID.Scope}, {"", "Operation", r.ID.Operation}, {"", "Key", r.ID.Key}, {"", "Gateway", r.Gateway},
		{"", "Batch", r.Batch}, {"", "Row", number(r.Row)},
		{"", "Reason", r.Reason}, {"", "Code", r.Code}, {"", "Reference", r.Reference},
		{"", "Epoch", number(r.Epoch)}, {"", "Sends", number(r.Attempts)},
		{"", "Created", moment(r.CreatedAt)}, {"", "Changed", moment(r.UpdatedAt)}, {"", "Deadline", moment(r.Deadline)},
	}
	if r.State.Claimable() {
		all = append(all, field{"", "Due", moment(r.NextAt)})
	}
	return slices.DeleteFunc(all, func(f field) bool { return f.Value == "" })
}

// confirm asks before many dead letters are redriven. The form carries the time of this
// page, so that younger letters are left out (D16).
func (h *Handler) confirm(r *http.Request, query url.Values) (*page, error) {
	filter, err := filterOf(query)
	if err != nil {
		return nil, err
	}
	filter.IncludeResolved = false
	stats, err := h.Engine.Stats(r.Context())
	if err != nil {
		return nil, err
	}
	n := 0
	for _, err := range h.Engine.Dead(r.Context(), filter) {
		if err != nil {
			return nil, err
		}
		if n++; n > mostCounted {
			break
		}
	}
	count := strconv.Itoa(n) + " dead letters"
	switch {
	case n == 1:
		count = "1 dead letter"
	case n > mostCounted:
		count = "more than 10,000 dead letters"
	}
	return &page{Confirm: &confirm{fields(&filter, "Died"), count, clock(stats.Now), "?" + queryOf(&filter).Encode()}}, nil
}
