package fleet

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/resilienthttp/resilienthttp/benchmarks/internal/report"
	"github.com/resilienthttp/resilienthttp/benchmarks/peers"
)

// Markdown is the section of docs/performance.md: what was measured of all
// libraries, and what this one was to reach. Results come in the order in which
// they are shown.
func Markdown(results []Result) string {
	var rows Rows
	for _, r := range results {
		rows.Add(r)
	}
	var text strings.Builder
	fmt.Fprint(&text, `## A fleet, and a server in trouble

Measured by `+"`go run ./benchmarks/cmd/fleet`"+`, in virtual time: the figures do
not depend on the machine. A Poisson process of 1000 requests per second is dealt to
1000 clients. The server is one FIFO queue of at most 1000 requests before 12
workers of 10 ms, that is 1200 requests per second; a full queue answers 503 at
once, and work goes on when the client has left. The base gives an attempt up after 500 ms, the caller
the call after 30 s. *Shared* means one client for all callers, *own* a thousand
that know nothing of each other. In the tail, the base waits for slow answers: if
it gave up on them, a twentieth of the first attempts and of the second ones would
have to be repeated, which alone makes 1.0526. [Package fleet][fleet] is the model;
how each library is configured is said [below](#how-each-library-behaves) and in
[package peers][peers]. Libraries that can be told the quota are told their share.

[fleet]: ../benchmarks/fleet/doc.go
[peers]: ../benchmarks/peers/peer.go

In the tables, *attempts* is the load on the server per request that was asked
for, over all; *worst second* the same in the worst second of the trouble; *back*
how long after the trouble goodput is at 95 % of what is offered again; *peak* the
busiest second after it, as a multiple of the offered rate. Latencies are those of
requests that succeeded.

`)
	writeTargets(&text, &rows)
	for i := 0; i < len(results); {
		s := results[i].Scenario
		j := i
		for j < len(results) && results[j].Scenario.Name == s.Name {
			j++
		}
		writeScenario(&text, s, results[i:j])
		i = j
	}
	return text.String()
}

func writeTargets(text *strings.Builder, rows *Rows) {
	fmt.Fprint(text, "### What this library was to reach, at the zero value\n\n")
	table := report.NewTextTable("scenario", "clients", "what", "wanted", "measured", "")
	var whys []string
	for _, key := range rows.keys {
		row := rows.results[key]
		r := row[0]
		name := r.Scenario.Name
		if r.Peer.Name != peers.Ours {
			name += ", " + strings.TrimPrefix(r.Peer.Name, peers.Ours+"-")
		}
		for _, t := range rows.Targets(row) {
			want, verdict := t.Want, t.verdict()
			if t.Aim {
				want += ", the aim"
			}
			table.Row(name, string(r.Topology), t.What, want, t.Measured, verdict)
			if !t.Reached && t.Why != "" {
				whys = append(whys, fmt.Sprintf("- %s, %s, %s: %s.\n", name, r.Topology, t.What, t.Why))
			}
		}
	}
	fmt.Fprintln(text, table)
	if len(whys) > 0 {
		fmt.Fprintf(text, "Why what is not reached is not:\n\n%s\n", strings.Join(merged(whys), ""))
	}
}

// merged leaves out the reasons that stand there already.
func merged(whys []string) []string {
	said := map[string]bool{}
	return slices.DeleteFunc(whys, func(line string) bool {
		_, why, _ := strings.Cut(line, ": ")
		defer func() { said[why] = true }()
		return said[why]
	})
}

// verdict is for the last column.
func (t Target) verdict() string {
	switch {
	case t.Reached:
		return "reached"
	case t.Aim:
		return "**below the aim**"
	}
	return "**missed**"
}

func writeScenario(text *strings.Builder, s Scenario, results []Result) {
	fmt.Fprintf(text, "### %s: %s\n\n", strings.ToUpper(s.Name[:1])+s.Name[1:], s.Note)
	trouble := s.Before > 0
	if trouble {
		for _, topology := range []Topology{Shared, Own} {
			fmt.Fprintf(text, "![%s, %s clients: load and goodput over time](fleet-%s-%s.svg)\n\n", s.Name, topology, s.Name, topology)
		}
	}
	if s.Name == "tail" {
		fmt.Fprint(text, "![Tail latency against extra load](fleet-tail.svg)\n\n")
	}
	for _, topology := range []Topology{Shared, Own} {
		heading := []string{string(topology), "attempts", "success", "p50", "p99", "p99.9"}
		switch {
		case trouble:
			heading = append(heading, "worst second", "peak", "back")
		case s.Server.Limit.perSecond() > 0:
			heading = append(heading, "429s", "quota used", "told within 0.1 s")
		default:
			heading = append(heading, "worst second")
		}
		table := report.NewTable(heading...)
		for _, r := range results {
			if r.Topology == topology {
				table.Row(r.cells()...)
			}
		}
		fmt.Fprintln(text, table)
	}
}

// cells are a row of the scenario's table.
func (r Result) cells() []string {
	name := r.Peer.Name
	if name == peers.Ours {
		name = "**" + name + "**"
	}
	cells := []string{name, fmt.Sprintf("%.3f", r.AttemptsPerCall()), fmt.Sprintf("%.4f", r.Success()), brief(r.P50), brief(r.P99), brief(r.P999)}
	switch {
	case r.Scenario.Before > 0:
		back := "never"
		if r.Recovered {
			back = fmt.Sprintf("%.1f s", r.Recovery.Seconds())
		}
		return append(cells, fmt.Sprintf("%.2f", r.WorstDuring), fmt.Sprintf("%.2f", r.PeakAfter), back)
	case r.Scenario.Server.Limit.perSecond() > 0:
		return append(cells, fmt.Sprint(r.TooMany), fmt.Sprintf("%.3f", r.QuotaUsed), fmt.Sprintf("%.3f", r.ToldAtOnce))
	}
	return append(cells, fmt.Sprintf("%.2f", r.WorstSecond))
}

func brief(d time.Duration) string {
	if d >= time.Second {
		return d.Round(10 * time.Millisecond).String()
	}
	return d.Round(100 * time.Microsecond).String()
}
