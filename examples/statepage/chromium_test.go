// Package statepage_test tests the state page in a browser.
package statepage_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/examples/internal/chromium"
	"github.com/resilienthttp/resilienthttp/statepage"
)

// bank is a server with a quota that can be down.
type bank struct{ down atomic.Bool }

func (b *bank) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("X-RateLimit-Limit-Requests", "100")
	w.Header().Set("X-RateLimit-Remaining-Requests", "7")
	w.Header().Set("X-RateLimit-Reset-Requests", "1h")
	if b.down.Load() {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
}

// The page shows an open circuit, and after its own refresh a closed one. A host name with markup is
// shown as text. Nothing is wider than the screen, in light and dark mode.
func TestStatePageInChromium(t *testing.T) {
	const cooldown = 300 * time.Millisecond
	const script = `<script>document.title="hacked"</script>`
	var api bank
	server := httptest.NewServer(&api)
	defer server.Close()
	scope := "api.bank.example"
	client := &resilienthttp.Transport{
		Policy:  resilienthttp.Policy{MaxAttempts: -1},
		Breaker: &resilienthttp.Breaker{MinRequests: 1, FailureRatio: 0.01, Probes: 1, Cooldown: time.Hour},
		Scope:   func(*http.Request) string { return scope },
	}
	defer client.CloseIdleConnections()
	call := func(to *resilienthttp.Transport) {
		t.Helper()
		resp, err := (&http.Client{Transport: to}).Get(server.URL)
		if err == nil {
			require.NoError(t, resp.Body.Close())
		}
	}
	quick := &resilienthttp.Transport{
		Policy:  resilienthttp.Policy{MaxAttempts: -1},
		Breaker: &resilienthttp.Breaker{MinRequests: 1, FailureRatio: 0.01, Probes: 1, Cooldown: cooldown, MaxCooldown: cooldown},
		Scope:   func(*http.Request) string { return "mail.example" },
	}
	defer quick.CloseIdleConnections()
	call(client)
	scope = script + strings.Repeat("-and-a-very-long-name", 10)
	api.down.Store(true)
	call(client)
	call(quick)

	page := httptest.NewServer(&statepage.Handler{
		Title: "payments", Transports: map[string]*resilienthttp.Transport{"bank": client, "mail": quick},
		Sources: []statepage.Source{{Name: "shedder", State: func(context.Context) (any, error) { return map[string]int{"limit": 48, "in flight": 31}, nil }}},
	})
	defer page.Close()

	ctx := chromium.Open(t)
	complaints := chromium.Complaints(ctx)
	circuitOf := func(host string) string {
		return `[...document.querySelectorAll("#scopes tbody tr")].filter(r => r.cells[0].textContent.startsWith("` + host + `")).map(r => r.querySelector(".circuit").textContent)[0]`
	}
	require.NoError(t, chromedp.Do(ctx, chromedp.Navigate(page.URL), chromedp.WaitVisible("#blocked")))
	require.Equal(t, "payments", chromium.Value[string](ctx, t, "document.title"), "no script has run")
	require.Positive(t, chromium.Value[int](ctx, t, `document.querySelectorAll("#blocked .mark.bad").length`))
	require.Positive(t, chromium.Value[int](ctx, t, `document.querySelectorAll("#failing .mark.bad").length`))
	require.Zero(t, chromium.Value[int](ctx, t, "document.scripts.length"))
	require.Equal(t, "open", chromium.Value[string](ctx, t, circuitOf("<script>")))
	require.Contains(t, chromium.Value[string](ctx, t, "getComputedStyle(document.body).fontFamily"), "system-ui", "the policy lets it have its style")

	// The server is available again, and the page refreshes itself.
	require.NoError(t, chromedp.Do(ctx, chromedp.Navigate(page.URL+"/?refresh=1")))
	api.down.Store(false)
	require.Eventually(t, func() bool {
		call(quick)
		return quick.Breaker.State("mail.example", resilienthttp.PriorityDefault) == resilienthttp.StateClosed
	}, time.Minute, 50*time.Millisecond)
	chromium.Until(ctx, t, circuitOf("mail.example")+` === "closed"`)

	chromium.Legible(ctx, t, map[string]string{"state": page.URL}, "#scopes",
		map[int64]string{1280: "wide", 1160: "tablet", 800: "half", 360: "narrow"})
	require.Empty(t, complaints(), "the browser has nothing to complain of")
}
