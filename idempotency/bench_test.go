package idempotency_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"

	"github.com/resilienthttp/resilienthttp/idempotency"
)

// blackHole is a ResponseWriter that discards everything.
type blackHole struct{ header http.Header }

func (b *blackHole) Header() http.Header         { return b.header }
func (b *blackHole) WriteHeader(int)             {}
func (b *blackHole) Write(p []byte) (int, error) { return len(p), nil }

func benchmarkHandler(b *testing.B, key func(n int) string) {
	b.Helper()
	made := []byte(`{"id": "ch_1", "amount": 100, "currency": "eur"}`)
	body := []byte(`{"amount": 100, "currency": "eur", "customer": "cus_1"}`)
	h := idempotency.NewHandler(&idempotency.Memory{MaxKeys: -1}, func(*http.Request) (string, error) { return "acct_1", nil },
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusCreated)
			w.Write(made)
		}))
	r := httptest.NewRequestWithContext(b.Context(), http.MethodPost, "/charges", bytes.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	w := &blackHole{http.Header{}}
	b.ReportAllocs()
	for n := 0; b.Loop(); n++ {
		clear(w.header)
		r.Body = io.NopCloser(bytes.NewReader(body))
		r.Header["Idempotency-Key"] = []string{key(n)}
		h.ServeHTTP(w, r)
	}
}

// The cost of a Handler, without a store on disk.
func BenchmarkHandlerFirst(b *testing.B) {
	benchmarkHandler(b, func(n int) string { return "key-" + strconv.Itoa(n) })
}

func BenchmarkHandlerReplay(b *testing.B) {
	benchmarkHandler(b, func(int) string { return "key" })
}

func BenchmarkDo(b *testing.B) {
	x := &idempotency.Executor{Store: &idempotency.Memory{MaxKeys: -1}}
	work := func(context.Context) (idempotency.Result, error) { return idempotency.Result{}, nil }
	b.ReportAllocs()
	for n := 0; b.Loop(); n++ {
		id := idempotency.ID{Scope: "comp1", Operation: "import", Key: strconv.Itoa(n)}
		if _, err := x.Do(b.Context(), id, "", work); err != nil {
			b.Fatal(err)
		}
	}
}
