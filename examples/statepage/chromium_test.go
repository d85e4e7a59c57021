// Package statepage_test looks at the state page as a person would: in a browser.
package statepage_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/statepage"
)

// browser is a headless Chromium of the test's own.
func browser(t *testing.T) context.Context {
	t.Helper()
	program, err := exec.LookPath("chromium")
	require.NoError(t, err, "the test needs Debian's chromium")
	flags := []chromedp.ExecAllocatorOption{chromedp.ExecPath(program), chromedp.UserDataDir(t.TempDir()), chromedp.NoFirstRun}
	for _, name := range []string{
		"headless", "no-sandbox", "disable-gpu", "disable-quic", "disable-background-networking", "disable-component-update", "disable-sync",
	} {
		flags = append(flags, chromedp.Flag(name, true))
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewExecAllocator(ctx, flags...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	return ctx
}

// value is that of an expression on the page.
func value[T any](t *testing.T, ctx context.Context, expression string) T {
	t.Helper()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression))
	require.NoError(t, err)
	return v
}

// complaints is what the browser has to say, about the policy above all.
type complaints struct {
	mu   sync.Mutex
	said []string
}

func (c *complaints) listen(ctx context.Context) {
	messages := chromedp.Console(ctx)
	go func() {
		for m, err := range messages {
			if err != nil {
				return
			}
			c.mu.Lock()
			c.said = append(c.said, m.Text)
			c.mu.Unlock()
		}
	}()
}

func (c *complaints) read() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.said
}

// bank is a server that is up or down, and has a quota.
type bank struct{ down atomic.Bool }

func (b *bank) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("X-RateLimit-Limit-Requests", "100")
	w.Header().Set("X-RateLimit-Remaining-Requests", "7")
	w.Header().Set("X-RateLimit-Reset-Requests", "1h")
	if b.down.Load() {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
}

// TestStatePageInChromium: an open circuit is shown open, and closed after a refresh that
// the page makes by itself; what a stranger calls a host is text, and no script; nothing is
// wider than the screen, in light and dark.
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

	ctx := browser(t)
	var complaints complaints
	complaints.listen(ctx)
	circuitOf := func(host string) string {
		return `[...document.querySelectorAll("#scopes tbody tr")].filter(r => r.cells[0].textContent.startsWith("` + host + `")).map(r => r.querySelector(".mark").textContent)[0]`
	}
	require.NoError(t, chromedp.Do(ctx, chromedp.Navigate(page.URL+"/?refresh=1"), chromedp.WaitVisible("#held")))
	require.Equal(t, "payments", value[string](t, ctx, "document.title"), "no script has run")
	require.Positive(t, value[int](t, ctx, `document.querySelectorAll("#held .mark.refused").length`))
	require.Zero(t, value[int](t, ctx, "document.scripts.length"))
	require.Equal(t, "open", value[string](t, ctx, circuitOf("<script>")))
	require.Contains(t, value[string](t, ctx, "getComputedStyle(document.body).fontFamily"), "system-ui", "the policy lets it have its style")

	// The server is back, and the page finds out by itself.
	api.down.Store(false)
	require.Eventually(t, func() bool {
		call(quick)
		return quick.Breaker.State("mail.example") == resilienthttp.StateClosed
	}, 20*time.Second, 50*time.Millisecond)
	require.Eventually(t, func() bool {
		circuit, err := chromedp.Run(ctx, chromedp.Evaluate[string](circuitOf("mail.example")))
		return err == nil && circuit == "closed" // or the page is just being loaded
	}, 20*time.Second, 100*time.Millisecond)

	for width, wide := range map[int64]string{1280: "wide", 1160: "tablet", 800: "half", 360: "narrow"} {
		for _, scheme := range []string{"light", "dark"} {
			media := emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}}
			_, err := chromedp.Call(ctx, emulation.SetEmulatedMedia, media)
			require.NoError(t, err)
			require.NoError(t, chromedp.Do(ctx, chromedp.EmulateViewport(width, 900), chromedp.Navigate(page.URL), chromedp.WaitVisible("#scopes")))
			require.LessOrEqual(t, value[float64](t, ctx, "document.documentElement.scrollWidth - innerWidth"), 0.0, "wider than the screen at %d", width)
			require.GreaterOrEqual(t, value[float64](t, ctx, leastContrast), 4.5, "%s: WCAG 2.2, success criterion 1.4.3", scheme)
			if dir := os.Getenv("RESILIENTHTTP_SCREENSHOTS"); dir != "" {
				picture, err := chromedp.Run(ctx, chromedp.FullScreenshot(100))
				require.NoError(t, err)
				require.NoError(t, os.WriteFile(filepath.Join(dir, scheme+"-"+wide+".png"), picture, 0o600))
			}
		}
	}
	require.Empty(t, complaints.read(), "the browser has nothing to complain of")
}

// leastContrast is the least contrast of any text on the page with what is behind it.
const leastContrast = `(() => {
	const luminance = c => {
		const [r, g, b] = c.match(/[\d.]+/g).map(Number).map(v => (v /= 255) <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
		return .2126 * r + .7152 * g + .0722 * b;
	};
	const behind = e => {
		for (; e; e = e.parentElement) {
			const c = getComputedStyle(e).backgroundColor;
			if (c !== "rgba(0, 0, 0, 0)") return c;
		}
		return "rgb(255, 255, 255)";
	};
	let least = 21;
	const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
	while (walker.nextNode()) {
		const e = walker.currentNode.parentElement;
		if (!walker.currentNode.textContent.trim() || e.tagName === "STYLE") continue;
		const a = luminance(getComputedStyle(e).color), b = luminance(behind(e));
		least = Math.min(least, (Math.max(a, b) + .05) / (Math.min(a, b) + .05));
	}
	return least;
})()`
