package fleet

import (
	"fmt"
	"time"
)

// rejections are responses with Retry-After.
func rejections() []Scenario {
	type scattered struct {
		share  float64
		status int
		mean   float64
		rate   int
	}
	all := each(func(v scattered) Scenario {
		return Scenario{
			Row: 1, Name: fmt.Sprintf("scattered-%d-%g", v.status, 100*v.share), During: 60 * time.Second,
			Note:   fmt.Sprintf("%g %% of responses are %d with Retry-After: 1", 100*v.share, v.status),
			Server: always(v.share, Response{Status: v.status, RetryAfter: 1}), Load: fleetOf(v.rate),
			Targets: []Target{
				atLeast("success", Result.Success, 0.999, "%.4f"),
				atMost("mean, ms", mean, v.mean, "%.0f"),
			},
		}
	}, scattered{0.05, 503, 100, 100}, scattered{0.05, 429, 100, 100}, scattered{0.01, 503, 35, 1000}, scattered{0.01, 429, 35, 1000})
	return append(all, Scenario{
		Row: 2, Name: "scattered-long-wait", Note: "1 % of responses are 503 with Retry-After: 30; deadline 30 s", During: 60 * time.Second,
		Server:  always(0.01, Response{Status: 503, RetryAfter: 30}),
		Targets: []Target{atLeast("success", Result.Success, 0.989, "%.4f")},
	}, Scenario{
		Row: 3, Name: "outage-retry-after", Note: "all responses are 503 with Retry-After: 5 for 30 s",
		Before: 10 * time.Second, During: 30 * time.Second, After: 60 * time.Second,
		Server: always(0, Response{Status: 503, RetryAfter: 5}),
		Targets: []Target{
			atLeast("success", Result.Success, 0.70, "%.4f").orBare(),
			atMost("load in the worst second", worstSecond, 1.25, "%.3f").shared().worstSeed(),
			atMost("load in the worst second", worstSecond, 2, "%.3f").perClient().worstSeed(),
			recoversWithin(2 * time.Second),
		},
	}, Scenario{
		Row: 30, Name: "stray", Note: "20 calls/s; one 503 with Retry-After: 30", Topologies: []Topology{Shared},
		Before: 10 * time.Second, During: time.Second, After: 60 * time.Second,
		Server:  Server{Faults: []Fault{{Times: 1, Response: Response{Status: 503, RetryAfter: 30}}}},
		Load:    Load{Every: time.Second, Clients: 20, Deadline: time.Minute},
		Targets: []Target{atMost("peak after the fault", peakAfter, 2, "%.2f").worstSeed()},
	})
}
