//go:build !race

package resilienthttp_test

import (
	"fmt"
	"net/http"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
)

// §4.18: a healthy scope takes at most 2 KB, and its histogram of latencies one more.
func TestMaxScopes_memoryOfAScope(t *testing.T) {
	const hosts = 2000
	urls := make([]string, hosts)
	for i := range urls {
		urls[i] = fmt.Sprintf("http://api-%d.example/v1/charges", i)
	}
	heap := func() int64 {
		runtime.GC()
		runtime.GC()
		var s runtime.MemStats
		runtime.ReadMemStats(&s)
		return int64(s.HeapAlloc)
	}
	for _, row := range []struct {
		name       string
		calls, max int64
		tr         *resilienthttp.Transport
	}{
		{"a call", 1, 2 << 10, &resilienthttp.Transport{}},
		{"19 calls: no histogram", 19, 2 << 10, &resilienthttp.Transport{}},
		{"30 calls: a histogram", 30, 3 << 10, &resilienthttp.Transport{}},
		{"parts that others may share", 19, 2600, &resilienthttp.Transport{
			Breaker: &resilienthttp.Breaker{}, Budget: &resilienthttp.Budget{}, RateLimit: &resilienthttp.RateLimit{},
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			row.tr.Base = instant{}
			do := requester(loads[0], &http.Client{Transport: row.tr})
			do("http://first.example")
			before := heap()
			for range row.calls {
				for _, url := range urls {
					do(url)
				}
			}
			took := (heap() - before) / hosts
			t.Logf("%d bytes a scope", took)
			require.LessOrEqual(t, took, row.max)
			require.Len(t, row.tr.State().Scopes, hosts+1)
		})
	}
}
