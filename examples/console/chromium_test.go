// Package console_test tests the console in a browser.
package console_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/durable"
	"github.com/resilienthttp/resilienthttp/durable/console"
	"github.com/resilienthttp/resilienthttp/durable/sqlitestore"
	"github.com/resilienthttp/resilienthttp/examples/internal/chromium"
	"github.com/resilienthttp/resilienthttp/idempotency"
)

const (
	script = `<script>document.title="hacked"</script>`

	// letters is the number of dead letters of the tenant "bulk".
	letters = 20_000

	perPage = 50 + 1 // the next row shows that there is a next page
)

// provider declines the tenant "bulk" and every other key, and loses the other answers.
type provider struct{}

func (provider) Send(_ context.Context, s *durable.Send) durable.Outcome {
	if s.ID.Scope == "bulk" || s.ID.Key[len(s.ID.Key)-1]%2 == 0 {
		return durable.Outcome{Class: durable.ClassDeclined, Status: 402, Code: "51", Err: errors.New("declined " + script)}
	}
	return durable.Outcome{Status: 504, Err: errors.New("timeout " + script + strings.Repeat("-and-so-on", 30))}
}

// countingStore counts the rows of lists that the console reads.
type countingStore struct {
	durable.Store

	rows atomic.Int64
}

func (s *countingStore) DeadLetters(ctx context.Context, filter durable.Filter, after *durable.DeadLetter, limit int) ([]durable.DeadLetter, error) {
	page, err := s.Store.DeadLetters(ctx, filter, after, limit)
	s.rows.Add(int64(len(page)))
	return page, err
}

func (s *countingStore) Intents(ctx context.Context, filter durable.Filter, after *durable.Record, limit int) ([]durable.Record, error) {
	page, err := s.Store.Intents(ctx, filter, after, limit)
	s.rows.Add(int64(len(page)))
	return page, err
}

// browser is a browser that shows the console.
type browser struct {
	*testing.T

	ctx    context.Context //nolint:containedctx // the only page of the browser
	store  *countingStore
	engine *durable.Engine
	url    string
}

