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

	"github.com/resilienthttp/resilienthttp/durable"
	"github.com/resilienthttp/resilienthttp/durable/console"
	"github.com/resilienthttp/resilienthttp/idempotency"
)

const script = `<script>alert("x")</script>'"`

// side refuses what is bad, and loses the answer to what is lost.
type side struct{}

func (side) Send(_ context.Context, s *durable.Send) durable.Outcome {
	if strings.HasPrefix(string(s.Payload), "lost") {
		return durable.Outcome{Status: 504, Err: errors.New("timeout " + script)}
	}
	return durable.Outcome{Class: durable.ClassDeclined, Status: 402, Code: "51" + script, Err: errors.New("declined " + script)}
}

func newEngine() *durable.Engine {
	return &durable.Engine{
		Store: new(durable.Memory), Gateways: map[string]durable.Gateway{"psp": side{}}, Policy: durable.Schedule{MaxAge: 1},
	}
}

func id(scope, key string) idempotency.ID {
	return idempotency.ID{Scope: scope, Operation: "POST /charges", Key: key}
}

// dead enqueues an intent that dies.
func dead(t *testing.T, e *durable.Engine, id idempotency.ID, payload string) {
	t.Helper()
	_, err := e.Enqueue(t.Context(), durable.Intent{ID: id, Gateway: "psp", Payload: []byte(payload), Batch: "b" + script, Row: 5})
	require.NoError(t, err)
	_, err = e.WorkOne(t.Context(), id)
	require.NoError(t, err)
	record, err := e.Find(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, durable.StateDead, record.State)
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
	assert.NotContains(c, strings.ToLower(w.Body.String()), "<script", "somebody's words are a script")
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
	seen := 0
	for link := ""; ; {
		page := c.get(link)
		seen += strings.Count(page, `class="when"`)
		next := regexp.MustCompile(`id="next" href="([^"]*)"`).FindStringSubmatch(page)
		if next == nil {
			break
		}
		link = html.UnescapeString(next[1])
	}
	assert.Equal(t, 121, seen)

	page = c.get("?scope=other")
	assert.Contains(t, page, "it may have been done")
	assert.Equal(t, 1, strings.Count(page, `class="when"`))
	assert.Contains(t, c.get("?code=none"), "There are none.")
	assert.Contains(t, c.get("?from=2200-01-01"), "There are none.")
	assert.Contains(t, c.get("?until=2200-01-01T12:00:00Z&reason=unresolved"), "doubtful")
	assert.NotContains(t, client{t, &console.Handler{Engine: e}}.get(""), "redrive-all", "nobody may act")
}

func TestIntent(t *testing.T) {
	e := newEngine()
	one := id("comp1"+script, "invoice:1"+script)
	dead(t, e, one, "lost SECRET")
	h := &console.Handler{Engine: e, By: ann, Describe: func(r *durable.Record) string { return string(r.Payload[:4]) + script }}
	c := client{t, h}
	page := c.get(linkTo(one))
	for _, want := range []string{
		"The result is unknown", "timeout " + html.EscapeString(script), "504", durable.IdempotencyKey(one, 1), "<pre>lost" + html.EscapeString(script), "unresolved",
	} {
		assert.Contains(t, page, want)
	}
	assert.NotContains(t, client{t, &console.Handler{Engine: e, By: ann}}.get(linkTo(one)), "<pre>")

	values := form(t, page, "redrive")
	values.Set("note", "asked the bank "+script)
	page = c.post(values)
	assert.Contains(t, page, "One was redriven.")
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
	assert.Contains(t, page, "It was resolved.")
	assert.Contains(t, page, `id="state">done`)
	assert.Contains(t, page, "ch_1"+html.EscapeString(script))
	assert.NotContains(t, page, "<form")
	record, err := e.Find(t.Context(), one)
	require.NoError(t, err)
	assert.Equal(t, durable.StateDone, record.State)
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
	assert.Contains(t, page, "It is sent again under a new key.")
	assert.Contains(t, page, "<small>ann</small>")
}

// One intent is redriven, and not those of the same key of other tenants.
func TestRedriveOne(t *testing.T) {
	e := newEngine()
	dead(t, e, id("", "invoice:1"), "bad")
	dead(t, e, id("comp2", "invoice:1"), "bad")
	c := client{t, &console.Handler{Engine: e, By: ann}}
	page := c.get(linkTo(id("", "invoice:1")))
	assert.Equal(t, 1, strings.Count(page, `data-label="Dealt with"`), "letters of others")
	c.post(form(t, page, "redrive"))
	for scope, want := range map[string]durable.State{"": durable.StateWaiting, "comp2": durable.StateDead} {
		record, err := e.Find(t.Context(), id(scope, "invoice:1"))
		require.NoError(t, err)
		assert.Equal(t, want, record.State)
	}
}

