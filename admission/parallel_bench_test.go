package admission_test

import (
	"net/http"
	"runtime"
	"testing"

	"github.com/resilienthttp/resilienthttp/admission"
)

func BenchmarkSixteen(b *testing.B) {
	h := new(admission.Shedder).Handler(nothing)
	b.ReportAllocs()
	b.SetParallelism(max(1, 16/runtime.GOMAXPROCS(0)))
	b.RunParallel(func(pb *testing.PB) {
		w, r := &sink{http.Header{}}, request(b)
		for pb.Next() {
			h.ServeHTTP(w, r)
		}
	})
}
