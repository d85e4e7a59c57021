package fleet

import (
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/resilienthttp/resilienthttp"
)

// ride are the outages of a dependency under the steady calls of a service: which of the calls that
// begin in the outage succeed, what do they cost, and when is all as before?
func ride() (all []Scenario) {
	for _, set := range []rideSet{{
		row: rowAway, deadlines: []time.Duration{2 * second, 10 * second, 30 * second, -second}, outages: []time.Duration{second, 2 * second, 4 * second, 8 * second, 20 * second}, rates: []float64{1, 8, 50, 300, 1000},
		kinds: []rideKind{
			{"503", Fault{Response: unavailable(0)}, 0},
			{"refused", Fault{Response: Response{Err: ErrRefused, After: answersAfter}}, 0},
			{"reset", Fault{Response: Response{Err: ErrReset, After: answersAfter}}, 0},
		},
	}, rideOther(rideKind{"retry-after", Fault{Response: unavailable(2)}, 0.95}),
		rideOther(rideKind{"most", Fault{Response: unavailable(0), Share: 0.75}, 0.95}),
		rideOther(rideKind{"hang", Fault{Response: Response{Hang: true}}, 0.88}),
	} {
		all = append(all, set.cells()...)
	}
	return append(all, brokenPaths()...)
}

const (
	rowAway      = 57
	rowOther     = 58
	second       = time.Second
	answersAfter = time.Millisecond // time until a failure
)

func unavailable(retryAfter int) Response {
	return Response{Status: http.StatusServiceUnavailable, RetryAfter: retryAfter, After: answersAfter}
}

// rideKind is a kind of failure.
type rideKind struct {
	name  string
	fault Fault
	want  float64 // success of the calls that begin in the outage, mean of the cells; 0: that of row 57
}

// rideSet are all combinations of deadlines, outages, rates and clients. The kinds take turns.
type rideSet struct {
	row                int
	deadlines, outages []time.Duration
	rates              []float64
	kinds              []rideKind
}

func rideOther(k rideKind) rideSet {
	return rideSet{rowOther, []time.Duration{10 * second, -second}, []time.Duration{second, 2 * second, 4 * second}, []float64{8, 300}, []rideKind{k}}
}

// cells returns the combinations. Each pair of a deadline and an outage has three cells of four in the sample.
func (set rideSet) cells() (all []Scenario) {
	for d, deadline := range set.deadlines {
		for o, outage := range set.outages {
			for r, rate := range set.rates {
				for c, clients := range []int{1, 20, 300} {
					s := set.kinds[(o+2*r)%len(set.kinds)].cell(outage, deadline, rate, clients)
					s.Row, s.Quick = set.row, rate < Rate && (o+d+r+c)%3 == 0
					all = append(all, s)
				}
			}
		}
	}
	return all
}

// rideWant is the target of row 57; 0: none. With a deadline of 2 s it is a ratio of what is possible.
func rideWant(deadline, outage time.Duration) float64 {
	switch {
	case deadline == 2*time.Second:
		return 0.85 * min(1, deadline.Seconds()/outage.Seconds())
	case outage <= 4*time.Second:
		return 0.98
	case outage <= 8*time.Second:
		return 0.95
	case deadline == 30*time.Second:
		return 0.90
	}
	return 0
}

// leastCell is the distance that a cell may be below the target of its group.
const leastCell = 0.10

