package fleet

import (
	"time"

	"github.com/resilienthttp/resilienthttp"
)

// stuck tests the adaptive timeout: its benefit, and that it ends no normal attempt. A bare
// client waits 30 s for a stuck response, as a fixed timeout of 30 s does. Clients with one
// call a second have too few samples; the scenarios do not include them.
func stuck() []Scenario {
	const fixed = 30 * time.Second
	adaptive := func(t *resilienthttp.Transport) {
		t.Policy = resilienthttp.Policy{AttemptTimeout: fixed, AdaptiveTimeout: &resilienthttp.AdaptiveTimeout{}}
	}
	usual := Response{Status: 200, After: 50 * time.Millisecond, Until: 150 * time.Millisecond}
	slow := Response{Status: 200, After: 10 * usual.After, Until: 10 * usual.Until}
	server := func(faults ...Fault) Server { return Server{Workers: -1, AttemptTimeout: -1, Faults: faults} }
	load := Load{Rate: 200, Deadline: time.Minute}
	everything := atLeast("success", Result.Success, 1, "%.5f")
	return []Scenario{{
		Name: "stuck", Note: "1.2 % of responses take 30 s, the others 50 ms to 150 ms; AttemptTimeout 30 s and zero AdaptiveTimeout", Topologies: []Topology{Shared},
		During: 120 * time.Second, Server: server(Fault{Share: 0.012, Response: Response{Status: 200, After: fixed}}, Fault{To: time.Hour, Response: usual}),
		Load: load, Configure: adaptive,
		Targets: []Target{
			everything,
			atMost("p99, ms", p99, 0.1, "%.1f").timesBare(p99),
			atMost("p99.9, ms", p999, 0.1, "%.1f").timesBare(p999),
			atMost("attempts per call", Result.AttemptsPerCall, 1.02, "%.4f"),
		},
	}, {
		Name: "stuck-none", Note: "responses take 50 ms to 150 ms; AttemptTimeout 30 s and zero AdaptiveTimeout", Topologies: []Topology{Shared},
		During: 120 * time.Second, Server: server(Fault{To: time.Hour, Response: usual}), Load: load, Configure: adaptive,
		Targets: []Target{everything, atMost("attempts per call", Result.AttemptsPerCall, 1.001, "%.5f")},
	}, {
		Name: "stuck-slow", Note: "responses take 50 ms to 150 ms, after 30 s ten times as long; AttemptTimeout 30 s and zero AdaptiveTimeout", Topologies: []Topology{Shared},
		Before: 30 * time.Second, During: 90 * time.Second, Server: server(Fault{Response: slow}, Fault{To: time.Hour, Response: usual}), Load: load, Configure: adaptive,
		Targets: []Target{
			atLeast("success", Result.Success, 0.98, "%.5f"),
			atMost("attempts per call", Result.AttemptsPerCall, 1.02, "%.5f"),
		},
	}}
}
