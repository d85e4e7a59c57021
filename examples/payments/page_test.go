package main

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/examples/internal/bank"
	"github.com/resilienthttp/resilienthttp/idempotency"
)

// TestPage: what the client knows of the service is on its page.
func TestPage(t *testing.T) {
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadRequest) }))
	defer service.Close()
	c := newClient(service.URL)
	defer c.http.CloseIdleConnections()
	_, err := c.ask(t.Context(), bank.Order{Reference: "invoice-1"})
	require.Error(t, err)

	var out bytes.Buffer
	stop, err := c.showPage(t.Context(), "127.0.0.1:0", new(idempotency.Memory), &out)
	require.NoError(t, err)
	defer stop()
	_, url, told := strings.Cut(strings.TrimSpace(out.String()), ": ")
	require.True(t, told)
	require.Eventually(t, func() bool { // the page does not wait long for what it is to show
		resp, err := http.Get(url)
		require.NoError(t, err)
		defer resp.Body.Close()
		html, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.Contains(t, string(html), strings.TrimPrefix(service.URL, "http://"))
		return strings.Contains(string(html), "answers given before")
	}, time.Minute, 10*time.Millisecond)
	_, err = c.showPage(t.Context(), "nonsense", nil, io.Discard)
	require.Error(t, err)
}
