package fleet

import (
	"fmt"
	"time"
)

// refusals are answers that ask to come back later.
func refusals() []Scenario {
	type scattered struct {
		share  float64
		status int
		mean   float64
		rate   int
	}
	all := each(func(v scattered) Scenario {
		return Scenario{
			Row: 1, Name: fmt.Sprintf("scattered-%d-%g", v.status, 100*v.share), During: 60 * time.Second,
			Note:   fmt.Sprintf("%g %% of answers are %d with Retry-After: 1", 100*v.share, v.status),
			Server: always(v.share, Answer{Status: v.status, RetryAfter: 1}), Load: fleetOf(v.rate),
			Goals: []Goal{
				atLeast("success", Result.Success, 0.999, "%.4f"),
				atMost("mean, ms", mean, v.mean, "%.0f"),
			},
		}
	}, scattered{0.05, 503, 100, 100}, scattered{0.05, 429, 100, 100}, scattered{0.01, 503, 35, 1000}, scattered{0.01, 429, 35, 1000})
	return append(all, Scenario{
		Row: 2, Name: "scattered-far", Note: "1 % of answers are 503 with Retry-After: 30, as long as the deadline", During: 60 * time.Second,
		Server: always(0.01, Answer{Status: 503, RetryAfter: 30}),
		Goals:  []Goal{atLeast("success", Result.Success, 0.989, "%.4f")},
	}, Scenario{
		Row: 3, Name: "outage-told", Note: "every request is answered 503 with Retry-After: 5 for 30 s",
		Before: 10 * time.Second, During: 30 * time.Second, After: 60 * time.Second,
		Server: always(0, Answer{Status: 503, RetryAfter: 5}),
		Goals: []Goal{
			atLeast("success", Result.Success, 0.70, "%.4f").orBare(),
			atMost("load in the worst second", worstSecond, 1.25, "%.3f").shared().ofWorst(),
			atMost("load in the worst second", worstSecond, 2, "%.3f").own().ofWorst(),
			recoversWithin(2 * time.Second),
		},
	}, Scenario{
		Row: 30, Name: "stray", Note: "20 calls a second, and one stray 503 with Retry-After: 30", Topologies: []Topology{Shared},
		Before: 10 * time.Second, During: time.Second, After: 60 * time.Second,
		Server: Server{Faults: []Fault{{Times: 1, Answer: Answer{Status: 503, RetryAfter: 30}}}},
		Load:   Load{Every: time.Second, Clients: 20, Deadline: time.Minute},
		Goals:  []Goal{atMost("the busiest second after it", peakAfter, 2, "%.2f").ofWorst()},
	})
}
