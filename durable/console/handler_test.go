package console_test

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"html"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/durable"
	"github.com/resilienthttp/resilienthttp/durable/console"
	"github.com/resilienthttp/resilienthttp/idempotency"
	"github.com/resilienthttp/resilienthttp/internal/bubble"
)

const script = `<script>alert("x")</script>'"`

// provider declines payloads, and loses the answer to those that begin with "lost".
type provider struct{}

func (provider) Send(_ context.Context, s *durable.Send) durable.Outcome {
	if strings.HasPrefix(string(s.Payload), "lost") {
		return durable.Outcome{Status: 504, Err: errors.New("timeout " + script)}
	}
	return durable.Outcome{Class: durable.ClassDeclined, Status: 402, Code: "51" + script, Err: errors.New("declined " + script)}
}

func newEngine() *durable.Engine {
	return &durable.Engine{
		Store: new(durable.Memory), Gateways: map[string]durable.Gateway{"psp": provider{}}, Policy: durable.Schedule{MaxAge: 1},
	}
}

func id(scope, key string) idempotency.ID {
	return idempotency.ID{Scope: scope, Operation: "POST /charges", Key: key}
}

func find(t *testing.T, e *durable.Engine, id idempotency.ID) durable.Record {
	t.Helper()
	record, err := e.Find(t.Context(), id)
	require.NoError(t, err)
	return record
}

// dead enqueues an intent that dies.
func dead(t *testing.T, e *durable.Engine, id idempotency.ID, payload string) {
	t.Helper()
	_, err := e.Enqueue(t.Context(), durable.Intent{ID: id, Gateway: "psp", Payload: []byte(payload), Batch: "b" + script, Row: 5})
	require.NoError(t, err)
	_, err = e.WorkOne(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, durable.StateDead, find(t, e, id).State)
}

func ann(*http.Request) string { return "ann" }

// client asks a console.
type client struct {
	*testing.T

	handler http.Handler
}

