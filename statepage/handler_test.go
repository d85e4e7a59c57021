package statepage

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/internal/bubble"
)

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// answering returns a Base that responds with a status and headers in pairs.
func answering(status int, header ...string) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		h := http.Header{}
		for i := 0; i+1 < len(header); i += 2 {
			h.Set(header[i], header[i+1])
		}
		return &http.Response{StatusCode: status, Header: h, Body: http.NoBody, Request: r}, nil
	})
}

// failing returns a Base that fails.
func failing(err error) http.RoundTripper {
	return roundTripper(func(*http.Request) (*http.Response, error) { return nil, err })
}

// called returns a Transport that has called the hosts once, without retries. Its breaker opens at the
// first failure.
func called(tb testing.TB, base http.RoundTripper, hosts ...string) *resilienthttp.Transport {
	tb.Helper()
	tr := &resilienthttp.Transport{
		Base: base, Policy: once, Breaker: &resilienthttp.Breaker{FailureRatio: 0.01, MinRequests: 1, Cooldown: time.Hour},
	}
	for _, host := range hosts {
		call(tb, tr, host)
	}
	return tr
}

func call(tb testing.TB, tr *resilienthttp.Transport, host string) {
	tb.Helper()
	req, err := http.NewRequestWithContext(tb.Context(), http.MethodGet, "http://x/s3cr3t-path?s3cr3t=query", nil)
	require.NoError(tb, err)
	req.URL.Host = host
	req.Header.Set("Authorization", "Bearer s3cr3t")
	if resp, err := tr.RoundTrip(req); err == nil {
		require.NoError(tb, resp.Body.Close())
	}
}

func of(transports ...*resilienthttp.Transport) *Handler {
	h := &Handler{Transports: map[string]*resilienthttp.Transport{}}
	for i, t := range transports {
		h.Transports["client-"+strconv.Itoa(i)] = t
	}
	return h
}

// asked returns the handler's response to a request with headers in pairs.
func asked(h http.Handler, method, target string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, target, nil)
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestT7Methods(t *testing.T) {
	h := of(called(t, answering(200), "api.test"))
	for method, status := range map[string]int{
		http.MethodGet: 200, http.MethodHead: 200, http.MethodPost: 405, http.MethodPut: 405, http.MethodDelete: 405, http.MethodOptions: 405, "GETS": 405,
	} {
		w := asked(h, method, "/")
		require.Equal(t, status, w.Code, method)
		require.Equal(t, securityPolicy, w.Header().Get("Content-Security-Policy"))
		if status == 405 {
			require.Equal(t, "GET, HEAD", w.Header().Get("Allow"))
		}
	}
	head, get := asked(h, http.MethodHead, "/"), asked(h, http.MethodGet, "/")
	require.Zero(t, head.Body.Len())
	require.Equal(t, get.Header(), head.Header())
}

func TestHandler_format(t *testing.T) {
	h := of()
	for _, row := range []struct{ target, accept, want string }{
		{"/", "", "text/html"},
		{"/", "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", "text/html"},
		{"/", "application/json", "application/json"},
		{"/", "Application/JSON; charset=utf-8", "application/json"},
		{"/", "application/json, text/html", "application/json"},
		{"/", "application/json;q=0.5, text/html", "text/html"},
		{"/", "text/html;q=0.1,application/json;level=1;q=0.2", "application/json"},
		{"/", "application/json;q=0", "text/html"},
		{"/", "application/json;q=nonsense", "text/html"},
		{"/", "*/*", "text/html"},
		{"/?format=json", "text/html", "application/json"},
		{"/?format=html", "application/json", "text/html"},
	} {
		kind := asked(h, http.MethodGet, row.target, "Accept", row.accept).Header().Get("Content-Type")
		require.True(t, strings.HasPrefix(kind, row.want), "%+v: %s", row, kind)
	}
}

// T7: the page has no script and no inline style, and the hash in the content security policy is that
// of its style sheet.
func TestT7Policy(t *testing.T) {
	h := of(called(t, answering(503), "<script>alert(1)</script>", `"><img src=x onerror=alert(1)>`, "javascript:alert(1)"))
	h.Title = "</title><script>alert(2)</script>"
	h.Sources = []Source{{"<b>bold</b>", func(context.Context) (any, error) { return map[string]string{"<i>": "<script>alert(3)</script>"}, nil }}}
	w := asked(h, http.MethodGet, "/?scope=%22%3E%3Cscript%3E&refresh=2")
	html := w.Body.String()
	require.NotRegexp(t, `(?i)<script|<img|<b>bold|<i>|style=|\son\w+=|javascript:[^<]*"`, html)
	sheet := regexp.MustCompile(`(?s)<style>(.*?)</style>`).FindStringSubmatch(html)
	require.NotNil(t, sheet)
	sum := sha256.Sum256([]byte(sheet[1]))
	require.Equal(t, "default-src 'none'; style-src 'sha256-"+base64.StdEncoding.EncodeToString(sum[:])+"'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
		w.Header().Get("Content-Security-Policy"))
	html = asked(h, http.MethodGet, "/").Body.String()
	require.NotRegexp(t, `(?i)<script|<img|<b>bold|<i>|style=`, html)
	require.Contains(t, html, "&lt;script&gt;alert(1)&lt;/script&gt;")
}

