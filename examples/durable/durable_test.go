package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/durable"
	"github.com/resilienthttp/resilienthttp/durable/sqlitestore"
)

// provider books each key once. It loses its first response, and declines the reference "declined".
type provider struct {
	mu     sync.Mutex
	booked map[string]string // bodies by key
	sent   int
}

func (p *provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	body, _ := io.ReadAll(r.Body)
	if strings.Contains(string(body), "declined") {
		http.Error(w, `{"code":"03"}`, http.StatusPaymentRequired)
		return
	}
	p.booked[r.Header.Get("Idempotency-Key")] = string(body)
	if p.sent++; p.sent == 1 {
		panic(http.ErrAbortHandler)
	}
	w.WriteHeader(http.StatusCreated)
	fmt.Fprint(w, `{"id":"ch_1"}`)
}

// open returns a shop and its provider.
func open(t *testing.T) (*shop, *provider) {
	t.Helper()
	p := &provider{booked: map[string]string{}}
	server := httptest.NewServer(p)
	t.Cleanup(server.Close)
	store, err := sqlitestore.Open(t.Context(), filepath.Join(t.TempDir(), "shop.db"))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, store.Close()) })
	s, err := newShop(t.Context(), store, server.URL)
	require.NoError(t, err)
	return s, p
}

func (s *shop) do(method, path, body string) (status int, text string) {
	w := httptest.NewRecorder()
	s.handler().ServeHTTP(w, httptest.NewRequest(method, path, strings.NewReader(body)))
	return w.Code, strings.TrimSpace(w.Body.String())
}

// The provider books an order once, although the customer sends it twice and the first response is lost.
func TestOrder(t *testing.T) {
	s, p := open(t)
	s.engine.Policy = durable.Schedule{Backoff: resilienthttp.Constant(time.Millisecond)}
	for _, row := range []struct {
		name, body string
		status     int
	}{
		{"order: taken", `{"reference":"invoice-1","amount":4200}`, 202},
		{"the same again: taken", `{"reference":"invoice-1","amount":4200}`, 202},
		{"another amount: rejected", `{"reference":"invoice-1","amount":1}`, 409},
		{"invalid: rejected", `{"amount":1}`, 400},
		{"order that will be declined: taken", `{"reference":"declined","amount":1}`, 202},
	} {
		status, _ := s.do(http.MethodPost, "/orders", row.body)
		assert.Equal(t, row.status, status, row.name)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- s.engine.Run(ctx) }()
	require.Eventually(t, func() bool {
		_, charged := s.do(http.MethodGet, "/orders/invoice-1", "")
		_, declined := s.do(http.MethodGet, "/orders/declined", "")
		return charged == "done ch_1" && declined == "dead  03"
	}, time.Minute, 10*time.Millisecond)
	cancel()
	require.NoError(t, <-ended)
	assert.Len(t, p.booked, 1, "keys that were booked")
	assert.Equal(t, 2, p.sent, "sends of the order")
	status, _ := s.do(http.MethodGet, "/orders/unknown", "")
	assert.Equal(t, http.StatusNotFound, status)
	_, page := s.do(http.MethodGet, "/dead", "")
	assert.Contains(t, page, "declined", "the dead letter is in the console")
}

// If the intent cannot be written, the order is not written either.
func TestTake_isOneTransaction(t *testing.T) {
	s, _ := open(t)
	require.Error(t, s.take(t.Context(), Order{Reference: strings.Repeat("long", 1000), Amount: 1}))
	var orders int
	require.NoError(t, s.store.DB().QueryRowContext(t.Context(), `SELECT count(*) FROM orders`).Scan(&orders))
	assert.Zero(t, orders)
}

// run serves until its context ends, and returns errors of the database.
func TestRun(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = listener.Close() }()
	require.Error(t, run(t.Context(), listener, t.TempDir(), ""))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- run(ctx, listener, filepath.Join(t.TempDir(), "shop.db"), "") }()
	resp, err := http.Get("http://" + listener.Addr().String() + "/orders/unknown")
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	assert.Equal(t, http.StatusNotFound, resp.StatusCode)
	cancel()
	require.NoError(t, <-ended)
}
