package durable_test

import (
	"encoding/binary"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/durable"
)

// The model explores all orders of events of one intent: workers that claim, send, crash and
// lose responses, requests that arrive late, status queries, and a person that decides about
// an earlier state. Decide is the real one; the provider is a model. Time is in ticks. No order
// of events may charge twice, or report a charge that does not exist.

const (
	tick       = time.Minute
	modelDelay = 2 // VisibilityDelay: a request arrives less than this after its worker gave up
	modelTTL   = 4 // KeyTTL
	modelEnd   = 6 // no tick after this
)

// modelProvider is a kind of provider.
type modelProvider struct {
	name         string
	honoursKeys  bool
	keepsDecline bool
	canQuery     bool
}

var providers = []modelProvider{
	{"honours keys", true, true, false},
	{"honours keys and keeps no declines", true, false, false},
	{"honours no keys and can be queried", false, false, true},
	{"neither", false, false, false},
	{"honours keys and answers queries early", true, true, true},
}

// request is one that has not arrived.
type request struct {
	key    string
	waited bool // the worker waits for the response
	until  int  // it arrives before this tick, once the worker has given up
}

// known is what the provider remembers of a key.
type known struct {
	key      string
	at       int
	declined bool
}

// world is one state of the model. It is a value: its slices are cloned before a change.
type world struct {
	now      int
	record   durable.Record
	claims   int  // so far
	sent     bool // the worker has sent what it holds
	flying   []request
	keys     []known
	declined bool // the last request that was processed
	charges  int

	looked   bool         // a person has looked, once
	seen     durable.Seen // then; Generation 0: nothing, or decided
	sawDone  bool
	sawTruth bool // the person knows that no request can arrive any more
	redrives int
}

func (w *world) id() string {
	r := &w.record
	flag := func(b bool) int64 {
		if b {
			return 1
		}
		return 0
	}
	ticks := func(t time.Time) int64 { return int64(t.Sub(epoch) / tick) }
	b := make([]byte, 0, 64)
	for _, n := range []int64{
		int64(w.now), int64(r.State), int64(r.Epoch), r.Generation, int64(len(r.Worker)), int64(r.Class), flag(r.InDoubt),
		flag(r.QueryNext), r.DeadLetterID, ticks(r.NextAt), ticks(r.FirstSentAt), ticks(r.LastSentAt), ticks(r.ClaimedAt),
		flag(w.sent), flag(w.looked), int64(w.claims), int64(w.charges), flag(w.declined), w.seen.Generation, int64(w.seen.Letter),
		flag(w.sawDone), flag(w.sawTruth), int64(w.redrives),
	} {
		b = binary.AppendVarint(b, n)
	}
	for _, f := range w.flying {
		b = append(b, f.key[:4]...)
		b = append(b, byte(flag(f.waited)), byte(f.until))
	}
	b = append(b, 255)
	for _, k := range w.keys {
		b = append(b, k.key[:4]...)
		b = append(b, byte(k.at), byte(flag(k.declined)))
	}
	return string(b)
}

func (w *world) String() string {
	r := &w.record
	return fmt.Sprintf("tick %d: %v, epoch %d, generation %d, in doubt %t; %d charges; in flight %v; keys %v; seen %+v",
		w.now, r.State, r.Epoch, r.Generation, r.InDoubt, w.charges, w.flying, w.keys, w.seen)
}

// model explores one kind of provider.
type model struct {
	modelProvider
	terms   durable.Terms // the argument of Decide
	keyTTL  int           // of the provider, in ticks
	anySeen bool          // decisions do not name what was seen
	noErase bool          // a person erases nothing
	queue   []world
	visited map[string]bool
	bad     string
}

func explore(p modelProvider, change func(*model)) *model {
	m := &model{modelProvider: p, keyTTL: modelTTL, visited: map[string]bool{}}
	m.terms = durable.Terms{KeyTTL: -1, VisibilityDelay: modelDelay * tick, CanQuery: p.canQuery}
	if p.honoursKeys {
		m.terms.KeyTTL = modelTTL * tick
	}
	change(m)
	start := world{}
	enqueued, err := durable.Decide(nil, &durable.Event{Kind: durable.EventEnqueue, Intent: durable.Intent{ID: id, Gateway: "psp"}}, epoch)
	if err != nil {
		panic(err)
	}
	start.record = enqueued.Record
	m.add(start, "enqueued")
	for len(m.queue) > 0 && m.bad == "" {
		w := m.queue[len(m.queue)-1] // the newest, because then few wait
		m.queue = m.queue[:len(m.queue)-1]
		m.step(w)
	}
	return m
}