func TestRefresh(t *testing.T) {
	h := of()
	for value, want := range map[string]string{"2": "2", "3600": "3600", "0": "", "-1": "", "3601": "", "2;url=http://evil.test": "", "": ""} {
		html := asked(h, http.MethodGet, "/?refresh="+value).Body.String()
		if want == "" {
			require.NotContains(t, html, "http-equiv", value)
			require.Contains(t, html, "Refresh every 2 s")
		} else {
			require.Contains(t, html, `<meta http-equiv="refresh" content="`+want+`">`, value)
		}
	}
}

// T7: HTML and JSON have no path, query, header or credential.
func TestT7NoSecrets(t *testing.T) {
	h := of(called(t, answering(429, "Retry-After", "3", "X-Token", "s3cr3t", "X-RateLimit-Limit", "9", "X-RateLimit-Remaining", "0"), "api.test", "other.test"),
		called(t, failing(fmt.Errorf("malformed HTTP response %q", "s3cr3t")), "api.test"))
	h.Sources = []Source{{"store", func(context.Context) (any, error) {
		return nil, fmt.Errorf("state: %w", &url.Error{Op: "Get", URL: "http://user:s3cr3t@db.test/s3cr3t?s3cr3t", Err: io.ErrUnexpectedEOF})
	}}}
	for _, format := range []string{"html", "json"} {
		require.NotContains(t, asked(h, http.MethodGet, "/?format="+format).Body.String(), "s3cr3t")
	}
}

// T7: without scopes, and with 4,096 scopes.
func TestT7Sizes(t *testing.T) {
	t.Run("no transport", func(t *testing.T) {
		require.Equal(t, 200, asked(&Handler{}, http.MethodGet, "/").Code)
		require.JSONEq(t, `[]`, string(fields(t, &Handler{})["transports"]))
		require.Equal(t, 200, asked(&Handler{Transports: map[string]*resilienthttp.Transport{"nil": nil}}, http.MethodGet, "/").Code)
	})
	t.Run("no scope", func(t *testing.T) {
		html := asked(of(&resilienthttp.Transport{}), http.MethodGet, "/").Body.String()
		for _, want := range []string{"No call has failed", "No scope is blocked", "No quota is known", "No call was made yet", "No call has ended"} {
			require.Contains(t, html, want)
		}
	})
	t.Run("4096 scopes", func(t *testing.T) {
		h := of(called(t, answering(503), manyHosts()...))
		html := asked(h, http.MethodGet, "/").Body.String()
		for _, left := range []string{"3,596", "3,996", "3,896"} { // failing, blocked, all
			require.Contains(t, html, left+" more are in the JSON")
		}
		require.Contains(t, html, "<b class=\"bad\">4,096</b>")
		require.Equal(t, maxFailing+maxBlocked+maxScopes+maxSlow, strings.Count(html, `<td class="scope">`))
		p := decoded(t, h, "")
		require.Len(t, p.Transports[0].Scopes, 4096)
		p = decoded(t, h, "host-77.")
		require.Len(t, p.Transports[0].Scopes, 1)
		require.Contains(t, asked(h, http.MethodGet, "/?scope=host-77.").Body.String(), "host-77.")
	})
}

func manyHosts() []string {
	hosts := make([]string, 4096)
	for i := range hosts {
		hosts[i] = "host-" + strconv.Itoa(i) + ".example.com"
	}
	return hosts
}

func fields(tb testing.TB, h *Handler) map[string]json.RawMessage {
	tb.Helper()
	var f map[string]json.RawMessage
	require.NoError(tb, json.Unmarshal(asked(h, http.MethodGet, "/?format=json").Body.Bytes(), &f))
	return f
}

func decoded(tb testing.TB, h *Handler, part string) *page {
	tb.Helper()
	var p page
	w := asked(h, http.MethodGet, "/?format=json&scope="+part)
	require.NoError(tb, json.Unmarshal(w.Body.Bytes(), &p))
	require.Equal(tb, 1, p.Version)
	return &p
}

// T7: each name, sentence and count in the HTML is in the JSON.
func TestT7JSONIsASuperset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := everything(t)
		p := newPage("resilienthttp", h.Transports, nil, "")
		text, err := json.Marshal(p)
		require.NoError(t, err)
		var holds func(v any) map[string]bool
		holds = func(v any) map[string]bool {
			all := map[string]bool{}
			switch v := v.(type) {
			case map[string]any:
				for _, inner := range v {
					maps.Copy(all, holds(inner))
				}
			case []any:
				for _, inner := range v {
					maps.Copy(all, holds(inner))
				}
			case string:
				all[v] = true
				if at, err := time.Parse(time.RFC3339, v); err == nil {
					all[clock(at)] = true
				}
			case float64:
				all[grouped(int64(v))], all[formatSeconds(v)], all[formatRemaining(v)] = true, true, true
			}
			return all
		}
		var tree any
		require.NoError(t, json.Unmarshal(text, &tree))
		known := holds(tree)
		known["–"] = true // a quantile without a sample
		var html strings.Builder
		require.NoError(t, htmlPage.Execute(&html, newPageData(p, 0)))
		require.True(t, known[p.Headline.Text], p.Headline.Text)
		columns := regexp.MustCompile(`data-label="(State|Last minute|Last 5 min|Until|Explanation|Took|Began|Quota|Remaining|Queued|Health|Circuit|Failed calls|In flight|Before a retry|p50|p95|p99|Responses)"[^>]*>(.*?)</td>`)
		cells := columns.FindAllStringSubmatch(html.String(), -1)
		require.Greater(t, len(cells), 20)
		computed := regexp.MustCompile(`%$|^in |^fails since |^no limit$|^(rejecting|waiting|4xx|5xx)$`) // from the page's time, or of the state
		for _, cell := range cells {
			for _, text := range strings.FieldsFunc(tags.ReplaceAllString(cell[2], "|"), func(r rune) bool { return r == '|' }) {
				for _, word := range regexp.MustCompile(` of | × |, `).Split(strings.TrimSpace(text), -1) {
					require.True(t, word == "" || known[text] || known[word] || computed.MatchString(word), "%q of %s is in the JSON", word, cell[1])
				}
			}
		}
	})
}

