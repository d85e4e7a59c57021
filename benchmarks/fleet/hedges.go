package fleet

import (
	"time"

	"github.com/resilienthttp/resilienthttp/benchmarks/peers"
)

// hedges are what a zero Hedge must not make worse.
func hedges() []Scenario {
	hedged := []string{peers.OursHedged}
	return []Scenario{{
		Row: 17, Name: "hedge-healthy", Note: "nothing happens to clients with a zero Hedge", During: 60 * time.Second, Ours: hedged,
		Goals: []Goal{atMost("p99, ms", p99, 1.5, "%.1f").timesBare(p99)},
	}, {
		Row: 17, Name: "hedge-errors", Note: "1 % of answers are 500, to clients with a zero Hedge", During: 60 * time.Second, Ours: hedged,
		Server: Server{Faults: []Fault{{Share: 0.01, Answer: Answer{Status: 500}, Worked: true}}},
		Goals:  []Goal{atLeast("success", Result.Success, 0.9999, "%.5f")},
	}}
}
