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
// all, base, failures, gates and life. It knows the names of DrawnHangs too.
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
	if s, ok := drawnHang(name); ok {
		return []Scenario{s}
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
