// Package console_test looks at the console of dead letters as a person would: in a
// browser.
package console_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/durable"
	"github.com/resilienthttp/resilienthttp/durable/console"
	"github.com/resilienthttp/resilienthttp/examples/internal/chromium"
	"github.com/resilienthttp/resilienthttp/idempotency"
)

const script = `<script>document.title="hacked"</script>`

// side loses its answers.
type side struct{}

func (side) Send(_ context.Context, s *durable.Send) durable.Outcome {
	if s.Key[0]%2 == 0 {
		return durable.Outcome{Class: durable.ClassDeclined, Status: 402, Code: "51", Err: errors.New("declined " + script)}
	}
	return durable.Outcome{Status: 504, Err: errors.New("timeout " + script + strings.Repeat("-and-so-on", 30))}
}

// TestConsoleInChromium: a person finds a dead letter, reads its attempts, redrives it and
// resolves it, by forms alone; what strangers wrote is text; nothing is wider than the
// screen, and all can be read, in light and dark.
func TestConsoleInChromium(t *testing.T) {
	engine := &durable.Engine{
		Store: new(durable.Memory), Gateways: map[string]durable.Gateway{"psp": side{}}, Policy: durable.Schedule{MaxAge: 1},
	}
	ctx := chromium.Open(t)
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

	var doubtful durable.DeadLetter
	for letter, err := range engine.Dead(t.Context(), durable.Filter{}) {
		require.NoError(t, err)
		if letter.InDoubt {
			doubtful = letter
			break
		}
	}
	require.NotZero(t, doubtful.Number)
	state := func() string { return chromium.Value[string](ctx, t, `document.querySelector("#state").textContent`) }
	press := func(button, said string) {
		t.Helper()
		chromium.Press(ctx, t, button, `document.querySelector(".said")?.textContent === "`+said+`"`)
	}
	require.NoError(t, chromedp.Do(ctx, chromedp.Navigate(server.URL+"/?reason=unresolved"), chromedp.WaitVisible("#letters")))
	require.Equal(t, "payments", chromium.Value[string](ctx, t, "document.title"), "no script has run")
	require.Zero(t, chromium.Value[int](ctx, t, "document.scripts.length"))
	require.Contains(t, chromium.Value[string](ctx, t, "getComputedStyle(document.body).fontFamily"), "system-ui", "the policy lets it have its style")
	chromium.Press(ctx, t, "#letters a", `document.querySelector("#attempts")`)
	require.Equal(t, "dead", state())
	intent := chromium.Value[string](ctx, t, "location.href")
	press("#redrive button", "One was redriven.")
	require.Equal(t, "unknown", state())
	chromium.Value[string](ctx, t, `document.querySelector("#resolve button").click(), ""`)
	require.Equal(t, "unknown", state(), "it must be said whether it was done")
	chromium.Value[string](ctx, t, `document.querySelector("#resolve input[value=succeeded]").click(), ""`)
	press("#resolve button", "It was resolved.")
	require.Equal(t, "done", state())
	record, err := engine.Find(t.Context(), doubtful.ID)
	require.NoError(t, err)
	require.Equal(t, durable.StateDone, record.State)

	chromium.Legible(ctx, t, map[string]string{
		"list": server.URL + "/?closed=1", "intent": intent, "confirm": server.URL + "/?view=redrive&code=51",
	}, "main section", map[int64]string{1280: "wide", 1151: "table", 800: "half", 360: "narrow"})
}
