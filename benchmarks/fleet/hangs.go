package fleet

import "time"

// hangs are servers that hang or are slow.
func hangs() []Scenario {
	const afterwards = "success from 5 s after the fault"
	return []Scenario{{
		Row: 7, Name: "hang", Note: "all requests hang for 30 s; deadline 5 s", Topologies: []Topology{Shared},
		Before: 10 * time.Second, During: 30 * time.Second, After: 30 * time.Second,
		Server: Server{AttemptTimeout: -1, Faults: []Fault{{Response: Response{Hang: true}}}},
		Load:   Load{Rate: 200, Deadline: 5 * time.Second},
		Targets: []Target{
			atMost("attempts per call", Result.AttemptsPerCall, 1.1, "%.3f"),
			atLeast("success", Result.Success, 0.49, "%.4f"),
			atMost("attempts per call after 10 s of the fault", func(r Result) float64 {
				return r.between(r.Scenario.Before+10*time.Second, r.Scenario.Before+r.Scenario.During)
			}, 0.2, "%.3f").goal(), // as the circuit opens
			recoversWithin(2 * time.Second),
		},
	}, {
		Row: 8, Name: "slow", Note: "responses take 35 s to 45 s; deadline 60 s", During: 60 * time.Second,
		Server:  Server{AttemptTimeout: -1, Faults: []Fault{{Response: Response{Status: 200, After: 35 * time.Second, Until: 45 * time.Second}}}},
		Load:    Load{Rate: 20, Clients: 20, Deadline: time.Minute},
		Targets: []Target{atLeast("success", Result.Success, 0.95, "%.4f")},
	}, {
		Row: 28, Name: "small-clients", Note: "500 clients with a call every 9 s, half of the capacity; a quarter of the workers for 10 s", Reason: whySlow, Topologies: []Topology{Own},
		Before: 30 * time.Second, During: 10 * time.Second, After: 120 * time.Second,
		Server: Server{Workers: 4, Service: 36 * time.Millisecond, AttemptTimeout: 800 * time.Millisecond, Staff: []Staff{{Workers: 1}}},
		Load:   Load{Every: 9 * time.Second, Clients: 500}, Shows: afterwards,
		Targets: []Target{
			atLeast(afterwards, func(r Result) float64 {
				return r.successBetween(r.Scenario.Before+r.Scenario.During+5*time.Second, r.Scenario.Length())
			}, 0.99, "%.4f"),
			recoversWithin(5 * time.Second),
		},
	}}
}