func (c client) do(method, query string, form url.Values, header ...string) *httptest.ResponseRecorder {
	c.Helper()
	var r *http.Request
	if form != nil {
		r = httptest.NewRequest(method, "/durable"+query, strings.NewReader(form.Encode()))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	} else {
		r = httptest.NewRequest(method, "/durable"+query, http.NoBody)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	c.handler.ServeHTTP(w, r)
	assert.NotContains(c, strings.ToLower(w.Body.String()), "<script", "text of others is a script")
	assert.NotContains(c, w.Body.String(), "SECRET")
	assert.Contains(c, w.Header().Get("Content-Security-Policy"), "default-src 'none'")
	assert.Equal(c, "no-store", w.Header().Get("Cache-Control"))
	return w
}

func (c client) get(query string) string {
	c.Helper()
	w := c.do(http.MethodGet, query, nil)
	require.Equal(c, http.StatusOK, w.Code, w.Body.String())
	return w.Body.String()
}

// post acts, and follows.
func (c client) post(form url.Values) string {
	c.Helper()
	w := c.do(http.MethodPost, "", form, "Sec-Fetch-Site", "same-origin")
	require.Equal(c, http.StatusSeeOther, w.Code, w.Body.String())
	return c.get(w.Header().Get("Location"))
}

func linkTo(id idempotency.ID) string {
	return "?" + url.Values{"view": {"intent"}, "scope": {id.Scope}, "operation": {id.Operation}, "key": {id.Key}}.Encode()
}

// form is the fields of the form in the section, as a browser would send them.
func form(t *testing.T, page, section string) url.Values {
	t.Helper()
	_, page, ok := strings.Cut(page, `<section id="`+section+`">`)
	require.True(t, ok, "there is no %s", section)
	page, _, _ = strings.Cut(page, "</section>")
	values := url.Values{}
	for _, match := range regexp.MustCompile(`<input type="hidden" name="([^"]*)" value="([^"]*)">`).FindAllStringSubmatch(page, -1) {
		values.Set(match[1], html.UnescapeString(match[2]))
	}
	return values
}

func TestList(t *testing.T) {
	e := newEngine()
	for i := range 120 {
		dead(t, e, id(fmt.Sprintf("comp%d%s", i%2, script), fmt.Sprintf("invoice:%03d", i)), "bad SECRET")
	}
	dead(t, e, id("other", "doubtful"), "lost SECRET")
	c := client{t, &console.Handler{Engine: e, By: ann, Title: "dead " + script}}

	page := c.get("")
	assert.Contains(t, page, html.EscapeString(script))
	assert.Equal(t, 50, strings.Count(page, `class="when"`))
	assert.Len(t, walk(c, ""), 121)

	page = c.get("?scope=other")
	assert.Contains(t, page, "in doubt: the work may be done")
	assert.Equal(t, 1, strings.Count(page, `class="when"`))
	assert.Contains(t, c.get("?code=none"), "There are none.")
	assert.Contains(t, c.get("?from=2200-01-01"), "There are none.")
	assert.Contains(t, c.get("?until=2200-01-01T12:00:00Z&reason=unresolved"), "doubtful")
	assert.NotContains(t, client{t, &console.Handler{Engine: e}}.get(""), "redrive-all", "read-only")
}

func TestIntent(t *testing.T) {
	e := newEngine()
	one := id("comp1"+script, "invoice:1"+script)
	dead(t, e, one, "lost SECRET")
	h := &console.Handler{Engine: e, By: ann, Describe: func(r *durable.Record) string { return string(r.Payload[:4]) + script }}
	c := client{t, h}
	page := c.get(linkTo(one))
	for _, want := range []string{
		"The result is in doubt", "timeout " + html.EscapeString(script), "504", durable.IdempotencyKey(one, 1), "<pre>lost" + html.EscapeString(script), "unresolved",
	} {
		assert.Contains(t, page, want)
	}
	assert.NotContains(t, client{t, &console.Handler{Engine: e, By: ann}}.get(linkTo(one)), "<pre>")

	values := form(t, page, "redrive")
	values.Set("note", "asked the bank "+script)
	page = c.post(values)
	assert.Contains(t, page, "The intent was redriven.")
	assert.Contains(t, page, `id="state">unknown`)
	assert.Contains(t, page, "asked the bank "+html.EscapeString(script))
	assert.Contains(t, page, "ann")
	assert.NotContains(t, page, `id="redrive"`)

	again := c.do(http.MethodPost, "", values)
	assert.Equal(t, http.StatusConflict, again.Code)

	values = form(t, page, "resolve")
	values.Set("class", "succeeded")
	values.Set("reference", "ch_1"+script)
	page = c.post(values)
	assert.Contains(t, page, "The intent was resolved.")
	assert.Contains(t, page, `id="state">done`)
	assert.Contains(t, page, "ch_1"+html.EscapeString(script))
	assert.NotContains(t, page, `id="redrive"`)
	assert.NotContains(t, page, `id="resolve"`)
	assert.Equal(t, durable.StateDone, find(t, e, one).State)
}

func TestResolveAsNotDone(t *testing.T) {
	e := newEngine()
	one := id("comp1", "invoice:1")
	dead(t, e, one, "lost")
	c := client{t, &console.Handler{Engine: e, By: ann}}
	values := form(t, c.get(linkTo(one)), "resolve")
	w := c.do(http.MethodPost, "", values)
	assert.Equal(t, http.StatusBadRequest, w.Code, "it must be said whether it was done")
	values.Set("class", "declined")
	page := c.post(values)
	assert.Contains(t, page, `id="state">dead`)
	assert.Contains(t, page, "The intent is sent again under a new key.")
	assert.Contains(t, page, "<small>ann</small>")
}

// One intent is redriven, and not those of the same key of other tenants.
func TestRedrive_one(t *testing.T) {
	e := newEngine()
	dead(t, e, id("", "invoice:1"), "bad")
	dead(t, e, id("comp2", "invoice:1"), "bad")
	c := client{t, &console.Handler{Engine: e, By: ann}}
	page := c.get(linkTo(id("", "invoice:1")))
	assert.Equal(t, 1, strings.Count(page, `data-label="Resolved"`), "letters of others")
	c.post(form(t, page, "redrive"))
	for scope, want := range map[string]durable.State{"": durable.StateWaiting, "comp2": durable.StateDead} {
		assert.Equal(t, want, find(t, e, id(scope, "invoice:1")).State)
	}
}

func TestRedrive_all(t *testing.T) {
	e := newEngine()
	for i := range 7 {
		dead(t, e, id("comp1", fmt.Sprint(i)), "bad")
		dead(t, e, id("comp2"+script, fmt.Sprint(i)), "bad")
	}
	c := client{t, &console.Handler{Engine: e, By: ann}}
	query := "?" + url.Values{"scope": {"comp2" + script}}.Encode()
	link := regexp.MustCompile(`id="redrive-all" href="([^"]*)"`).FindStringSubmatch(c.get(query))
	require.NotNil(t, link)
	page := c.get(html.UnescapeString(link[1]))
	assert.Contains(t, page, "Redrive 7 dead letters?")
	values := form(t, page, "confirm")
	values.Set("per_second", "0.5")
	values.Set("note", "the bank is back "+script)
	page = c.post(values)
	assert.Contains(t, page, "Job 1 redrives them.")
	assert.Contains(t, page, "the bank is back "+html.EscapeString(script))
	assert.Contains(t, page, `<details open>`, "the job is open")
	jobs, err := e.Jobs(t.Context())
	require.NoError(t, err)
	require.Len(t, jobs, 1)
	assert.Equal(t, "comp2"+script, jobs[0].Filter.Scope)
	assert.Equal(t, "ann", jobs[0].By)
	assert.InDelta(t, 0.5, jobs[0].PerSecond, 0)
	for _, rate := range []string{"-1", "0", "NaN", "x", "1e-300", "0.0002"} {
		values.Set("per_second", rate)
		assert.Equal(t, http.StatusBadRequest, c.do(http.MethodPost, "", values).Code, rate)
	}

	// D22: the page shows the progress, and the job can be canceled once.
	cancel := form(t, page, "jobs")
	page = c.post(cancel)
	assert.Contains(t, page, "Job 1 was canceled.")
	assert.Contains(t, page, "canceled by ann")
	assert.NotContains(t, page, `<details open>`)
	again := c.do(http.MethodPost, "", cancel)
	assert.Equal(t, http.StatusConflict, again.Code)
	assert.Contains(t, again.Body.String(), "This job has ended or is gone.")

	values.Set("per_second", "100")
	c.post(values)
	workJobs(t, e)
	assert.Contains(t, c.get(""), `data-label="Redriven" class="number">7<`)
}

// workJobs does what workers do with open jobs.
func workJobs(t *testing.T, e *durable.Engine) {
	t.Helper()
	for {
		job, _, err := e.Store.WorkJob(t.Context(), 100)
		require.NoError(t, err)
		if job.ID == "" {
			return
		}
	}
}

// D23: every state is listed by filter in pages, newest or oldest first.
func TestIntents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine()
		for i := range 120 {
			_, err := e.Enqueue(t.Context(), durable.Intent{ID: id(fmt.Sprintf("comp%d%s", i%2, script), fmt.Sprintf("invoice:%03d", i)), Gateway: "psp", Payload: []byte("SECRET")})
			require.NoError(t, err)
			time.Sleep(time.Millisecond)
		}
		dead(t, e, id("comp9", "dead"), "bad")
		c := client{t, &console.Handler{Engine: e}}
		for _, row := range []struct {
			name, query string
			want        int
			first       string
		}{
			{"any state: all of them", "?view=intents", 121, "invoice:000"},
			{"newest first: the last one leads", "?view=intents&order=newest", 121, "dead"},
			{"pending: not the dead one", "?view=intents&state=pending&order=newest", 120, "invoice:119"},
			{"a tenant: its own", "?view=intents&state=pending&scope=" + url.QueryEscape("comp1"+script), 60, "invoice:001"},
			{"a time: those that were created since", "?view=intents&from=2200-01-01", 0, ""},
			{"done: none", "?view=intents&state=done", 0, ""},
		} {
			keys := walk(c, row.query)
			assert.Len(t, keys, row.want, row.name)
			assert.Equal(t, row.first, append(keys, "")[0], row.name)
		}
		assert.Contains(t, c.get(""), `<a href="?state=pending&amp;view=intents"><b class="">120</b>`)
		assert.Equal(t, http.StatusBadRequest, c.do(http.MethodGet, "?view=intents&state=lost", nil).Code)
	})
}

