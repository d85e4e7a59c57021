package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/examples/internal/chromium"
	"github.com/resilienthttp/resilienthttp/internal/memhttp"
)

// Each question has its answer: in the output of the program, or on the page in a browser.
func TestRun_answersThreeQuestions(t *testing.T) {
	var out lines
	var page []byte
	synctest.Test(t, func(t *testing.T) { page = observe(t, &out) })

	// Why did the call take so long? One log record, one span and one row of the page.
	require.Regexp(t, `server\.address=bank\.example .*duration=(1\.99|2\.0)\d*s queue_wait=(1\.99\d*|2(\.0\d*)?)s in_flight=5ms retry_wait=0s http\.response\.status_code=201`, out.last(`msg="call done"`))
	requireSpan(t, out.last(`"resilienthttp.queue_wait"`))
	const waited = `(1\.99|2(\.0\d*)?) s +It waited (1\.99\d*|2(\.0\d*)?) s in the queue, 5 ms for the server`

	// The page also says which hosts are rejected now, and how much of the quota is used.
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(page) }))
	defer server.Close()
	browser := chromium.Open(t)
	require.NoError(t, chromedp.Do(browser, chromedp.EmulateViewport(1280, 900), chromedp.Navigate(server.URL), chromedp.WaitVisible("#quotas")))
	shown := func(section string) string {
		text := chromium.Value[string](browser, t, `document.querySelector("`+section+`").innerText`)
		return strings.Join(strings.Fields(text), " ")
	}
	require.Regexp(t, `Slowest calls .* bank\.example shop `+waited+`.* status 201`, shown("#slow"))
	require.Regexp(t, `What fails .* mail\.example shop .*502`, shown("#failing"))
	require.Regexp(t, `Blocked scopes .* mail\.example shop \w+ \d\d:\d\d:\d\d.* The circuit is open since \d\d:\d\d:\d\d\.\d, after 20 of 20 attempts failed; 0 probes failed since\. Last failure: status 502\.`, shown("#blocked"))
	require.Regexp(t, `Quotas .* bank\.example shop requests 19 of 20 `, shown("#quotas"))
	chromium.Legible(browser, t, map[string]string{"observability": server.URL}, "#quotas", map[int64]string{1280: "wide", 360: "narrow"})
}

// observe runs the program until the first pause of the shop, and returns the page of that time.
func observe(t *testing.T, out *lines) []byte {
	t.Helper()
	network := memhttp.NewNetwork(t)
	client := &http.Client{Transport: network.Transport()}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, out, network.Listen("shop.example"), 2*time.Second) }()
	for out.last("The shop has a pause") == "" {
		select {
		case err := <-ended:
			t.Fatalf("the program has ended: %v\n%s", err, out.last(""))
		case <-time.After(time.Millisecond):
		}
	}
	resp, err := client.Get(regexp.MustCompile(`http://[^\s?]+/`).FindString(out.last("The state page is at")))
	require.NoError(t, err)
	page, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	stop()
	require.NoError(t, <-ended)
	return page
}

// requireSpan requires a span of the stdout exporter, of a call that waited in the queue for
// nearly all of its time.
func requireSpan(t *testing.T, text string) {
	t.Helper()
	var span struct {
		Name               string
		StartTime, EndTime time.Time
		Attributes         []struct {
			Key   string
			Value struct{ Value any }
		}
		Events []struct{ Name string }
	}
	require.NoError(t, json.Unmarshal([]byte(text), &span), text)
	values := map[string]any{}
	for _, a := range span.Attributes {
		values[a.Key] = a.Value.Value
	}
	require.Equal(t, "call POST", span.Name)
	require.Equal(t, "bank.example", values["server.address"])
	require.InDelta(t, span.EndTime.Sub(span.StartTime).Seconds()-.005, values["resilienthttp.queue_wait"], 1e-6)
	require.InDelta(t, 2, values["resilienthttp.queue_wait"], .1)
	require.Equal(t, "queued", span.Events[0].Name)
	require.NotContains(t, text, "shop:invoice", "the key is a hash")
}

func TestRun_canceled(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	stop()
	require.NoError(t, run(ctx, new(lines), memhttp.NewNetwork(t).Listen("shop.example"), time.Second))
}

// lines keeps a text that is written to it.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// last returns the last line with the word.
func (l *lines) last(word string) (found string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.text.String()) {
		if strings.Contains(line, word) {
			found = strings.TrimSpace(line)
		}
	}
	return found
}
