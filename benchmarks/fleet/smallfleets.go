package fleet

import (
	"fmt"
	"time"
)

// smallFleets are many clients with few calls each. The server's capacity is twice their
// load. Each fault lasts 20 s. Either all clients have made two calls before it, or half of
// them are new, as after a deployment.
func smallFleets() (all []Scenario) {
	for _, n := range []int{1000, 5000, 10000} {
		all = append(all, smallFleet{row: 32, brownoutRow: 33, clients: n, every: 10 * time.Second, deadline: 10 * time.Second}.scenarios()...)
	}
	return append(all, smallFleet{row: 34, brownoutRow: 34, clients: 10000, every: time.Minute, deadline: 30 * time.Second}.scenarios()...)
}

// smallFleet is a fleet and its server. All workers together drain a full queue in a second.
type smallFleet struct {
	row, brownoutRow int
	clients          int
	every, deadline  time.Duration
}

const (
	smallFleetFault   = 20 * time.Second
	smallFleetWorkers = 6 // their capacity is twice the load; one can serve a third of the load
)

func (f smallFleet) scenarios() (all []Scenario) {
	for _, isNew := range []bool{false, true} {
		for _, a := range []struct {
			name, note string
			response   Response
		}{{"503", "all responses are 503", Response{Status: 503}}, {"refused", "all connections are refused", Response{Err: ErrRefused}}} {
			s := f.scenario(isNew, a.name, a.note)
			s.Row = f.row
			s.Server.Faults = []Fault{{Response: a.response}}
			s.Targets = []Target{
				atLeast(inTheMinute, successInTheMinute, 0.90, "%.4f").timesBare(successInTheMinute),
				atLeast(inTheMinute, successInTheMinute, 1, "%.4f").timesBare(successInTheMinute).goal(),
				recoversWithin(20 * time.Second),
				atMost("attempts in the busiest second", busiestSecond, 3.6, "%.0f").timesBare(busiestSecond),
			}
			all = append(all, s)
		}
		s := f.scenario(isNew, "brownout", "one of six workers, a third of the load")
		s.Row = f.brownoutRow
		s.Server.Staff = []Staff{{Workers: 1}}
		s.Targets = []Target{
			atLeast(inTheMinute, successInTheMinute, -bareMargin, "%.4f").plusBare(successInTheMinute),
			recoversWithin(5 * time.Second),
		}
		all = append(all, s)
	}
	return all
}

func (f smallFleet) scenario(isNew bool, kind, note string) Scenario {
	load := float64(f.clients) / f.every.Seconds()
	service := time.Duration(smallFleetWorkers / (2 * load) * float64(time.Second))
	s := Scenario{
		Name: fmt.Sprintf("%d-clients-%v-%s", f.clients, f.every, kind), Topologies: []Topology{Own}, Shows: inTheMinute,
		Note:   fmt.Sprintf("%d clients with a call every %v; for 20 s %s", f.clients, f.every, note),
		Before: 2 * f.every, During: smallFleetFault, After: 80 * time.Second,
		Server: Server{Workers: smallFleetWorkers, Service: service, Queue: int(2 * load)},
		Load:   Load{Every: f.every, Clients: f.clients, Deadline: f.deadline},
	}
	if isNew { // the calls are spread over Every: half of the clients have made one
		s.Name += "-new"
		s.Note += "; half of the clients are new"
		s.Before = f.every / 2
	}
	return s
}

const inTheMinute = "success in the first minute"

func successInTheMinute(r Result) float64 {
	return r.successBetween(r.Scenario.Before, r.Scenario.Before+time.Minute)
}
