package resilienthttp_test

import (
	"bytes"
	"io"
	"math"
	"net/http"
	"runtime"
)

// instant is a Base that responds at once: the benchmark measures the code
// around it.
type instant struct{}

func (instant) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		_, _ = io.Copy(io.Discard, r.Body)
		_ = r.Body.Close()
	}
	return &http.Response{
		Status: "200 OK", StatusCode: http.StatusOK, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header:  http.Header{"Content-Type": {"application/json"}, "Date": {"Thu, 01 Jan 2026 00:00:00 GMT"}},
		Body:    io.NopCloser(bytes.NewReader(nil)),
		Request: r,
	}, nil
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
