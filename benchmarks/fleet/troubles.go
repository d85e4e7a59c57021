package fleet

import (
	"fmt"
	"slices"
	"strings"
)

// group is the scenarios of one kind.
type group struct {
	name      string
	scenarios func() []Scenario
}

// groups are all scenarios but the gates, by kind.
func groups() []group {
	return append([]group{{"fleet", classics}, {"stuck", stuck}}, troubleGroups()...)
}

// troubleGroups are the rows of the design's table. Those on real sockets are tests of
// the library instead.
func troubleGroups() []group {
	return []group{
		{"refusals", refusals},
		{"errors", errorShares},
		{"backends", backends},
		{"hangs", hangs},
		{"paths", paths},
		{"crons", crons},
		{"limits", limits},
		{"apis", apis},
		{"crowds", crowds},
		{"hedges", hedges},
		{"tiers", tiers},
		{"found", found},
		{"small", smallFleets},
		{"blips", blips},
		{"ports", deadPorts},
	}
}

// Troubles are the everyday ones, of servers that are in trouble partly.
func Troubles() []Scenario {
	all := scenariosOf(troubleGroups())
	slices.SortStableFunc(all, func(a, b Scenario) int { return a.Row - b.Row })
	return all
}

func scenariosOf(groups []group) (all []Scenario) {
	for _, g := range groups {
		all = append(all, g.scenarios()...)
	}
	return all
}

// Groups are the names of the groups.
func Groups() (names []string) {
	for _, g := range groups() {
		names = append(names, g.name)
	}
	return names
}

// InGroups returns the scenarios of a comma-separated list of groups.
func InGroups(names string) (all []Scenario, err error) {
	for name := range strings.SplitSeq(names, ",") {
		i := slices.Index(Groups(), name)
		if i < 0 {
			return nil, fmt.Errorf("fleet: no group %q (want %s)", name, strings.Join(Groups(), ", "))
		}
		all = append(all, groups()[i].scenarios()...)
	}
	return all, nil
}

// groupsByScenario maps the names of scenarios to those of their groups.
func groupsByScenario() map[string]string {
	all := map[string]string{}
	for _, g := range groups() {
		for _, s := range g.scenarios() {
			all[s.Name] = g.name
		}
	}
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