var tags = regexp.MustCompile(`<[^>]*>`)

// everything returns a Handler of a Transport with an open circuit, and of one with an
// exhausted quota and a call that waited for it. It must be called in a bubble.
func everything(t *testing.T) *Handler {
	t.Helper()
	n := 0
	down := called(t, answering(503), "down.test")
	busy := called(t, roundTripper(func(r *http.Request) (*http.Response, error) {
		time.Sleep(20 * time.Millisecond)
		n++
		left := max(2-n, 0)
		return answering(200, "X-RateLimit-Limit-Requests", "2", "X-RateLimit-Remaining-Requests", strconv.Itoa(left),
			"X-RateLimit-Reset-Requests", "10s").RoundTrip(r)
	}), "bank.test", "bank.test", "bank.test")
	return of(down, busy)
}

// The page shows what fails, what is blocked until when and why, the remaining quotas, and why a call
// took ten seconds.
func TestPage_answers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := everything(t)
		text := shown(asked(h, http.MethodGet, "/").Body.String())
		const at = `\d\d:\d\d:\d\d\.\d`
		require.Regexp(t, `down\.test fails: 1 of 1 call in the last minute failed, no success since `+at+` \(10 s ago\)\. Last failure 10 s ago: status 503\. `+
			`Calls are rejected until `+at+` \(in \d+(\.\d+)? min\), then a probe is sent\. 1 of 2 scopes fails 25 % of 4 calls in the last minute failed`, text)
		require.Regexp(t, `What fails .* down\.test client-0 failing 100 % 1 of 1 100 % 1 of 1 1 × 5xx status 503 at `+at+` `+at+` .* ago Calls are rejected until `+at, text)
		require.Regexp(t, `down\.test client-0 rejecting `+at+` in .* The circuit is open since 00:00:00\.0, after 1 of 1 attempt failed; 0 probes failed since\. Last failure: status 503\.`, text)
		require.Regexp(t, `bank\.test client-1 (9|10)(\.\d+)? s It waited (9|10)(\.\d+)? s in the queue, 20 ms for the server\. status 200`, text)
		require.Regexp(t, `bank\.test client-1 requests 0 of 2 \d\d:\d\d:\d\d\.\d in`, text)
	})
}

// rendered returns the text of the page of d.
func rendered(t *testing.T, d *pageData) string {
	t.Helper()
	var html strings.Builder
	require.NoError(t, htmlPage.Execute(&html, d))
	return shown(html.String())
}

// shown returns the text of a page.
func shown(html string) string {
	html = regexp.MustCompile(`(?s)<style>.*?</style>|<[^>]*>`).ReplaceAllString(html, " ")
	return strings.Join(strings.Fields(html), " ")
}

