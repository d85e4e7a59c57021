package fleet

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/resilienthttp/resilienthttp/benchmarks/internal/report"
	"github.com/resilienthttp/resilienthttp/benchmarks/peers"
)

// Markdown is the section of docs/performance.md on the fleet's own scenarios: what
// was measured of all libraries.
func Markdown(rows *Rows) string {
	var text strings.Builder
	fmt.Fprint(&text, `## A fleet, and a server in trouble

Measured by `+"`go run ./benchmarks/cmd/fleet -all -write`"+`, in virtual time: the figures do
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
	for _, s := range classics() {
		var some []Row
		for _, key := range rows.keys {
			if row := rows.results[key]; row[0].Scenario.Name == s.Name {
				some = append(some, row)
			}
		}
		if len(some) > 0 {
			writeScenario(&text, s, some)
		}
	}
	return text.String()
}

func writeTargets(text *strings.Builder, rows *Rows) {
	table := report.NewTextTable("scenario", "clients", "what", "wanted", "measured", "bare", "")
	var whys []string
	for _, key := range rows.keys {
		row := rows.results[key]
		r := row[0]
		name := r.Scenario.title()
		if r.Peer.Name != peers.Ours {
			name += ", " + strings.TrimPrefix(r.Peer.Name, peers.Ours+"-")
		}
		for _, t := range rows.Targets(row) {
			want, verdict := t.Want, t.verdict()
			if t.Aim {
				want += ", the aim"
			}
			table.Row(name, string(r.Topology), t.What, want, t.Measured, t.Bare, verdict)
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

func writeScenario(text *strings.Builder, s Scenario, rows []Row) {
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
		for _, row := range rows {
			if row[0].Topology == topology {
				table.Row(row.cells()...)
			}
		}
		fmt.Fprintln(text, table)
	}
}

// cells are a row of the scenario's table.
func (r Row) cells() []string {
	name, s := r[0].Peer.Name, r[0].Scenario
	if name == peers.Ours {
		name = "**" + name + "**"
	}
	cells := []string{
		name, fmt.Sprintf("%.3f", r.average(Result.AttemptsPerCall)), fmt.Sprintf("%.4f", success(r)),
		brief(r.span(medianLatency)), brief(r.span(p99Latency)), brief(r.span(p999Latency)),
	}
	switch {
	case s.Before > 0:
		return append(cells, fmt.Sprintf("%.2f", r.worst(worstDuring)), fmt.Sprintf("%.2f", r.worst(peakAfter)), r.back())
	case s.Server.Limit.perSecond() > 0:
		return append(cells, fmt.Sprintf("%.0f", r.average(tooMany)), fmt.Sprintf("%.3f", r.average(quotaUsed)), fmt.Sprintf("%.3f", r.average(toldAtOnce)))
	}
	return append(cells, fmt.Sprintf("%.2f", r.worst(worstSecond)))
}

func brief(d time.Duration) string {
	if d >= time.Second {
		return d.Round(10 * time.Millisecond).String()
	}
	return d.Round(100 * time.Microsecond).String()
}
