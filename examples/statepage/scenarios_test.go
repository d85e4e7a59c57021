package statepage_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/examples/internal/chromium"
	"github.com/resilienthttp/resilienthttp/statepage"
)

// provider is a Base that answers by the number of the call.
type provider func(n int, r *http.Request) (*http.Response, error)

func status(r *http.Request, code int, header ...string) *http.Response {
	h := http.Header{}
	for i := 0; i+1 < len(header); i += 2 {
		h.Set(header[i], header[i+1])
	}
	return &http.Response{StatusCode: code, Header: h, Body: http.NoBody, Request: r}
}

// calling returns a Transport that has called each host so often, without retries.
func calling(t *testing.T, answer provider, times int, hosts ...string) *resilienthttp.Transport {
	t.Helper()
	n := 0
	transport := &resilienthttp.Transport{
		Policy:  resilienthttp.Policy{MaxAttempts: -1},
		Breaker: &resilienthttp.Breaker{FailureRatio: 0.5, Cooldown: time.Hour, MaxWait: -1},
		Base: roundTripper(func(r *http.Request) (*http.Response, error) {
			n++
			return answer(n, r)
		}),
	}
	for range times {
		for _, host := range hosts {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+host, http.NoBody)
			require.NoError(t, err)
			if resp, err := transport.RoundTrip(req); err == nil {
				require.NoError(t, resp.Body.Close())
			}
		}
	}
	return transport
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// T16: the page in a healthy minute, a total outage, a partial failure, with more scopes than it
// shows, and with a long quota name: legible at each width, and its headline has the right color.
func TestStatePageInChromium_scenarios(t *testing.T) {
	healthy := func(_ int, r *http.Request) (*http.Response, error) { return status(r, http.StatusOK), nil }
	refused := func(_ int, r *http.Request) (*http.Response, error) {
		if r.URL.Host == "bank.example" {
			return nil, fmt.Errorf("dial tcp 192.0.2.7:443: %w", syscall.ECONNREFUSED)
		}
		return status(r, http.StatusOK), nil
	}
	partial := func(n int, r *http.Request) (*http.Response, error) {
		if r.URL.Host == "mail.example" && n%8 == 0 {
			return status(r, http.StatusBadGateway), nil
		}
		return status(r, http.StatusOK), nil
	}
	long := func(n int, r *http.Request) (*http.Response, error) {
		return status(r, http.StatusOK, "RateLimit-Policy", `"`+strings.Repeat("requestsperminute", 18)+`";q=400;w=60`,
			"RateLimit", `"`+strings.Repeat("requestsperminute", 18)+`";r=`+strconv.Itoa(64-n)+`;t=55`), nil
	}
	down := func(_ int, r *http.Request) (*http.Response, error) {
		return status(r, http.StatusServiceUnavailable), nil
	}

	hosts := []string{"bank.example", "mail.example", "search.example"}
	serve := func(transports map[string]*resilienthttp.Transport) string {
		server := httptest.NewServer(&statepage.Handler{Title: "payments", Transports: transports})
		t.Cleanup(server.Close)
		return server.URL
	}
	clients := func(transport *resilienthttp.Transport) map[string]*resilienthttp.Transport {
		return map[string]*resilienthttp.Transport{"bank": transport}
	}
	pages := map[string]string{}
	pages["healthy"] = serve(clients(calling(t, healthy, 200, hosts...)))
	pages["outage"] = serve(clients(calling(t, func(n int, r *http.Request) (*http.Response, error) {
		if n > 300 {
			return refused(n, r)
		}
		return healthy(n, r)
	}, 300, hosts...)))
	pages["partial"] = serve(clients(calling(t, partial, 200, hosts...)))
	pages["quota"] = serve(clients(calling(t, long, 20, hosts...)))
	many := map[string]*resilienthttp.Transport{}
	for i := range 4 {
		var all []string
		for j := range 4096 {
			all = append(all, fmt.Sprintf("host-%d-%d.example", i, j))
		}
		many["client-"+strconv.Itoa(i)] = calling(t, down, 1, all...)
	}
	crowd := serve(many)

	ctx := chromium.Open(t)
	complaints := chromium.Complaints(ctx)
	for _, row := range []struct{ name, address, class, text string }{
		{"a healthy minute: green", pages["healthy"], "good", "No call has failed in the last 5 min."},
		{"a total outage of one host: red, with since, cause and action", pages["outage"], "bad", ": connection_refused (connection refused). "},
		{"a partial failure: not green", pages["partial"], "warn", "mail.example is degraded"},
		{"a long quota name: green", pages["quota"], "good", "No call has failed in the last 5 min."},
		{"16,384 scopes: the count", crowd, "bad", "16,383 more scopes fail."},
	} {
		t.Run(row.name, func(t *testing.T) {
			require.NoError(t, chromedp.Do(ctx, chromedp.Navigate(row.address), chromedp.WaitVisible("#scopes")))
			require.Equal(t, row.class, chromium.Value[string](ctx, t, `document.querySelector("#headline").className`))
			require.Contains(t, chromium.Value[string](ctx, t, `document.querySelector("#headline").textContent`), row.text)
			require.Equal(t, row.class, chromium.Value[string](ctx, t, `document.querySelector(".stats b").className`))
		})
	}
	require.Equal(t, 500, chromium.Value[int](ctx, t, `document.querySelectorAll("#failing tbody tr").length`), "the worst 500")
	require.Contains(t, chromium.Value[string](ctx, t, `document.querySelector("#failing").textContent`), "15,884 more are in the JSON")

	// The usual latencies appear after some time. They must not make the page wider than the screen.
	resp, err := http.Get(pages["outage"])
	require.NoError(t, err)
	page, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	percentile := regexp.MustCompile(`(data-label="p(?:50|99)"><span>[^<]*)`)
	require.Len(t, percentile.FindAll(page, -1), 2*len(hosts))
	usual := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = w.Write(percentile.ReplaceAll(page, []byte("$1<small>usually 123.4 ms</small>")))
	}))
	t.Cleanup(usual.Close)
	pages["usual"] = usual.URL

	widths := map[int64]string{1280: "wide", 1100: "tablet", 1060: "small", 800: "half", 360: "narrow"}
	chromium.Legible(ctx, t, pages, "#scopes", widths)
	chromium.Legible(ctx, t, map[string]string{"crowd": crowd + "/?scope=host-3-409"}, "#scopes", widths)

	// The policy forbids other pages to show this one in a frame.
	framing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = fmt.Fprintf(w, `<iframe src=%q></iframe>`, pages["healthy"])
	}))
	defer framing.Close()
	require.Empty(t, complaints(), "the browser has nothing to complain of")
	require.NoError(t, chromedp.Do(ctx, chromedp.Navigate(framing.URL)))
	require.Eventually(t, func() bool {
		return strings.Contains(strings.Join(complaints(), " "), "frame-ancestors")
	}, time.Minute, 50*time.Millisecond)
}
