package fleet

import (
	"fmt"
	"slices"
	"strings"
)

// group is a set of related scenarios.
type group struct {
	name      string
	scenarios func() []Scenario
}

// groups are all scenarios except the gates. The ride has so many that "all" leaves it out.
func groups() []group {
	return slices.Concat([]group{{"base", baseScenarios}}, failureGroups(), []group{{"ride", ride}})
}

// failureGroups are the failure scenarios. Failures of real sockets are in the tests of the
// library.
func failureGroups() []group {
	return []group{
		{"rejections", rejections},
		{"errors", errorShares},
		{"backends", backends},
		{"hangs", hangs},
		{"hanging", hanging},
		{"paths", paths},
		{"crons", crons},
		{"limits", limits},
		{"apis", apis},
		{"crowds", crowds},
		{"hedges", hedges},
		{"tiers", tiers},
		{"regressions", regressions},
		{"small", smallFleets},
		{"blips", blips},
		{"ports", deadPorts},
		{"regions", regions},
		{"published", published},
	}
}

// FailureScenarios are the scenarios of all failure groups, ordered by Row.
func FailureScenarios() []Scenario {
	all := scenariosOf(failureGroups())
	slices.SortStableFunc(all, func(a, b Scenario) int { return a.Row - b.Row })
	return all
}

func scenariosOf(groups []group) (all []Scenario) {
	for _, g := range groups {
		all = append(all, g.scenarios()...)
	}
	return all
}

// Groups returns the names of the groups.
func Groups() (names []string) {
	for _, g := range groups() {
		names = append(names, g.name)
	}
	return names
}

// InGroups returns the scenarios of a comma-separated list of groups. The name ride-quick is a sample of ride.
func InGroups(names string) (all []Scenario, err error) {
	for name := range strings.SplitSeq(names, ",") {
		if name == "ride-quick" {
			all = append(all, quickRide()...)
			continue
		}
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

// always is a server that returns the response to a ratio of all requests.
func always(share float64, r Response) Server {
	return Server{Faults: []Fault{{Share: share, Response: r}}}
}

// fleetOf is a load of rate calls per second from as many clients.
func fleetOf(rate int) Load { return Load{Rate: float64(rate), Clients: rate} }

// each makes a scenario of each value.
func each[T any](of func(T) Scenario, values ...T) (all []Scenario) {
	for _, v := range values {
		all = append(all, of(v))
	}
	return all
}
