// Package lab_test tests the page of benchmarks/cmd/lab in a browser.
package lab_test

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/examples/internal/chromium"
)

// startLab builds and starts the program, which ends with the test, and returns its address.
func startLab(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "lab")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, "github.com/resilienthttp/resilienthttp/benchmarks/cmd/lab")
	out, err := build.CombinedOutput()
	require.NoError(t, err, string(out))
	lab := exec.CommandContext(t.Context(), program, "-addr", "127.0.0.1:0")
	lab.Cancel = func() error { return lab.Process.Signal(os.Interrupt) }
	lab.Stderr = os.Stderr
	stdout, err := lab.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, lab.Start())
	line, err := bufio.NewReader(stdout).ReadString('\n')
	require.NoError(t, err)
	t.Cleanup(func() { _ = lab.Wait() }) // after t.Context has ended
	_, address, found := strings.Cut(strings.TrimSpace(line), "The lab is at ")
	require.True(t, found, line)
	return address
}

// A preset fills the form, and its run has a verdict and plots. The URL is the experiment. Mistakes are shown at their fields. A page that is left ends its run.
func TestLabInChromium(t *testing.T) {
	address := startLab(t)
	ctx := chromium.Open(t)
	complained := chromium.Complaints(ctx)
	text := func(expression string) string { return chromium.Value[string](ctx, t, expression) }
	set := func(field, value string) { text(`document.querySelector("#` + field + `").value = "` + value + `"`) }

	require.NoError(t, chromedp.Do(ctx, chromedp.EmulateViewport(1280, 900), chromedp.Navigate(address), chromedp.WaitVisible("#run")))
	require.Equal(t, 14, chromium.Value[int](ctx, t, `document.querySelectorAll("nav a").length`), "presets")
	chromium.Press(ctx, t, "nav a[title^=half]", `document.querySelector("#failure").value === "workers"`)

	visible := `[...document.querySelectorAll("[data-kinds]")].filter(e => !e.hidden).map(e => e.querySelector("[name]").name).join()`
	require.Equal(t, "start,length,left", text(visible), "only the fields of the failure")

	set("clients", "many")
	set("config", `{\"Policy\": {\"Tries\": 3}}`)
	chromium.Press(ctx, t, "#run", `document.querySelector("#clients").getAttribute("aria-invalid") === "true"`)
	require.Equal(t, `"many" (want 1 to 10000)`, text(`document.querySelector("#error-clients").textContent`))
	require.Equal(t, "config: Policy.Tries: unknown field", text(`document.querySelector("#error-config").textContent`))
	chromium.LegibleNow(ctx, t, "mistakes", map[int64]string{360: "phone", 1280: "desktop"})

	set("clients", "1000")
	set("length", "20s")
	set("total", "40s")
	set("config", `{\"Budget\": {\"Ratio\": 0.05}}`)
	text(`document.querySelector("input[value=aws-sdk-go-v2]").click(), ""`)
	chromium.Press(ctx, t, "#run", `document.querySelector("#verdict")`)
	require.Contains(t, text("location.search"), "with=resilienthttp&with=aws-sdk-go-v2")
	require.Empty(t, text(`[...document.querySelectorAll(".error")].map(e => e.textContent).join("")`))
	verdict := text(`document.querySelector("#verdict").textContent`)
	require.Contains(t, verdict, "resilienthttp is better than bare by ")
	require.Contains(t, verdict, "They ended by: circuit breaker is open (")
	require.Contains(t, verdict, "resilienthttp, defaults is better than bare by ")
	require.Equal(t, 5, chromium.Value[int](ctx, t, `[...document.querySelectorAll("figure img")].filter(i => i.complete && i.naturalWidth).length`), "plots")
	chromium.LegibleNow(ctx, t, "result", map[int64]string{360: "phone", 900: "tablet", 1280: "desktop"})

	shared := text("location.href")
	require.NoError(t, chromedp.Do(ctx, chromedp.Navigate("about:blank"), chromedp.Navigate(shared), chromedp.WaitVisible("#run")))
	require.JSONEq(t, `{"Budget": {"Ratio": 0.05}}`, text(`document.querySelector("#config").value`), "the URL is the experiment")

	const single = "?clients=100&rate=100&failure=status&status=500&share=0.2&start=0s&length=20s&total=20s&config=%7B%22Policy%22:%7B%22MaxAttempts%22:1%7D%7D"
	require.NoError(t, chromedp.Do(ctx, chromedp.Navigate(address+single), chromedp.WaitVisible("#run")))
	chromium.Press(ctx, t, "#run", `document.querySelector("#verdict")`)
	require.Contains(t, text(`document.querySelector("#verdict").textContent`), "These fields decide about them: Policy.MaxAttempts, Policy.AttemptTimeout.")

	set("clients", "1500")
	set("total", "10m")
	chromium.Press(ctx, t, "#run", `document.querySelector("#progress").value > 0`)
	chromium.Press(ctx, t, "#stop", `document.querySelector("#stop").hidden`)
	chromium.Press(ctx, t, "#run", `document.querySelector("#progress").value > 0`)
	require.NoError(t, chromedp.Do(ctx, chromedp.Navigate(address+"?clients=20&total=20s&start=1s&length=1s"), chromedp.WaitVisible("#run")))
	chromium.Press(ctx, t, "#again", `document.querySelector("#verdict") || document.querySelector("#failed").textContent`)
	require.Empty(t, text(`document.querySelector("#failed").textContent`), "the runs that were left have ended")
	require.NotEqual(t, "12", text(`document.querySelector("#seed").value`))

	var other []string
	for _, message := range complained() {
		if !strings.Contains(message, "422") { // the mistakes above
			other = append(other, message)
		}
	}
	require.Empty(t, other)
}
