package console

import (
	_ "embed" // the page and its style
	"encoding/json"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
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

var htmlPage = template.Must(template.New("page").Parse(pageText)) //nolint:gochecknoglobals // never written to

// pageStyle is ours, and the policy has its hash.
var pageStyle = template.CSS(style) //nolint:gosec,gochecknoglobals // embedded, and never written to

// listed is how many letters are on one page.
const listed = 50

// page is what the template shows: a list, an intent, a question or a problem.
type page struct {
	Title   string
	Style   template.CSS
	MayAct  bool
	Said    string // what was done just now
	Problem string

	List    *list
	Intent  *intent
	Confirm *confirm
}

type tile struct{ Figure, Text, Class string }

type list struct {
	Tiles   []tile
	Filter  []field
	Closed  bool
	Letters []letter
	Next    string
	Redrive string
}

// field is one of the filter's.
type field struct{ Name, Label, Value string }

type letter struct {
	durable.DeadLetter

	Link         string
	Dead, Closed string
	Row          string
}

type intent struct {
	durable.Record

	Facts                  []field
	Payload                string
	Attempts               []attempt
	Letters                []letter
	CanRedrive, CanResolve bool
}

type attempt struct {
	durable.Attempt

	Sent, Took string
}

type confirm struct {
	Filter []field
	Count  int
	SeenAt string
	Back   string
}

// fields are the filter's, by the names in the address.
func fields(f *durable.Filter) []field {
	return []field{
		{"scope", "Tenant", f.Scope}, {"operation", "Operation", f.Operation}, {"key", "Key", f.Key}, {"gateway", "Gateway", f.Gateway},
		{"batch", "Batch", f.Batch}, {"code", "Code", f.Code}, {"reason", "Reason", f.Reason},
		{"from", "Died from", clock(f.From)}, {"until", "and before", clock(f.Until)},
	}
}

// clock is a time as it is shown and read: to the microsecond, as stores keep it.
func clock(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02T15:04:05.999999Z07:00")
}

// moment is a time for people, to the millisecond.
func moment(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02 15:04:05.000 MST")
}

func filterOf(query url.Values) (durable.Filter, error) {
	f := durable.Filter{
		Scope: query.Get("scope"), Operation: query.Get("operation"), Key: query.Get("key"), Gateway: query.Get("gateway"),
		Batch: query.Get("batch"), Code: query.Get("code"), Reason: query.Get("reason"), IncludeResolved: query.Get("closed") != "",
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

func queryOf(f *durable.Filter) url.Values {
	query := url.Values{}
	for _, field := range fields(f) {
		if field.Value != "" {
			query.Set(field.Name, field.Value)
		}
	}
	if f.IncludeResolved {
		query.Set("closed", "1")
	}
	return query
}

func idOf(query url.Values) idempotency.ID {
	return idempotency.ID{Scope: query.Get("scope"), Operation: query.Get("operation"), Key: query.Get("key")}
}

func linkTo(id idempotency.ID) url.Values {
	return url.Values{"view": {"intent"}, "scope": {id.Scope}, "operation": {id.Operation}, "key": {id.Key}}
}

// list is the first page: figures, and the letters that a filter chooses.
func (h *Handler) list(r *http.Request, query url.Values) (*page, error) {
	filter, err := filterOf(query)
	if err != nil {
		return nil, err
	}
	after, err := afterOf(query.Get("after"))
	if err != nil {
		return nil, err
	}
	stats, err := h.Engine.Stats(r.Context())
	if err != nil {
		return nil, err
	}
	letters, err := h.Engine.Store.DeadLetters(r.Context(), filter, after, listed+1)
	if err != nil {
		return nil, err
	}
	l := &list{Tiles: tiles(&stats), Filter: fields(&filter), Closed: filter.IncludeResolved}
	address := queryOf(&filter)
	if len(letters) > listed {
		letters = letters[:listed]
		next := queryOf(&filter)
		next.Set("after", mark(&letters[listed-1]))
		l.Next = "?" + next.Encode()
	}
	for i := range letters {
		l.Letters = append(l.Letters, show(&letters[i]))
	}
	address.Del("closed")
	address.Set("view", "redrive")
	l.Redrive = "?" + address.Encode()
	p := &page{List: l}
	if query.Get("job") != "" {
		p.Said = "They are redriven in the background."
	}
	if n := query.Get("redriven"); n != "" {
		p.Said = redriven(n)
	}
	return p, nil
}

func redriven(n string) string {
	if n == "1" {
		return "One was redriven."
	}
	return strings.Map(func(c rune) rune {
		if c < '0' || c > '9' {
			return -1
		}
		return c
	}, n) + " were redriven."
}

func show(l *durable.DeadLetter) letter {
	s := letter{DeadLetter: *l, Link: "?" + linkTo(l.ID).Encode(), Dead: moment(l.DeadAt), Closed: moment(l.RedrivenAt)}
	if l.Batch != "" || l.Row != 0 {
		s.Row = strings.TrimSpace(l.Batch + " " + strconv.Itoa(l.Row))
	}
	return s
}

func tiles(stats *durable.Stats) []tile {
	var shown []tile
	for state := durable.StatePending; state <= durable.StateCancelled; state++ {
		class := ""
		if n := stats.States[state]; n > 0 {
			switch state {
			case durable.StateDead:
				class = "refused"
			case durable.StateUnknown:
				class = "held"
			default:
			}
		}
		shown = append(shown, tile{strconv.Itoa(stats.States[state]), state.String(), class})
	}
	due := "due"
	if !stats.Oldest.IsZero() {
		due = "due, the longest for " + stats.Now.Sub(stats.Oldest).Round(time.Second).String()
	}
	return append(shown, tile{strconv.Itoa(stats.Due), due, ""}, tile{strconv.Itoa(stats.Workers), "workers", ""})
}

// place is where in the list a page ends.
type place struct {
	At                    time.Time
	Scope, Operation, Key string
	Number                int64
}

func mark(l *durable.DeadLetter) string {
	text, err := json.Marshal(place{l.DeadAt, l.ID.Scope, l.ID.Operation, l.ID.Key, l.Number})
	if err != nil {
		return ""
	}
	return string(text)
}

func afterOf(text string) (*durable.DeadLetter, error) {
	if text == "" {
		return nil, nil
	}
	var p place
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		return nil, errForm
	}
	id := idempotency.ID{Scope: p.Scope, Operation: p.Operation, Key: p.Key}
	return &durable.DeadLetter{ID: id, DeadAt: p.At, Number: p.Number}, nil
}

// intent is one of them, attempt by attempt.
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
	shown := &intent{
		Record: record, Facts: facts(&record),
		CanRedrive: record.State == durable.StateDead,
		CanResolve: record.State == durable.StateDead || record.State == durable.StateUnknown,
	}
	if h.Describe != nil {
		shown.Payload = h.Describe(&record)
	}
	for i := range attempts {
		a := attempt{Attempt: attempts[i], Sent: moment(attempts[i].SentAt)}
		if a.Took = "under way"; !a.FinishedAt.IsZero() {
			a.Took = a.FinishedAt.Sub(a.SentAt).Round(time.Millisecond).String()
		}
		shown.Attempts = append(shown.Attempts, a)
	}
	for i := range letters {
		if l := &letters[i]; l.ID == id { // an empty part of an ID filters nothing
			shown.Letters = append(shown.Letters, show(l))
		}
	}
	p := &page{Intent: shown}
	switch {
	case query.Get("resolved") != "":
		p.Said = "It was resolved."
	case query.Get("redriven") != "":
		p.Said = redriven(query.Get("redriven"))
	}
	return p, nil
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
	shown := all[:0]
	for _, f := range all {
		if f.Value != "" {
			shown = append(shown, f)
		}
	}
	return shown
}

func number(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

// confirm asks before many are redriven.
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
		n++
	}
	back := queryOf(&filter)
	return &page{Confirm: &confirm{Filter: fields(&filter), Count: n, SeenAt: clock(stats.Now), Back: "?" + back.Encode()}}, nil
}
