package fleet

import (
	"fmt"
	"slices"
	"strings"
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

// blips are outages so short that a caller should not notice them, and two longer ones. At
// the start of the outage, each client makes one call. A quarter of the calls, by path, gets
// each kind of failure.
func blips() (all []Scenario) {
	for _, v := range []struct {
		row     int
		length  time.Duration
		success float64
		p95     time.Duration
	}{{35, 200 * time.Millisecond, 0.999, 2500 * time.Millisecond}, {36, 2 * time.Second, 0.95, 9 * time.Second}} { // full jitter has a long tail
		for _, isNew := range []bool{true, false} {
			for _, deadline := range []time.Duration{5 * time.Second, 30 * time.Second, 10 * time.Minute, -1} {
				s := blip(v.row, v.length, deadline, isNew)
				for _, k := range blipKinds() {
					s.Targets = append(s.Targets,
						atLeast("success, "+k.name, metSuccess(k.path), v.success, "%.4f"),
						atMost("p95 of successful calls, "+k.name+", s", metQuantile(k.path, 0.95), v.p95.Seconds(), "%.2f").inSeconds())
				}
				all = append(all, s)
			}
		}
	}
	for _, v := range []struct {
		length  time.Duration
		success float64
		p50     time.Duration // goal; 0: none
	}{{5 * time.Second, 0.99, 10 * time.Second}, {20 * time.Second, 0.95, 0}} {
		s := blip(36, v.length, callDeadline, true)
		for _, k := range blipKinds() {
			s.Targets = append(s.Targets, atLeast("success, "+k.name, metSuccess(k.path), v.success, "%.4f"))
			if v.p50 > 0 {
				s.Targets = append(s.Targets, atMost("p50 of successful calls, "+k.name+", s", metQuantile(k.path, 0.5), v.p50.Seconds(), "%.2f").inSeconds().goal())
			}
		}
		all = append(all, s)
	}
	return all
}

type blipKind struct {
	name, path string
	response   Response
}

func blipKinds() []blipKind {
	return []blipKind{
		{"500", "/500", Response{Status: 500}},
		{"503", "/503", Response{Status: 503}},
		{"reset", "/reset", Response{Err: ErrReset}},
		{"connection refused", "/refused", Response{Err: ErrRefused}},
	}
}

// blip is an outage with all kinds of failure. New clients make no other call.
func blip(row int, length, deadline time.Duration, isNew bool) Scenario {
	s := Scenario{
		Row: row, Name: fmt.Sprintf("blip-%v-%s", length, deadlineName(deadline)), Topologies: []Topology{Own},
		During: length, After: 10 * time.Second, Shows: met,
		Server: Server{Workers: -1, Service: 20 * time.Millisecond},
		Load:   Load{Every: 5 * time.Second, Spread: 10 * time.Millisecond, Clients: 1200, Deadline: deadline},
	}
	kinds := blipKinds()
	for _, k := range kinds {
		s.Load.Paths = append(s.Load.Paths, Part{k.path, 1 / float64(len(kinds))})
		s.Server.Faults = append(s.Server.Faults, Fault{Path: k.path, Response: k.response})
	}
	clients := "clients with a call every 5 s"
	if isNew {
		clients, s.Name = "new clients", s.Name+"-new"
		s.Load.Every = time.Hour
	} else {
		s.Before = 20 * time.Second
	}
	s.Note = fmt.Sprintf("%s; outage of %v (500, 503, resets, connection refused); %s", clients, length, strings.ReplaceAll(deadlineName(deadline), "-", " "))
	return s
}

func deadlineName(d time.Duration) string {
	if d < 0 {
		return "no-deadline"
	}
	return "deadline-" + d.String()
}

// duringOutage returns the calls to the path that were made in the scenario's During.
func (r Result) duringOutage(path string) []*Call {
	some := r.callsIn(r.Scenario.Before, r.Scenario.Before+r.Scenario.During)
	return slices.DeleteFunc(some, func(c *Call) bool { return c.path != path })
}

func metSuccess(path string) func(Result) float64 {
	return func(r Result) float64 { return shareOf(r.duringOutage(path)) }
}

// metQuantile is a quantile of the latencies of successful calls, in seconds.
func metQuantile(path string, q float64) func(Result) float64 {
	return func(r Result) float64 {
		var good []time.Duration
		for _, c := range r.duringOutage(path) {
			if c.success {
				good = append(good, c.latency)
			}
		}
		if len(good) == 0 {
			return never.Seconds()
		}
		return Quantile(sorted(good), q).Seconds()
	}
}

// deadPorts are ports without a listener. They measure the time until the error.
func deadPorts() []Scenario {
	const until = "p95 time until the error, s"
	return each(func(v struct{ deadline, most time.Duration }) Scenario {
		return Scenario{
			Row: 37, Name: "dead-port-" + deadlineName(v.deadline), Topologies: []Topology{Own},
			Note:   "new client, port without a listener; " + strings.ReplaceAll(deadlineName(v.deadline), "-", " "),
			During: time.Second, Server: always(0, Response{Err: ErrRefused}),
			Load:    Load{Every: time.Hour, Spread: time.Second, Clients: 300, Deadline: v.deadline},
			Targets: []Target{atMost(until, func(r Result) float64 { return r.FailedP95.Seconds() }, v.most.Seconds(), "%.1f").inSeconds()},
		}
	},
		struct{ deadline, most time.Duration }{-1, 12 * time.Second},
		struct{ deadline, most time.Duration }{10 * time.Minute, 12 * time.Second},
		struct{ deadline, most time.Duration }{5 * time.Second, 5 * time.Second})
}