// T9: a scope at which all calls fail is never shown as healthy, for any state of its circuit and any
// rate of calls. The worst scope comes first.
func TestPage_whatFails(t *testing.T) {
	for _, row := range []struct {
		name  string
		base  http.RoundTripper
		every time.Duration
		calls int
		pause time.Duration // before the page is read
		want  health
		kinds string
		last  string
	}{
		{"503 at one call per 10 s: failing", answering(503), 10 * time.Second, 20, 0, healthFailing, "20 × 5xx", "status 503"},
		{"401 at one call per 10 s: failing", answering(401), 10 * time.Second, 20, 0, healthFailing, "20 × 4xx", "status 401"},
		{"404 at 10,000 per second: failing", answering(404), 100 * time.Microsecond, 3000, 0, healthFailing, "3,000 × 4xx", "status 404"},
		{"500 at 100 per second: failing", answering(500), 10 * time.Millisecond, 3000, 0, healthFailing, "", "status 500"},
		{"no connection: failing", failing(io.EOF), 10 * time.Second, 3, 0, healthFailing, "3 × network", "eof (EOF)"},
		{"timeouts: failing", failing(context.DeadlineExceeded), 10 * time.Second, 3, 0, healthFailing, "3 × timeout", "timeout (context deadline exceeded)"},
		{"a circuit that waits for its probe: failing", answering(503), time.Millisecond, 100, 10 * time.Minute, healthFailing, "", "status 503"},
		{"the last call of an hour ago failed: degraded", answering(503), time.Second, 3, time.Hour, healthDegraded, "", "status 503"},
		{"successes: ok", answering(200), time.Second, 100, 0, healthOK, "", ""},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			tr := &resilienthttp.Transport{Base: row.base, Policy: once}
			for range row.calls {
				call(t, tr, "api.test")
				time.Sleep(row.every)
			}
			time.Sleep(row.pause)
			p := newPage("", map[string]*resilienthttp.Transport{"api": tr}, nil, "")
			require.Equal(t, row.want, p.Transports[0].Scopes[0].Health)
			d := newPageData(p, 0)
			require.Equal(t, row.want.Class(), d.Scopes.Rows[0].Health.Class())
			require.Equal(t, row.want.Class(), d.Stats[0].Class)
			require.Equal(t, row.want.Class(), d.Headline.Class)
			if row.want == healthOK {
				require.Empty(t, d.Failing.Rows)
				return
			}
			require.Equal(t, "1", d.Stats[0].Figure)
			f := d.Failing.Rows[0]
			require.Equal(t, row.want, f.Health)
			require.Contains(t, rendered(t, d), " "+row.last+" at ")
			require.NotZero(t, f.Responses.Since)
			if row.kinds != "" {
				require.Equal(t, row.kinds, f.Responses.Kinds())
			}
		})
	}
	t.Run("an invalid configuration: the page names it", func(t *testing.T) {
		tr := &resilienthttp.Transport{Policy: resilienthttp.Policy{AttemptTimeout: 60}}
		h := &Handler{Transports: map[string]*resilienthttp.Transport{"bank": tr}}
		require.Contains(t, shown(asked(h, http.MethodGet, "/").Body.String()), "Each call of bank fails: ")
		require.Contains(t, decoded(t, h, "").Transports[0].Error, "AttemptTimeout")
	})
	t.Run("the worst scope first", func(t *testing.T) {
		n := map[string]int{}
		tr := &resilienthttp.Transport{Policy: once, Breaker: &resilienthttp.Breaker{FailureRatio: -1}, Base: roundTripper(func(r *http.Request) (*http.Response, error) {
			n[r.URL.Host]++
			every := map[string]int{"all.test": 1, "half.test": 2, "tenth.test": 10, "rare.test": 200, "none.test": 1000, "absent.test": 2}[r.URL.Host]
			if status := map[bool]int{true: 404, false: 503}[r.URL.Host == "absent.test"]; n[r.URL.Host]%every == 0 {
				return answering(status).RoundTrip(r)
			}
			return answering(200).RoundTrip(r)
		})}
		for range 200 {
			for _, host := range []string{"none.test", "rare.test", "tenth.test", "half.test", "absent.test", "all.test"} {
				call(t, tr, host)
			}
		}
		d := newPageData(newPage("", map[string]*resilienthttp.Transport{"api": tr}, nil, ""), 0)
		var rows []string
		for _, r := range d.Failing.Rows {
			rows = append(rows, r.Scope+" "+string(r.Health)+" "+percentOf(r.Responses.Failures, r.Responses.Calls))
		}
		require.Equal(t, []string{"all.test failing 100 %", "half.test degraded 50 %", "tenth.test degraded 10 %", "rare.test degraded 0.5 %"}, rows)
		require.Equal(t, "all.test", d.Scopes.Rows[0].Scope)
		require.Len(t, d.Scopes.Rows, 6)
		require.Contains(t, d.Headline.Text, "all.test fails: all 200 calls since ")
		require.Contains(t, d.Headline.Text, " 3 more scopes are degraded.")
		require.Equal(t, stat{"1", "of 6 scopes fails; 3 are degraded", "bad"}, d.Stats[0])
	})
}

// In a bubble no source is too slow.
func TestSources(t *testing.T) { synctest.Test(t, testSources) }

func testSources(t *testing.T) {
	type gate struct {
		Limit   int            `json:"limit"`
		Refused map[string]int `json:"refused"`
		Names   []string       `json:"names"`
		Nothing *int           `json:"nothing"`
	}
	h := &Handler{Sources: []Source{
		{"gate", func(context.Context) (any, error) {
			return gate{48, map[string]int{"batch": 812}, []string{"a", "b"}, nil}, nil
		}},
		{"broken", func(context.Context) (any, error) { return nil, fmt.Errorf("https://a.test/s3cret: %w", io.EOF) }},
		{"panicky", func(context.Context) (any, error) { panic("s3cret") }},
		{"odd", func(context.Context) (any, error) { return make(chan int), nil }},
		{"none", nil},
	}}
	text := shown(asked(h, http.MethodGet, "/").Body.String())
	for _, want := range []string{
		"gate limit 48 refused › batch 812 names › 1 a names › 2 b nothing –", "broken EOF", "panicky panicked", "none State is nil",
	} {
		require.Contains(t, text, want)
	}
	p := decoded(t, h, "")
	require.JSONEq(t, `{"limit":48,"refused":{"batch":812},"names":["a","b"],"nothing":null}`, string(p.Sources[0].State))
	require.Equal(t, "EOF", p.Sources[1].Error)
	require.Equal(t, "*json.UnsupportedTypeError (not shown)", p.Sources[3].Error)
}