// cell is an outage of the kind. The capacity of the server is at least twice the rate.
func (k rideKind) cell(outage, deadline time.Duration, rate float64, clients int) Scenario {
	workers := int(rate*2*0.02 + 1)
	limit := strings.ReplaceAll(deadlineName(deadline), "-", " ")
	s := Scenario{
		Name: fmt.Sprintf("ride-%s-%v-%g-%s-%d", k.name, outage, rate, deadlineName(deadline), clients), Shows: met,
		Note:   fmt.Sprintf("%s for %v; %g calls/s; %s; clients: %d", k.name, outage, rate, limit, clients),
		Before: 29500 * time.Millisecond, During: outage, After: 30 * time.Second, Topologies: []Topology{Own},
		Server: Server{Workers: workers, Service: 20 * time.Millisecond, Queue: 20 * workers, AttemptTimeout: 5 * time.Second, Faults: []Fault{k.fault}},
		Load:   Load{Rate: rate, Clients: clients, Deadline: deadline, Even: rate == 1}, // else no call begins in many outages
	}
	if clients == 1 {
		s.Topologies = []Topology{Shared}
	}
	if k.fault.Response.Hang {
		s.Server.AttemptTimeout = time.Second
		s.Configure = func(t *resilienthttp.Transport) { t.Policy.AttemptTimeout = time.Second }
	}
	if rate < 50 {
		s.Seeds = 3
	}
	want := k.want
	if want == 0 {
		want = rideWant(deadline, outage)
	}
	s.Targets = []Target{
		atLeast(met, Result.SuccessDuring, want-leastCell, "%.3f").onlyIf(want > 0),
		atMost("attempts since its start", func(r Result) float64 { return r.between(r.Scenario.Before, math.MaxInt64) }, 1.2, "%.3f").onlyIf(clients == 1),
		atMost("busiest second ÷ rate", busiestSince, 3, "%.2f").onlyIf(rate >= 8),
		atLeast("success after it", Result.SuccessAfter, 0.999, "%.4f").onlyIf(deadline != 2*time.Second),
		atMost("p99 as before, s after its last call", backAfterOutage, 2, "%.1f").inSeconds(),
	}
	return s
}

// busiestSince is the busiest second since the start of the outage, as a multiple of the rate.
func busiestSince(r Result) float64 {
	from := min(int(r.Scenario.Before/time.Second), len(r.Load))
	return float64(slices.Max(append(slices.Clone(r.Load[from:]), 0))) / r.Scenario.Load.perSecond()
}

// backAfterOutage is the time, in seconds, from the end of the last call of the outage until the last
// second in which calls begin with a p99 of 100 ms more than before the outage. A failure takes forever.
func backAfterOutage(r Result) float64 {
	const slower = 100 * time.Millisecond
	ended := r.Scenario.Before + r.Scenario.During
	empty, back := ended, ended
	var before []time.Duration
	after := make([][]time.Duration, int(r.Scenario.After/time.Second)+1)
	for _, c := range r.calls {
		switch {
		case c.at < r.Scenario.Before:
			before = append(before, c.latency)
		case c.at < ended:
			empty = max(empty, c.at+c.latency)
		case c.success:
			i := int((c.at - ended) / time.Second)
			after[i] = append(after[i], c.latency)
		default:
			i := int((c.at - ended) / time.Second)
			after[i] = append(after[i], never)
		}
	}
	usual := Quantile(sorted(before), 0.99)
	for i, latencies := range after {
		if Quantile(sorted(latencies), 0.99) > usual+slower {
			back = ended + time.Duration(i+1)*time.Second
		}
	}
	return max(back-empty, 0).Seconds()
}

// brokenPaths are healthy servers with one path that fails at once for five minutes. Nothing can help
// its calls: they must get the server's response, about as soon as it comes.
func brokenPaths() (all []Scenario) {
	failed := func(q float64) func(Result) float64 {
		return func(r Result) float64 {
			var latencies []time.Duration
			for _, c := range r.duringOutage(export) {
				latencies = append(latencies, c.latency)
			}
			return Quantile(sorted(latencies), q).Seconds()
		}
	}
	answered := func(r Result) float64 {
		var s Share
		for _, c := range r.duringOutage(export) {
			s.Calls++
			if c.status == http.StatusInternalServerError {
				s.Succeeded++
			}
		}
		return s.share()
	}
	for _, share := range []float64{0.2, 0.5, 0.7} {
		for _, deadline := range []time.Duration{10 * time.Second, -1} {
			all = append(all, Scenario{
				Row: rowAway, Name: fmt.Sprintf("ride-path-%g-%s", share, deadlineName(deadline)), Topologies: []Topology{Shared},
				Note:   fmt.Sprintf("/export, %g of 20 calls/s, returns 500 at once for 5 min", share),
				Before: 30 * time.Second, During: 5 * time.Minute, After: 30 * time.Second, Quick: true,
				Server: Server{Workers: -1, Service: 20 * time.Millisecond, AttemptTimeout: 5 * time.Second, Faults: []Fault{
					{Path: export, Response: Response{Status: http.StatusInternalServerError, After: answersAfter}},
				}},
				Load: Load{Rate: 20, Clients: 1, Deadline: deadline, Paths: []Part{{export, share}, {charge, 1}}},
				Targets: []Target{
					atMost("p50 of the failing calls, s", failed(0.5), 0.12, "%.3f"),
					atMost("p90 of the failing calls, s", failed(0.9), 0.24, "%.3f"),
					atLeast("those with the server's response", answered, 0.995, "%.4f"),
					atMost("p99 of the other path, s", metQuantile(charge, 0.99), 0.05, "%.3f"),
					atLeast("success of the other path", metSuccess(charge), 0.999, "%.4f"),
				},
			})
		}
	}
	return all
}

