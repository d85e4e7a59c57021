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

// The page has the state of the client's Transport and its counts.
func TestShowPage(t *testing.T) {
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
	_, url, found := strings.Cut(strings.TrimSpace(out.String()), ": ")
	require.True(t, found)
	require.Eventually(t, func() bool { // the page does not wait long for its sources
		resp, err := http.Get(url)
		require.NoError(t, err)
		defer resp.Body.Close()
		html, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.Contains(t, string(html), strings.TrimPrefix(service.URL, "http://"))
		return strings.Contains(string(html), "stored responses")
	}, time.Minute, 10*time.Millisecond)
	_, err = c.showPage(t.Context(), "nonsense", nil, io.Discard)
	require.Error(t, err)
}
