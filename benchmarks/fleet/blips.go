package fleet

import (
	"fmt"
	"strings"
	"time"
)

// blips are outages so short that a caller should hardly notice them, and two that are
// longer. Each call that meets one is of another client, and begins with it, so that it
// meets all of it; a quarter of them, by their paths, meet each kind of failure.
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
		p50     time.Duration // the aim; 0: none
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
	answer     Response
}

func blipKinds() []blipKind {
	return []blipKind{
		{"500", "/500", Response{Status: 500}},
		{"503", "/503", Response{Status: 503}},
		{"reset", "/reset", Response{Err: errReset}},
		{"connection refused", "/refused", Response{Err: errRefused}},
	}
}

// blip is an outage of that length, and of each kind. New clients make no other call.
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
		s.Server.Faults = append(s.Server.Faults, Fault{Path: k.path, Response: k.answer})
	}
	who := "clients with a call every 5 s"
	if isNew {
		who, s.Name = "new clients", s.Name+"-new"
		s.Load.Every = time.Hour
	} else {
		s.Before = 20 * time.Second
	}
	s.Note = fmt.Sprintf("%s; outage of %v (500, 503, resets, connection refused); %s", who, length, strings.ReplaceAll(deadlineName(deadline), "-", " "))
	return s
}

func deadlineName(d time.Duration) string {
	if d < 0 {
		return "no-deadline"
	}
	return "deadline-" + d.String()
}

// inTrouble are the calls to the path that were made in the trouble.
func (r Result) inTrouble(path string) (some []*call) {
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
		for _, c := range r.inTrouble(path) {
			s.count(c)
		}
		return s.share()
	}
}

// metQuantile is of the latencies of those that succeeded, in seconds.
func metQuantile(path string, q float64) func(Result) float64 {
	return func(r Result) float64 {
		var good []time.Duration
		for _, c := range r.inTrouble(path) {
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

// deadPorts are those that nothing listens on: what counts is how soon a caller hears of it.
func deadPorts() []Scenario {
	const until = "p95 time until the error, s"
	return each(func(v struct{ deadline, most time.Duration }) Scenario {
		return Scenario{
			Row: 37, Name: "dead-port-" + deadlineName(v.deadline), Topologies: []Topology{Own},
			Note:   "new client, port without a listener; " + strings.ReplaceAll(deadlineName(v.deadline), "-", " "),
			During: time.Second, Server: always(0, Response{Err: errRefused}),
			Load:    Load{Every: time.Hour, Spread: time.Second, Clients: 300, Deadline: v.deadline},
			Targets: []Target{atMost(until, func(r Result) float64 { return r.FailedP95.Seconds() }, v.most.Seconds(), "%.1f").inSeconds()},
		}
	},
		struct{ deadline, most time.Duration }{-1, 12 * time.Second},
		struct{ deadline, most time.Duration }{10 * time.Minute, 12 * time.Second},
		struct{ deadline, most time.Duration }{5 * time.Second, 5 * time.Second})
}
