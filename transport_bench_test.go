package resilienthttp_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"runtime"
	"slices"
	"sync"
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

// BenchmarkCall measures each client separately, for benchstat.
func BenchmarkCall(b *testing.B) {
	for _, l := range loads {
		for _, c := range contenders() {
			b.Run(l.name+"/"+c.name, func(b *testing.B) {
				do := requester(l, &http.Client{Transport: c.base})
				b.ReportAllocs()
				for b.Loop() {
					do(oneURL)
				}
			})
		}
	}
}

// BenchmarkOverhead measures the clients interleaved, in rounds of a few hundred
// calls each, so that a noisy machine is noisy to all of them, and reports what
// is added over bare as the median of the rounds: in ns, and as a ratio to what
// the timeout-only client adds. The calls of a round come from as many goroutines
// as there are processors (-cpu 1,2), to one scope or to a thousand.
func BenchmarkOverhead(b *testing.B) {
	for _, l := range loads[:2] {
		for _, scopes := range []int{1, 1000} {
			b.Run(fmt.Sprintf("%s/%d-scopes", l.name, scopes), func(b *testing.B) {
				urls := make([]string, scopes)
				for i := range urls {
					urls[i] = fmt.Sprintf("http://api-%d.example/v1/charges", i)
				}
				overhead(b, l, urls)
			})
		}
	}
}

func overhead(b *testing.B, l load, urls []string) {
	var clients []func(string)
	for _, c := range contenders() {
		do := requester(l, &http.Client{Transport: c.base})
		for _, url := range urls {
			do(url) // state that is created once for each scope
		}
		clients = append(clients, do)
	}
	times := make([][]float64, len(clients))
	for b.Loop() {
		for i, do := range clients {
			times[i] = append(times[i], round(do, urls))
		}
	}
	median := func(x []float64) float64 {
		slices.Sort(x)
		return x[len(x)/2]
	}
	bare, timeout, ours := median(times[0]), median(times[1]), median(times[2])
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(bare, "bare-ns")
	b.ReportMetric(timeout-bare, "timeout-added-ns")
	b.ReportMetric(ours-bare, "added-ns")
	b.ReportMetric((ours-bare)/(timeout-bare), "x-timeout")
}

// round makes some hundred calls and returns the time of one, in ns.
func round(do func(string), urls []string) float64 {
	const calls = 300
	workers := runtime.GOMAXPROCS(0)
	start := time.Now()
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := range calls {
				do(urls[(w*calls+i*7)%len(urls)])
			}
		})
	}
	wg.Wait()
	return float64(time.Since(start)) / float64(calls*workers)
}

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

// BenchmarkQuotaCall measures calls with quota headers in the response, interleaved with calls
// that get as many other fields, and reports the median ratio of the two.
func BenchmarkQuotaCall(b *testing.B) {
	dialects := map[string]http.Header{
		"none":      {},
		"github":    {"X-Ratelimit-Limit": {"1000000000"}, "X-Ratelimit-Remaining": {"999999999"}, "X-Ratelimit-Used": {"1"}, "X-Ratelimit-Reset": {"1767229200"}, "X-Ratelimit-Resource": {"core"}},
		"openai":    {"X-Ratelimit-Limit-Requests": {"1000000000"}, "X-Ratelimit-Limit-Tokens": {"1000000000"}, "X-Ratelimit-Remaining-Requests": {"999999999"}, "X-Ratelimit-Remaining-Tokens": {"999999999"}, "X-Ratelimit-Reset-Requests": {"12ms"}, "X-Ratelimit-Reset-Tokens": {"6m0s"}},
		"ietf":      {"Ratelimit-Policy": {`"default";q=1000000000;w=3600`}, "Ratelimit": {`"default";r=999999999;t=3600`}},
		"ietf-2020": {"Ratelimit-Limit": {"1000000000"}, "Ratelimit-Remaining": {"999999999"}, "Ratelimit-Reset": {"3600"}},
	}
	client := func(quotas http.Header) func(string) {
		return requester(loads[0], &http.Client{Transport: &resilienthttp.Transport{
			Base: roundTripper(func(r *http.Request) (*http.Response, error) {
				resp, err := instant{}.RoundTrip(r)
				maps.Copy(resp.Header, quotas)
				return resp, err
			}),
		}})
	}
	for name, quotas := range dialects {
		b.Run(name, func(b *testing.B) {
			others := http.Header{}
			for i := range len(quotas) {
				others[fmt.Sprintf("X-Other-%d", i)] = []string{"1"}
			}
			without, with := client(others), client(quotas)
			var ratios []float64
			rounds := func(do func(string)) (sum float64) {
				for range 10 { // a single round would have the garbage collections of both, or none
					sum += round(do, []string{oneURL})
				}
				return sum
			}
			for b.Loop() {
				ratios = append(ratios, rounds(with)/rounds(without))
			}
			slices.Sort(ratios)
			b.ReportMetric(ratios[len(ratios)/2], "x-without")
		})
	}
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