// walk returns the keys that the list shows, page by page.
func walk(c client, link string) (keys []string) {
	c.Helper()
	for {
		page := c.get(link)
		found := regexp.MustCompile(`data-label="Key" class="long"><span><a href="[^"]*">([^<]*)</a>`).FindAllStringSubmatch(page, -1)
		assert.LessOrEqual(c, len(found), 50)
		for _, match := range found {
			keys = append(keys, html.UnescapeString(match[1]))
		}
		next := regexp.MustCompile(`id="next" href="([^"]*)"`).FindStringSubmatch(page)
		if next == nil {
			return keys
		}
		link = html.UnescapeString(next[1])
	}
}

// D23: the numbers of dead and unknown intents, the largest ten of each gateway and tenant.
func TestCounts(t *testing.T) {
	e := newEngine()
	for i := range 12 {
		for j := range i + 1 {
			dead(t, e, id(fmt.Sprintf("comp%02d%s", i, script), fmt.Sprint(j)), "bad")
		}
	}
	page := client{t, &console.Handler{Engine: e}}.get("?view=counts")
	assert.Contains(t, page, `<a href="?gateway=psp"><b class="declined">78</b><span>psp</span>`)
	assert.Contains(t, page, `<b class="declined">12</b><span>comp11`)
	assert.Contains(t, page, `<b class="declined">3</b><span>comp02`)
	assert.NotContains(t, page, "comp01", "the tenth is the last")
	assert.Contains(t, page, "There are none.", "unknown")
}

