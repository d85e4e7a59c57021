package resilienthttp_test

import (
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/endpoints"
	"github.com/resilienthttp/resilienthttp/faulttest"
	"github.com/resilienthttp/resilienthttp/internal/bubble"
	"github.com/resilienthttp/resilienthttp/internal/memhttp"
)

// §4.9: the verdict of every status, and its effect, are those of the table of status codes in docs/retries.md.
func TestRetriesPage(t *testing.T) {
	page, err := os.ReadFile("docs/retries.md")
	require.NoError(t, err)
	_, table, found := strings.Cut(string(page), "## Status codes\n")
	require.True(t, found)
	table, _, _ = strings.Cut(table, "\n## ")
	tried := map[int]int{}
	for line := range strings.SplitSeq(table, "\n") {
		cells := strings.Split(line, " | ")
		if len(cells) != 6 || strings.HasPrefix(line, "| status") {
			continue
		}
		asks := map[string][]bool{"–": {false, true}, "no": {false}, "yes": {true}}[cells[1]]
		require.NotEmpty(t, asks, line)
		for _, status := range statusesOf(t, strings.TrimPrefix(cells[0], "| ")) {
			for _, ask := range asks {
				tried[status]++
				tryStatus(t, status, ask, cells[2], cells[3] == "retried", cells[4] == "retried")
			}
		}
	}
	for status := 100; status <= 999; status++ {
		require.Equal(t, 2, tried[status], "%d with and without a wait", status)
	}
}

// statusesOf returns the statuses of a list such as "500, 502–504".
func statusesOf(t *testing.T, cell string) (statuses []int) {
	t.Helper()
	for part := range strings.SplitSeq(cell, ", ") {
		first, last, ranged := strings.Cut(part, "–")
		if !ranged {
			last = first
		}
		from, err := strconv.Atoi(first)
		require.NoError(t, err, cell)
		to, err := strconv.Atoi(last)
		require.NoError(t, err, cell)
		for status := from; status <= to; status++ {
			statuses = append(statuses, status)
		}
	}
	return statuses
}

func tryStatus(t *testing.T, status int, ask bool, verdict string, keyed, unkeyed bool) {
	t.Helper()
	base := puppetStatus(status)
	if ask {
		base = puppetStatus(status, "Retry-After", "0")
	}
	for _, request := range []struct {
		name, method, key string
		retried           bool
	}{{"PUT", http.MethodPut, "", keyed}, {"POST with a key", http.MethodPost, "k", keyed}, {"POST", http.MethodPost, "", unkeyed}} {
		transport := bareTransport(base, 2)
		transport.Idempotency.Disabled = true
		ctx := resilienthttp.WithIdempotencyKey(t.Context(), request.key)
		attempts := tripped(t, transport, newCall(ctx, t, request.method, "body"))
		require.Equal(t, verdict, attempts[0].Verdict.String(), "%d %s, asks to wait: %v", status, request.name, ask)
		require.Equal(t, request.retried, len(attempts) == 2, "%d %s, asks to wait: %v", status, request.name, ask)
		if request.retried {
			require.Equal(t, resilienthttp.ErrMaxAttempts, attempts[1].StopReason, "%d", status)
		}
	}
}

// §4.8: a QUERY, which has a body, is treated as a GET is everywhere: after a 502, on a reused connection that breaks, by hedges,
// by second endpoints. A LOCK, of which nothing is known, is not.
func TestQuery(t *testing.T) {
	const slow = 5 * time.Second
	for _, row := range []struct {
		name    string
		first   http.Handler // of the second request of the call's server: the first one opens a connection
		second  bool         // there is a second endpoint
		changes func(*resilienthttp.Transport)
		took    time.Duration
	}{
		{"a 502", faulttest.Reply{Status: 502}, false, nil, time.Second},
		{"a reused connection breaks", http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }), false, nil, time.Second},
		{"slow: hedged", faulttest.Reply{Delay: slow}, false, func(tr *resilienthttp.Transport) { tr.Hedge = &resilienthttp.Hedge{Delay: 100 * time.Millisecond} }, 100 * time.Millisecond},
		{"a 500: the next endpoint", faulttest.Reply{Status: 500}, true, nil, 0},
	} {
		for method, want := range map[string]bool{"GET": true, "QUERY": true, "PROPFIND": true, "REPORT": true, "SEARCH": true, "LOCK": false} {
			bubble.Run(t, row.name+", "+method, func(t *testing.T) {
				network := memhttp.NewNetwork(t)
				var mu sync.Mutex
				var got []string
				record := func(h http.Handler) http.Handler {
					return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						body, _ := io.ReadAll(r.Body)
						mu.Lock() // a hedge and the attempt before it have handlers of their own
						got = append(got, r.Method+" "+string(body))
						mu.Unlock()
						h.ServeHTTP(w, r)
					})
				}
				ok := faulttest.OK("ok")
				one := network.Serve(t, "one.test", record(inTurn(ok, row.first, ok)))
				network.Serve(t, "two.test", record(ok))
				inner := &resilienthttp.Transport{Base: one.Transport(), Idempotency: resilienthttp.Idempotency{Disabled: true}}
				if row.changes != nil {
					row.changes(inner)
				}
				tr := &endpoints.Transport{Endpoints: []endpoints.Endpoint{{URL: &url.URL{Scheme: "http", Host: "one.test"}}}, Transport: inner}
				if row.second {
					tr.Endpoints = append(tr.Endpoints, endpoints.Endpoint{URL: &url.URL{Scheme: "http", Host: "two.test"}})
				}
				readAll(t, roundTrip(t, tr, newRequest(t, "POST", "http://one.test/", "")))
				began := time.Now()
				resp, err := tr.RoundTrip(newRequest(t, method, "http://one.test/", "q"))
				succeeded := err == nil && resp.StatusCode == http.StatusOK && time.Since(began) <= row.took
				if err == nil {
					readAll(t, resp)
				}
				require.Equal(t, want, succeeded)
				for _, request := range got[1:] {
					require.Equal(t, method+" q", request, "each attempt has the body")
				}
			})
		}
	}
}

// The page says what http.Client does with a redirect of a QUERY. If this fails with a new release of Go, the page is to change.
func TestQuery_redirects(t *testing.T) {
	for status, want := range map[int]string{301: "GET ", 302: "GET ", 307: "QUERY q", 308: "QUERY q"} {
		t.Run(strconv.Itoa(status), func(t *testing.T) {
			got := ""
			server := memhttp.NewServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				if got = r.Method + " " + string(body); r.URL.Path == "/" {
					http.Redirect(w, r, "/moved", status)
				}
			}))
			client := &http.Client{Transport: &resilienthttp.Transport{Base: server.Transport()}}
			resp := do(t, client, newRequest(t, "QUERY", server.URL+"/", "q"))
			readAll(t, resp)
			require.Equal(t, want, got)
		})
	}
}
