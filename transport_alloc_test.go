//go:build !race

package resilienthttp_test

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"net/http"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/internal/bubble"
)

// A successful call adds few allocations to those of a bare client. The race detector would add some. A response that is no
// stream pays nothing for Policy.Stream, and a request nothing for Policy.Idempotent.
func TestAllocations(t *testing.T) {
	type cost struct{ allocs, size float64 }
	added := map[string]cost{}
	for _, l := range loads {
		bare, bareSize := allocations(requester(l, &http.Client{Transport: instant{}}))
		ours, size := allocations(requester(l, &http.Client{Transport: &resilienthttp.Transport{Base: instant{}}}))
		with, sizeWith := allocations(requester(l, &http.Client{Transport: &resilienthttp.Transport{Base: instant{}, Policy: streamPolicy()}}))
		assert.InDelta(t, ours, with, 0.1, "%s, with a Stream", l.name)
		assert.InDelta(t, size, sizeWith, 64, "%s, with a Stream", l.name)
		added[l.name] = cost{ours - bare, size - bareSize}
		t.Logf("%-10s adds %5.1f allocations and %6.0f bytes", l.name, ours-bare, size-bareSize)
	}
	assert.LessOrEqual(t, added["GET"].allocs, 4.0, "allocations of a GET")
	assert.LessOrEqual(t, added["GET"].size, 1.6*1024, "bytes of a GET")
	assert.LessOrEqual(t, added["POST-64B"].allocs, 9.0, "allocations of a POST with a generated key")
	assert.LessOrEqual(t, added["POST-1MiB"].size, added["POST-64B"].size+128, "bytes of a large POST: the body is not copied")
}

// §4.18: a healthy scope takes at most 2 KB, and 4 KB if it is busy.
func TestMaxScopes_memoryOfAScope(t *testing.T) {
	const hosts = 200
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
		every      time.Duration
		tr         *resilienthttp.Transport
	}{
		{"a call", 1, 2 << 10, 0, &resilienthttp.Transport{}},
		{"30 calls at once", 30, 2 << 10, 0, &resilienthttp.Transport{}},
		{"10 calls a second, for 5 min", 3000, 4 << 10, 100 * time.Millisecond, &resilienthttp.Transport{}},
		{"parts that others may share", 19, 2600, 0, &resilienthttp.Transport{
			Breaker: &resilienthttp.Breaker{}, Budget: &resilienthttp.Budget{}, RateLimit: &resilienthttp.RateLimit{},
		}},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			row.tr.Base = instant{}
			do := requester(loads[0], &http.Client{Transport: row.tr})
			do("http://first.example")
			before := heap()
			for range row.calls {
				for _, url := range urls {
					do(url)
				}
				time.Sleep(row.every)
			}
			took := (heap() - before) / hosts
			t.Logf("%d bytes a scope", took)
			require.LessOrEqual(t, took, row.max)
			require.Len(t, row.tr.State().Scopes, hosts+1)
		})
	}
}

// load is one kind of request.
type load struct {
	name, method string
	size         int
}

var loads = []load{
	{"GET", http.MethodGet, 0},
	{"POST-64B", http.MethodPost, 64},
	{"POST-1MiB", http.MethodPost, 1 << 20},
}

// requester makes the same request over and over, as a program would: a new
// http.Request for each call.
func requester(l load, client *http.Client) func(url string) {
	payload := make([]byte, l.size)
	return func(url string) {
		var body io.Reader
		if l.size > 0 {
			body = bytes.NewReader(payload)
		}
		req, err := http.NewRequest(l.method, url, body)
		if err != nil {
			panic(err)
		}
		resp, err := client.Do(req)
		if err != nil {
			panic(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
	}
}

const oneURL = "http://api.example/v1/charges"

// allocations are the allocations and bytes of one call, averaged over many: the least of six such means, because what
// else the machine does empties pools.
func allocations(do func(string)) (allocs, size float64) {
	const calls = 2000
	do(oneURL) // state that is created once
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	allocs, size = math.Inf(1), math.Inf(1)
	for range 6 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range calls {
			do(oneURL)
		}
		runtime.ReadMemStats(&after)
		allocs = min(allocs, float64(after.Mallocs-before.Mallocs)/calls)
		size = min(size, float64(after.TotalAlloc-before.TotalAlloc)/calls)
	}
	return allocs, size
}