// slowStats is a store that counts for two seconds, as with some million intents.
type slowStats struct{ durable.Store }

func (s slowStats) Stats(ctx context.Context) (durable.Stats, error) {
	select {
	case <-time.After(2 * time.Second):
		return s.Store.Stats(ctx)
	case <-ctx.Done():
		return durable.Stats{}, ctx.Err()
	}
}

// D23: the pages of a store with very many intents come within a second. Only the page of counts counts them all.
func TestCounts_slow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine()
		dead(t, e, id("comp1", "invoice:1"), "bad")
		slow := newEngine()
		slow.Store = slowStats{e.Store}
		c := client{t, &console.Handler{Engine: slow, By: ann}}
		for _, row := range []struct {
			query, want string
			least, most time.Duration
		}{
			{"", "There are too many intents to count them for this page.", 0, time.Second},
			{"?view=intents", "There are too many intents to count them for this page.", 0, time.Second},
			{"?view=redrive", "Redrive 1 dead letter?", 0, time.Second},
			{"?view=counts", `<b class="declined">1</b><span>dead</span>`, 2 * time.Second, 3 * time.Second},
		} {
			began := time.Now()
			assert.Contains(t, c.get(row.query), row.want)
			assert.GreaterOrEqual(t, time.Since(began), row.least, row.query)
			assert.LessOrEqual(t, time.Since(began), row.most, row.query)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		w := httptest.NewRecorder()
		c.handler.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/durable", http.NoBody))
		assert.Equal(t, http.StatusInternalServerError, w.Code, "the person has left")
	})
}