func (m *model) add(w world, how string) {
	switch {
	case w.charges > 1:
		m.bad = how + ": charged twice: " + w.String()
	case w.record.State == durable.StateDone && w.charges == 0:
		m.bad = how + ": done, and not charged: " + w.String()
	case w.record.State == durable.StateCanceled && w.charges > 0:
		m.bad = how + ": erased as not charged, and charged: " + w.String()
	}
	if key := w.id(); !m.visited[key] {
		m.visited[key] = true
		m.queue = append(m.queue, w)
	}
}

// decide applies an event, if it is possible.
func (m *model) decide(w world, e durable.Event, how string, change func(*world)) {
	e.Intent.ID, e.Terms = id, &m.terms
	got, err := durable.Decide(&w.record, &e, epoch.Add(time.Duration(w.now)*tick))
	if err != nil {
		return
	}
	w.flying, w.keys = slices.Clone(w.flying), slices.Clone(w.keys)
	w.record = got.Record
	if change != nil {
		change(&w)
	}
	m.add(w, how)
}

func (m *model) step(w world) {
	for i := range w.flying {
		m.arrive(w, i)
	}
	if w.record.State == durable.StateDone && len(w.flying) == 0 {
		return // nothing can happen any more
	}
	m.pass(w)
	m.work(w)
	m.person(w)
}

// pass lets a tick pass. A request that was given up arrives before its last tick, or
// never. A worker ends the resend of an intent in doubt before its key ends.
func (m *model) pass(w world) {
	if w.now == modelEnd || w.record.State == durable.StateSending && m.mustEnd(&w) {
		return
	}
	w.now++
	w.flying = slices.DeleteFunc(slices.Clone(w.flying), func(f request) bool { return !f.waited && w.now >= f.until })
	m.add(w, "a tick")
}

// mustEnd reports whether the send of an intent in doubt must have ended.
func (m *model) mustEnd(w *world) bool {
	end := w.record.FirstSentAt.Add(m.terms.KeyTTL - m.terms.VisibilityDelay)
	return w.record.InDoubt && !epoch.Add(time.Duration(w.now)*tick).Before(end)
}

// work is a step of the worker that holds the intent, or a claim by another one.
func (m *model) work(w world) {
	if w.claims < 3 {
		m.decide(w, durable.Event{Kind: durable.EventClaim, Worker: "w"}, "claim", func(w *world) { w.sent, w.claims = false, w.claims+1 })
	}
	if !w.record.State.Held() {
		return
	}
	switch {
	case w.record.State == durable.StateQuerying:
		m.query(w)
	case !w.sent && !m.mustEnd(&w):
		sending := w
		sending.sent = true
		sending.flying = append(slices.Clone(w.flying), request{durable.IdempotencyKey(id, w.record.Epoch), true, 0})
		m.add(sending, "send")
	default:
		m.finish(w, durable.ClassUnknown, "timeout")
	}
	// The worker crashes before its send, during it, or before it records the outcome.
	m.decide(w, durable.Event{Kind: durable.EventLeaseExpired, Worker: "w"}, "crash", (*world).giveUp)
}

// giveUp ends the wait of the worker. Its request may arrive later.
func (w *world) giveUp() {
	for i := range w.flying {
		if w.flying[i].waited {
			w.flying[i].waited, w.flying[i].until = false, w.now+modelDelay
		}
	}
}

func (m *model) finish(w world, class durable.Class, how string) {
	for _, action := range []durable.Action{durable.Retry, durable.Bury} {
		e := durable.Event{
			Kind: durable.EventFinish, Worker: w.record.Worker, Generation: w.record.Generation,
			Outcome:  durable.Outcome{Class: class, Status: 402}, // a decline that the provider's key store gave
			Decision: durable.Decision{Action: action, At: epoch.Add(time.Duration(w.now) * tick)},
		}
		m.decide(w, e, how, (*world).giveUp)
	}
}

