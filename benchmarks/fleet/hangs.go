package fleet

import "time"

// hangs are servers that take their time.
func hangs() []Scenario {
	const afterwards = "success from 5 s after it on"
	return []Scenario{{
		Row: 7, Name: "hang", Note: "everything hangs for 30 s, and the deadline is 5 s", Topologies: []Topology{Shared},
		Before: 10 * time.Second, During: 30 * time.Second, After: 30 * time.Second,
		Server: Server{GiveUp: -1, Faults: []Fault{{Answer: Answer{Hang: true}}}},
		Load:   Load{Rate: 200, Deadline: 5 * time.Second},
		Goals: []Goal{
			atMost("attempts per call", Result.AttemptsPerCall, 1.1, "%.3f"),
			atLeast("success", Result.Success, 0.49, "%.4f"),
			atMost("attempts per call after the first 10 s of it", func(r Result) float64 {
				return r.between(r.Scenario.Before+10*time.Second, r.Scenario.Before+r.Scenario.During)
			}, 0.2, "%.3f").aim(), // as the circuit opens
			recoversWithin(2 * time.Second),
		},
	}, {
		Row: 8, Name: "slow", Note: "answers come after 35 s to 45 s, and the deadline is 60 s", During: 60 * time.Second,
		Server: Server{GiveUp: -1, Faults: []Fault{{Answer: Answer{Status: 200, After: 35 * time.Second, Until: 45 * time.Second}}}},
		Load:   Load{Rate: 20, Clients: 20, Deadline: time.Minute},
		Goals:  []Goal{atLeast("success", Result.Success, 0.95, "%.4f")},
	}, {
		Row: 28, Name: "small-clients", Note: "500 clients with a call each 9 s, half of what the server can do; for 10 s it has a quarter of its workers", Why: whySlow, Topologies: []Topology{Own},
		Before: 30 * time.Second, During: 10 * time.Second, After: 120 * time.Second,
		Server: Server{Workers: 4, Service: 36 * time.Millisecond, GiveUp: 800 * time.Millisecond, Staff: []Staff{{Workers: 1}}},
		Load:   Load{Every: 9 * time.Second, Clients: 500}, Shows: afterwards,
		Goals: []Goal{
			atLeast(afterwards, func(r Result) float64 {
				return r.successBetween(r.Scenario.Before+r.Scenario.During+5*time.Second, r.Scenario.Length())
			}, 0.99, "%.4f"),
			recoversWithin(5 * time.Second),
		},
	}}
}