// A source may be called again as soon as it has returned.
func TestSource_calledAgainAtOnce(t *testing.T) {
	var asking sync.WaitGroup
	for range 8 {
		asking.Go(func() {
			sources := []*source{{Source: Source{"gate", func(context.Context) (any, error) { return 1, nil }}}}
			for range 2000 {
				text := askAll(t.Context(), sources)[0].Error
				if text == "no answer within a second" { // the machine was suspended for a second
					for sources[0].busy.Load() {
						runtime.Gosched()
					}
				} else if !assert.Empty(t, text) {
					return
				}
			}
		})
	}
	asking.Wait()
}

// A source that hangs does not delay the page, and is not called again before it returns.
func TestSource_hangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		var asks atomic.Int64
		h := &Handler{Sources: []Source{{"slow", func(context.Context) (any, error) { asks.Add(1); <-release; return 1, nil }}, {"quick", func(context.Context) (any, error) { return 2, nil }}}}
		begun := time.Now()
		p := decoded(t, h, "")
		require.Equal(t, sourceTimeout, time.Since(begun))
		require.Equal(t, "no answer within a second", p.Sources[0].Error)
		require.Equal(t, "2", string(p.Sources[1].State))
		p = decoded(t, h, "")
		require.Contains(t, p.Sources[0].Error, "previous call has not returned")
		require.EqualValues(t, 1, asks.Load())
		close(release)
		synctest.Wait()
		require.Equal(t, "1", string(decoded(t, h, "").Sources[0].State))
	})
}

func TestEntriesAreBounded(t *testing.T) {
	many := make([]int, 500)
	text, err := json.Marshal(many)
	require.NoError(t, err)
	all := (&sourceView{shown: text}).Entries()
	require.Len(t, all.Rows, maxEntries)
	require.Equal(t, 500-maxEntries, all.Left)
}

func TestFormat_secondsAndNumbers(t *testing.T) {
	for seconds, want := range map[float64]string{
		0: "0 s", -3: "0 s", 6.5e-5: "65 µs", 0.02: "20 ms", 0.9994: "999 ms", 0.9996: "1 s", 1: "1 s", 10.04: "10 s", 10.06: "10.1 s", 3.061: "3.06 s", 119: "119 s",
		120: "2 min", 3600: "60 min", 7200: "2 h", 86400 * 3: "3 d", 0.0005: "500 µs", 100: "100 s", 60: "60 s",
	} {
		require.Equal(t, want, formatSeconds(seconds), seconds)
	}
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", -1234567: "-1,234,567", 100: "100", -100: "-100"} {
		require.Equal(t, want, grouped(n))
	}
}

// Requests for the page during calls.
func TestHandler_concurrentWithCalls(t *testing.T) {
	tr := called(t, answering(200))
	h := of(tr)
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range 100 {
				call(t, tr, strconv.Itoa((g+i)%9)+".test")
			}
		})
		wg.Go(func() {
			for range 20 {
				_, _ = io.Copy(io.Discard, asked(h, http.MethodGet, "/").Body)
			}
		})
	}
	wg.Wait()
	require.Len(t, decoded(t, h, "").Transports[0].Scopes, 9)
}

// T7: a page with 4,096 scopes takes at most 50 ms.
func BenchmarkT7Page(b *testing.B) {
	h := of(called(b, answering(503, "X-RateLimit-Limit", "100", "X-RateLimit-Remaining", "7", "X-RateLimit-Reset", "3600"), manyHosts()...))
	for _, format := range []string{"html", "json"} {
		b.Run(format, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				asked(h, http.MethodGet, "/?format="+format)
			}
		})
	}
}

// T16: in each second of a total outage of a host that was healthy, the headline is not green and the
// page says since when, from the first failed attempt on.
func TestPage_outage(t *testing.T) {
	const began, ended = 10 * time.Minute, 12 * time.Minute
	for name, fails := range map[string]http.RoundTripper{
		"connection refused": failing(syscall.ECONNREFUSED),
		"503":                answering(503),
		"429":                answering(429, "Retry-After", "1"),
		"403":                answering(403),
	} {
		for _, every := range []time.Duration{100 * time.Millisecond, 4 * time.Second} {
			bubble.Run(t, fmt.Sprintf("%s, one call in %v: never green", name, every), func(t *testing.T) {
				start := time.Now()
				h := of(staged(t, resilienthttp.Policy{}, every, during(began, ended, fails, answering(200))))
				time.Sleep(began - time.Second)
				require.Equal(t, "good", decoded(t, h, "").Headline.Class)
				time.Sleep(time.Second + every)
				for time.Since(start) < ended {
					p := decoded(t, h, "")
					d := newPageData(p, 0)
					at := time.Since(start) - began
					for class, where := range map[string]string{p.Headline.Class: "headline", d.Stats[0].Class: "first tile"} {
						require.Contains(t, []string{"warn", "bad"}, class, "%s after %v: %s", where, at, p.Headline.Text)
					}
					require.Regexp(t, `since \d\d:`, p.Headline.Text, at)
					require.NotZero(t, d.Failing.Rows[0].Responses.Since, at)
					if at > 75*time.Second {
						require.Equal(t, "bad", p.Headline.Class, at)
					}
					time.Sleep(time.Second)
				}
				time.Sleep(7 * time.Minute)
				require.Equal(t, "good", decoded(t, h, "").Headline.Class, "five minutes without a failure")
			})
		}
	}
}

