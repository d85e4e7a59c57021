// Package chromium opens pages in a browser for tests.
package chromium

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

// Open starts a headless Chromium, which exits with the test. The context is that of its only page.
func Open(t *testing.T) context.Context {
	t.Helper()
	program, err := exec.LookPath("chromium")
	require.NoError(t, err, "the test needs Debian's chromium")
	flags := []chromedp.ExecAllocatorOption{chromedp.ExecPath(program), chromedp.UserDataDir(t.TempDir()), chromedp.NoFirstRun}
	for _, name := range []string{
		"headless", "no-sandbox", "disable-gpu", "disable-quic", "disable-background-networking", "disable-component-update", "disable-sync",
	} {
		flags = append(flags, chromedp.Flag(name, true))
	}
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewExecAllocator(ctx, flags...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	return ctx
}

// Complaints returns a function that returns the messages of the browser so far, for example about the
// content security policy.
func Complaints(ctx context.Context) func() []string {
	var mu sync.Mutex
	var all []string
	messages := chromedp.Console(ctx)
	go func() {
		for m, err := range messages {
			if err != nil {
				return
			}
			mu.Lock()
			all = append(all, m.Text)
			mu.Unlock()
		}
	}()
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		return all
	}
}

// Value evaluates an expression on the page.
func Value[T any](ctx context.Context, t *testing.T, expression string) T {
	t.Helper()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression))
	require.NoError(t, err)
	return v
}

// Press clicks on a link or a button, and waits for a page on which the expression is true. It calls
// the element's click method, because on a busy machine a mouse click before the first paint has no
// effect.
func Press(ctx context.Context, t *testing.T, selector, until string) {
	t.Helper()
	Value[string](ctx, t, `document.querySelector("`+selector+`").click(), ""`)
	Until(ctx, t, until)
}

// Until waits for a page on which the expression is true.
func Until(ctx context.Context, t *testing.T, expression string) {
	t.Helper()
	require.Eventually(t, func() bool {
		is, err := chromedp.Run(ctx, chromedp.Evaluate[bool](`document.readyState === "complete" && !!(`+expression+`)`))
		return err == nil && is // an error means that the page is loading
	}, 2*time.Minute, 50*time.Millisecond, expression)
}

// Legible checks named pages in light and dark mode and on screens of named widths: nothing is wider
// than the screen, and all text has enough contrast. A page is loaded when the selector matches. If
// RESILIENTHTTP_SCREENSHOTS names a folder, Legible writes a picture of each page into it.
func Legible(ctx context.Context, t *testing.T, pages map[string]string, selector string, widths map[int64]string) {
	t.Helper()
	for name, address := range pages {
		require.NoError(t, chromedp.Do(ctx, chromedp.Navigate(address), chromedp.WaitVisible(selector)))
		LegibleNow(ctx, t, name, widths)
	}
}

// LegibleNow is Legible for the page that is open.
func LegibleNow(ctx context.Context, t *testing.T, name string, widths map[int64]string) {
	t.Helper()
	for width, screen := range widths {
		for _, scheme := range []string{"light", "dark"} {
			media := emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}}
			_, err := chromedp.Call(ctx, emulation.SetEmulatedMedia, media)
			require.NoError(t, err)
			require.NoError(t, chromedp.Do(ctx, chromedp.EmulateViewport(width, 900)))
			require.LessOrEqual(t, Value[float64](ctx, t, "document.documentElement.scrollWidth - innerWidth"), 0.0, "%s: wider than the screen at %d", name, width)
			require.GreaterOrEqual(t, Value[float64](ctx, t, leastContrast), 4.5, "%s, %s: WCAG 2.2, success criterion 1.4.3", name, scheme)
			picture(ctx, t, name+"-"+scheme+"-"+screen)
		}
	}
}

func picture(ctx context.Context, t *testing.T, name string) {
	t.Helper()
	dir := os.Getenv("RESILIENTHTTP_SCREENSHOTS")
	if dir == "" {
		return
	}
	png, err := chromedp.Run(ctx, chromedp.FullScreenshot(100))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, name+".png"), png, 0o600))
}

// leastContrast is the lowest contrast of any text on the page with its background.
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