func TestRedriveAll(t *testing.T) {
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
	assert.Contains(t, page, "Redrive 7?")
	values := form(t, page, "confirm")
	values.Set("per_second", "0.5")
	values.Set("note", "the bank is back")
	assert.Contains(t, c.post(values), "They are redriven in the background.")
	_, _, err := e.Store.WorkJob(t.Context(), 100)
	require.NoError(t, err)
	stats, err := e.Stats(t.Context())
	require.NoError(t, err)
	assert.Equal(t, map[durable.State]int{durable.StateDead: 7, durable.StateWaiting: 7}, stats.States)
	assert.LessOrEqual(t, stats.Due, 1, "they are spread")
	assert.Contains(t, c.get(query+"&closed=1"), "the bank is back")
	for _, rate := range []string{"-1", "0", "NaN", "x"} {
		values.Set("per_second", rate)
		assert.Equal(t, http.StatusBadRequest, c.do(http.MethodPost, "", values).Code, rate)
	}
}

// Who may not act changes nothing, nor does a form of another site.
func TestMayNot(t *testing.T) {
	e := newEngine()
	one := id("comp1", "invoice:1")
	dead(t, e, one, "bad")
	values := url.Values{"action": {"redrive"}, "one": {"1"}, "scope": {"comp1"}, "operation": {one.Operation}, "key": {one.Key}}
	nobody := func(*http.Request) string { return "" }
	for name, row := range map[string]struct {
		by     func(*http.Request) string
		header []string
	}{
		"nobody":                    {nil, nil},
		"nobody in particular":      {nobody, nil},
		"another site":              {ann, []string{"Sec-Fetch-Site", "cross-site"}},
		"another origin":            {ann, []string{"Origin", "https://evil.example"}},
		"an origin that is unknown": {ann, []string{"Origin", "null"}},
	} {
		t.Run(name, func(t *testing.T) {
			c := client{t, &console.Handler{Engine: e, By: row.by}}
			assert.Equal(t, http.StatusForbidden, c.do(http.MethodPost, "", values, row.header...).Code)
			record, err := e.Find(t.Context(), one)
			require.NoError(t, err)
			assert.Equal(t, durable.StateDead, record.State)
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
		{"no action", c, http.MethodPost, "", url.Values{}, http.StatusBadRequest},
		{"an action in the address", c, http.MethodPost, "?action=redrive", url.Values{}, http.StatusBadRequest},
		{"to redrive what is not", c, http.MethodPost, "", url.Values{"action": {"redrive"}, "one": {"1"}, "key": {"x"}, "operation": {"y"}, "letter": {"1"}, "generation": {"1"}}, http.StatusNotFound},
		{"to redrive without what was seen", c, http.MethodPost, "", url.Values{"action": {"redrive"}, "one": {"1"}, "key": {"x"}, "operation": {"y"}}, http.StatusBadRequest},
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
	const changed = "has changed since this page was shown"
	one := id("comp1", "invoice:1")
	redrive := func(t *testing.T, e *durable.Engine) {
		t.Helper()
		record, err := e.Find(t.Context(), one)
		require.NoError(t, err)
		require.NoError(t, e.RedriveOne(t.Context(), record.Seen(), durable.Redrive{By: "bob"}))
	}
	for _, row := range []struct {
		name, form string
		meanwhile  func(t *testing.T, e *durable.Engine)
		state      durable.State
	}{
		{"resolve a letter that was redriven and is unknown again", "resolve", redrive, durable.StateUnknown},
		{"redrive a letter that was redriven and is unknown again", "redrive", redrive, durable.StateUnknown},
		{"resolve a letter that was redriven and died again", "resolve", func(t *testing.T, e *durable.Engine) {
			t.Helper()
			redrive(t, e)
			_, err := e.WorkOne(t.Context(), one)
			require.NoError(t, err)
		}, durable.StateDead},
		{"redrive a letter that was redriven and died again", "redrive", func(t *testing.T, e *durable.Engine) {
			t.Helper()
			redrive(t, e)
			_, err := e.WorkOne(t.Context(), one)
			require.NoError(t, err)
		}, durable.StateDead},
	} {
		t.Run(row.name, func(t *testing.T) {
			e := newEngine()
			dead(t, e, one, "lost")
			c := client{t, &console.Handler{Engine: e, By: ann}}
			values := form(t, c.get(linkTo(one)), row.form)
			values.Set("class", "declined")
			row.meanwhile(t, e)
			before, err := e.Find(t.Context(), one)
			require.NoError(t, err)
			require.Equal(t, row.state, before.State)
			w := c.do(http.MethodPost, "", values)
			assert.Equal(t, http.StatusConflict, w.Code)
			assert.Contains(t, w.Body.String(), changed)
			after, err := e.Find(t.Context(), one)
			require.NoError(t, err)
			assert.Equal(t, before, after, "nothing was changed")
		})
	}
	t.Run("redrive all leaves out letters that are younger than the page", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			e := newEngine()
			dead(t, e, one, "bad")
			c := client{t, &console.Handler{Engine: e, By: ann}}
			link := regexp.MustCompile(`id="redrive-all" href="([^"]*)"`).FindStringSubmatch(c.get(""))
			require.NotNil(t, link)
			values := form(t, c.get(html.UnescapeString(link[1])), "confirm")
			time.Sleep(time.Millisecond)
			dead(t, e, id("comp1", "invoice:2"), "bad")
			c.post(values)
			job, _, err := e.Store.WorkJob(t.Context(), 100)
			require.NoError(t, err)
			assert.Equal(t, 1, job.Redriven)
		})
	})
}
