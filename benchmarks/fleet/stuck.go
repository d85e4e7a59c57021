package fleet

import (
	"time"

	"github.com/resilienthttp/resilienthttp"
)

// stuck are what an adaptive timeout is for, and what it must not do. A bare client, which
// waits for the 30 s that an answer takes which is stuck, stands for a fixed timeout of as
// much. Clients with a call a second know too little, and have none.
func stuck() []Scenario {
	const fixed = 30 * time.Second
	adaptive := func(t *resilienthttp.Transport) {
		t.Policy = resilienthttp.Policy{AttemptTimeout: fixed, AdaptiveTimeout: &resilienthttp.AdaptiveTimeout{}}
	}
	usual := Answer{Status: 200, After: 50 * time.Millisecond, Until: 150 * time.Millisecond}
	slow := Answer{Status: 200, After: 10 * usual.After, Until: 10 * usual.Until}
	server := func(faults ...Fault) Server { return Server{Workers: -1, GiveUp: -1, Faults: faults} }
	load := Load{Rate: 200, Deadline: time.Minute}
	everything := atLeast("success", Result.Success, 1, "%.5f")
	return []Scenario{{
		Name: "stuck", Note: "1.2 % of answers take 30 s, the others 50 ms to 150 ms; AttemptTimeout is 30 s, and Adaptive the zero value", Topologies: []Topology{Shared},
		During: 120 * time.Second, Server: server(Fault{Share: 0.012, Answer: Answer{Status: 200, After: fixed}}, Fault{To: time.Hour, Answer: usual}),
		Load: load, Configure: adaptive,
		Goals: []Goal{
			everything,
			atMost("p99, ms", p99, 0.1, "%.1f").timesBare(p99),
			atMost("p99.9, ms", p999, 0.1, "%.1f").timesBare(p999),
			atMost("attempts per request", Result.AttemptsPerCall, 1.02, "%.4f"),
		},
	}, {
		Name: "stuck-none", Note: "the same, and nothing is stuck", Topologies: []Topology{Shared},
		During: 120 * time.Second, Server: server(Fault{To: time.Hour, Answer: usual}), Load: load, Configure: adaptive,
		Goals: []Goal{everything, atMost("attempts per request", Result.AttemptsPerCall, 1.001, "%.5f")},
	}, {
		Name: "stuck-slow", Note: "the same, and from 30 s on all answers take ten times as long", Topologies: []Topology{Shared},
		Before: 30 * time.Second, During: 90 * time.Second, Server: server(Fault{Answer: slow}, Fault{To: time.Hour, Answer: usual}), Load: load, Configure: adaptive,
		Goals: []Goal{
			atLeast("success", Result.Success, 0.98, "%.5f"),
			atMost("attempts per request", Result.AttemptsPerCall, 1.02, "%.5f"),
		},
	}}
}
