package fleet

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/benchmarks/peers"
)

// Seed is the first seed of the results. The arrivals depend on the seed: in the outage, a
// bare client's success is 0.7497 in the mean of many seeds and 0.7517 with this seed.
const Seed = 12

// Scenario is a server with faults, its callers, and the targets of this library. Calls
// arrive during Before, During and After. Faults happen in During, unless they have times.
type Scenario struct {
	Row        int    // number of its group of related scenarios; 0: base scenarios and gates
	Name, Note string // a short name for flags and plots; a description
	Reason     string // why targets are missed, for targets without a Reason

	Before, During, After time.Duration

	Server  Server
	Load    Load
	Model   Model         // instead of the Server; nil: none
	Phase   time.Duration // from a whole minute to the start
	Targets []Target
	Shows   string // the What of the target in the plot, or met; "": success of all calls

	Seeds int  // of a run, at least; 0: 1
	Quick bool // in the sample of its group

	Topologies []Topology                     // nil: both
	Ours       []string                       // the libraries that the targets apply to; nil: the zero Transport
	Configure  func(*resilienthttp.Transport) // configures this library; nil: zero Transport
	Tiers      int                            // number of services in a chain to the server; 0: one
	Gate       string                         // in front of the workers, without faults and limits; "": none
}

// Scenarios returns all scenarios except the gates.
func Scenarios() []Scenario {
	return slices.Concat(baseScenarios(), FailureScenarios())
}

// Named returns the scenarios of a comma-separated list of names, Row numbers, or of
// all, base, failures, gates and life.
func Named(names string) (found []Scenario, err error) {
	for name := range strings.SplitSeq(names, ",") {
		some := named(name)
		if len(some) == 0 {
			return nil, fmt.Errorf("fleet: no scenario %q (want all, base, failures, gates, life, a row number, or %s)", name, strings.Join(Names(), ", "))
		}
		found = append(found, some...)
	}
	return found, nil
}

func named(name string) []Scenario {
	switch name {
	case "all":
		return Scenarios()
	case "base":
		return baseScenarios()
	case "failures":
		return FailureScenarios()
	case "gates":
		return gates()
	case "life":
		return life()
	}
	return slices.DeleteFunc(slices.Concat(Scenarios(), ride(), gates(), life()), func(s Scenario) bool {
		return s.Name != name && (s.Row == 0 || strconv.Itoa(s.Row) != name)
	})
}

// Names returns the names of all scenarios.
func Names() (names []string) {
	for _, s := range slices.Concat(Scenarios(), gates()) {
		names = append(names, s.Name)
	}
	return names
}

// Length is the time during which calls arrive.
func (s Scenario) Length() time.Duration { return s.Before + s.During + s.After }

// ceiling is the maximum ratio of calls that the server's limit and workers can serve
// while calls arrive.
func (s Scenario) ceiling() float64 {
	ceiling, length := 1.0, s.Length().Seconds()
	offered := s.Load.perSecond() * (1 - s.Load.Bare) * length
	if offered == 0 || s.Load.Surges != nil {
		return ceiling
	}
	if s.Server.Limit.perSecond() > 0 {
		ceiling = min(ceiling, s.Server.Limit.granted(s.Length())/offered)
	}
	if capacity := s.Server.capacity(); capacity > 0 {
		ceiling = min(ceiling, (capacity*length+float64(s.Server.queue()))/offered)
	}
	return ceiling
}

// topologies returns the topologies of the scenario.
func (s Scenario) topologies() []Topology {
	if s.Topologies == nil {
		return []Topology{Shared, Own}
	}
	return s.Topologies
}

// RunsIn reports whether the scenario has runs in the topology.
func (s Scenario) RunsIn(t Topology) bool { return slices.Contains(s.topologies(), t) }

// OursNames returns the names of this library's configurations in the scenario.
func (s Scenario) OursNames() []string {
	if s.Ours == nil {
		return []string{peers.Ours}
	}
	return s.Ours
}

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