// newBrowser opens a console with the dead letters of "bulk", and 60 of another tenant, half
// of which are in doubt.
func newBrowser(t *testing.T) *browser {
	t.Helper()
	store, err := sqlitestore.Open(t.Context(), filepath.Join(t.TempDir(), "intents.db"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	b := &browser{T: t, store: &countingStore{Store: store}}
	b.engine = &durable.Engine{
		Store: b.store, Gateways: map[string]durable.Gateway{"psp": provider{}}, Policy: durable.Schedule{MaxAge: 1},
		Concurrency: 1000, PerTenant: 1000,
	}
	intents := make([]durable.Intent, 0, letters+60)
	for i := range letters + 60 {
		in := durable.Intent{
			ID: idempotency.ID{Scope: "bulk", Operation: "POST /charges", Key: strconv.Itoa(i)}, Gateway: "psp", Payload: []byte("card 4242"),
		}
		if i >= letters {
			in.ID.Scope, in.ID.Key = "tenant"+script, fmt.Sprintf("invoice:%s%d", strings.Repeat("long-", 20), i)
			in.Batch, in.Row = "november", i
		}
		intents = append(intents, in)
	}
	for batch := range slices.Chunk(intents, 1000) {
		_, err = b.engine.EnqueueBatch(t.Context(), batch)
		require.NoError(t, err)
	}
	_, err = b.engine.Work(t.Context(), len(intents))
	require.NoError(t, err)
	server := httptest.NewServer(&console.Handler{
		Engine: b.engine, By: func(*http.Request) string { return "ann" }, Title: "payments",
		Describe: func(r *durable.Record) string { return string(r.Payload) },
	})
	t.Cleanup(server.Close)
	b.ctx, b.url = chromium.Open(t), server.URL
	return b
}

// open loads a page, and returns the number of rows that it read.
func (b *browser) open(address string) int64 {
	b.Helper()
	b.store.rows.Store(0)
	require.NoError(b, chromedp.Do(b.ctx, chromedp.Navigate(b.url+address), chromedp.WaitVisible("main section")))
	return b.store.rows.Load()
}

func (b *browser) text(expression string) string {
	b.Helper()
	return chromium.Value[string](b.ctx, b.T, expression)
}

func (b *browser) count(selector string) int {
	b.Helper()
	return chromium.Value[int](b.ctx, b.T, `document.querySelectorAll("`+selector+`").length`)
}

// set writes into a field.
func (b *browser) set(selector, value string) {
	b.Helper()
	b.text(`document.querySelector("` + selector + `").value = "` + value + `"`)
}

func (b *browser) check(selector string) {
	b.Helper()
	b.text(`document.querySelector("` + selector + `").click(), ""`)
}

// press clicks, and waits for the message.
func (b *browser) press(button, message string) {
	b.Helper()
	chromium.Press(b.ctx, b.T, button, `document.querySelector(".message")?.textContent === "`+message+`"`)
}

func (b *browser) state() string { return b.text(`document.querySelector("#state").textContent`) }

// find opens the page of the first dead letter of the reason, and returns its ID.
func (b *browser) find(reason string) idempotency.ID {
	b.Helper()
	b.open("/?scope=" + "tenant" + script + "&reason=" + reason)
	key := b.text(`document.querySelector("#letters a").textContent`)
	chromium.Press(b.ctx, b.T, "#letters a", `document.querySelector("#attempts")`)
	require.Equal(b, "dead", b.state())
	return idempotency.ID{Scope: "tenant" + script, Operation: "POST /charges", Key: key}
}

// All pages and forms, with 20,000 dead letters.
func TestConsoleInChromium(t *testing.T) {
	b := newBrowser(t)
	for _, step := range []struct {
		name string
		do   func(b *browser)
	}{
		{"lists: a page reads only its rows", (*browser).lists},
		{"intent: redriven and resolved by forms", (*browser).decides},
		{"a stale form: rejected, nothing changes", (*browser).stale},
		{"gateway: held and released", (*browser).holds},
		{"jobs: started, canceled and finished", (*browser).jobs},
		{"erase: needs the check box", (*browser).erases},
		{"all pages: legible narrow and wide, light and dark", (*browser).legible},
	} {
		require.True(t, t.Run(step.name, func(t *testing.T) {
			own := *b
			own.T = t
			step.do(&own)
		}))
	}
}

func (b *browser) lists() {
	require.LessOrEqual(b, b.open("/"), int64(perPage))
	require.Equal(b, "payments", b.text("document.title"), "no script has run")
	require.Zero(b, chromium.Value[int](b.ctx, b.T, "document.scripts.length"))
	require.Contains(b, b.text("getComputedStyle(document.body).fontFamily"), "system-ui", "the policy permits the page's style")
	seen := map[string]bool{}
	for page := range 4 {
		b.store.rows.Store(0)
		if page > 0 {
			first := b.text(`document.querySelector("#letters a").href`)
			chromium.Press(b.ctx, b.T, "#next", `document.querySelector("#letters a") && document.querySelector("#letters a").href !== "`+first+`"`)
			require.LessOrEqual(b, b.store.rows.Load(), int64(perPage))
		}
		for _, link := range chromium.Value[[]string](b.ctx, b.T, `[...document.querySelectorAll("#letters td a")].map(a => a.href)`) {
			seen[link] = true
		}
	}
	require.Len(b, seen, 200, "no row is on two pages")
	chromium.Press(b.ctx, b.T, "#first", `document.querySelector(".tiles")`)

	b.set("#filter input[name=reason]", "unresolved")
	chromium.Press(b.ctx, b.T, "#filter button", `document.querySelectorAll("#letters td a").length === 30`)
	b.set("#filter input[name=reason]", "")
	b.set("#filter input[name=scope]", "bulk")
	b.set("#filter select[name=order]", "newest")
	chromium.Press(b.ctx, b.T, "#filter button", `location.search.includes("order=newest") && document.querySelectorAll("#letters td a").length === 50`)

	b.open("/")
	chromium.Press(b.ctx, b.T, ".tiles a[href*=pending]", `document.querySelector("#intents")`)
	require.Zero(b, b.count("#intents tbody tr"))
	b.set("#filter select[name=state]", "dead")
	b.store.rows.Store(0)
	chromium.Press(b.ctx, b.T, "#filter button", `document.querySelectorAll("#intents tbody tr").length === 50`)
	require.LessOrEqual(b, b.store.rows.Load(), int64(perPage))
	chromium.Press(b.ctx, b.T, "#next", `location.search.includes("after=") && document.querySelectorAll("#intents tbody tr").length === 50`)
	b.open("/?view=counts")
	require.Contains(b, b.text("document.body.textContent"), strconv.Itoa(letters))
}

func (b *browser) decides() {
	id := b.find("unresolved")
	b.press("#redrive button", "The intent was redriven.")
	require.Equal(b, "unknown", b.state())
	b.check("#resolve button")
	require.Equal(b, "unknown", b.state(), "the result must be chosen")
	b.check("#resolve input[value=succeeded]")
	b.press("#resolve button", "The intent was resolved.")
	require.Equal(b, "done", b.state())
	record, err := b.engine.Find(b.Context(), id)
	require.NoError(b, err)
	require.Equal(b, durable.StateDone, record.State)
}

// D16: the intent is redriven and resolved by another operator while the page is open.
func (b *browser) stale() {
	id := b.find("unresolved")
	seen, err := b.engine.Find(b.Context(), id)
	require.NoError(b, err)
	require.NoError(b, b.engine.RedriveOne(b.Context(), seen.Seen(), durable.Redrive{By: "bob"}))
	before, err := b.engine.Find(b.Context(), id)
	require.NoError(b, err)
	b.check("#resolve input[value=declined]")
	chromium.Press(b.ctx, b.T, "#resolve button", `document.querySelector("#problem")`)
	require.Contains(b, b.text(`document.querySelector("#problem").textContent`), "The intent has changed since this page was loaded. Look again.")
	after, err := b.engine.Find(b.Context(), id)
	require.NoError(b, err)
	require.Equal(b, before, after)
	chromium.Press(b.ctx, b.T, "#problem a", `document.querySelector("#state")`)
	require.Equal(b, "unknown", b.state())
}

func (b *browser) holds() {
	b.open("/")
	b.check("#holds summary")
	b.set("#holds input[name=hours]", "1.5")
	b.set("#holds input[name=note]", "incident 7")
	b.press("#holds details button", "The gateway is held.")
	holds, err := b.engine.Holds(b.Context())
	require.NoError(b, err)
	require.Len(b, holds, 1)
	require.Equal(b, "ann", holds[0].By)
	require.Equal(b, 1, b.count("#holds tbody tr"))
	b.press("#holds td button", "The gateway was released.")
	require.Zero(b, b.count("#holds tbody tr"))
}

func (b *browser) jobs() {
	b.open("/?scope=bulk")
	b.store.rows.Store(0)
	chromium.Press(b.ctx, b.T, "#redrive-all", `document.querySelector("#confirm")`)
	require.Equal(b, "Redrive more than 10,000 dead letters?", b.text(`document.querySelector("#confirm h2").textContent`))
	require.LessOrEqual(b, b.store.rows.Load(), int64(10_000+perPage), "it counts no further than it says")
	b.set("#confirm input[name=note]", "the bank is back")
	b.press("#confirm button", "Job 1 redrives them.")
	require.Equal(b, "not yet", b.text(`document.querySelector("#jobs [data-label=Ended]").textContent`))
	b.press("#jobs button", "Job 1 was canceled.")
	require.Zero(b, b.count("#jobs button"))

	b.open("/?view=redrive&code=51&scope=tenant" + script)
	require.Equal(b, "Redrive 30 dead letters?", b.text(`document.querySelector("#confirm h2").textContent`))
	b.press("#confirm button", "Job 2 redrives them.")
	for range 3 {
		_, _, err := b.store.WorkJob(b.Context(), 20)
		require.NoError(b, err)
	}
	b.open("/")
	require.Equal(b, "30", b.text(`document.querySelector("#jobs [data-label=Redriven]").textContent`))
	require.Equal(b, 2, b.count("#jobs tbody tr"))
}

func (b *browser) erases() {
	b.open("/?scope=bulk")
	chromium.Press(b.ctx, b.T, "#letters a", `document.querySelector("#attempts")`)
	require.Contains(b, b.text("document.body.textContent"), "card 4242")
	b.check("#erase button")
	require.Equal(b, "dead", b.state(), "the box must be checked")
	b.check("#erase input[name=sure]")
	b.press("#erase button", "The intent was erased.")
	require.Equal(b, "canceled", b.state())
	require.NotContains(b, b.text("document.body.textContent"), "card 4242")
	require.NotContains(b, b.text("document.body.textContent"), "declined <script>")
}

func (b *browser) legible() {
	b.find("unresolved")
	intent := b.text("location.href")
	require.NoError(b, b.engine.Hold(b.Context(), "psp", time.Now().Add(time.Hour), "ann", strings.Repeat("long-", 40)))
	b.open("/?view=redrive&code=51&scope=bulk")
	b.set("#confirm input[name=note]", strings.Repeat("long-", 40))
	b.press("#confirm button", "Job 3 redrives them.")
	chromium.Legible(b.ctx, b.T, map[string]string{
		"list": b.url + "/?resolved=1&scope=tenant" + script, "intents": b.url + "/?view=intents&scope=tenant" + script, "intent": intent,
		"counts": b.url + "/?view=counts", "confirm": b.url + "/?view=redrive&scope=tenant" + script, "problem": b.url + "/?view=intents&state=lost",
	}, "main section", map[int64]string{1280: "wide", 1060: "table", 800: "half", 320: "narrow"})
}