// D21: a person holds and releases a gateway.
func TestHold(t *testing.T) {
	e := newEngine()
	c := client{t, &console.Handler{Engine: e, By: ann}}
	page := c.get("")
	assert.Contains(t, page, "<option>psp</option>")
	assert.NotContains(t, page, "Held gateways")
	values := url.Values{"action": {"hold"}, "gateway": {"psp"}, "hours": {"1.5"}, "note": {"incident 7 " + script}}
	page = c.post(values)
	assert.Contains(t, page, "The gateway is held.")
	assert.Contains(t, page, "incident 7 "+html.EscapeString(script))
	holds, err := e.Holds(t.Context())
	require.NoError(t, err)
	require.Len(t, holds, 1)
	assert.WithinDuration(t, time.Now().Add(90*time.Minute), holds[0].Until, time.Minute)
	assert.Equal(t, "ann", holds[0].By)
	page = client{t, &console.Handler{Engine: e}}.get("") // without By
	assert.Contains(t, page, "Held gateways")
	assert.NotContains(t, page, "<button>Release")
	assert.NotContains(t, page, "Hold a gateway")
	page = client{t, &console.Handler{Engine: &durable.Engine{Store: e.Store}, By: ann}}.get("")
	assert.Contains(t, page, "<button>Release", "an Engine without gateways")
	assert.Contains(t, page, `<input name="gateway" required`)

	values.Del("hours")
	assert.Contains(t, c.post(values), `data-label="Until" class="when">until released<`)
	release := url.Values{"action": {"release"}, "gateway": {"psp"}}
	page = c.post(release)
	assert.Contains(t, page, "The gateway was released.")
	assert.NotContains(t, page, "Held gateways")
	again := c.do(http.MethodPost, "", release)
	assert.Equal(t, http.StatusConflict, again.Code)
	assert.Contains(t, again.Body.String(), "This gateway is not held.")
	for _, hours := range []string{"0", "-1", "NaN", "1e9", "x"} {
		values.Set("hours", hours)
		assert.Equal(t, http.StatusBadRequest, c.do(http.MethodPost, "", values).Code, hours)
	}
	values.Del("hours")
	values.Del("gateway")
	assert.Equal(t, http.StatusBadRequest, c.do(http.MethodPost, "", values).Code, "no gateway")
}

// D21: the page shows a hold of the Engine's own as automatic, and releases it.
func TestHold_automatic(t *testing.T) {
	e := newEngine()
	for i := range 20 {
		dead(t, e, id("comp1", fmt.Sprint(i)), "lost")
	}
	c := client{t, &console.Handler{Engine: e, By: ann}}
	page := c.get("")
	assert.Contains(t, page, `data-label="By" class="long">automatic<`)
	assert.Regexp(t, `<span>an answer<small>next probe \d{4}-`, page)
	assert.Contains(t, page, "<small>last error: 504 (timeout "+html.EscapeString(script)+")</small>")
	page = c.post(url.Values{"action": {"release"}, "gateway": {"psp"}})
	assert.Contains(t, page, "The gateway was released.")
	assert.NotContains(t, page, "Held gateways")
}

// D25: the page shows by whom, until when and why a gateway is held by its provider, and releases it.
func TestHold_provider(t *testing.T) {
	e := newEngine()
	until := time.Now().Add(time.Hour).UTC()
	for _, scope := range []string{"", script} {
		require.NoError(t, e.Store.SetHold(t.Context(), durable.Hold{
			Gateway: "psp", Scope: scope, Provider: true, Until: until, Note: "the provider answered 429 and asked to wait 1h0m0s",
		}))
	}
	c := client{t, &console.Handler{Engine: e, By: ann}}
	page := c.get("")
	assert.Equal(t, 2, strings.Count(page, `data-label="By" class="long">provider<`))
	assert.Contains(t, page, "<span>psp<small>scope "+html.EscapeString(script)+"</small></span>")
	assert.Contains(t, page, until.Format("2006-01-02 15:04"))
	assert.Contains(t, page, "the provider answered 429 and asked to wait 1h0m0s")
	page = c.post(url.Values{"action": {"release"}, "gateway": {"psp"}})
	assert.NotContains(t, page, "Held gateways")
}

