package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/durable"
	"github.com/resilienthttp/resilienthttp/examples/internal/bank"
	"github.com/resilienthttp/resilienthttp/examples/internal/chromium"
)

// A browser shows the states of the payments, and redrives a declined one from the console.
func TestShowPages_inBrowser(t *testing.T) {
	t.Parallel()
	theBank, err := bank.Open(t.TempDir() + "/ledger")
	require.NoError(t, err)
	defer func() { assert.NoError(t, theBank.Close()) }()
	server := httptest.NewServer(theBank.Handler())
	defer server.Close()
	psp := newPSP(&http.Client{Transport: toServer{server}})
	engine := newEngine(new(durable.Memory), psp)
	engine.LeaseDuration = 0 // the default
	for _, o := range []bank.Order{{Reference: "acme:1", Amount: 101}, {Reference: "acme:2", Amount: 100}} {
		in, err := intentOf(o)
		require.NoError(t, err)
		_, err = engine.Enqueue(t.Context(), in)
		require.NoError(t, err)
	}
	_, err = engine.Work(t.Context(), 0)
	require.NoError(t, err)

	var out strings.Builder
	stop, err := showPages(t.Context(), "127.0.0.1:0", engine.Store, &out)
	require.NoError(t, err)
	defer stop()
	var links []string
	for line := range strings.Lines(out.String()) {
		_, link, _ := strings.Cut(strings.TrimSpace(line), ": ")
		links = append(links, link)
	}
	require.Len(t, links, 2)

	ctx := chromium.Open(t)
	body := func() string { return chromium.Value[string](ctx, t, "document.body.innerText") }
	require.NoError(t, chromedp.Do(ctx, chromedp.Navigate(links[0]), chromedp.WaitVisible("#scopes")))
	chromium.Until(ctx, t, `/dead\W+1[^]*done\W+1/.test(document.body.innerText)`) // the page refreshes itself
	require.NoError(t, chromedp.Do(ctx, chromedp.Navigate(links[1]), chromedp.WaitVisible("#letters")))
	chromium.Press(ctx, t, "#letters a", `document.querySelector("#attempts")`)
	assert.Contains(t, body(), "insufficient funds")
	assert.Contains(t, body(), `"reference":"acme:2"`)
	chromium.Value[string](ctx, t, `document.querySelector("#redrive button").click(), ""`)
	assert.Eventually(t, func() bool {
		stats, err := engine.Stats(t.Context())
		return err == nil && stats.States[durable.StateWaiting] == 1
	}, time.Minute, 20*time.Millisecond)
	_, err = showPages(t.Context(), "nonsense", nil, &out)
	require.Error(t, err)
}

// toServer sends all requests to a server.
type toServer struct{ *httptest.Server }

func (s toServer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.URL.Host = s.Listener.Addr().String()
	return http.DefaultTransport.RoundTrip(r)
}