// arrive lets the provider process a request: it succeeds or is declined. The response
// reaches the worker that waits for it, or is lost.
func (m *model) arrive(w world, i int) {
	f := w.flying[i]
	w.flying = slices.Delete(slices.Clone(w.flying), i, i+1)
	w.keys = slices.Clone(w.keys)
	place := slices.IndexFunc(w.keys, func(k known) bool { return k.key == f.key && w.now < k.at+m.keyTTL })
	remembered := m.honoursKeys && place >= 0
	for _, declined := range []bool{false, true} {
		after := w
		after.keys = slices.Clone(w.keys)
		switch {
		case remembered && (!w.keys[place].declined || m.keepsDecline):
			if declined != w.keys[place].declined {
				continue // the stored response
			}
		case declined:
			after.declined = true
		default:
			after.charges++
		}
		switch {
		case remembered:
			after.keys[place].declined = declined
		case m.honoursKeys:
			after.keys = append(after.keys, known{f.key, w.now, declined})
		}
		m.add(after, "a response is lost")
		if !f.waited {
			continue
		}
		class := durable.ClassSucceeded
		if declined {
			class = durable.ClassDeclined
		}
		m.finish(after, class, "response")
	}
}

// query is answered by what the provider knows now.
func (m *model) query(w world) {
	class := durable.ClassNotFound
	switch {
	case w.charges > 0:
		class = durable.ClassSucceeded
	case w.declined:
		class = durable.ClassDeclined
	}
	for _, class := range []durable.Class{class, durable.ClassUnknown} {
		m.finish(w, class, "query")
	}
}

// person looks, and decides later about what was seen: redrives it, or resolves it by the
// provider's ledger of that time, if it was complete.
func (m *model) person(w world) {
	r := &w.record
	if !w.looked && (r.State == durable.StateDead || r.State == durable.StateUnknown) {
		looked := w
		looked.looked, looked.seen, looked.sawDone, looked.sawTruth = true, r.Seen(), w.charges > 0, len(w.flying) == 0
		m.add(looked, "a person looks")
	}
	if r.State == durable.StateDead && !m.noErase { // one that is done stays as it is
		m.decide(w, durable.Event{Kind: durable.EventErase, By: "ann"}, "erase", nil)
	}
	if w.seen.Generation == 0 {
		return
	}
	decision := durable.Event{By: "ann", Generation: w.seen.Generation, DeadLetterID: int64(w.seen.Letter)}
	if m.anySeen {
		decision.Generation = 0
	}
	if w.redrives < 2 {
		redrive := decision
		redrive.Kind = durable.EventRedrive
		m.decide(w, redrive, "redrive", func(w *world) { w.redrives++ })
	}
	if w.sawTruth || w.sawDone {
		resolve := decision
		resolve.Kind, resolve.Outcome.Class = durable.EventResolve, durable.ClassNotFound
		if w.sawDone {
			resolve.Outcome.Class = durable.ClassSucceeded
		}
		m.decide(w, resolve, "resolve", func(w *world) { w.seen = durable.Seen{} })
	}
}

// D3, D16, D17: all orders are explored, for all kinds of providers.
func TestModel_neverChargesTwice(t *testing.T) {
	t.Parallel()
	for _, p := range providers {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			m := explore(p, func(*model) {})
			t.Logf("%d states", len(m.visited))
			require.Empty(t, m.bad)
			assert.Greater(t, len(m.visited), 1000, "the model explores too little")
		})
	}
}

// D16, D17, D18: without each of these rules the model finds a double
// charge.
func TestModel_findsFaults(t *testing.T) {
	t.Parallel()
	early := func(m *model) { // and keys live long, so that only declines matter
		m.terms.VisibilityDelay = 0
		if m.honoursKeys {
			m.terms.KeyTTL, m.keyTTL = 100*tick, 100
		}
	}
	for _, row := range []struct {
		name     string
		provider modelProvider
		change   func(*model)
	}{
		{"a decision that does not name what was seen (D16)", providers[0], func(m *model) { m.anySeen = true }},
		{"a decline that answers a query counts at once (D17)", providers[2], early},
		{"a decline that answers a resend counts at once (D17)", providers[1], early},
		{"a key is used until its end (D18)", providers[0], func(m *model) { m.terms.KeyTTL += modelDelay * tick }},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			m := explore(row.provider, func(m *model) {
				m.noErase = true // else it finds the charge of an erased intent first
				row.change(m)
			})
			t.Logf("%d states: %s", len(m.visited), m.bad)
			assert.Contains(t, m.bad, "charged twice")
		})
	}
}
