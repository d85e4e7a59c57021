package console

import (
	_ "embed" // the page and its style
	"fmt"
	"html/template"
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
	rowsPerPage   = 50
	newestJobs    = 10
	largestCounts = 10

	// countTime is the time for which the first page waits for its numbers.
	countTime = 500 * time.Millisecond

	// maxCounted is the number of dead letters to which the confirmation page counts.
	maxCounted = 10_000
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
			return f, fmt.Errorf("%w: state is %q, want one of the list", durable.ErrInvalid, name)
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
			return f, fmt.Errorf("%w: time is %q, want 2026-01-31 or 2026-01-31T12:00:00Z", durable.ErrInvalid, text)
		}
		*to = at
	}
	return f, nil
}

func allStates() (all []durable.State) {
	for s := durable.StatePending; s <= durable.StateCanceled; s++ {
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

// message is the result of the form that redirected to this page.
func message(query url.Values) string {
	job := strings.Map(func(c rune) rune { // an address may come from anywhere
		if c < '0' || c > '9' {
			return -1
		}
		return c
	}, query.Get("job"))
	return map[string]string{
		"redriven": "The intent was redriven.",
		"resolved": "The intent was resolved.",
		"erased":   "The intent was erased.",
		"held":     "The gateway is held.",
		"released": "The gateway was released.",
		"job":      "Job " + job + " redrives them.",
		"canceled": "Job " + job + " was canceled.",
	}[query.Get("did")]
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
		Record: record, Facts: facts(&record, h.Engine.DeclineCountsFrom(&record)), Attempts: attempts,
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

func facts(r *durable.Record, declineCounts time.Time) []field {
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
	if !declineCounts.IsZero() {
		all = append(all, field{"", "Declined", "an earlier send may still take effect: the decline counts from " + moment(declineCounts)})
	}
	return slices.DeleteFunc(all, func(f field) bool { return f.Value == "" })
}

// confirm asks before many dead letters are redriven. The form carries the time of the
// newest, so that younger letters are left out (D16).
func (h *Handler) confirm(r *http.Request, query url.Values) (*page, error) {
	filter, err := filterOf(query)
	if err != nil {
		return nil, err
	}
	filter.IncludeResolved = false
	newest := filter
	newest.NewestFirst = true
	letters, err := h.Engine.Store.DeadLetters(r.Context(), newest, nil, maxCounted+1)
	if err != nil {
		return nil, err
	}
	n, seenAt := len(letters), ""
	if n > 0 {
		seenAt = clock(letters[0].DeadAt)
	}
	count := strconv.Itoa(n) + " dead letters"
	switch {
	case n == 1:
		count = "1 dead letter"
	case n > maxCounted:
		count = "more than 10,000 dead letters"
	}
	return &page{Confirm: &confirm{fields(&filter, "Died"), count, seenAt, "?" + queryOf(&filter).Encode()}}, nil
}
