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

// The bank must double what it is asked twice: otherwise it would keep the service's
// promise in its place.
func TestBankKnowsNoKeys(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger")
	b, err := Open(path)
	require.NoError(t, err)
	take := func(body string) int {
		req := httptest.NewRequest(http.MethodPost, "/bookings", strings.NewReader(body))
		req.Header.Set("Idempotency-Key", "one")
		answer := httptest.NewRecorder()
		b.Handler().ServeHTTP(answer, req)
		return answer.Code
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

	again, err := Open(path)
	require.NoError(t, err)
	defer func() { assert.NoError(t, again.Close()) }()
	answer := httptest.NewRecorder()
	again.Handler().ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/bookings?reference=a", http.NoBody))
	assert.Equal(t, 2, strings.Count(answer.Body.String(), `"reference":"a"`), "also after a restart")
}

// A bank with keys gives its first answer again, a refusal too, for as long as the key is
// the same.
func TestBankKnowsKeys(t *testing.T) {
	b, err := Open(filepath.Join(t.TempDir(), "ledger"))
	require.NoError(t, err)
	defer func() { assert.NoError(t, b.Close()) }()
	b.Keys = true
	take := func(key, reference string, busy, declines float64) *httptest.ResponseRecorder {
		b.Busy, b.Declines = busy, declines
		req := httptest.NewRequest(http.MethodPost, "/bookings", strings.NewReader(`{"reference":"`+reference+`","amount":101}`))
		req.Header.Set("Idempotency-Key", key)
		answer := httptest.NewRecorder()
		b.Handler().ServeHTTP(answer, req)
		return answer
	}
	busy := take("one", "a", 1, 0)
	assert.Equal(t, http.StatusServiceUnavailable, busy.Code)
	assert.NotEmpty(t, busy.Header().Get("Retry-After"))
	first := take("one", "a", 0, 0)
	assert.Equal(t, http.StatusCreated, first.Code, "what was not done is not remembered")
	assert.Equal(t, first.Body.String(), take("one", "a", 0, 1).Body.String())
	assert.Len(t, b.Booked("a"), 1)
	assert.Equal(t, http.StatusPaymentRequired, take("two", "b", 0, 1).Code)
	declined := take("two", "b", 0, 0)
	assert.Equal(t, http.StatusPaymentRequired, declined.Code)
	assert.Contains(t, declined.Body.String(), `"code":"`+Again+`"`)
	assert.Equal(t, http.StatusCreated, take("three", "b", 0, 0).Code)

	_, known := b.keyed.begin("four")
	assert.False(t, known)
	assert.Equal(t, http.StatusConflict, take("four", "c", 0, 0).Code, "while it is at it")
	assert.Empty(t, b.Booked("c"))
}
