package overhead

import (
	"bytes"
	"context"
	"io"
	"maps"
	"net/http"
	"strconv"
	"time"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/benchmarks/peers"
)

// CPURow is the CPU time of one kind of call, with a context that can be canceled.
type CPURow struct {
	Load                      Load
	Bare, Floor, Ours, Quotas time.Duration // Quotas: Ours with quota headers on each response; 0: not measured
}

// OfFloor returns the ratio of Ours to the minimum for a timeout.
func (r CPURow) OfFloor() float64 { return ratio(r.Ours, r.Floor) }

// OfBare returns the ratio of Ours to Bare.
func (r CPURow) OfBare() float64 { return ratio(r.Ours, r.Bare) }

// OfQuotas returns the ratio of Quotas to Ours.
func (r CPURow) OfQuotas() float64 { return ratio(r.Quotas, r.Ours) }

// MeasureCPU measures calls in memory. The base waits for the end of its context, as a network
// does.
func MeasureCPU(rounds, calls int) []CPURow {
	var rows []CPURow
	for _, l := range Loads()[:2] {
		plain, quotas := waiting{header: otherHeader()}, waiting{header: quotaHeader()}
		times := cpuOf(l, "http://api.example/v1/charges", rounds, calls,
			plain, floor{plain}, &resilienthttp.Transport{Base: plain}, &resilienthttp.Transport{Base: quotas})
		rows = append(rows, CPURow{l, times[0], times[1], times[2], times[3]})
	}
	return rows
}

// MeasureLoopbackCPU measures calls to a server in another process. The server's time does not
// count.
func MeasureLoopbackCPU(url string, rounds, calls int) []CPURow {
	var rows []CPURow
	for _, l := range Loads()[:2] {
		bare, timeout, ours := resilienthttp.NewBase(), resilienthttp.NewBase(), resilienthttp.NewBase()
		times := cpuOf(l, url, rounds, calls, bare, floor{timeout}, &resilienthttp.Transport{Base: ours})
		for _, base := range []*http.Transport{bare, timeout, ours} {
			base.CloseIdleConnections()
		}
		rows = append(rows, CPURow{Load: l, Bare: times[0], Floor: times[1], Ours: times[2]})
	}
	return rows
}

func cpuOf(l Load, url string, rounds, calls int, bases ...http.RoundTripper) []time.Duration {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	callers := make([]*caller, len(bases))
	for i, base := range bases {
		client := peers.Client(&http.Client{Transport: base})
		callers[i] = &caller{client: client, load: l, way: Way{URL: url}, payload: make([]byte, l.Size), ctx: ctx}
		callers[i].calls(calls)
	}
	return cpuTimes(callers, rounds, calls)
}

// waiting is a Base that responds at once and uses Done of the context, as net/http does.
type waiting struct{ header http.Header }

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
