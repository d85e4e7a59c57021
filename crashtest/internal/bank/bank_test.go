package bank

import (
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Without Keys, the bank must book a repeated request twice. Otherwise the crash
// tests would not test the service.
func TestBank_withoutKeysBooksTwice(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger")
	b, err := Open(Options{Ledger: path})
	require.NoError(t, err)
	take := func(body string) int {
		req := httptest.NewRequest(http.MethodPost, "/bookings", strings.NewReader(body))
		req.Header.Set("Idempotency-Key", "one")
		response := httptest.NewRecorder()
		b.Handler().ServeHTTP(response, req)
		return response.Code
	}
	assert.Equal(t, http.StatusCreated, take(`{"reference":"a","amount":101}`))
	assert.Equal(t, http.StatusCreated, take(`{"reference":"a","amount":101}`))
	assert.Equal(t, http.StatusPaymentRequired, take(`{"reference":"b","amount":100}`))
	assert.Equal(t, http.StatusBadRequest, take(`{"reference":"c"}`))
	b.Busy = 1
	assert.Equal(t, http.StatusServiceUnavailable, take(`{"reference":"d","amount":101}`))
	require.NoError(t, b.Close())

	all, err := Bookings(path)
	require.NoError(t, err)
	require.Len(t, all, 2)
	assert.Equal(t, Order{Reference: "a", Amount: 101}, all[0].Order)
	assert.NotEqual(t, all[0].ID, all[1].ID)

	again, err := Open(Options{Ledger: path})
	require.NoError(t, err)
	defer func() { assert.NoError(t, again.Close()) }()
	response := httptest.NewRecorder()
	again.Handler().ServeHTTP(response, httptest.NewRequest(http.MethodGet, "/bookings?reference=a", http.NoBody))
	assert.Equal(t, 2, strings.Count(response.Body.String(), `"reference":"a"`), "the ledger after a restart")
}

// With Keys, the bank replays the first response of a key, also a decline.
func TestBank_withKeysReplays(t *testing.T) {
	b, err := Open(Options{Ledger: filepath.Join(t.TempDir(), "ledger")})
	require.NoError(t, err)
	defer func() { assert.NoError(t, b.Close()) }()
	b.Keys = true
	handler := b.Handler()
	take := func(key, reference string, busy, declines float64) *httptest.ResponseRecorder {
		b.Busy, b.Declines = busy, declines
		req := httptest.NewRequest(http.MethodPost, "/bookings", strings.NewReader(`{"reference":"`+reference+`","amount":101}`))
		req.Header.Set("Idempotency-Key", key)
		response := httptest.NewRecorder()
		handler.ServeHTTP(response, req)
		return response
	}
	busy := take("one", "a", 1, 0)
	assert.Equal(t, http.StatusServiceUnavailable, busy.Code)
	assert.NotEmpty(t, busy.Header().Get("Retry-After"))
	first := take("one", "a", 0, 0)
	assert.Equal(t, http.StatusCreated, first.Code, "a 503 is not stored")
	assert.Equal(t, first.Body.String(), take("one", "a", 0, 1).Body.String())
	assert.Len(t, b.Booked("a"), 1)
	assert.Equal(t, http.StatusPaymentRequired, take("two", "b", 0, 1).Code)
	declined := take("two", "b", 0, 0)
	assert.Equal(t, http.StatusPaymentRequired, declined.Code)
	assert.Contains(t, declined.Body.String(), `"code":"`+Again+`"`)
	assert.Equal(t, http.StatusCreated, take("three", "b", 0, 0).Code)
}
