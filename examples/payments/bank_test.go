package main

import (
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The bank must double what it is asked twice: otherwise it would keep the service's
// promise in its place.
func TestBankKnowsNoKeys(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger")
	b, err := openBank(path)
	require.NoError(t, err)
	take := func(body string) int {
		req := httptest.NewRequest(http.MethodPost, "/bookings", strings.NewReader(body))
		req.Header.Set("Idempotency-Key", "one")
		answer := httptest.NewRecorder()
		b.handler().ServeHTTP(answer, req)
		return answer.Code
	}
	assert.Equal(t, http.StatusCreated, take(`{"reference":"a","amount":101}`))
	assert.Equal(t, http.StatusCreated, take(`{"reference":"a","amount":101}`))
	assert.Equal(t, http.StatusPaymentRequired, take(`{"reference":"b","amount":100}`))
	assert.Equal(t, http.StatusBadRequest, take(`{"reference":"c"}`))
	b.busy = 1
	assert.Equal(t, http.StatusServiceUnavailable, take(`{"reference":"d","amount":101}`))
	require.NoError(t, b.file.Close())

	all, err := bookings(path)
	require.NoError(t, err)
	require.Len(t, all, 2)
	assert.Equal(t, order{Reference: "a", Amount: 101}, all[0].order)
	assert.NotEqual(t, all[0].ID, all[1].ID)

	again, err := openBank(path)
	require.NoError(t, err)
	defer func() { assert.NoError(t, again.file.Close()) }()
	answer := httptest.NewRecorder()
	again.handler().ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/bookings?reference=a", http.NoBody))
	assert.Equal(t, 2, strings.Count(answer.Body.String(), `"reference":"a"`), "also after a restart")
}
