// Package fleet simulates clients of one server in virtual time, with faults, limits and
// overload. [Run] makes one run of a [Scenario] with one library.
//
// The default load is open: 1000 calls per second in a Poisson process, from 1000 clients.
// The default server has a FIFO queue of at most 1000 requests and 12 workers of 10 ms, which
// is 1200 requests per second. A full queue returns 503 at once. The server finishes a request
// even if its client has left. An attempt has a timeout of 500 ms, and a call a deadline of
// 30 s. The network has no latency. A scenario sets what differs.
//
// There are two topologies: one Transport for all callers, as in a busy service, and one
// Transport for each client, without shared state, as in a fleet of small processes.
//
// Random values of the model depend on the seed, the call and the attempt, so every library
// gets the same arrivals and the same faults. The clients' jitter is not seeded, and the
// runtime orders goroutines that wake at the same instant at random. Therefore two runs differ
// in the last digits. Timers are exact in virtual time.
//
// benchmarks/README.md describes how to add a scenario.
//
// # Gates
//
// A Scenario may have a Gate in front of the server's workers: the handler of a real server,
// for example admission.Shedder, in the same virtual time.
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
	Name, Note string // a short name for flags and tables; a description
	Reason     string // why targets are missed, for targets without a Reason

	Before, During, After time.Duration

	Server  Server
	Load    Load
	Model   Model         // instead of the Server; nil: none
	Phase   time.Duration // from a whole minute to the start
	Targets []Target
	Shows   string // the What of the target in scenarios.md, or met; "": success of all calls

	Seeds int  // of a run, at least; 0: 1
	Quick bool // in the sample of its group

	Topologies []Topology                     // nil: both
	Ours       []string                       // the libraries that the targets apply to; nil: the zero Transport
	Configure  func(*resilienthttp.Transport) // configures this library; nil: zero Transport
	Tiers      int                            // number of services in a chain to the server; 0: one
	Gate       string                         // in front of the workers, without faults and limits; "": none

	group string
}

// Named returns the scenarios of a comma-separated list of names, Row numbers, or of all, gates and life,
// by their Row.
func Named(names string) ([]Scenario, error) {
	found, err := chosen("scenario", names, func(s Scenario, name string) bool {
		switch name {
		case "all":
			return !slices.Contains(apart, s.group)
		case "gates", "life":
			return s.group == name
		}
		return s.Name == name || s.Row > 0 && strconv.Itoa(s.Row) == name
	})
	slices.SortStableFunc(found, func(a, b Scenario) int { return a.Row - b.Row })
	return found, err
}

// InGroups returns the scenarios of a comma-separated list of groups. The name ride-quick is a sample of ride.
func InGroups(names string) ([]Scenario, error) {
	return chosen("group", names, func(s Scenario, name string) bool {
		return s.group == name || name == "ride-quick" && s.group == "ride" && s.Quick
	})
}

// chosen returns the scenarios of each name of a list.
func chosen(what, names string, is func(s Scenario, name string) bool) (found []Scenario, err error) {
	for name := range strings.SplitSeq(names, ",") {
		before := len(found)
		for _, g := range groups() {
			for _, s := range g.scenarios() {
				if s.group = g.name; is(s, name) {
					found = append(found, s)
				}
			}
		}
		if len(found) == before {
			return nil, fmt.Errorf("fleet: no %s %q (benchmarks/results/scenarios.md has their names, and -h the groups)", what, name)
		}
	}
	return found, nil
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

// RunsIn reports whether the scenario has runs in the topology.
func (s Scenario) RunsIn(t Topology) bool {
	return s.Topologies == nil || slices.Contains(s.Topologies, t)
}

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

// apart are the groups that "all" leaves out: the ride has many scenarios, and the others are tables of their own.
var apart = []string{"ride", "gates", "life"} //nolint:gochecknoglobals // a table

// groups are all scenarios. Failures of real sockets are in the tests of the library.
func groups() []group {
	return []group{
		{"base", baseScenarios},
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
		{"ride", ride},
		{"gates", gates},
		{"life", life},
	}
}

// Groups returns the names of the groups.
func Groups() (names []string) {
	for _, g := range groups() {
		names = append(names, g.name)
	}
	return names
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
