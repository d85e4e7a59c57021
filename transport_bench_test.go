package resilienthttp_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/resilienthttp/resilienthttp"
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

// timeoutOnly is the floor: the least that gives each attempt a timeout. The
// body wrapper cancels when it is closed.
type timeoutOnly struct{ base http.RoundTripper }

type cancelOnClose struct {
	io.ReadCloser
	cancel context.CancelFunc
}

func (c *cancelOnClose) Close() error {
	defer c.cancel()
	return c.ReadCloser.Close()
}

func (t timeoutOnly) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithTimeout(r.Context(), 30*time.Second)
	resp, err := t.base.RoundTrip(r.WithContext(ctx))
	if err != nil {
		cancel()
		return nil, err
	}
	resp.Body = &cancelOnClose{resp.Body, cancel}
	return resp, nil
}

// contender is one of the clients that are measured side by side.
type contender struct {
	name string
	base http.RoundTripper
}

func contenders() []contender {
	return []contender{
		{"bare", instant{}},
		{"timeout-only", timeoutOnly{instant{}}},
		{"Transport", &resilienthttp.Transport{Base: instant{}}},
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

// BenchmarkQuotaHosts measures calls with quota headers to 30,000 hosts in turn, interleaved with calls to one host, and
// reports the median ratio of the two. A Transport keeps half as many scopes.
func BenchmarkQuotaHosts(b *testing.B) {
	urls := make([]string, 30_000)
	for i := range urls {
		urls[i] = fmt.Sprintf("http://api-%d.example/v1/charges", i)
	}
	base := roundTripper(func(r *http.Request) (*http.Response, error) {
		resp, err := instant{}.RoundTrip(r)
		resp.Header["Ratelimit-Policy"], resp.Header["Ratelimit"] = []string{`"default";q=1000000000;w=3600`}, []string{`"default";r=999999999;t=3600`}
		return resp, err
	})
	client := func(urls []string) func() time.Duration {
		do, next := requester(loads[0], &http.Client{Transport: &resilienthttp.Transport{Base: base}}), 0
		calls := func(n int) time.Duration {
			start := time.Now()
			for range n {
				do(urls[next%len(urls)])
				next++
			}
			return time.Since(start)
		}
		calls(len(urls)) // state that is created once
		return func() time.Duration { return calls(1000) }
	}
	one, many := client(urls[:1]), client(urls)
	var ratios []float64
	for b.Loop() {
		ratios = append(ratios, float64(many())/float64(one()))
	}
	slices.Sort(ratios)
	b.ReportMetric(ratios[len(ratios)/2], "x-one-host")
}
