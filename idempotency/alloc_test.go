//go:build !race

package idempotency_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/resilienthttp/resilienthttp/idempotency"
)

// blackHole is a ResponseWriter that discards everything.
type blackHole struct{ header http.Header }

func (b *blackHole) Header() http.Header         { return b.header }
func (b *blackHole) WriteHeader(int)             {}
func (b *blackHole) Write(p []byte) (int, error) { return len(p), nil }

// TestHandler_allocations bounds what a Handler and Memory allocate for a request. The
// race detector allocates too, so it runs without.
func TestHandler_allocations(t *testing.T) {
	body := []byte(`{"amount": 100, "currency": "eur", "customer": "cus_1"}`)
	for _, row := range []struct {
		name string
		key  func(n int) string
		want float64
	}{
		{"first request", strconv.Itoa, 82},
		{"replay", func(int) string { return "key" }, 34},
	} {
		t.Run(row.name, func(t *testing.T) {
			h := idempotency.NewHandler(new(idempotency.Memory), tenant, answer(http.StatusCreated, "made"))
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, thePath, http.NoBody)
			w, n := &blackHole{http.Header{}}, 0
			got := testing.AllocsPerRun(1000, func() {
				n++
				clear(w.header)
				r.Body = io.NopCloser(bytes.NewReader(body))
				r.Header.Set("Idempotency-Key", row.key(n))
				h.ServeHTTP(w, r)
			})
			assert.LessOrEqual(t, got, row.want)
		})
	}
}

// TestRequestFingerprint_memory: the parts of a hostile multipart body need no memory. Of this one, a list of them would be eight times as
// large as the body.
func TestRequestFingerprint_memory(t *testing.T) {
	body := bytes.Repeat([]byte("-"), 1<<20)
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, thePath, http.NoBody)
	r.Header.Set("Content-Type", "multipart/form-data; boundary=-")
	result := testing.Benchmark(func(b *testing.B) {
		for b.Loop() {
			idempotency.RequestFingerprint(r, body)
		}
	})
	assert.Less(t, result.AllocedBytesPerOp(), int64(64<<10))
}