// T16: if most calls of ten scopes fail in part, no tile about them is green.
func TestPage_partialFailure(t *testing.T) {
	for _, row := range []struct {
		name            string
		succeeds        int // one of so many calls
		headline, calls string
	}{
		{"86 % fail: bad", 7, "bad", "bad"},
		{"1 % fails: warn", -100, "warn", "warn"},
	} {
		t.Run(row.name, func(t *testing.T) {
			n := 0
			tr := &resilienthttp.Transport{
				Policy: once, Breaker: &resilienthttp.Breaker{FailureRatio: -1},
				Base: roundTripper(func(r *http.Request) (*http.Response, error) {
					n++
					if (n/10%row.succeeds == 0) == (row.succeeds > 0) {
						return answering(200).RoundTrip(r)
					}
					return answering(500).RoundTrip(r)
				}),
			}
			for range 100 {
				for i := range 10 {
					call(t, tr, strconv.Itoa(i)+".test")
				}
			}
			p := decoded(t, of(tr), "")
			d := newPageData(p, 0)
			require.Equal(t, row.headline, p.Headline.Class)
			require.Equal(t, []string{"10", row.headline, row.calls}, []string{d.Stats[0].Figure, d.Stats[0].Class, d.Stats[1].Class})
			require.Len(t, d.Failing.Rows, 10)
		})
	}
}

// T16: if another process has exhausted the quota, the headline says that calls wait, and until when.
func TestPage_quotaExhausted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := called(t, answering(200, "X-RateLimit-Limit-Requests", "100", "X-RateLimit-Remaining-Requests", "0", "X-RateLimit-Reset-Requests", "30s"), "bank.test")
		h := decoded(t, of(tr), "").Headline
		require.Equal(t, "warn", h.Class)
		require.Regexp(t, `^Calls to bank\.test wait\. The quota “requests” is exhausted: 0 of 100 remain\. Calls wait until \d\d:\d\d:30\.0 \(in 30 s\)\.$`, h.Text)
	})
}

// Two Transports call one host, and only one of them fails: the headline names it. When no call comes any more, it says so,
// because it is unknown whether the next one would fail.
func TestPage_namesTransportAndLastCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := called(t, answering(503), "bank.test")
		h := &Handler{Transports: map[string]*resilienthttp.Transport{"payouts": broken, "reports": called(t, answering(200), "bank.test")}}
		failing := decoded(t, h, "").Headline.Text
		require.Contains(t, failing, "bank.test (Transport payouts) fails")
		require.NotContains(t, failing, "no call since")
		require.NotContains(t, decoded(t, of(broken), "").Headline.Text, "Transport payouts", "one needs no name")

		time.Sleep(10 * time.Minute)
		require.Regexp(t, `no success since \d\d:\d\d:\d\d\.\d \(10 min ago\), and no call since \d\d:\d\d:\d\d\.\d \(10 min ago\)`, decoded(t, h, "").Headline.Text)
		require.Contains(t, asked(h, http.MethodGet, "/").Body.String(), "no call in 5 min")
	})
}

// stage is a Base that gets the time since a start.
type stage func(at time.Duration, r *http.Request) (*http.Response, error)

// during is bad from the one time to the other, and otherwise good.
func during(from, to time.Duration, bad, good http.RoundTripper) stage {
	return func(at time.Duration, r *http.Request) (*http.Response, error) {
		if at >= from && at < to {
			return bad.RoundTrip(r)
		}
		return good.RoundTrip(r)
	}
}

const forever = time.Duration(math.MaxInt64)

// once is a Policy without retries.
var once = resilienthttp.Policy{MaxAttempts: -1}

// staged is a Transport that calls api.test at a pace, from the start of a synctest bubble on.
func staged(t *testing.T, policy resilienthttp.Policy, every time.Duration, base stage) *resilienthttp.Transport {
	t.Helper()
	start := time.Now()
	tr := &resilienthttp.Transport{
		Policy: policy,
		Base:   roundTripper(func(r *http.Request) (*http.Response, error) { return base(time.Since(start), r) }),
	}
	ctx, stop := context.WithCancel(t.Context())
	var calls sync.WaitGroup
	t.Cleanup(func() { stop(); calls.Wait() })
	calls.Go(func() {
		for ; ctx.Err() == nil; time.Sleep(every) {
			calls.Go(func() { call(t, tr, "api.test") })
		}
	})
	return tr
}

