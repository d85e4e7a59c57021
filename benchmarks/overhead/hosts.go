package overhead

import (
	"fmt"
	"net/http"
	"runtime"
	"time"

	"github.com/resilienthttp/resilienthttp"
)

// HostsRow is the cost of calls to a number of hosts, one after the other.
type HostsRow struct {
	Hosts int
	Added time.Duration // CPU time that the Transport adds to a bare client's call
	Ratio float64       // of Added to that of the first row
	Bytes int           // memory of the Transport for each host
}

// MeasureHosts measures calls to some numbers of healthy hosts in rotation, in memory. Zero
// maxScopes means the default of Transport.MaxScopes.
func MeasureHosts(rounds, calls, maxScopes int, hosts []int) []HostsRow {
	var callers []*caller
	rows := make([]HostsRow, len(hosts))
	for i, n := range hosts {
		bare, ours := rotation(n, instant{}), rotation(n, &resilienthttp.Transport{Base: instant{}, MaxScopes: maxScopes})
		bare.calls(n)
		before := heap()
		ours.calls(n)
		rows[i] = HostsRow{Hosts: n, Bytes: (heap() - before) / n}
		callers = append(callers, bare, ours)
	}
	for i, c := range callers {
		c.calls(2 * hosts[i/2]) // memory of the later calls to a host, and caches
	}
	times := cpuTimes(callers, rounds, calls)
	for i := range rows {
		rows[i].Added = times[2*i+1] - times[2*i]
		rows[i].Ratio = ratio(rows[i].Added, rows[0].Added)
	}
	return rows
}

func rotation(hosts int, base http.RoundTripper) *caller {
	way := InMemory()
	for i := range hosts {
		way.URLs = append(way.URLs, fmt.Sprintf("http://api-%d.example/v1/charges", i))
	}
	return &caller{client: &http.Client{Transport: base}, load: Loads()[0], way: way}
}

// heap returns the bytes of live objects.
func heap() int {
	runtime.GC()
	runtime.GC() // also what finalizers and pools have kept
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}
