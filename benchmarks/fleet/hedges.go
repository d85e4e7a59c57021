package fleet

import (
	"time"

	"github.com/resilienthttp/resilienthttp/benchmarks/peers"
)

// hedges are scenarios in which a zero Hedge must not do harm.
func hedges() []Scenario {
	hedged := []string{peers.OursHedged}
	return []Scenario{{
		Row: 17, Name: "hedge-healthy", Note: "no fault; zero Hedge", During: 60 * time.Second, Ours: hedged,
		Targets: []Target{atMost("p99, ms", p99, 1.5, "%.1f").timesBare(p99)},
	}, {
		Row: 17, Name: "hedge-errors", Note: "1 % of responses are 500; zero Hedge", During: 60 * time.Second, Ours: hedged,
		Server:  Server{Faults: []Fault{{Share: 0.01, Response: Response{Status: 500}, Worked: true}}},
		Targets: []Target{atLeast("success", Result.Success, 0.9999, "%.5f")},
	}}
}
