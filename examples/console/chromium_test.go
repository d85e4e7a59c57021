// Package console_test looks at the console of dead letters as a person would: in a
// browser.
package console_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/durable"
	"github.com/resilienthttp/resilienthttp/durable/console"
	"github.com/resilienthttp/resilienthttp/idempotency"
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

const script = `<script>document.title="hacked"</script>`

// side loses its answers.
type side struct{}

func (side) Send(_ context.Context, s *durable.Send) durable.Outcome {
	if s.Key[0]%2 == 0 {
		return durable.Outcome{Class: durable.ClassRefused, Status: 402, Code: "51", Err: errors.New("declined " + script)}
	}
	return durable.Outcome{Status: 504, Err: errors.New("timeout " + script + strings.Repeat("-and-so-on", 30))}
}

// TestConsoleInChromium: a person finds a dead letter, reads its attempts, redrives it and
// resolves it, by forms alone; what strangers wrote is text; nothing is wider than the
// screen, and all can be read, in light and dark.
func TestConsoleInChromium(t *testing.T) {
	engine := &durable.Engine{
		Store: new(durable.Memory), Gateways: map[string]durable.Gateway{"psp": side{}}, Policy: durable.Schedule{MaxAttempts: 1},
	}
	ctx := browser(t)
	for i := range 60 {
		_, err := engine.Enqueue(t.Context(), durable.Intent{
			ID:      idempotency.ID{Scope: "tenant" + script, Operation: "POST /charges", Key: "invoice:" + string(rune('A'+i)) + strings.Repeat("-long", 20)},
			Gateway: "psp", Batch: "november", Row: i + 2,
		})
		require.NoError(t, err)
	}
	_, err := engine.Work(t.Context(), 60)
	require.NoError(t, err)
	server := httptest.NewServer(&console.Handler{Engine: engine, By: func(*http.Request) string { return "ann" }, Title: "payments"})
	defer server.Close()

	var doubtful durable.Letter
	for letter, err := range engine.Dead(t.Context(), durable.Filter{}) {
		require.NoError(t, err)
		if letter.Doubt {
			doubtful = letter
			break
		}
	}
	require.NotZero(t, doubtful.Number)
	state := func() string { return value[string](t, ctx, `document.querySelector("#state").textContent`) }
	press := func(button, said string) {
		t.Helper()
		value[string](t, ctx, `document.querySelector("`+button+`").click(), ""`)
		require.Eventually(t, func() bool {
			text, err := chromedp.Run(ctx, chromedp.Evaluate[string](`document.querySelector(".said")?.textContent ?? ""`))
			return err == nil && text == said // or the page is just being loaded
		}, 20*time.Second, 50*time.Millisecond)
	}
	require.NoError(t, chromedp.Do(ctx, chromedp.Navigate(server.URL+"/?reason=unresolved"), chromedp.WaitVisible("#letters")))
	require.Equal(t, "payments", value[string](t, ctx, "document.title"), "no script has run")
	require.Zero(t, value[int](t, ctx, "document.scripts.length"))
	require.Contains(t, value[string](t, ctx, "getComputedStyle(document.body).fontFamily"), "system-ui", "the policy lets it have its style")
	require.NoError(t, chromedp.Do(ctx, chromedp.Click("#letters a"), chromedp.WaitVisible("#attempts")))
	require.Equal(t, "dead", state())
	intent := value[string](t, ctx, "location.href")
	press("#redrive button", "One was redriven.")
	require.Equal(t, "unknown", state())
	value[string](t, ctx, `document.querySelector("#resolve button").click(), ""`)
	require.Equal(t, "unknown", state(), "it must be said whether it was done")
	value[string](t, ctx, `document.querySelector("#resolve input[value=succeeded]").click(), ""`)
	press("#resolve button", "It was resolved.")
	require.Equal(t, "done", state())
	record, err := engine.Find(t.Context(), doubtful.ID)
	require.NoError(t, err)
	require.Equal(t, durable.StateDone, record.State)

	for width, wide := range map[int64]string{1280: "wide", 1151: "table", 800: "half", 360: "narrow"} {
		for _, scheme := range []string{"light", "dark"} {
			media := emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}}
			_, err := chromedp.Call(ctx, emulation.SetEmulatedMedia, media)
			require.NoError(t, err)
			for name, address := range map[string]string{"list": server.URL + "/?closed=1", "intent": intent, "confirm": server.URL + "/?view=redrive&code=51"} {
				require.NoError(t, chromedp.Do(ctx, chromedp.EmulateViewport(width, 900), chromedp.Navigate(address), chromedp.WaitVisible("main section")))
				require.LessOrEqual(t, value[float64](t, ctx, "document.documentElement.scrollWidth - innerWidth"), 0.0, "%s: wider than the screen at %d", name, width)
				require.GreaterOrEqual(t, value[float64](t, ctx, leastContrast), 4.5, "%s, %s: WCAG 2.2, success criterion 1.4.3", name, scheme)
				if dir := os.Getenv("RESILIENTHTTP_SCREENSHOTS"); dir != "" {
					picture, err := chromedp.Run(ctx, chromedp.FullScreenshot(100))
					require.NoError(t, err)
					require.NoError(t, os.WriteFile(filepath.Join(dir, name+"-"+scheme+"-"+wide+".png"), picture, 0o600))
				}
			}
		}
	}
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
