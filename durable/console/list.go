package console

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/resilienthttp/resilienthttp/durable"
	"github.com/resilienthttp/resilienthttp/idempotency"
)

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
	if err := json.Unmarshal([]byte(text), c); err != nil || c.ID.Validate() != nil {
		return nil, errForm
	}
	return c, nil
}

func (h *Handler) home(r *http.Request) (*home, error) {
	numbers, err := h.numbers(r.Context())
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
		Tiles: numbers, Holds: holds, Gateways: slices.Sorted(maps.Keys(h.Engine.Gateways)), Jobs: jobs[:min(len(jobs), newestJobs)],
		OpenJobs: slices.ContainsFunc(jobs, func(j durable.Job) bool { return j.FinishedAt.IsZero() }),
	}, nil
}

// numbers are those of the first page. There are none if the store needs long: a million intents take about a second.
func (h *Handler) numbers(ctx context.Context) ([]tile, error) {
	short, cancel := context.WithTimeout(ctx, countTime)
	defer cancel()
	stats, err := h.Engine.Stats(short)
	switch {
	case err == nil:
		return tiles(&stats), nil
	case short.Err() != nil && ctx.Err() == nil:
		return nil, nil
	default:
		return nil, err
	}
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
	case n > 0 && state == durable.StateDead:
		return "declined"
	case n > 0 && state == durable.StateUnknown:
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

// counts shows how many intents there are, and how many are dead or unknown, by gateway and by tenant.
func (h *Handler) counts(r *http.Request) (*page, error) {
	stats, err := h.Engine.Stats(r.Context())
	if err != nil {
		return nil, err
	}
	all, err := h.Engine.Counts(r.Context(), durable.StateDead, durable.StateUnknown)
	if err != nil {
		return nil, err
	}
	p := &page{Counts: []counts{{"All intents", tiles(&stats)}}}
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
		return cmp.Or(n[b]-n[a], cmp.Compare(a, b))
	})
	for _, name := range names[:min(len(names), largestCounts)] {
		all = append(all, tile{strconv.Itoa(n[name]), name, classOf(state, n[name]), stateLink(state, field, name)})
	}
	return all
}
