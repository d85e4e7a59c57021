package fleet

import (
	"fmt"
	"net/http"
	"time"

	"golang.org/x/time/rate"

	"github.com/resilienthttp/resilienthttp"
)

// limits are servers with rate limits and different headers, and rate limits that the
// client sets.
func limits() []Scenario {
	unsaid := func(name, note string, load Load, burst int) Scenario {
		return Scenario{
			Row: 23, Name: name, Note: "100 calls/s, nginx limit_req 50/s: 503 without headers" + note, During: 60 * time.Second, Load: load,
			Server:  Server{Limit: Limit{Rate: 50, Burst: burst, Status: http.StatusServiceUnavailable, Headers: NoHeaders}},
			Targets: []Target{atLeast("success", Result.Success, 0.51, "%.4f").orBare()},
		}
	}
	return append([]Scenario{{
		Row: 13, Name: "429-no-headers", Note: "120 calls/s, quota 100/s; 429 without headers", Reason: whyAllAttempts, During: 60 * time.Second, Topologies: []Topology{Own},
		Server: Server{Limit: Limit{Quota: 100, Headers: NoHeaders}}, Load: Load{Rate: 120},
		Targets: []Target{
			atLeast("success", Result.Success, 0.82, "%.4f"),
			atMost("429s", tooMany, 6000, "%.0f"),
		},
	}, {
		Row: 14, Name: "quota-headers-on-429", Note: "200 calls/s, quota 100/s; quota headers only on 429", During: 60 * time.Second, Topologies: []Topology{Shared},
		Server: Server{Limit: Limit{Quota: 100, Headers: HeadersOnRejections}}, Load: Load{Rate: 200},
		Targets: []Target{
			atLeast("used part of the quota", quotaUsed, 0.95, "%.4f"),
			atMost("429s", tooMany, 1000, "%.0f"),
		},
	}, {
		Row: 20, Name: "quota-many-clients", Note: "1000 clients, 200 calls/s, one quota of 100/s", During: 120 * time.Second, Topologies: []Topology{Own},
		Server: Server{Limit: Limit{Quota: 100}}, Load: Load{Rate: 200},
		Targets: []Target{
			atMost("429s in the first minute", tooManyIn(time.Minute), 1.25, "%.0f").timesBare(tooManyIn(time.Minute)),
			atMost("429s", tooMany, 1, "%.0f").timesBare(tooMany),
		},
	},
		unsaid("limit-req", ", burst 5", Load{Rate: 100, Clients: 100}, 5),
		unsaid("limit-req-even", ", no burst, evenly spaced calls", Load{Rate: 100, Clients: 100, Even: true}, 1),
	}, append(gateways(), own()...)...)
}

// gateways are token buckets with Retry-After: 1.
func gateways() (all []Scenario) {
	const served = "used part of the limit"
	for _, status := range []int{http.StatusTooManyRequests, http.StatusServiceUnavailable} {
		server := Server{Limit: Limit{Rate: 50, Burst: 10, Status: status}}
		all = append(all, each(func(offered float64) Scenario {
			return Scenario{
				Row: 21, Name: fmt.Sprintf("gateway-%d-%g", status, offered), During: 60 * time.Second,
				Note:   fmt.Sprintf("%g calls/s, token bucket of 50/s: %d with Retry-After: 1", offered, status),
				Server: server, Load: Load{Rate: offered}, Shows: served,
				Targets: []Target{atLeast(served, quotaUsed, 0.98, "%.4f").orBare()},
			}
		}, 52, 60, 100)...)
		all = append(all, Scenario{
			Row: 21, Name: fmt.Sprintf("gateway-%d-workers", status), During: 60 * time.Second,
			Note:   fmt.Sprintf("20 workers, token bucket of 50/s: %d with Retry-After: 1", status),
			Server: server, Load: Load{Workers: 20, Think: 10 * time.Millisecond}, Shows: served,
			Targets: []Target{
				atLeast(served, quotaUsed, 0.90, "%.4f"),
				atLeast(served, quotaUsed, 0.98, "%.4f").goal(),
			},
		})
	}
	return all
}

// own are rate limits of the client.
func own() []Scenario {
	all := each(func(limit float64) Scenario {
		return Scenario{
			Row: 19, Name: fmt.Sprintf("limit-%g", limit), Note: fmt.Sprintf("RateLimit{Limit: %g, Burst: 1}, 200 callers", limit),
			During: 30 * time.Second, Topologies: []Topology{Shared},
			Load: Load{Workers: 200},
			Configure: func(t *resilienthttp.Transport) {
				t.RateLimit = &resilienthttp.RateLimit{Limit: rate.Limit(limit), Burst: 1}
			},
			Targets: []Target{atLeast("used part of the limit", func(r Result) float64 {
				n := 0
				for _, at := range r.arrived {
					if at < r.Scenario.Length() {
						n++
					}
				}
				return float64(n) / limit / r.Scenario.Length().Seconds()
			}, 0.95, "%.4f")},
		}
	}, 10, 100, 1000)
	const limit, burst = 48, 5
	return append(all, Scenario{
		Row: 22, Name: "limit-and-429", Note: "RateLimit{Limit: 48, Burst: 5}, 60 calls/s, one 429 with Retry-After: 2",
		Before: 20 * time.Second, During: time.Second, After: 19 * time.Second, Topologies: []Topology{Shared},
		Server:    Server{Faults: []Fault{{Times: 1, Response: Response{Status: http.StatusTooManyRequests, RetryAfter: 2}}}},
		Load:      Load{Rate: 60},
		Configure: func(t *resilienthttp.Transport) { t.RateLimit = &resilienthttp.RateLimit{Limit: limit, Burst: burst} },
		Targets: []Target{
			atMost("requests above Burst + Limit × time", func(r Result) float64 { return r.excess(limit, burst) }, 0.001, "%.3f").worstSeed(),
		},
	})
}
