package pgstore_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/internal/dbtest/postgrestest"
)

func TestExample_chargesEachKeyOnce(t *testing.T) {
	pool := newPool(t, postgrestest.Open(t), nil)
	_, err := pool.Exec(t.Context(), "CREATE TABLE charges (id serial, cents integer)")
	require.NoError(t, err)
	service, err := newService(t.Context(), pool)
	require.NoError(t, err)

	for _, row := range []struct {
		name, key, cents string
		code             int
		body             string
	}{
		{"first request: executed", "invoice:1", "100", http.StatusCreated, "charge 1"},
		{"same key: replayed", "invoice:1", "100", http.StatusCreated, "charge 1"},
		{"same key, another body: rejected", "invoice:1", "999", http.StatusUnprocessableEntity, "mismatch"},
		{"failed statement: rolled back", "invoice:2", "99999999999999", http.StatusServiceUnavailable, "try again"},
		{"not a number: rejected", "invoice:3", "many", http.StatusBadRequest, "cents: want a number"},
		{"no key: rejected", "", "100", http.StatusBadRequest, "key-missing"},
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/charges", strings.NewReader("cents="+row.cents))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.SetBasicAuth("acme", "")
		if row.key != "" {
			r.Header.Set("Idempotency-Key", row.key)
		}
		w := httptest.NewRecorder()
		service.ServeHTTP(w, r)
		assert.Equal(t, row.code, w.Code, row.name)
		assert.Contains(t, w.Body.String(), row.body, row.name)
	}
	var charges int
	require.NoError(t, pool.QueryRow(t.Context(), "SELECT count(*) FROM charges").Scan(&charges))
	assert.Equal(t, 1, charges)
}