// rideGroups are the groups of the scenario in each part of RideText; "": none.
func (s Scenario) rideGroups() [4]string {
	name := strings.Split(s.Name, "-")
	switch {
	case name[0] != "ride":
		return [4]string{}
	case s.Load.Paths != nil:
		return [4]string{3: s.Name}
	case s.Row == rowOther:
		return [4]string{3: strings.SplitN(s.Note, " ", 2)[0]}
	}
	limit := strings.ReplaceAll(deadlineName(s.Load.Deadline), "-", " ")
	return [4]string{fmt.Sprintf("%s, away %v", limit, s.During), fmt.Sprintf("%g calls/s", s.Load.Rate), fmt.Sprintf("clients: %d", s.Load.Clients)}
}

// RideText lists the means of groups of cells for each library that ran the ride, each with its worst cell.
// It is empty if no cell ran.
func (r *Rows) RideText() string {
	var text strings.Builder
	heading := ""
	for i := range (Scenario{}).rideGroups() {
		var groups, libraries []string
		cells := map[string][]Row{} // by group and library
		for _, row := range r.all {
			group, library := row[0].Scenario.rideGroups()[i], row[0].Peer.Name
			if group == "" {
				continue
			}
			if !slices.Contains(groups, group) {
				groups = append(groups, group)
			}
			if !slices.Contains(libraries, library) {
				libraries = append(libraries, library)
			}
			cells[group+library] = append(cells[group+library], row)
		}
		for _, group := range groups {
			for _, library := range libraries {
				some := cells[group+library]
				columns := []string{"mean and worst cell, ! misses the target"}
				for _, g := range some[0][0].Scenario.Targets {
					columns = append(columns, g.What)
				}
				if h := strings.Join(columns, "; "); h != heading {
					heading = h
					fmt.Fprintf(&text, "\n%s\n", heading)
				}
				fmt.Fprintf(&text, "%-26s %-24s%s\n", group, library, rideLine(some))
			}
		}
		if len(groups) > 0 {
			text.WriteByte('\n')
		}
	}
	return text.String()
}

// rideLine has the mean and the worst cell of each figure, and before the success its target.
func rideLine(cells []Row) (line string) {
	for i, g := range cells[0][0].Scenario.Targets {
		mean, worst := 0.0, g.over(cells[0])
		for _, row := range cells {
			value := g.over(row)
			mean += value / float64(len(cells))
			if (value < worst) == g.AtLeast {
				worst = value
			}
			other := row[0].Scenario.Targets[i]
			g.NoVerdict = g.NoVerdict || other.NoVerdict || other.Want != g.Want
		}
		want := g.Want
		if g.What == met {
			want += leastCell
		}
		missed, target := " ", ""
		if !g.NoVerdict && (g.AtLeast && mean < want || !g.AtLeast && mean > want) {
			missed = "!"
		}
		if g.What == met {
			target = "     –"
			if !g.NoVerdict {
				target = fmt.Sprintf(" %.3f", want)
			}
		}
		line += fmt.Sprintf("%s %7s %7s%s", target, g.text(mean), g.text(worst), missed)
	}
	return line
}