// The first screen names the cause of an incident that begins after five healthy minutes, and is green
// before it.
func TestPage_incidents(t *testing.T) {
	const onset = 5 * time.Minute
	fine := answering(200)
	slow := func(d time.Duration) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			select {
			case <-time.After(d):
				return fine.RoundTrip(r)
			case <-r.Context().Done():
				return nil, r.Context().Err()
			}
		})
	}
	for _, row := range []struct {
		name  string
		base  stage         // since the onset; negative before it
		after time.Duration // the page is read so long after the onset
		class string
		text  string // a regular expression
	}{
		{"host down: all calls since the first", during(0, forever, failing(syscall.ECONNREFUSED), fine), 10 * time.Second, "bad", `^api\.test fails: all 8\d calls since 00:05:00\.0 \(10 s ago\) failed\. Last failure .*: connection_refused \(connection refused\)\. Calls wait for it: 1\d\. Nothing is sent until 00:05:1`},
		{"400 only: red, though no retry follows", during(0, forever, answering(400), fine), 5 * time.Second, "bad", `^api\.test fails: all 5[01] calls since 00:05:00\.0 \(5 s ago\) failed\. Last failure .*: status 400\.`},
		{"timeouts: since the first call that failed began", during(0, forever, roundTripper(func(*http.Request) (*http.Response, error) {
			time.Sleep(4 * time.Second)
			return nil, context.DeadlineExceeded
		}), fine), 10 * time.Second, "bad", `since 00:05:00\.0 \(10 s ago\) failed\. Last failure .*: timeout`},
		{"2.1 s instead of 40 ms: slow", during(0, forever, slow(2100*time.Millisecond), slow(40*time.Millisecond)), 40 * time.Second, "warn", `^api\.test is slow: half of the responses of the last minute took 2\.1 s or more, usually 4\d(\.\d)? ms\.$`},
		{"no response for 20 s: slow, by what is in flight", during(0, forever, slow(20*time.Second), slow(40*time.Millisecond)), 15 * time.Second, "warn", `^api\.test is slow: 1[45]\d attempts wait for a response, on average for 7\.\d* s so far, usually 40 ms\.$`},
		{"the circuit opens and closes: it flaps", func(bad time.Duration, r *http.Request) (*http.Response, error) {
			if bad >= 0 && bad%(8*time.Second) < 5*time.Second {
				return answering(503).RoundTrip(r)
			}
			return answering(200).RoundTrip(r)
		}, 44 * time.Second, "bad", `The circuit flaps: it has opened [56] times in the last 5 min\. Last failure .*: status 503\.`},
		{"another process uses the quota: the page says so", func(bad time.Duration, r *http.Request) (*http.Response, error) {
			at := bad + onset
			remaining := 300 - int(at%(30*time.Second)/(200*time.Millisecond)) - 1
			if bad >= 0 {
				remaining = 0
			}
			status := map[bool]int{true: 200, false: 429}[remaining > 0]
			return answering(status, "X-RateLimit-Limit", "300", "X-RateLimit-Remaining", strconv.Itoa(remaining),
				"X-RateLimit-Reset", strconv.Itoa(30-int(at%(30*time.Second)/time.Second))).RoundTrip(r)
		}, 5 * time.Second, "warn", `Last failure .*: status 429\. The quota is exhausted: 0 of 300 remain\. Other processes used 29\d of it, or more\. .*Calls wait until 00:05:\d\d\.\d \(in .*\)\.$`},
		{"calls that cannot wait for the quota: the page counts them", during(0, forever,
			answering(429, "X-RateLimit-Limit", "300", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "1000"), fine), 5 * time.Second, "bad", `The quota is exhausted: 0 of 300 remain\. .*Calls wait until .*\. Rejected in the last 5 min: \d+ calls?\.$`},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			h := of(staged(t, once, 100*time.Millisecond, func(at time.Duration, r *http.Request) (*http.Response, error) { return row.base(at-onset, r) }))
			for range 59 {
				time.Sleep(5 * time.Second)
				p := decoded(t, h, "")
				require.Equal(t, "good", p.Headline.Class, p.Headline.Text)
			}
			time.Sleep(5*time.Second + row.after)
			p := decoded(t, h, "")
			require.Equal(t, row.class, p.Headline.Class, p.Headline.Text)
			require.Regexp(t, row.text, p.Headline.Text)
			d := newPageData(p, 0)
			require.Equal(t, row.class, d.Stats[0].Class)
			require.NotEmpty(t, d.Failing.Rows)
		})
	}
}

// After the end of an outage the page is not red for a minute more: it says when the last failure was.
func TestPage_recovery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := of(staged(t, once, 100*time.Millisecond, during(5*time.Minute, 6*time.Minute, answering(500), answering(200))))
		time.Sleep(6*time.Minute + 30*time.Second)
		got := decoded(t, h, "").Headline
		require.Equal(t, "warn", got.Class)
		require.Regexp(t, `^api\.test has recovered: \d+ of \d+ calls in the last minute failed, the last one succeeded\. Last failure \d+(\.\d+)? s ago: status 500\.`, got.Text)
		time.Sleep(6 * time.Minute)
		require.Equal(t, "good", decoded(t, h, "").Headline.Class)
	})
}

// A half-open circuit blocks: only probes pass.
func TestPage_halfOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := called(t, answering(503), "down.test")
		time.Sleep(2 * time.Hour)
		p := decoded(t, of(tr), "")
		d := newPageData(p, 0)
		require.Equal(t, stat{"1", "scope is blocked", "warn"}, d.Stats[2])
		require.Contains(t, rendered(t, d), "down.test client-0 probing ")
	})
}