// D26: the page of an intent in doubt that was declined says from when the decline counts.
func TestIntent_declinedInDoubt(t *testing.T) {
	sends := 0
	e := newEngine()
	e.Gateways["psp"] = lostThenDeclined{&sends}
	e.Policy = durable.Schedule{Backoff: resilienthttp.Constant(time.Microsecond)}
	in := durable.Intent{ID: id("comp1", "1"), Gateway: "psp"}
	_, err := e.Enqueue(t.Context(), in)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		_, err = e.WorkOne(t.Context(), in.ID)
		require.NoError(t, err)
		return sends == 2
	}, time.Minute, time.Millisecond)
	record := find(t, e, in.ID)
	page := client{t, &console.Handler{Engine: e}}.get(linkTo(in.ID))
	from := record.LastSentAt.Add(15 * time.Minute).Format("2006-01-02 15:04")
	assert.Regexp(t, `<dt>Declined</dt><dd>an earlier send may still take effect: the decline counts from `+from, page)
}

type lostThenDeclined struct{ sends *int }

func (g lostThenDeclined) Send(context.Context, *durable.Send) durable.Outcome {
	if *g.sends++; *g.sends == 1 {
		return durable.Outcome{Status: 504}
	}
	return durable.Outcome{Class: durable.ClassDeclined, Status: 402}
}

// D24: an intent that is over, or dead and not in doubt, is erased once it is confirmed.
func TestErase(t *testing.T) {
	for _, row := range []struct {
		name, payload string
		prepare       func(t *testing.T, e *durable.Engine, seen durable.Seen)
		erasable      bool
		want          durable.State
	}{
		{"dead and declined: erased and canceled", "bad", nil, true, durable.StateCanceled},
		{"dead and in doubt: not offered", "lost", nil, false, durable.StateDead},
		{"done: erased", "lost", func(t *testing.T, e *durable.Engine, seen durable.Seen) {
			t.Helper()
			require.NoError(t, e.Resolve(t.Context(), seen, durable.Outcome{Class: durable.ClassSucceeded}, "bob"))
		}, true, durable.StateDone},
	} {
		t.Run(row.name, func(t *testing.T) {
			e := newEngine()
			one := id("comp1", "invoice:1")
			dead(t, e, one, row.payload)
			record := find(t, e, one)
			if row.prepare != nil {
				row.prepare(t, e, record.Seen())
			}
			describe := func(r *durable.Record) string { return string(r.Payload[:3]) + "SHOWN" }
			c := client{t, &console.Handler{Engine: e, By: ann, Describe: describe}}
			page := c.get(linkTo(one))
			assert.Equal(t, row.erasable, strings.Contains(page, `id="erase"`))
			values := url.Values{"action": {"erase"}, "scope": {one.Scope}, "operation": {one.Operation}, "key": {one.Key}, "letter": {"0"}}
			assert.Equal(t, http.StatusBadRequest, c.do(http.MethodPost, "", values).Code, "it must be confirmed")
			values.Set("sure", "1")
			if row.erasable {
				page = c.post(values)
				assert.Contains(t, page, "The intent was erased.")
				assert.NotContains(t, page, `id="erase"`, "it is erased once")
				assert.NotContains(t, page, "SHOWN")
				assert.NotContains(t, page, "declined "+html.EscapeString(script), "an error text")
			} else {
				assert.Equal(t, http.StatusConflict, c.do(http.MethodPost, "", values).Code)
			}
			record = find(t, e, one)
			assert.Equal(t, row.want, record.State)
			assert.Equal(t, row.erasable, len(record.Payload) == 0)
		})
	}
}

