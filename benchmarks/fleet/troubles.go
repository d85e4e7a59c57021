package fleet

import "slices"

// Troubles are the everyday ones, of servers that are in trouble partly: the rows
// of the design's table. Those on real sockets are tests of the library instead.
func Troubles() []Scenario {
	all := slices.Concat(refusals(), errorShares(), backends(), hangs(), paths(), crons(), limits(), crowds(), hedges(), tiers(), found(), smallFleets(), blips(), deadPorts())
	slices.SortStableFunc(all, func(a, b Scenario) int { return a.Row - b.Row })
	return all
}

// always is the server of which each request has a share of one answer.
func always(share float64, a Answer) Server {
	return Server{Faults: []Fault{{Share: share, Answer: a}}}
}

// fleetOf is a load of so many calls a second, where each client of its own makes
// one of them, as in the fleet.
func fleetOf(rate int) Load { return Load{Rate: float64(rate), Clients: rate} }

// each makes a scenario of each.
func each[T any](of func(T) Scenario, values ...T) (all []Scenario) {
	for _, v := range values {
		all = append(all, of(v))
	}
	return all
}
