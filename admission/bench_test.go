package admission_test

import (
	"context"
	"net/http"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/admission"
)

// sink is a ResponseWriter that costs nothing.
type sink struct{ h http.Header }

func (s *sink) Header() http.Header         { return s.h }
func (s *sink) Write(p []byte) (int, error) { return len(p), nil }
func (s *sink) WriteHeader(int)             {}

func request(tb testing.TB) *http.Request {
	tb.Helper()
	r, err := http.NewRequestWithContext(context.Background(), http.MethodGet, "http://h/", http.NoBody)
	require.NoError(tb, err)
	r.RemoteAddr = "192.0.2.1:1234"
	return r
}

var nothing = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})

// occupied is a Shedder's handler without a free slot.
func occupied(tb testing.TB) http.Handler {
	tb.Helper()
	g := newGated()
	s := &admission.Shedder{Max: 1, Queue: -1}
	h := s.Handler(g)
	over := make(chan struct{})
	r := request(tb)
	go func() {
		defer close(over)
		h.ServeHTTP(&sink{http.Header{}}, r)
	}()
	tb.Cleanup(func() { close(g.gate); <-over })
	for s.State().InFlight == 0 {
		sleep(time.Millisecond)
	}
	return h
}

func exhausted() http.Handler {
	return (&admission.Quota{Limit: 1, Window: 1000 * time.Hour}).Handler(nothing)
}

// A1: allocations of rejected and of accepted requests.
func TestAllocations(t *testing.T) {
	used := exhausted()
	used.ServeHTTP(&sink{http.Header{}}, request(t))
	quota := &admission.Quota{Limit: 1 << 30, Window: time.Hour}
	ctx := context.Background()
	for _, row := range []struct {
		name string
		most float64
		do   func()
	}{
		{"rejection of a Quota", 6, serving(t, used)},
		{"rejection of a Shedder", 6, serving(t, occupied(t))},
		{"a Take", 0, func() { _, _ = quota.Take(ctx, "key", 1) }},
		{"a Quota that lets through", 3, serving(t, quota.Handler(nothing))},
		{"a Shedder that lets through", 0, serving(t, new(admission.Shedder).Handler(nothing))},
		{"a Shedder with a Key that lets through", 0, serving(t, (&admission.Shedder{Key: func(r *http.Request) (string, error) { return r.RemoteAddr, nil }}).Handler(nothing))},
	} {
		t.Run(row.name, func(t *testing.T) {
			row.do()
			require.LessOrEqual(t, testing.AllocsPerRun(2000, row.do), row.most)
		})
	}
}

// serving is one request after the other, into the same emptied header.
func serving(tb testing.TB, h http.Handler) func() {
	tb.Helper()
	w, r := &sink{make(http.Header, 8)}, request(tb)
	return func() {
		clear(w.h)
		h.ServeHTTP(w, r)
	}
}

func BenchmarkQuota(b *testing.B) {
	quota := &admission.Quota{Limit: 1 << 30, Window: time.Hour}
	ctx := context.Background()
	bench(b, "take", func() { _, _ = quota.Take(ctx, "key", 1) })
	bench(b, "handler", serving(b, quota.Handler(nothing)))
	used := exhausted()
	used.ServeHTTP(&sink{http.Header{}}, request(b))
	bench(b, "rejection", serving(b, used))
}

func BenchmarkShedder(b *testing.B) {
	bench(b, "free", serving(b, new(admission.Shedder).Handler(nothing)))
	bench(b, "rejection", serving(b, occupied(b)))
	keyed := &admission.Shedder{Key: func(r *http.Request) (string, error) { return r.RemoteAddr, nil }}
	bench(b, "free with a key", serving(b, keyed.Handler(nothing)))
	for name, s := range map[string]*admission.Shedder{"16 goroutines": {}, "16 goroutines with a key": {Key: keyed.Key}} {
		h := s.Handler(nothing)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetParallelism(max(1, 16/runtime.GOMAXPROCS(0)))
			b.RunParallel(func(pb *testing.PB) {
				w, r := &sink{http.Header{}}, request(b)
				for pb.Next() {
					h.ServeHTTP(w, r)
				}
			})
		})
	}
}

func bench(b *testing.B, name string, do func()) {
	b.Helper()
	b.Run(name, func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			do()
		}
	})
}