// A person without permission changes nothing, nor does a form of another site.
func TestHandler_readOnly(t *testing.T) {
	e := newEngine()
	one := id("comp1", "invoice:1")
	dead(t, e, one, "bad")
	values := url.Values{"action": {"redrive-one"}, "scope": {"comp1"}, "operation": {one.Operation}, "key": {one.Key}}
	unnamed := func(*http.Request) string { return "" }
	for name, row := range map[string]struct {
		by     func(*http.Request) string
		header []string
	}{
		"read-only":                 {nil, nil},
		"no name":                   {unnamed, nil},
		"another site":              {ann, []string{"Sec-Fetch-Site", "cross-site"}},
		"another origin":            {ann, []string{"Origin", "https://evil.example"}},
		"an origin that is unknown": {ann, []string{"Origin", "null"}},
	} {
		t.Run(name, func(t *testing.T) {
			c := client{t, &console.Handler{Engine: e, By: row.by}}
			assert.Equal(t, http.StatusForbidden, c.do(http.MethodPost, "", values, row.header...).Code)
			assert.Equal(t, durable.StateDead, find(t, e, one).State)
		})
	}
}

// broken is a store that fails.
type broken struct{ durable.Store }

func (broken) DeadLetters(context.Context, durable.Filter, *durable.DeadLetter, int) ([]durable.DeadLetter, error) {
	return nil, errors.New("SECRET")
}

func TestInvalid(t *testing.T) {
	e := newEngine()
	dead(t, e, id("comp1", "invoice:1"), "bad")
	c := client{t, &console.Handler{Engine: e, By: ann}}
	failing := newEngine()
	failing.Store = broken{failing.Store}
	for _, row := range []struct {
		name   string
		client client
		method string
		query  string
		form   url.Values
		want   int
	}{
		{"another view", c, http.MethodGet, "?view=other", nil, http.StatusBadRequest},
		{"no such intent", c, http.MethodGet, linkTo(id("comp1", "2")), nil, http.StatusNotFound},
		{"no key", c, http.MethodGet, "?view=intent", nil, http.StatusBadRequest},
		{"a key that is no text", c, http.MethodGet, linkTo(id("comp1", "\xff")), nil, http.StatusBadRequest},
		{"a time that is none", c, http.MethodGet, "?from=yesterday" + url.QueryEscape(script), nil, http.StatusBadRequest},
		{"a place that is none", c, http.MethodGet, "?after=x", nil, http.StatusBadRequest},
		{"a place with NUL", c, http.MethodGet, "?after=" + url.QueryEscape(`{"At":"2026-01-02T03:04:05Z","ID":{"Scope":"a","Operation":"b","Key":"c\u0000"}}`), nil, http.StatusBadRequest},
		{"a place, but no key", c, http.MethodGet, "?after={}", nil, http.StatusBadRequest},
		{"a code of 10,000 characters", c, http.MethodPost, "", url.Values{"action": {"resolve"}, "class": {"declined"}, "code": {strings.Repeat("x", 10_000)}, "scope": {"comp1"}, "key": {"x"}, "operation": {"y"}, "letter": {"1"}, "generation": {"1"}}, http.StatusBadRequest},
		{"a filter by a code of 100,000 characters", c, http.MethodGet, "?code=" + strings.Repeat("x", 100_000), nil, http.StatusBadRequest},
		{"no action", c, http.MethodPost, "", url.Values{}, http.StatusBadRequest},
		{"an action in the address", c, http.MethodPost, "?action=redrive", url.Values{}, http.StatusBadRequest},
		{"to redrive what is not", c, http.MethodPost, "", url.Values{"action": {"redrive-one"}, "key": {"x"}, "operation": {"y"}, "letter": {"1"}, "generation": {"1"}}, http.StatusNotFound},
		{"to redrive without what was seen", c, http.MethodPost, "", url.Values{"action": {"redrive-one"}, "key": {"x"}, "operation": {"y"}}, http.StatusBadRequest},
		{"to redrive at a time that is none", c, http.MethodPost, "", url.Values{"action": {"redrive"}, "from": {"x"}}, http.StatusBadRequest},
		{"a form without end", c, http.MethodPost, "", url.Values{"note": {strings.Repeat("x", 1<<20)}}, http.StatusRequestEntityTooLarge},
		{"another method", c, http.MethodDelete, "", nil, http.StatusMethodNotAllowed},
		{"HEAD", c, http.MethodHead, "", nil, http.StatusOK},
		{"a store that fails", client{t, &console.Handler{Engine: failing}}, http.MethodGet, "", nil, http.StatusInternalServerError},
		{"no engine", client{t, new(console.Handler)}, http.MethodGet, "", nil, http.StatusInternalServerError},
		{"an engine of none", client{t, &console.Handler{Engine: new(durable.Engine)}}, http.MethodGet, "", nil, http.StatusBadRequest},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := row.client.do(row.method, row.query, row.form)
			assert.Equal(t, row.want, w.Code, w.Body.String())
		})
	}
}

