package main

import (
	"context"
	"errors"
	"fmt"
	"html"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/resilienthttp/resilienthttp/durable"
	"github.com/resilienthttp/resilienthttp/examples/internal/bank"
	"github.com/resilienthttp/resilienthttp/internal/sleep"
)

// person decides about dead and unknown intents, long after looking at them. The decisions
// are right for what was shown: the person reads the bank's ledger. Many arrive when the
// intent has changed, and then must have no effect.
type person struct {
	engine *durable.Engine
	pages  http.Handler
	ledger string

	// late is the time after which no send that was shown can still reach the bank.
	late time.Duration

	sights  []sight
	decided int // decisions that had an effect
	stale   int // and those that came too late
}

// sight is an intent as it was shown, with the form of the page or without one.
type sight struct {
	record  durable.Record
	redrive bool       // the decision; false: to resolve
	form    url.Values // nil: the decision is a call of the Engine
	due     time.Time  // the time of the decision
}

const mostSights = 200

func newPerson(store durable.Store, ledger string, late time.Duration) *person {
	engine := &durable.Engine{Store: store}
	return &person{engine: engine, pages: pages(engine), ledger: ledger, late: late}
}

// work looks and decides until ctx ends.
func (p *person) work(ctx context.Context) {
	for ; ctx.Err() == nil; _ = sleep.Context(ctx, 10*glance) {
		p.look(ctx)
		p.decide(ctx)
	}
}

// end decides about what was shown, and redrives what the bank wants to be redriven, until
// nothing is left.
func (p *person) end(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		p.decide(ctx)
		if err := waitUntilOver(ctx, p.engine.Store); err != nil {
			return err
		}
		left := 0
		for letter, err := range p.engine.Dead(ctx, durable.Filter{Code: bank.Call}) {
			if err != nil {
				return err
			}
			left++
			if record, err := p.engine.Find(ctx, letter.ID); err == nil && record.State == durable.StateDead {
				_ = p.engine.RedriveOne(ctx, record.Seen(), durable.Redrive{By: "a person"}) // or the next time
			}
		}
		if left == 0 && len(p.sights) == 0 {
			return nil
		}
		if err := sleep.Context(ctx, 10*glance); err != nil {
			return err
		}
	}
}

// look remembers some of the intents that are dead or unknown.
func (p *person) look(ctx context.Context) {
	filter := durable.Filter{States: []durable.State{durable.StateDead, durable.StateUnknown}, NewestFirst: true}
	for record, err := range p.engine.Intents(ctx, filter) {
		if err != nil || len(p.sights) >= mostSights {
			return
		}
		if rand.IntN(8) > 0 {
			continue
		}
		for range 1 + rand.IntN(2) { // the page may be open twice
			s := sight{record: record, due: time.Now().Add(p.late + rand.N(p.late/2))}
			if record.State == durable.StateDead && !record.InDoubt && rand.IntN(4) > 0 {
				s.redrive, s.due = true, time.Now().Add(rand.N(p.late))
			}
			s.form = p.form(ctx, &s)
			p.sights = append(p.sights, s)
		}
	}
}

var hidden = regexp.MustCompile(`<input type="hidden" name="([^"]*)" value="([^"]*)">`)

// form returns a form of the intent's page, half of the times. nil: there is none any more.
func (p *person) form(ctx context.Context, s *sight) url.Values {
	if rand.IntN(2) == 0 {
		return nil
	}
	section, id := map[bool]string{true: "redrive", false: "resolve"}[s.redrive], s.record.ID
	query := url.Values{"view": {"intent"}, "scope": {id.Scope}, "operation": {id.Operation}, "key": {id.Key}}
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/dead?"+query.Encode(), http.NoBody)
	w := httptest.NewRecorder()
	p.pages.ServeHTTP(w, r)
	_, page, ok := strings.Cut(w.Body.String(), `<section id="`+section+`">`)
	if !ok {
		return nil
	}
	page, _, _ = strings.Cut(page, "</section>")
	form := url.Values{}
	for _, match := range hidden.FindAllStringSubmatch(page, -1) {
		form.Set(match[1], html.UnescapeString(match[2]))
	}
	return form
}

// decide makes the decisions that are due. It repeats those that failed with the database.
func (p *person) decide(ctx context.Context) {
	now := time.Now()
	booked, err := bank.Bookings(p.ledger)
	if err != nil {
		return
	}
	ids := make(map[string]string)
	for _, c := range booked {
		ids[c.Reference] = c.ID
	}
	left := p.sights[:0]
	for _, s := range p.sights {
		if s.due.After(now) {
			left = append(left, s)
			continue
		}
		switch err := p.act(ctx, &s, ids[s.record.ID.Key]); {
		case err == nil:
			p.decided++
		case errors.Is(err, durable.ErrStale), errors.Is(err, durable.ErrInvalidState):
			p.stale++
		default:
			left = append(left, s)
		}
	}
	p.sights = left
}

// act redrives, or resolves by the ID of the booking if there is one.
func (p *person) act(ctx context.Context, s *sight, booking string) error {
	outcome := durable.Outcome{Class: durable.ClassDeclined, Code: s.record.Code}
	if booking != "" {
		outcome = durable.Outcome{Class: durable.ClassSucceeded, Reference: booking}
	}
	switch {
	case s.form != nil:
		if !s.redrive {
			s.form.Set("class", map[bool]string{true: "succeeded", false: "declined"}[booking != ""])
			s.form.Set("reference", outcome.Reference)
			s.form.Set("code", outcome.Code)
		}
		return p.post(ctx, s.form)
	case s.redrive:
		return p.engine.RedriveOne(ctx, s.record.Seen(), durable.Redrive{By: "a person"})
	default:
		return p.engine.Resolve(ctx, s.record.Seen(), outcome, "a person")
	}
}

func (p *person) post(ctx context.Context, form url.Values) error {
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/dead", strings.NewReader(form.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	w := httptest.NewRecorder()
	p.pages.ServeHTTP(w, r)
	switch w.Code {
	case http.StatusSeeOther:
		return nil
	case http.StatusConflict:
		return durable.ErrStale
	default:
		return fmt.Errorf("the console: %d", w.Code)
	}
}
