package fleet

import (
	"fmt"
	"strings"
	"time"
)

// blips are outages so short that a caller should not notice them, and two longer ones. At
// the start of the outage, each client makes one call. A quarter of the calls, by path, gets
// each kind of failure.
func blips() (all []Scenario) {
	for _, v := range []struct {
		row     int
		length  time.Duration
		success float64
		p95     time.Duration
	}{{35, 200 * time.Millisecond, 0.999, 1200 * time.Millisecond}, {36, 2 * time.Second, 0.95, 4 * time.Second}} {
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
func (r Result) duringOutage(path string) (some []*Call) {
	from, to := r.Scenario.Before, r.Scenario.Before+r.Scenario.During
	for _, c := range r.calls {
		if c.path == path && c.at >= from && c.at < to {
			some = append(some, c)
		}
	}
	return some
}

func metSuccess(path string) func(Result) float64 {
	return func(r Result) float64 {
		var s Share
		for _, c := range r.duringOutage(path) {
			s.count(c)
		}
		return s.share()
	}
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
		return quantile(sorted(good), q).Seconds()
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