// The policy allows the style that is on the page, and no other.
func TestPolicy(t *testing.T) {
	c := client{t, &console.Handler{Engine: newEngine()}}
	w := c.do(http.MethodGet, "", nil)
	_, style, _ := strings.Cut(w.Body.String(), "<style>")
	style, _, _ = strings.Cut(style, "</style>")
	sum := sha256.Sum256([]byte(style))
	assert.Contains(t, w.Header().Get("Content-Security-Policy"), "'sha256-"+base64.StdEncoding.EncodeToString(sum[:])+"'")
	assert.Contains(t, style, "prefers-color-scheme: dark")
	assert.NotContains(t, w.Body.String(), "http://", "nothing is loaded")
	assert.NotContains(t, w.Body.String(), "style=")
}

// TestStaleForms: a form acts on what its page showed, or not at all.
func TestStaleForms(t *testing.T) {
	const changed = "The intent has changed since this page was loaded. Look again."
	one := id("comp1", "invoice:1")
	redrive := func(t *testing.T, e *durable.Engine) {
		t.Helper()
		record := find(t, e, one)
		require.NoError(t, e.RedriveOne(t.Context(), record.Seen(), durable.Redrive{By: "bob"}))
	}
	redriveAndWork := func(t *testing.T, e *durable.Engine) {
		t.Helper()
		redrive(t, e)
		_, err := e.WorkOne(t.Context(), one)
		require.NoError(t, err)
	}
	for _, row := range []struct {
		name, form string
		meanwhile  func(t *testing.T, e *durable.Engine)
		state      durable.State
	}{
		{"resolve a letter that was redriven and is unknown again", "resolve", redrive, durable.StateUnknown},
		{"redrive a letter that was redriven and is unknown again", "redrive", redrive, durable.StateUnknown},
		{"resolve a letter that was redriven and died again", "resolve", redriveAndWork, durable.StateDead},
		{"redrive a letter that was redriven and died again", "redrive", redriveAndWork, durable.StateDead},
	} {
		t.Run(row.name, func(t *testing.T) {
			e := newEngine()
			dead(t, e, one, "lost")
			c := client{t, &console.Handler{Engine: e, By: ann}}
			values := form(t, c.get(linkTo(one)), row.form)
			values.Set("class", "declined")
			row.meanwhile(t, e)
			before := find(t, e, one)
			require.Equal(t, row.state, before.State)
			w := c.do(http.MethodPost, "", values)
			assert.Equal(t, http.StatusConflict, w.Code)
			assert.Contains(t, w.Body.String(), changed)
			assert.Equal(t, before, find(t, e, one), "nothing was changed")
		})
	}
	bubble.Run(t, "redrive all leaves out letters that are younger than the page", func(t *testing.T) {
		e := newEngine()
		dead(t, e, one, "bad")
		c := client{t, &console.Handler{Engine: e, By: ann}}
		link := regexp.MustCompile(`id="redrive-all" href="([^"]*)"`).FindStringSubmatch(c.get(""))
		require.NotNil(t, link)
		values := form(t, c.get(html.UnescapeString(link[1])), "confirm")
		time.Sleep(time.Millisecond)
		dead(t, e, id("comp1", "invoice:2"), "bad")
		c.post(values)
		time.Sleep(time.Second)
		workJobs(t, e)
		assert.Equal(t, []string{"invoice:2"}, walk(c, ""))
		jobs, err := e.Jobs(t.Context())
		require.NoError(t, err)
		assert.True(t, jobs[0].Filter.Until.Before(time.Now().Add(-time.Second)), "D16")
	})
}
