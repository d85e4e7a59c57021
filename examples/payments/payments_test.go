package main

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/idempotency/sqlitestore"
)

// Each row is sent twice. Only the first request of a key has an effect.
func TestHandler(t *testing.T) {
	store, err := sqlitestore.Open(t.Context(), filepath.Join(t.TempDir(), "payments.db"))
	require.NoError(t, err)
	defer func() { assert.NoError(t, store.Close()) }()
	handler, err := newHandler(t.Context(), store)
	require.NoError(t, err)
	booked := func() (n int) {
		require.NoError(t, store.DB().QueryRowContext(t.Context(), `SELECT count(*) FROM charges`).Scan(&n))
		return n
	}
	send := func(account, key, body string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(http.MethodPost, "/charges", strings.NewReader(body))
		r.Header.Set("Idempotency-Key", key)
		r.SetBasicAuth(account, "")
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		return w
	}
	const order = `{"reference":"invoice-1","amount":4200}`
	for _, row := range []struct {
		name, account, key, body string
		status, booked           int
		replayed                 bool
	}{
		{name: "charge: booked once", account: "acme", key: "1", body: order, status: 201, booked: 1, replayed: true},
		{name: "same key of another account: booked", account: "other", key: "1", body: order, status: 201, booked: 2, replayed: true},
		{name: "same key, another amount: rejected", account: "acme", key: "1", body: `{"reference":"invoice-1","amount":1}`, status: 422, booked: 2},
		{name: "over the limit: declined, and not booked", account: "acme", key: "2", body: `{"reference":"invoice-2","amount":900000}`, status: 402, booked: 2, replayed: true},
		{name: "invalid: not booked", account: "acme", key: "3", body: `{"amount":1}`, status: 400, booked: 2, replayed: true},
		{name: "no account: rejected", key: "4", body: order, status: 403, booked: 2},
		{name: "no key: rejected", account: "acme", body: order, status: 400, booked: 2},
	} {
		first, second := send(row.account, row.key, row.body), send(row.account, row.key, row.body)
		assert.Equal(t, row.status, first.Code, row.name)
		assert.Equal(t, row.status, second.Code, row.name)
		assert.Equal(t, row.booked, booked(), row.name)
		assert.Equal(t, row.replayed, second.Header().Get("Idempotency-Replayed") != "", row.name)
		if row.replayed {
			assert.Equal(t, first.Body.String(), second.Body.String(), row.name)
		}
	}
}

// run serves until its context ends, and returns errors of the database.
func TestRun(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = listener.Close() }()
	require.Error(t, run(t.Context(), listener, t.TempDir()))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- run(ctx, listener, filepath.Join(t.TempDir(), "payments.db")) }()
	resp, err := http.Get("http://" + listener.Addr().String() + "/charges")
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	assert.Equal(t, http.StatusMethodNotAllowed, resp.StatusCode)
	cancel()
	require.NoError(t, <-ended)
}
