package overhead

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"time"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/benchmarks/internal/report"
)

// Added is a table of the CPU time that a timeout and this library add to a bare client's call in memory, by the number of
// scopes. It includes garbage collection and depends little on other programs.
func Added(rounds int, batch time.Duration, scopes ...int) *report.Table {
	table := report.NewTable("CPU time", "bare", "added by a timeout", "added by resilienthttp", "ratio")
	for _, l := range Loads()[:2] {
		for _, n := range scopes {
			callers := callersOf(context.Background(), l, hosts(n), instant{}, floor{instant{}}, &resilienthttp.Transport{Base: instant{}})
			for _, c := range callers {
				c.calls(2 * n) // creates the state of each scope
			}
			times := cpuTimes(callers, rounds, calibrate(callers[0], batch), 0.5)
			timeout, ours := times[1]-times[0], times[2]-times[0]
			table.Row(fmt.Sprintf("%s, scopes: %d", l.Name, n), times[0].String(), timeout.String(), ours.String(), ratio(ours, timeout))
		}
	}
	return table
}

// MemoryCPU is a table of the CPU time of calls in memory with a context that can be canceled. The base waits for the end of its
// context, as a network does.
func MemoryCPU(rounds, calls int) *report.Table {
	table := report.NewTable("CPU time, in memory", "timeout", "resilienthttp", "ratio", "with a quota", "ratio to none")
	for _, l := range Loads()[:2] {
		plain, quotas := waiting{otherHeader()}, waiting{quotaHeader()}
		times := cancelable(l, hosts(1), rounds, calls,
			floor{plain}, &resilienthttp.Transport{Base: plain}, &resilienthttp.Transport{Base: quotas})
		table.Row(l.Name, times[0].String(), times[1].String(), ratio(times[1], times[0]), times[2].String(), ratio(times[2], times[1]))
	}
	return table
}

// LoopbackCPU is the same for calls to a server in another process. The server's time does not count.
func LoopbackCPU(url string, rounds, calls int) *report.Table {
	table := report.NewTable("CPU time, loopback", "bare", "timeout", "resilienthttp", "ratio to bare")
	for _, l := range Loads()[:2] {
		bare, timeout, ours := resilienthttp.NewBase(), resilienthttp.NewBase(), resilienthttp.NewBase()
		times := cancelable(l, []string{url}, rounds, calls, bare, floor{timeout}, &resilienthttp.Transport{Base: ours})
		for _, base := range []*http.Transport{bare, timeout, ours} {
			base.CloseIdleConnections()
		}
		table.Row(l.Name, times[0].String(), times[1].String(), times[2].String(), ratio(times[2], times[0]))
	}
	return table
}

func cancelable(l Load, urls []string, rounds, calls int, bases ...http.RoundTripper) []time.Duration {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	callers := callersOf(ctx, l, urls, bases...)
	for _, c := range callers {
		c.calls(calls)
	}
	return cpuTimes(callers, rounds, calls, 0.25)
}

// Hosts is a table of the cost of calls to some numbers of healthy hosts in rotation, in memory. Zero maxScopes means the default
// of Transport.MaxScopes.
func Hosts(rounds, calls, maxScopes int, numbers ...int) *report.Table {
	table := report.NewTable("hosts in turn", "CPU time added to a call", "ratio to one host", "bytes a host")
	var all []*caller
	var memory []string
	for _, n := range numbers {
		callers := callersOf(context.Background(), Loads()[0], hosts(n), instant{}, &resilienthttp.Transport{Base: instant{}, MaxScopes: maxScopes})
		callers[0].calls(n)
		before := heap()
		callers[1].calls(n)
		memory = append(memory, strconv.Itoa((heap()-before)/n))
		all = append(all, callers...)
	}
	for i, c := range all {
		c.calls(2 * numbers[i/2]) // memory of the later calls to a host, and caches
	}
	times := cpuTimes(all, rounds, calls, 0.25)
	for i, n := range numbers {
		added := times[2*i+1] - times[2*i]
		table.Row(strconv.Itoa(n), added.String(), ratio(added, times[1]-times[0]), memory[i])
	}
	return table
}

func hosts(n int) (urls []string) {
	for i := range n {
		urls = append(urls, fmt.Sprintf("http://api-%d.example/v1/charges", i))
	}
	return urls
}

func callersOf(ctx context.Context, l Load, urls []string, bases ...http.RoundTripper) (callers []*caller) {
	for _, base := range bases {
		callers = append(callers, &caller{client: &http.Client{Transport: base}, load: l, way: Way{URLs: urls}, payload: make([]byte, l.Size), ctx: ctx})
	}
	return callers
}

// cpuTimes returns the CPU time of one call of each caller: a quantile of the rounds. In a round each caller makes the same number
// of calls, in a rotating order. Below the median, the garbage collector runs between the rounds only, because it would run at the
// cost of any caller.
func cpuTimes(callers []*caller, rounds, calls int, quantile float64) []time.Duration {
	between := func() {}
	if quantile < 0.5 {
		defer debug.SetGCPercent(debug.SetGCPercent(-1))
		between = runtime.GC
	}
	for _, c := range callers {
		c.batch = calls
	}
	quantiles := make([]time.Duration, len(callers))
	for i, times := range inTurns(callers, rounds, processorTime, between) {
		slices.Sort(times)
		quantiles[i] = time.Duration(times[int(float64(len(times))*quantile)])
	}
	return quantiles
}

func ratio(a, b time.Duration) string {
	if b <= 0 {
		return "–"
	}
	return fmt.Sprintf("%.2f", float64(a)/float64(b))
}

// heap returns the bytes of live objects.
func heap() int {
	runtime.GC()
	runtime.GC() // also what finalizers and pools have kept
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// floor is the minimum for a client with a timeout per attempt. Close of the body cancels the context.
type floor struct{ base http.RoundTripper }

const floorTimeout = 30 * time.Second

// RoundTrip implements http.RoundTripper.
func (f floor) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithTimeout(r.Context(), floorTimeout)
	resp, err := f.base.RoundTrip(r.WithContext(ctx))
	if err != nil {
		cancel()
		return nil, err
	}
	resp.Body = &cancelOnClose{resp.Body, cancel}
	return resp, nil
}

type cancelOnClose struct {
	io.ReadCloser
	cancel context.CancelFunc
}

func (c *cancelOnClose) Close() error {
	defer c.cancel()
	return c.ReadCloser.Close()
}

// waiting is a Base that responds at once and uses Done of the context, as net/http does.
type waiting struct{ header http.Header }

// RoundTrip implements http.RoundTripper.
func (w waiting) RoundTrip(r *http.Request) (*http.Response, error) {
	select {
	case <-r.Context().Done():
		return nil, r.Context().Err()
	default:
	}
	resp, err := instant{}.RoundTrip(r)
	maps.Copy(resp.Header, w.header)
	resp.Body = io.NopCloser(bytes.NewReader(nil))
	return resp, err
}

// otherHeader has as many fields as quotaHeader, without a meaning.
func otherHeader() http.Header {
	return http.Header{"X-Frame-Options": {"deny"}, "X-Content-Type-Options": {"nosniff"}, "Vary": {"Accept"}}
}

// quotaHeader shows a quota that never limits.
func quotaHeader() http.Header {
	reset := strconv.FormatInt(time.Now().Add(time.Hour).Unix(), 10)
	return http.Header{"X-Ratelimit-Limit": {"100000000"}, "X-Ratelimit-Remaining": {"99999999"}, "X-Ratelimit-Reset": {reset}}
}