// T16: a failure of which the status says nothing has the verdict of its event, and a 429 the policies that it names.
func TestPage_failureText(t *testing.T) {
	for want, f := range map[string]resilienthttp.FailureStatus{
		"status 503":                           {Status: 503, ErrorType: "503"},
		"status 200 (throttled)":               {Status: 200, ErrorType: "throttled"},
		"status 429 (violated: daily, hourly)": {Status: 429, ErrorType: "429", Policies: []string{"daily", "hourly"}},
		"timeout (too late)":                   {ErrorType: "timeout", Err: "too late"},
	} {
		f.At = time.Now()
		v := newFailureView(&f)
		require.Equal(t, want, endedWith(v.Status, v.ErrorType, v.Error))
		require.Equal(t, ", the last one: "+want, lastFailure(&f))
	}
}

// The page says since when a circuit is open, for which failures, and how many probes have failed since.
func TestPage_openCircuit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const onset = 5 * time.Minute
		refused := 0
		tr := staged(t, once, 100*time.Millisecond, during(onset, forever, roundTripper(func(*http.Request) (*http.Response, error) {
			refused++
			return nil, syscall.ECONNREFUSED
		}), answering(200)))
		time.Sleep(onset + time.Minute + 10*time.Millisecond)
		synctest.Wait()
		p := decoded(t, of(tr), "")
		b, reason := &p.Transports[0].Scopes[0].Breaker, p.Transports[0].Scopes[0].Blocked.Reason
		require.Equal(t, refused, b.Failures+b.FailedProbes)
		require.Greater(t, b.FailedProbes, 30)
		require.Contains(t, reason, fmt.Sprintf("%s, after %d of %d attempts failed; %d probes failed since. Last failure: connection_refused (connection refused).",
			clock(b.Opened), b.Failures, b.Calls, b.FailedProbes))
		require.Regexp(t, `^The circuit is (open since|half-open: the next calls are probes\. It opened at) 00:05:00\.\d, after`, reason)
	})
}

// T16: responses 4xx are failures in each figure and in the picture if the headline counts them.
func TestPage_answersOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := staged(t, once, time.Second, during(5*time.Minute, forever, answering(404), answering(200)))
		time.Sleep(5*time.Minute + 15*time.Second + time.Millisecond)
		p := decoded(t, of(tr), "")
		require.Equal(t, []any{"good", 0, 0}, []any{p.Headline.Class, p.Transports[0].Scopes[0].Responses.Failures, slices.Max(p.Transports[0].Scopes[0].History.Failures)}, "16 of them are answers")
		time.Sleep(14 * time.Second)
		p = decoded(t, of(tr), "")
		d := newPageData(p, 0)
		require.Contains(t, p.Headline.Text, "api.test fails: all 30 calls since 00:05:00.0 ")
		f := d.Failing.Rows[0]
		require.Equal(t, "30 × 4xx", f.Responses.Kinds())
		require.Equal(t, []int{30, 30}, []int{f.Responses.Failures, f.LastMinute.Failures})
		require.NotEqual(t, "0 %", d.Stats[1].Figure)
		failures := p.Transports[0].Scopes[0].History.Failures
		require.Equal(t, []int{19, 11}, failures[len(failures)-2:], "of 18.75 s")
		require.Zero(t, failures[len(failures)-3])
		require.NotEmpty(t, newPicture([]ownedScope{f}, p.At).Failures)
	})
}

// The picture of the last 5 min has a bar for each part, and its rates are those of the calls.
func TestPage_history(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := of(called(t, answering(200)))
		require.NotContains(t, asked(h, http.MethodGet, "/").Body.String(), `<svg class="history"`, "no call has ended")
		tr := staged(t, once, 100*time.Millisecond, func(at time.Duration, r *http.Request) (*http.Response, error) {
			if at >= 6*time.Minute && at < 6*time.Minute+75*time.Second/2 && at%time.Second == 0 {
				return answering(500).RoundTrip(r)
			}
			return answering(200).RoundTrip(r)
		})
		h = of(tr)
		time.Sleep(7*time.Minute + 10*time.Millisecond)
		p := decoded(t, h, "")
		history := p.Transports[0].Scopes[0].History
		calls, failed := 0, 0
		for i := range history.Calls {
			calls, failed = calls+history.Calls[i], failed+history.Failures[i]
		}
		require.Equal(t, []int{p.Transports[0].Scopes[0].Responses.Calls, 38}, []int{calls, failed})
		require.Equal(t, []int{16, 16}, []int{len(history.Calls), len(history.Failures)})
		require.InDelta(t, 187.5, history.Calls[3], 1)
		require.Equal(t, time.Date(2000, 1, 1, 0, 6, 52, 500_000_000, time.UTC), history.At.UTC(), "22 steps")
		d := newPageData(p, 0)
		require.Equal(t, "At most 10 calls per second, failed: 1", d.History.Label)
		require.Equal(t, 16, strings.Count(d.History.Calls, "M"))
		require.Equal(t, 3, strings.Count(d.History.Failures, "M"))
		require.Regexp(t, `M93\.75 100v-(99|100)`, d.History.Calls, "the last step is not over")
		require.Contains(t, d.History.Failures, "M81.25 100v-10", "the picture is as wide as 5 min, and as high as the highest rate")
		html := asked(h, http.MethodGet, "/").Body.String()
		require.Contains(t, html, `<path class="failed" d="`+d.History.Failures+`"/>`)
		require.Equal(t, 2, strings.Count(html, `<svg class="history"`), "of all scopes, and of the degraded one")
	})
}
